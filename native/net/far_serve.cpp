// The target's side of a channel: it checks each frame, and carries out those of a lane in their order.
#include <algorithm>

#include "copy/reduction.h"
#include "memory/fault_guard.h"
#include "net/far.h"
#include "stream/scheduler.h"

namespace peerlane::net {

namespace {

constexpr const char* kTooMuch = "it sends more than it may";
constexpr uint32_t kMostLanes = FarChannel::kMostFrames;   // each has a frame under way
constexpr uint64_t kMostKept = FarChannel::kMostBytes + FarChannel::kPart + (uint64_t{64} << 10);

FarWhy far_why(const Refusal& refusal) {
    switch (refusal.why) {
        case Why::out_of_bounds:
            return FarWhy::out_of_bounds;
        case Why::lease_ended:
            return refusal.lease.end == Lease::taken_back ? FarWhy::taken_back : FarWhy::freed;
        case Why::read_only:
            return FarWhy::read_only;
        case Why::notify_doubled:
            return FarWhy::notify_doubled;
        case Why::notifies_full:
            return FarWhy::notifies_full;
        case Why::no_access:
            return FarWhy::not_allowed;
        case Why::closed:
        case Why::forked:
            return FarWhy::freed;
        default:
            return FarWhy::fault;
    }
}

const Reduction& reduction_of_number(uint32_t number) { return reductions()[number / kCombines][number % kCombines]; }

template <class Touch>
FarWhy touched(const Touch& touch) {
    FaultGuard guard;
    return guarded(guard, touch) ? FarWhy::none : FarWhy::fault;
}

}  // namespace

namespace {

// What this thread records is an operation of another machine's event log.
class Named {
  public:
    Named(uint64_t stream, uint64_t sequence) : before_(log::context) { log::context = {.stream = stream, .sequence = sequence}; }
    ~Named() { log::context = before_; }
    Named(const Named&) = delete;

  private:
    const log::Context before_;
};

}  // namespace

// Memory that stays where it is meanwhile.
struct Pinned {
    Range range;

    explicit Pinned(const Range& range = {}) : range(range) {}
    Pinned(const Pinned&) = delete;
    ~Pinned() { end(); }
    void end() { Heap::get().unpin(std::exchange(range, {})); }
};

// Bytes that come into their place, or into memory of their own; or that leave, for a read.
struct Placing final : Completion {
    FarChannelPtr channel;
    uint32_t lane = 0;
    uint64_t sequence = 0;
    Frame frame;
    Pinned pinned;
    uint64_t all = 0;   // bytes of the memory: its grant ends with the channel
    std::unique_ptr<char[]> kept;
    uint64_t size = 0, charged = 0;   // bytes that come, and those of them that count as kept

    ~Placing() {
        if (channel) channel->kept_bytes_ -= charged;
    }
    void done(bool ok) override {
        const std::unique_ptr<Placing> mine(this);
        FarWhy why = ok ? FarWhy::none : FarWhy::lost;
        const bool is_answer = frame.kind == FrameKind::gather;
        if (ok && kept && !is_answer) try {
                why = channel->store_or_withhold(frame, all, std::move(kept), size, pinned.range);
            } catch (const std::bad_alloc&) {
                why = FarWhy::no_room;
            }
        pinned.end();   // before its acknowledgement
        channel->finish(lane, sequence, why);
    }
};

void FarChannel::take(const Frame& frame, const Arrival& arrival) {
    if (frame.acked_lane != 0 && !take_acked(frame.acked_lane - 1, frame.acked)) return FarNode::refuse(arrival);
    switch (frame.kind) {
        case FrameKind::ack:
            return take_ack(frame, arrival);
        case FrameKind::data:
            return take_data(frame, arrival);
        case FrameKind::open:
            return take_opening(frame, arrival);
        case FrameKind::closed:
            FarNode::refuse(arrival);
            peer_closed_ = true;
            if (withheld_) withheld_->deliver_all();
            if (frame.detail != 0) return lose("its process has given the channel up: it lacks memory, or was sent what is not valid");
            lose_lines();
            return send_closed_if_over();
        default:
            break;
    }
    if (frame.lane >= kMostLanes || frame.sequence == 0) {
        FarNode::refuse(arrival);
        return broken("a frame is in no lane");
    }
    if (frame.lane >= in_.size()) in_.resize(frame.lane + 1);
    InLane& lane = in_[frame.lane];
    if (frame.sequence < lane.next || frame.sequence - lane.next >= kMostFrames || lane.early.contains(frame.sequence)) {
        FarNode::refuse(arrival);
        return broken("a frame comes twice, or too early");
    }
    if (unfinished_ >= kMostFrames) {
        FarNode::refuse(arrival);
        return broken(kTooMuch);
    }
    if (frame.sequence == lane.next && is_open_ && may_start(lane, frame)) {
        ++lane.next;
        start(frame.lane, frame, static_cast<const char*>(arrival.data), arrival.size, arrival.parcel);
        return advance(frame.lane);
    }
    if (!keep(frame, arrival)) {
        FarNode::refuse(arrival);
        return broken(kTooMuch);
    }
}

bool FarChannel::keep(const Frame& frame, const Arrival& arrival) {
    const uint64_t bytes = arrival.data ? arrival.size : 0;
    if (kept_bytes_ + bytes > kMostKept) return false;
    Early early{.frame = frame, .size = arrival.size, .parcel = arrival.parcel};
    if (bytes != 0) {
        early.bytes = std::make_unique_for_overwrite<char[]>(bytes);
        memcpy(early.bytes.get(), arrival.data, bytes);
    }
    in_[frame.lane].early.emplace(frame.sequence, std::move(early));
    ++unfinished_;
    kept_bytes_ += bytes;
    return true;
}

// What came and cannot be started any more: UCX keeps a parcel until it is fetched or refused.
void FarChannel::drop_early() {
    for (InLane& lane : in_) {
        unfinished_ -= lane.early.size();
        for (const auto& [sequence, early] : std::exchange(lane.early, {})) {
            if (early.bytes) kept_bytes_ -= early.size;
            if (early.parcel) Engine::get()->refuse(early.parcel);
        }
    }
}

// Start what has come and may be started.  What that ends may let others start: they are looked at here, one by one.
void FarChannel::advance(uint32_t number) {
    if (in_[number].early.empty() || std::exchange(in_[number].is_advancing, true)) return;
    while (true) {
        InLane& lane = in_[number];
        const auto entry = lane.early.find(lane.next);
        if (entry == lane.early.end() || !is_open_ || !may_start(lane, entry->second.frame)) break;
        const Early early = std::move(entry->second);
        lane.early.erase(entry);
        --unfinished_;
        if (early.bytes) kept_bytes_ -= early.size;
        ++lane.next;
        start(number, early.frame, early.bytes.get(), early.size, early.parcel);
    }
    in_[number].is_advancing = false;
}

// Nothing that runs in the lane uses the same bytes.
bool FarChannel::may_start(const InLane& lane, const Frame& frame) const {
    if (lane.running.empty() || frame.kind == FrameKind::notify) return true;
    if (frame.kind == FrameKind::scatter || frame.kind == FrameKind::gather) return false;   // its place is not one range
    return std::none_of(lane.running.begin(), lane.running.end(), [&](const Running& each) {
        if (each.over || each.size == 0) return false;
        return each.memory == frame.memory && (each.is_whole || (frame.at < each.at + each.size && each.at < frame.at + frame.size));
    });
}

void FarChannel::start(uint32_t number, const Frame& frame, const char* bytes, uint64_t size, void* parcel) {
    const bool in_blocks = frame.kind == FrameKind::scatter || frame.kind == FrameKind::gather;
    Running running{.sequence = frame.sequence, .epoch = frame.epoch, .notify = frame.notify, .memory = frame.memory,
                    .goes_on = (frame.flags & Frame::kGoesOn) != 0, .is_whole = in_blocks, .at = frame.at, .size = frame.size,
                    .logged_stream = 0, .logged_sequence = 0};
    if (frame.kind == FrameKind::notify) std::swap(running.logged_stream, running.at), std::swap(running.logged_sequence, running.size);
    in_[number].running.push_back(running);
    ++unfinished_;
    FarWhy why = FarWhy::cancelled;
    const bool is_cancelled = in_[number].refused != 0 && in_[number].epoch == frame.epoch && !running.goes_on;
    bool goes_on = false;
    if (!is_cancelled) try {
            why = start_checked(number, frame, bytes, size, parcel, goes_on);
        } catch (const Refusal& refusal) {
            why = far_why(refusal);
        } catch (const std::bad_alloc&) {
            why = FarWhy::no_room;
        }
    if (parcel) Engine::get()->refuse(parcel);   // nobody has fetched it
    if (!goes_on) end(number, frame.sequence, why);
}

// `parcel` is null once it is fetched; `goes_on`: finish() is called later.
FarWhy FarChannel::start_checked(uint32_t number, const Frame& frame, const char* bytes, uint64_t size, void*& parcel, bool& goes_on) {
    if (frame.notify > lines_.size()) return FarWhy::no_such_notify;
    if (frame.kind == FrameKind::notify) return size == 0 ? FarWhy::none : FarWhy::out_of_bounds;
    const bool reads = frame.kind == FrameKind::read || frame.kind == FrameKind::gather;
    const bool in_blocks = frame.kind == FrameKind::scatter || frame.kind == FrameKind::gather;
    const uint64_t entries = in_blocks ? uint64_t{frame.detail} * sizeof(FarEntry) : 0;
    if (frame.memory >= grants_.size()) return FarWhy::no_such_memory;
    const Memory& memory = grants_[frame.memory];
    // What comes is as long as what it says of itself.
    if (frame.size > kLargest || size != (reads ? entries : entries + frame.size)) return FarWhy::out_of_bounds;
    if (in_blocks && (size > kPart + sizeof(FarEntry) + kPart || frame.size > 2 * kPart)) return FarWhy::out_of_bounds;
    if (!in_blocks && (frame.at > memory.size() || frame.size > memory.size() - frame.at)) return FarWhy::out_of_bounds;
    if (frame.kind == FrameKind::reduce) {
        if (frame.detail >= kElements * kCombines || frame.size > kPart) return FarWhy::out_of_bounds;
        if (frame.size % reduction_of_number(frame.detail).width != 0) return FarWhy::out_of_bounds;
    }
    if (frame.size == 0 && !reads) return FarWhy::none;
    Pinned pinned{reads ? memory.pin() : memory.pin_writable()};
    Heap::get().check_access(reads ? Range{} : pinned.range, reads ? pinned.range : Range{}, kHost);
    Heap::get().check_leases(pinned.range, {});
    char* const target = pinned.range.host;
    const auto hand_over = [&] {
        auto placing = std::make_unique<Placing>();
        placing->channel = shared_from_this();
        placing->all = memory.size();
        placing->lane = number;
        placing->sequence = frame.sequence;
        placing->frame = frame;
        placing->pinned.range = std::exchange(pinned.range, {});
        return placing;
    };
    if (withheld_ && reads) withheld_->deliver_all();   // a read comes after the writes of its stream
    if (withheld_ && !reads && !parcel) {
        auto kept = std::make_unique_for_overwrite<char[]>(size);
        memcpy(kept.get(), bytes, size);
        return store_or_withhold(frame, memory.size(), std::move(kept), size, pinned.range);
    }
    if (!parcel) {
        const FarWhy why = may_combine(frame, memory.size(), bytes, target);
        if (why != FarWhy::none) return why;
        switch (frame.kind) {
            case FrameKind::write:
                return write_into(frame, bytes, target) ? FarWhy::none : FarWhy::fault;
            case FrameKind::reduce:
                return reduce_into(frame, bytes, target) ? FarWhy::none : FarWhy::fault;
            case FrameKind::scatter:
                return scatter_into(frame, bytes, target) ? FarWhy::none : FarWhy::fault;
            case FrameKind::read:
                answer(frame, target + frame.at, frame.size, hand_over());
                break;
            default: {
                auto placing = hand_over();
                if (!keeps(*placing, frame.size)) return FarWhy::no_room;
                const FarWhy why = gather(frame, placing->all, bytes, target, placing->kept.get());
                if (why != FarWhy::none) return why;
                const char* const gathered = placing->kept.get();
                answer(frame, gathered, frame.size, std::move(placing));
            }
        }
        goes_on = true;
        return FarWhy::none;
    }
    if (reads) return FarWhy::out_of_bounds;
    auto placing = hand_over();
    if (frame.kind != FrameKind::write && !keeps(*placing, size)) return FarWhy::no_room;
    if (frame.kind == FrameKind::write && withheld_) placing->kept = std::make_unique_for_overwrite<char[]>(size);
    placing->size = size;
    void* const to = placing->kept ? placing->kept.get() : target + frame.at;
    goes_on = true;
    Engine::get()->fetch(std::exchange(parcel, nullptr), to, size, placing.release());
    return FarWhy::none;
}

// Memory for bytes on their way; a sender that keeps to its credit always gets it.
bool FarChannel::keeps(Placing& placing, uint64_t size) {
    if (kept_bytes_ + size > kMostKept) return false;
    placing.kept = std::make_unique_for_overwrite<char[]>(size);
    placing.charged = size;
    kept_bytes_ += size;
    return true;
}

// The bytes of a read; the memory is held until they have left.
void FarChannel::answer(const Frame& asked, const char* from, uint64_t size, std::unique_ptr<Placing> placing) {
    Frame frame = {.kind = FrameKind::data};
    frame.lane = asked.lane;
    frame.sequence = asked.sequence;
    send(frame, from, size, placing.release());
}

// What came whole, into its place or aside.
FarWhy FarChannel::store_or_withhold(const Frame& frame, uint64_t all, std::unique_ptr<char[]> bytes, uint64_t size, Range& range) const {
    const FarWhy why = may_combine(frame, all, bytes.get(), range.host);
    if (why != FarWhy::none) return why;
    if (withheld_) {
        withheld_->stage(frame, range, std::move(bytes), size);
        range.extent = nullptr;
        return FarWhy::none;
    }
    const auto into = frame.kind == FrameKind::reduce ? reduce_into : scatter_into;
    return into(frame, bytes.get(), range.host) ? FarWhy::none : FarWhy::fault;
}

FarWhy FarChannel::may_combine(const Frame& frame, uint64_t all, const char* bytes, const char* base) {
    if (frame.kind == FrameKind::scatter) return are_inside(frame, all, bytes) ? FarWhy::none : FarWhy::out_of_bounds;
    const bool is_aligned =
        frame.kind != FrameKind::reduce || (reinterpret_cast<uint64_t>(base) + frame.at) % reduction_of_number(frame.detail).width == 0;
    return is_aligned ? FarWhy::none : FarWhy::out_of_bounds;
}

// All entries are checked before the first byte is touched.
bool FarChannel::are_inside(const Frame& frame, uint64_t all, const char* entries) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < frame.detail; ++i) {
        FarEntry entry;
        memcpy(&entry, entries + i * sizeof entry, sizeof entry);
        if (entry.at > all || entry.size > all - entry.at) return false;
        sum += entry.size;   // each is at most kLargest, and they are few
        if (sum > frame.size) return false;
    }
    return sum == frame.size;
}

FarWhy FarChannel::gather(const Frame& frame, uint64_t all, const char* entries, const char* base, char* into) {
    if (!are_inside(frame, all, entries)) return FarWhy::out_of_bounds;
    return touched([&] {
        char* to = into;
        for (uint32_t i = 0; i < frame.detail; ++i) {
            FarEntry entry;
            memcpy(&entry, entries + i * sizeof entry, sizeof entry);
            memcpy(to, base + entry.at, entry.size);
            to += entry.size;
        }
    });
}

void FarChannel::finish(uint32_t number, uint64_t sequence, FarWhy why) {
    end(number, sequence, why);
    advance(number);
}

// Frames of a lane are over in their order, whatever came first.
void FarChannel::end(uint32_t number, uint64_t sequence, FarWhy why) {
    {
        auto& running = in_[number].running;
        if (running.empty() || sequence < running.front().sequence || sequence - running.front().sequence >= running.size()) return;
        Running& mine = running[sequence - running.front().sequence];
        mine.over = true;
        mine.why = why;
    }
    InLane& lane = in_[number];
    while (!lane.running.empty() && lane.running.front().over) {
        Running mine = lane.running.front();
        lane.running.pop_front();
        --unfinished_;
        lane.finished = mine.sequence;
        if (mine.epoch != lane.epoch) lane.refused = 0;   // the sender knows of it
        const bool is_cancelled = lane.refused != 0 && lane.epoch == mine.epoch && !mine.goes_on;
        if (mine.why == FarWhy::none && mine.notify != 0 && !is_cancelled) mine.why = record(mine);
        if (mine.why == FarWhy::none || is_cancelled) continue;
        lane.refused = mine.sequence;
        lane.epoch = mine.epoch;
        lane.why = mine.why;
        lane.notify = mine.notify == 0 ? 0 : mine.notify - 1;
    }
    owe_ack(number);
}

FarWhy FarChannel::record(const Running& by) {
    const Named named(by.logged_stream, by.logged_sequence);
    if (withheld_) withheld_->record(by.notify - 1);   // before it can be consumed
    try {
        Scheduler::get().notify_recorded(*lines_[by.notify - 1]);
        return FarWhy::none;
    } catch (const Refusal& refusal) {
        if (withheld_) withheld_->unmade(by.notify - 1);
        return far_why(refusal);
    }
}

void FarChannel::owe_ack(uint32_t number) {
    if (!std::exchange(in_[number].owes_ack, true)) owing_.push_back(number);
    FarNode::get().owe_acks(*this);
}

// What was carried out and not acknowledged on the way.
void FarChannel::send_acks() {
    struct AckMessage final : Completion {
        std::unique_ptr<Acknowledged[]> acks;
        void done(bool) override { delete this; }
    };
    if (!is_open_ || owing_.empty()) return;
    const auto count = static_cast<uint32_t>(std::min<size_t>(owing_.size(), kMostFrames));
    if (count == 1 && in_[owing_.back()].refused == 0) return send({.kind = FrameKind::ack}, nullptr, 0, nullptr);
    auto message = std::make_unique<AckMessage>();
    message->acks = std::make_unique<Acknowledged[]>(count);
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t number = owing_.back();
        owing_.pop_back();
        InLane& lane = in_[number];
        lane.owes_ack = false;
        message->acks[i] = {number, lane.epoch, lane.finished, lane.refused, lane.why, lane.notify};
    }
    Frame frame = {.kind = FrameKind::ack};
    frame.detail = count;
    const Acknowledged* const acks = message->acks.get();
    send(frame, acks, count * sizeof *acks, message.release());
}

void FarChannel::lose_lines() {
    for (Notify* line : lines_) Scheduler::get().forsake(*line, id_);
}

// Tell the peer, if it is there, that nobody answers what it has sent or will send.
void FarChannel::report_lost() const {
    if (!peer_ || peer_->lost) return;
    const Frame frame{.kind = FrameKind::closed, .channel = peer_number_, .secret = peer_secret_, .detail = 1};
    Engine::get()->send(*peer_->peer, &frame, sizeof frame, nullptr, 0, nullptr);
}

void FarChannel::lose(const char* why) {
    if (lost_.load(std::memory_order_relaxed)) return;
    report_lost();
    {
        std::lock_guard lock(mutex_);
        or_lose([&] { why_lost_ = why; });
    }
    drop_early();
    fail_all(FarWhy::lost);
    lose_lines();
}

void FarChannel::broken(const char* why) {
    FarNode::get().count_refused();
    lose(why);
}

}  // namespace peerlane::net

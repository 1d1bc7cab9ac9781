// The sender's side of a channel: which frames are under way, and what the acknowledgements say of them.
#include <algorithm>
#include <random>

#include "memory/fault_guard.h"
#include "net/far.h"
#include "stream/scheduler.h"

namespace peerlane::net {

namespace {

constexpr const char* kNotSent = "it acknowledges what was not sent";

Refusal far_refusal(const FarOp& op, uint32_t peer, FarWhy why, uint32_t notify) {
    const char* const role = op.verb == FarOp::Verb::notify ? "" : op.verb == FarOp::Verb::read ? "src" : "dst";
    return {.why = Why::far, .role = role, .address = op.at, .size = op.size,
            .far = {.peer = peer, .why = static_cast<uint32_t>(why), .memory = op.memory, .notify = notify}};
}

FrameKind kind_of(const FarOp& op, bool in_blocks) {
    switch (op.verb) {
        case FarOp::Verb::write:
            return in_blocks ? FrameKind::scatter : FrameKind::write;
        case FarOp::Verb::reduce:
            return FrameKind::reduce;
        case FarOp::Verb::read:
            return in_blocks ? FrameKind::gather : FrameKind::read;
        default:
            return FrameKind::notify;
    }
}

}  // namespace

uint64_t random_number() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

// A frame on its way.
struct Sending final : Work, Completion {
    FarChannelPtr channel;
    FarOpPtr op;               // keeps the bytes
    Frame frame;
    FarOp::Part part;
    std::unique_ptr<char[]> packed;

    void run() override;
    void done(bool) override { delete this; }   // the peer's end shows a loss, an acknowledgement a refusal
};

void Sending::run() {
    const bool sends_bytes = op->verb == FarOp::Verb::write || op->verb == FarOp::Verb::reduce;
    if (frame.kind == FrameKind::scatter || frame.kind == FrameKind::gather) {
        const uint64_t size = frame.detail * sizeof(FarEntry) + (sends_bytes ? frame.size : 0);
        packed.reset(new (std::nothrow) char[size]);
        if (!packed) {
            const std::unique_ptr<Sending> mine(this);
            return channel->give_up();
        }
        op->pack(part, packed.get(), sends_bytes);
        channel->send(frame, packed.get(), size, this);
    } else {
        const char* const from = part.blocks != 0 ? op->blocks[part.first_block].local : op->local + part.offset;
        channel->send(frame, from, sends_bytes ? frame.size : 0, this);
    }
}

void FarOp::pack(const Part& part, char* to, bool with_bytes) const {
    const uint64_t end = part.first_block + part.blocks;
    for (uint64_t i = part.first_block; i < end; ++i, to += sizeof(FarEntry)) {
        const FarEntry entry{blocks[i].remote, blocks[i].size};
        memcpy(to, &entry, sizeof entry);
    }
    for (uint64_t i = part.first_block; with_bytes && i < end; to += blocks[i++].size) memcpy(to, blocks[i].local, blocks[i].size);
}

FarOp::~FarOp() {
    for (const Range& range : pins) Heap::get().unpin(range);
    if (keep) FarNode::get().give_back(keep);
}

// As many blocks as a part may have, or a block that is longer than a part alone.
FarOp::Part FarOp::next_part() const {
    if (blocks.empty()) {
        const uint64_t most = FarChannel::kPart - FarChannel::kPart % width;
        return {.offset = next_, .size = std::min(most, size - next_)};
    }
    Part part{.first_block = next_};
    for (uint64_t i = next_; i < blocks.size(); ++i) {
        const uint64_t more = blocks[i].size + sizeof(FarEntry);
        if (part.blocks != 0 && part.size + more > FarChannel::kPart) break;
        ++part.blocks;
        part.size += more;
    }
    return part;
}

FarChannel::FarChannel(std::vector<Memory> grants, std::vector<Notify*> lines, bool withholds, std::shared_ptr<const Members> members,
                       uint32_t peer)
    : number_([] {
          static std::atomic<uint64_t> next{1};
          return next.fetch_add(1, std::memory_order_relaxed);
      }()),
      secret_(random_number()), members_(std::move(members)), rank_(peer), grants_(std::move(grants)), lines_(std::move(lines)),
      withheld_(withholds ? std::make_shared<Withheld>(lines_.size(), !lines_.empty() && lines_[0]->kind == NotifyKind::queued) : nullptr) {
    for (Notify*& line : lines_) {
        line->hold();
        line->is_far = true;
        line->far_bank = bank_of(FarNode::get().process(), number_);
        line->far_line = static_cast<uint64_t>(&line - lines_.data());
        line->far_arrivals = withheld_;
        line->members = members_;
        Scheduler::get().promise(*line);
    }
}

FarChannel::~FarChannel() {
    for (Notify* line : lines_) line->drop();
}

// The lane in which the operations of its stream, or the other parts of it, are under way; or one that is not used.
uint32_t FarChannel::lane_for(const FarOp& op) {
    if (op.stream) {
        if (const auto lane = lane_of_.find(op.stream->id); lane != lane_of_.end()) return lane->second;
    } else if (op.begun_ && !is_settled(op)) {
        return op.lane_;
    }
    if (free_lanes_.empty()) {
        free_lanes_.reserve(out_.size() + 1);   // giving one back must not fail
        out_.emplace_back();
        free_lanes_.push_back(static_cast<uint32_t>(out_.size() - 1));
    }
    const uint32_t lane = free_lanes_.back();
    if (op.stream) lane_of_.emplace(op.stream->id, lane);
    free_lanes_.pop_back();
    out_[lane].stream = op.stream ? op.stream->id : 0;
    return lane;
}

bool FarChannel::post(FarOp& op) {
    const std::lock_guard lock(mutex_);
    try {
        while (!op.posted_) {
            if (lost_.load(std::memory_order_relaxed)) fail(op, FarWhy::lost, 0);
            if (op.failure_) {   // no more of its parts
                op.posted_ = true;
                if (!op.begun_ || is_settled(op)) op.over_.store(true, std::memory_order_release);   // who posts looks
                break;
            }
            if (post_part(op)) continue;
            if (!op.stream)
                waiting_alone_.push_back(op.shared_from_this());
            else if (std::find(waiting_.begin(), waiting_.end(), op.stream) == waiting_.end())
                waiting_.push_back(op.stream);
            return false;
        }
    } catch (const std::bad_alloc&) {
        fail(op, FarWhy::no_room, 0);
        op.posted_ = true;
        if (!op.begun_ || is_settled(op)) op.over_.store(true, std::memory_order_release);
    }
    return true;
}

// All its frames so far are over.
bool FarChannel::is_settled(const FarOp& op) const {
    const auto& sent = out_[op.lane_].sent;
    return sent.empty() || sent.front().sequence > op.last_;
}

void FarChannel::fail(FarOp& op, FarWhy why, uint32_t notify) {
    if (!op.failure_) op.failure_ = far_refusal(op, id_, why, notify);
}

// False: there is not room enough now.
bool FarChannel::post_part(FarOp& op) {
    const FarOp::Part part = op.next_part();
    const bool in_blocks = part.blocks > 1 || (part.blocks == 1 && op.blocks[part.first_block].size < kPart);
    const uint64_t entries = in_blocks ? part.blocks * sizeof(FarEntry) : 0;
    // What is fetched into its place costs the target nothing, but what comes behind it waits until it has passed.
    const bool is_placed = !in_blocks && op.verb != FarOp::Verb::reduce && part.size >= Engine::kFetchedFrom;
    uint64_t& account = is_placed ? placed_out_ : bytes_out_;
    const uint64_t charged = part.size;
    if (frames_out_ >= kMostFrames || (account != 0 && account + charged > (is_placed ? kMostPlaced : kMostBytes))) return false;

    auto sending = std::make_unique<Sending>();
    const uint32_t lane = lane_for(op);
    OutLane& out = out_[lane];
    const bool is_last = op.blocks.empty() ? op.next_ + part.size >= op.size : part.first_block + part.blocks >= op.blocks.size();
    Frame& frame = sending->frame = {.kind = kind_of(op, in_blocks)};
    frame.flags = op.goes_on ? Frame::kGoesOn : 0;
    frame.sequence = out.next;
    frame.lane = lane;
    frame.epoch = out.epoch;
    frame.memory = op.memory;
    frame.notify = is_last ? op.notify : 0;
    frame.detail = in_blocks ? static_cast<uint32_t>(part.blocks) : op.verb == FarOp::Verb::reduce ? op.reduction : 0;
    frame.size = in_blocks ? part.size - entries : part.blocks == 1 ? op.blocks[part.first_block].size : part.size;
    if (!in_blocks) frame.at = part.blocks == 1 ? op.blocks[part.first_block].remote : op.at + part.offset;
    if (op.verb == FarOp::Verb::notify) frame.at = op.logged_stream, frame.size = op.logged_sequence;
    sending->part = part;
    const bool reads = op.verb == FarOp::Verb::read;
    out.sent.push_back({.sequence = out.next, .op = op.shared_from_this(), .epoch = out.epoch, .charged = charged,
                        .part = part, .is_placed = is_placed, .asked = reads, .has_arrived = !reads});
    // Nothing fails from here on.
    sending->channel = shared_from_this();
    sending->op = op.shared_from_this();
    op.begun_ = true;
    op.lane_ = lane;
    op.last_ = out.next++;
    op.next_ = op.blocks.empty() ? op.next_ + part.size : part.first_block + part.blocks;
    op.posted_ = is_last;
    ++frames_out_;
    account += charged;
    Engine::get()->post(*sending.release());   // under the lock: frames of a lane go in their order
    return true;
}

// Frames that are acknowledged leave a lane in their order; a read when its bytes are here, too.
void FarChannel::settle(uint32_t number, std::vector<FarOpPtr>& over) {
    OutLane& lane = out_[number];
    if (lane.sent.empty()) return;
    while (!lane.sent.empty()) {
        Sent& sent = lane.sent.front();
        if (sent.sequence > lane.acked) break;
        FarWhy why = FarWhy::none;
        if (sent.epoch == lane.refused_epoch && sent.sequence >= lane.refused)
            why = sent.sequence == lane.refused ? lane.why : sent.op->goes_on ? FarWhy::none : FarWhy::cancelled;
        if (why == FarWhy::none && !sent.has_arrived) break;
        const FarOpPtr op = std::move(sent.op);
        if (why != FarWhy::none) fail(*op, why, lane.notify);
        if (op->posted_ && sent.sequence == op->last_) over.push_back(op);
        --frames_out_;
        (sent.is_placed ? placed_out_ : bytes_out_) -= sent.charged;
        lane.sent.pop_front();
    }
    if (!lane.sent.empty()) return;
    if (lane.stream != 0) lane_of_.erase(lane.stream);
    free_lanes_.push_back(number);
}

// Completes operations without the lock, once nobody can see them as under way.
void FarChannel::complete(std::unique_lock<std::mutex>& lock, const std::vector<FarOpPtr>& over) {
    std::vector<StreamPtr> waiting;
    std::vector<FarOpPtr> waiting_alone;
    waiting.swap(waiting_);
    waiting_alone.swap(waiting_alone_);
    const bool may_send_closed = closing_ && (!sent_closed_ || lost_.load(std::memory_order_relaxed));
    lock.unlock();
    bool wakes = false;
    for (const FarOpPtr& op : over) {
        const StreamPtr stream = op->stream;
        op->over_.store(true, std::memory_order_seq_cst);
        if (stream)
            Scheduler::get().far_moved(*stream);
        else
            wakes = true;
    }
    for (const FarOpPtr& op : waiting_alone) {
        post(*op);
        wakes |= op->is_over();
    }
    for (const StreamPtr& stream : waiting) Scheduler::get().far_moved(*stream);
    if (wakes) FarNode::get().wake();
    if (may_send_closed) send_closed_if_over();
}

// One lane, by the way; false: it was never sent.
bool FarChannel::take_acked(uint32_t number, uint64_t sequence) {
    std::vector<FarOpPtr> over;
    std::unique_lock lock(mutex_);
    if (number >= out_.size() || sequence >= out_[number].next) {
        lock.unlock();
        broken(kNotSent);
        return false;
    }
    out_[number].acked = std::max(out_[number].acked, sequence);
    settle(number, over);
    complete(lock, over);
    return true;
}

// What cannot be sent for want of memory ends the channel's operations: the target would wait for it for ever.
void FarChannel::give_up() { lose("this process has no memory for a frame"); }

void FarChannel::take_ack(const Frame& frame, const Arrival& arrival) {
    const uint64_t bytes = uint64_t{frame.detail} * sizeof(Acknowledged);
    if (arrival.parcel || arrival.size != bytes) {
        FarNode::refuse(arrival);
        return broken("an acknowledgement has another size than it says");
    }
    std::vector<FarOpPtr> over;
    bool is_true = true;
    std::unique_lock lock(mutex_);
    for (uint32_t i = 0; i < frame.detail && is_true; ++i) {
        Acknowledged ack;
        memcpy(&ack, static_cast<const char*>(arrival.data) + i * sizeof ack, sizeof ack);
        is_true = ack.lane < out_.size() && ack.why <= FarWhy::last && ack.sequence < out_[ack.lane].next &&
                  ack.refused <= ack.sequence;
        if (!is_true) break;
        OutLane& lane = out_[ack.lane];
        lane.acked = std::max(lane.acked, ack.sequence);
        if (ack.refused != 0 && ack.epoch == lane.epoch && !lane.sent.empty()) {
            lane.refused = ack.refused;
            lane.refused_epoch = lane.epoch++;   // what is posted from now on counts again
            lane.why = ack.why;
            lane.notify = ack.notify;
        }
        settle(ack.lane, over);
    }
    complete(lock, over);
    if (!is_true) broken(kNotSent);
}

std::string FarChannel::why_lost() {
    std::lock_guard lock(mutex_);
    return why_lost_;
}

void FarChannel::fail_all(FarWhy why) {
    std::vector<FarOpPtr> over;
    std::unique_lock lock(mutex_);
    lost_.store(true, std::memory_order_release);
    for (OutLane& lane : out_) {
        for (const Sent& sent : lane.sent) {
            fail(*sent.op, why, 0);
            if (sent.sequence != sent.op->last_) continue;
            sent.op->posted_ = true;
            over.push_back(sent.op);
        }
        lane.sent.clear();
    }
    frames_out_ = bytes_out_ = placed_out_ = 0;
    complete(lock, over);
}

void FarChannel::close() {
    {
        std::lock_guard lock(mutex_);
        if (std::exchange(closing_, true)) return;
    }
    if (withheld_) withheld_->deliver_all();
    struct Closing final : Work {
        FarChannelPtr channel;
        void run() override {
            // What never met its other end stays, so that it can tell that one when it comes.
            channel->send_closed_if_over();
            delete this;
        }
    };
    Engine* const engine = Engine::get();
    if (!engine) return;
    auto* const work = new Closing;
    work->channel = shared_from_this();
    engine->submit(*work);
}

void FarChannel::send_closed_if_over() {
    const bool is_lost = lost_.load(std::memory_order_relaxed);
    bool was_sent;
    {
        std::lock_guard lock(mutex_);
        if (!closing_ || frames_out_ != 0 || !(is_open_ || is_lost)) return;
        was_sent = std::exchange(sent_closed_, true);
    }
    if (!was_sent && !is_lost) send({.kind = FrameKind::closed}, nullptr, 0, nullptr);
    if (peer_closed_ || is_lost) FarNode::get().erase(*this);
}

void FarChannel::send(const Frame& frame, const void* data, uint64_t size, Completion* completion) {
    if (lost_.load(std::memory_order_relaxed) || !peer_) {
        if (completion) completion->done(false);
        return;
    }
    Frame full = frame;
    full.channel = peer_number_;
    full.secret = peer_secret_;
    // One lane is acknowledged on the way, if there is nothing to say but how far it is.
    if (full.acked_lane == 0 && !owing_.empty() && in_[owing_.back()].refused == 0) {
        const uint32_t lane = owing_.back();
        owing_.pop_back();
        in_[lane].owes_ack = false;
        full.acked_lane = lane + 1;
        full.acked = in_[lane].finished;
    }
    peer_->sent_ns = now_ns();
    Engine::get()->send(*peer_->peer, &full, sizeof full, data, size, completion);
}

// The bytes of a read come: into their place, when they are all there.
struct Getting final : Completion {
    FarChannelPtr channel;
    FarOpPtr op;
    uint32_t lane;
    uint64_t sequence;
    std::unique_ptr<char[]> packed;   // of blocks
    FarOp::Part part;

    void done(bool ok) override {
        const std::unique_ptr<Getting> mine(this);
        if (!ok) return;   // the loss of the peer ends it
        if (packed) op->take_blocks(part, packed.get());
        channel->take_read(lane, sequence);
    }
};

void FarOp::take_blocks(const Part& part, const char* from) const {
    for (uint64_t i = part.first_block; i < part.first_block + part.blocks; from += blocks[i++].size)
        memcpy(blocks[i].local, from, blocks[i].size);
}

void FarChannel::take_read(uint32_t lane, uint64_t sequence) {
    std::vector<FarOpPtr> over;
    std::unique_lock lock(mutex_);
    auto& sent = out_[lane].sent;
    if (sent.empty() || sequence < sent.front().sequence) return;
    sent[sequence - sent.front().sequence].has_arrived = true;
    settle(lane, over);
    complete(lock, over);
}

void FarChannel::take_data(const Frame& frame, const Arrival& arrival) {
    auto getting = std::make_unique<Getting>();
    uint64_t expected = 0;
    {
        std::lock_guard lock(mutex_);
        if (frame.lane >= out_.size()) return FarNode::refuse(arrival);
        auto& sent = out_[frame.lane].sent;
        if (sent.empty() || frame.sequence < sent.front().sequence || frame.sequence - sent.front().sequence >= sent.size())
            return FarNode::refuse(arrival);   // it was given up meanwhile
        Sent& of = sent[frame.sequence - sent.front().sequence];
        if (!of.asked) return FarNode::refuse(arrival);
        of.asked = false;
        getting->op = of.op;
        getting->part = of.part;
    }
    FarOp& op = *getting->op;
    const FarOp::Part& part = getting->part;
    for (uint64_t i = part.first_block; i < part.first_block + part.blocks; ++i) expected += op.blocks[i].size;
    if (part.blocks == 0) expected = part.size;
    if (arrival.size != expected) {
        FarNode::refuse(arrival);
        return broken("an answer has another size than was asked for");
    }
    char* const to = part.blocks == 0 ? op.local + part.offset : part.blocks == 1 ? op.blocks[part.first_block].local : nullptr;
    getting->channel = shared_from_this();
    getting->lane = frame.lane;
    getting->sequence = frame.sequence;
    if (arrival.parcel) {
        if (!to) getting->packed = std::make_unique_for_overwrite<char[]>(expected);
        void* const into = to ? to : getting->packed.get();
        Engine::get()->fetch(arrival.parcel, into, expected, getting.release());
        return;
    }
    if (to)
        memcpy(to, arrival.data, expected);
    else
        op.take_blocks(part, static_cast<const char*>(arrival.data));
    take_read(frame.lane, frame.sequence);
}

}  // namespace peerlane::net

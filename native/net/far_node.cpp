// All channels to other machines: who a message is for, which processes are still there, and who waits.
#include "net/far.h"
#include "stream/scheduler.h"

namespace peerlane::net {

namespace {
constexpr uint64_t kPingsInSilence = 4;
constexpr auto kFarSpin = std::chrono::microseconds(200);
constexpr auto kFarPoll = std::chrono::milliseconds(100);
constexpr uint64_t kLongestAddress = 8192;
}  // namespace

FarNode& FarNode::get() {
    static auto* const node = new FarNode;   // as long as the process
    return *node;
}

Engine& FarNode::start(const Options& options) {
    Engine& engine = Engine::start(options, get());
    far_task.store(
        [](FarTask task) {
            Engine* const one = Engine::get();
            if (!one) return;
            if (task == FarTask::help) one->help();
            if (task == FarTask::rest) one->rest();
            if (task == FarTask::send) one->kick();
        },
        std::memory_order_release);
    return engine;
}

void FarNode::enter(const FarChannelPtr& channel) {
    std::lock_guard lock(mutex_);
    channels_.emplace(channel->number_, channel);
}

FarNode::FarNode() : process_(random_number()) {}

FarPeer& FarNode::peer_at(const std::string& address, uint64_t process) {
    auto& peer = peers_[address];
    if (peer) return *peer;
    auto created = std::make_unique<FarPeer>();
    try {
        created->peer = &Engine::get()->connect(address);
    } catch (...) {
        peers_.erase(address);
        throw;
    }
    created->address = address;
    created->process = process;
    created->heard_ns = created->sent_ns = now_ns();
    peer = std::move(created);
    return *peer;
}

void FarNode::erase(FarChannel& channel) {
    FarPeer* const peer = std::exchange(channel.peer_, nullptr);
    {
        std::lock_guard lock(mutex_);
        channels_.erase(channel.number_);
    }
    channel.drop_early();
    channel.grants_.clear();
    if (!peer) return;
    std::erase(peer->channels, &channel);
    drop_if_lost(*peer);
}

// A connection is kept as long as both processes live: the other end could not tell its end from the end of this process.
void FarNode::drop_if_lost(FarPeer& peer) {
    if (!peer.lost || !peer.channels.empty()) return;
    Engine::get()->disconnect(*peer.peer);
    const std::string address = peer.address;
    peers_.erase(address);
}

void FarNode::refuse(const Arrival& arrival) {
    if (arrival.parcel) Engine::get()->refuse(arrival.parcel);
}

void FarNode::arrived(const Arrival& arrival) {
    const std::optional<Frame> frame = Frame::decode(arrival.header, arrival.header_size);
    if (frame && frame->kind == FrameKind::ping) return take_ping(*frame, arrival);
    FarChannelPtr channel;
    if (frame) {
        std::lock_guard lock(mutex_);
        const auto entry = channels_.find(frame->channel);
        if (entry != channels_.end() && entry->second->secret_ == frame->secret) channel = entry->second;
    }
    if (!channel || channel->is_lost()) {
        if (!channel) count_refused();
        return refuse(arrival);
    }
    if (channel->peer_) channel->peer_->heard_ns = now_ns();
    try {
        channel->take(*frame, arrival);
    } catch (const std::bad_alloc&) {
        refuse(arrival);
        channel->lose("this process has no memory for a frame");
    }
}

// A process that pings gets pings from now on, also if there is no channel to it.
void FarNode::take_ping(const Frame& frame, const Arrival& arrival) {
    if (frame.secret != process_ || arrival.parcel || arrival.size > kLongestAddress) {
        count_refused();
        return refuse(arrival);
    }
    try {
        peer_at({static_cast<const char*>(arrival.data), arrival.size}, frame.at).heard_ns = now_ns();
    } catch (const Failed&) {
        count_refused();
    } catch (const std::bad_alloc&) {
        // At the next one.
    }
}

void FarNode::ping(FarPeer& peer) {
    Frame frame{.kind = FrameKind::ping, .secret = peer.process, .at = process_};
    const std::string& address = Engine::get()->address();   // it stays
    peer.sent_ns = now_ns();
    Engine::get()->send(*peer.peer, &frame, sizeof frame, address.data(), address.size(), nullptr);
}

void FarNode::lost(Peer& peer, const char* why) {
    for (const auto& [address, each] : peers_)
        if (each->peer == &peer) return lose(*each, why);
}

void FarNode::lose(FarPeer& peer, const char* why) {
    if (std::exchange(peer.lost, true)) return;
    or_lose([&] { peer.why = why; });
    const std::string address = peer.address;
    std::vector<FarChannelPtr> lost;
    for (FarChannel* channel : peer.channels) lost.push_back(channel->shared_from_this());
    for (const FarChannelPtr& channel : lost) {
        if (channel->members_ && !channel->peer_closed_) channel->members_->lose_far(channel->rank_);
        channel->lose(why);
    }
    // With its last channel it has gone.
    if (const auto peer = peers_.find(address); peer != peers_.end()) drop_if_lost(*peer->second);
}

// A process that stood still itself has heard nobody, and may not say that the others are silent.
void FarNode::tick(uint64_t now) {
    const uint64_t silence = unreachable_ns_.load(std::memory_order_relaxed);
    const bool stood_still = now - std::exchange(ticked_ns_, now) > silence / kPingsInSilence + 2 * Engine::kTick;
    std::vector<FarPeer*> silent;
    for (const auto& [address, peer] : peers_) {
        if (peer->lost) continue;
        if (stood_still) peer->heard_ns = now;
        if (now > peer->heard_ns + silence)
            silent.push_back(peer.get());
        else if (now >= peer->sent_ns + silence / kPingsInSilence)
            ping(*peer);
    }
    if (Withheld::living() != 0 && Scheduler::get().is_at_rest())   // a program that only looks at its memory waits for it
        for (const auto& each : withheld())
            if (each->has_older_than(Scheduler::kRest)) each->deliver_all();
    for (FarPeer* peer : silent) lose(*peer, "neither it nor its machine has answered in time");
}

std::vector<std::shared_ptr<Withheld>> FarNode::withheld() {
    std::vector<std::shared_ptr<Withheld>> withheld;
    std::lock_guard lock(mutex_);
    for (const auto& [number, channel] : channels_)
        if (channel->withheld_) withheld.push_back(channel->withheld_);
    return withheld;
}

void FarNode::deliver_all() {
    if (Withheld::living() == 0) return;
    for (const auto& each : withheld()) each->deliver_all();
}

void FarNode::owe_acks(FarChannel& channel) {
    if (!std::exchange(channel.is_owing_, true)) owing_.push_back(channel.shared_from_this());
}

void FarNode::idle() {
    while (!owing_.empty()) {
        const FarChannelPtr channel = std::move(owing_.back());
        owing_.pop_back();
        channel->is_owing_ = false;
        channel->send_acks();
    }
}

Outcome FarNode::wait(FarOp& op, Poll poll) {
    auto stop = Clock::now() + kFarSpin;
    auto next_poll = Clock::now() + kFarPoll;
    while (!op.is_over()) {
        Engine::get()->help();
        const auto now = Clock::now();
        if (now >= next_poll) {
            if (poll.ask && poll.ask(poll.context)) return Outcome::interrupted;
            next_poll = now + kFarPoll;
        }
        if (now < stop) continue;
        Engine::get()->rest();
        std::unique_lock lock(wait_mutex_);
        asleep_.fetch_add(1, std::memory_order_seq_cst);
        wait_.wait_until(lock, next_poll, [&] { return op.is_over(); });
        asleep_.fetch_sub(1, std::memory_order_relaxed);
    }
    return Outcome::reached;
}

void FarNode::give_back(void* object) {
    std::lock_guard lock(mutex_);
    or_lose([&] { returned_.push_back(object); });
    has_returned_.store(true, std::memory_order_relaxed);
}

std::vector<void*> FarNode::take_returned() {
    std::lock_guard lock(mutex_);
    has_returned_.store(false, std::memory_order_relaxed);
    return std::exchange(returned_, {});
}

// Who falls asleep counts himself first, and then looks at his operation; who ends that looks at the count after it.
void FarNode::wake() {
    if (asleep_.load(std::memory_order_seq_cst) == 0) return;
    { std::lock_guard lock(wait_mutex_); }
    wait_.notify_all();
}

void FarChannel::enter() { FarNode::get().enter(shared_from_this()); }

void FarChannel::open(const std::string& address, uint64_t process, uint64_t number, uint64_t secret, uint32_t id) {
    struct Opening final : Work {
        FarChannel* channel = nullptr;
        const std::string* address = nullptr;
        uint64_t process = 0, number = 0, secret = 0;
        uint32_t id = 0;
        std::optional<Failed> failed;
        std::atomic<bool> over{false};
        void run() override {
            channel->id_ = id;   // the thread that loses a channel reads it under this lock
            try {
                channel->connect(*address, process, number, secret);
                channel->announce_open();
            } catch (const Failed& failure) {
                failed = failure;
            } catch (const std::bad_alloc&) {
                failed = Failed{"this process has no memory"};
            }
            over.store(true, std::memory_order_release);
        }
    } opening;
    opening.channel = this;
    opening.address = &address;
    opening.process = process;
    opening.number = number;
    opening.secret = secret;
    opening.id = id;
    Engine::get()->submit(opening);
    while (!opening.over.load(std::memory_order_acquire)) std::this_thread::yield();   // another thread carries it out at this moment
    if (opening.failed) throw *opening.failed;
    if (is_lost()) lose_lines();   // before it had a name for texts
}

// So that the peer can answer before its program makes its end.
void FarChannel::announce_open() {
    struct Saying final : Completion {
        std::string address;
        void done(bool) override { delete this; }
    };
    auto saying = std::make_unique<Saying>();
    saying->address = Engine::get()->address();
    const std::string& address = saying->address;
    Frame frame = {.kind = FrameKind::open};
    frame.sequence = FarNode::get().process();
    frame.at = number_;
    frame.size = secret_;
    send(frame, address.data(), address.size(), saying.release());
}

// The peer has this end's secret from this end's program, and sends its address.
void FarChannel::take_opening(const Frame& frame, const Arrival& arrival) {
    if (arrival.parcel || arrival.size > kLongestAddress) {
        FarNode::refuse(arrival);
        return broken("its address is too long");
    }
    try {
        connect({static_cast<const char*>(arrival.data), arrival.size}, frame.sequence, frame.at, frame.size);
    } catch (const Failed& failed) {
        broken(failed.what.c_str());
    }
}

void FarChannel::connect(const std::string& address, uint64_t process, uint64_t number, uint64_t secret) {
    if (is_open_) {
        if (peer_number_ != number || peer_secret_ != secret) throw Failed{"another end than before says that it is the peer's"};
        return;
    }
    FarPeer& peer = FarNode::get().peer_at(address, process);
    peer.channels.push_back(this);
    peer_number_ = number;
    peer_secret_ = secret;
    peer_bank_ = bank_of(process, number);
    peer_ = &peer;
    is_open_ = true;
    if (is_lost()) {
        report_lost();
        return send_closed_if_over();
    }
    if (peer.lost) return lose(peer.why.c_str());
    for (uint32_t lane = 0; lane < in_.size(); ++lane) advance(lane);   // what came before
    send_closed_if_over();
}

std::vector<std::string> FarChannel::transports() {
    struct Asking final : Work {
        FarChannel* channel = nullptr;
        std::vector<std::string> names;
        std::atomic<bool> over{false};
        void run() override {
            if (channel->peer_ && !channel->peer_->lost) names = Engine::get()->transports(*channel->peer_->peer);
            over.store(true, std::memory_order_release);
        }
    } asking;
    asking.channel = this;
    Engine::get()->submit(asking);
    while (!asking.over.load(std::memory_order_acquire)) std::this_thread::yield();
    return std::move(asking.names);
}

}  // namespace peerlane::net

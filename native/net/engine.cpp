#include "net/engine.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "log/threads.h"
#include "memory/threads.h"
#include "net/ucx.h"

namespace peerlane::net {

namespace {

using Request = ucx::RequestParams;

constexpr unsigned kMessages = 1;             // the id of our active messages
constexpr uint64_t kShort = 4096;             // bytes that UCX copies to send them with the header: that is quicker than two places
constexpr int kRounds = 16;                   // of work that posts more, before the serving thread goes on with it
constexpr int kMostProgress = 256;            // calls of UCX's progress before others may have the lock
constexpr uint64_t kNap = 200'000;            // nanoseconds
constexpr uint64_t kLongestNap = 1'600'000;   // each takes the core from the thread that helps: 5,000 a second cost it 7 %
constexpr uint64_t kLinger = 50'000;          // a thread that sleeps is woken 20 us late, and a transfer has many steps
constexpr uint64_t kFarewell = 250'000'000;   // what was sent before the last disconnect() may still leave
constexpr uint64_t kClosing = 1'000'000'000;  // after it an endpoint's open completions are called without it
constexpr int kLooks = 20;                    // at the network's interfaces
constexpr uint64_t kExit = 1'000'000'000;

uint64_t clock_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void nap() {
    const timespec time{.tv_sec = 0, .tv_nsec = kNap};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

// An address carries its own check, for UCX reads what it is given without one.
uint64_t mark_of(std::string_view bytes) {
    uint64_t mark = 0xcbf29ce484222325;
    for (const char byte : bytes) mark = (mark ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
    return mark ^ bytes.size();
}

std::string marked(std::string_view bytes) {
    const uint64_t mark = mark_of(bytes);
    std::string all(sizeof mark, '\0');
    std::memcpy(all.data(), &mark, sizeof mark);
    return all.append(bytes);
}

}  // namespace

// A send or a fetch that UCX has begun.  A send is linked with those of the same peer.
struct Flight {
    Completion* completion = nullptr;
    Peer* peer = nullptr;   // null: a fetch
    Flight* previous = nullptr;
    Flight* next = nullptr;
};

class Peer {
  public:
    enum class State {
        open,
        lost,     // its endpoint is to be closed
        leaving,  // what was sent goes out, then its endpoint is to be closed
        closing,
        closed
    };

    std::string address;
    ucx::Endpoint* endpoint = nullptr;
    State state = State::open;
    bool is_lost = false, is_reported = false;
    uint32_t connects = 0;
    uint64_t since = 0;   // of its leaving or closing
    uint64_t requests = 0;   // of its flush and its closing
    const char* why = nullptr;
    Flight* flights = nullptr;
};

std::atomic<Engine*> Engine::one_{nullptr};

struct Engine::State {
    State(Engine& owner, ucx::Library loaded, Handler& user) : engine(owner), ucx(std::move(loaded)), handler(user) {}

    Engine& engine;
    const ucx::Library ucx;
    Handler& handler;
    ucx::Context* context = nullptr;
    ucx::Worker* worker = nullptr;
    int events = -1, bell = -1;
    std::unordered_map<std::string, Peer*> peers;

    alignas(64) std::atomic<bool> is_held{true};   // until it has started
    std::atomic<uint64_t> helps{0};
    std::atomic<uint64_t> ticked{0};
    std::atomic<bool> is_tick_due{false};
    std::atomic<bool> is_wanted{false};   // by a thread that would help
    std::atomic<bool> has_rested{false};  // a thread has helped until now
    std::atomic<bool> stands_by{false};
    alignas(64) std::atomic<bool> is_asleep{false};
    std::atomic<bool> is_leaving{false}, has_left{false};

    // Under the lock:
    bool is_stirred = false;       // UCX has begun something that its descriptor may not show
    void* parcel = nullptr;        // of the message that the handler gets
    bool is_refused = false;
    Flight* spare = nullptr;
    std::vector<Peer*> ending;

    std::unordered_map<ucx::Endpoint*, Peer*> by_endpoint;

    bool try_lock() { return !is_held.load(std::memory_order_seq_cst) && !is_held.exchange(true, std::memory_order_seq_cst); }

    // Whoever lets go looks for posted work once more: its poster may have found the lock held.
    void unlock() {
        const bool may_be_needed = std::exchange(is_stirred, false);
        is_held.store(false, std::memory_order_seq_cst);
        if (may_be_needed) wake();
    }

    void wake() {
        if (is_asleep.load(std::memory_order_seq_cst) && is_asleep.exchange(false, std::memory_order_seq_cst)) ring();
    }

    void ring() const {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(bell, &one, sizeof one);
    }

    bool carry_out();
    bool make_progress(int most);
    void tick(uint64_t now);
    void serve();
    void take_down();
    void leave();
    void sleep(uint64_t nanoseconds);
    void stand_by(uint64_t nanoseconds);
    void wait_for(bool events_too, uint64_t nanoseconds);

    Flight* flight(Completion* completion, Peer* peer);
    void over(Flight* flight, bool is_ok);
    static void sent(void* request, ucx::Status status, void* argument) noexcept;
    static void received(void* request, ucx::Status status, size_t size, void* argument) noexcept;
    static void flushed_or_closed(void* request, ucx::Status status, void* argument) noexcept;
    static void failed(void* argument, ucx::Endpoint* endpoint, ucx::Status status) noexcept;
    static ucx::Status arrived(void* argument, const void* header, size_t header_size, void* data, size_t size,
                               const ucx::Arrived* message) noexcept;

    void end(Peer& peer, Peer::State state);
    void close(Peer& peer, uint64_t now);
    bool see_off(Peer& peer, uint64_t now);
    void see_off_all(uint64_t now);
};

namespace {

std::atomic<bool> was_used_before_fork{false};

[[noreturn]] void fail(const ucx::Library& ucx, const std::string& what, ucx::Status status) {
    throw Failed{"UCX " + ucx.version + " (" + ucx.path + "): " + what + ": " + ucx.status_string(status)};
}

void required(const ucx::Library& ucx, const std::string& what, ucx::Status status) {
    if (status != ucx::Status::ok) fail(ucx, what, status);
}

void set(const ucx::Library& ucx, ucx::Config* config, const char* name, const std::string& value) {
    if (getenv((std::string("UCX_") + name).c_str())) return;
    const ucx::Status status = ucx.config_modify(config, name, value.c_str());
    if (status == ucx::Status::ok) return;
    ucx.config_release(config);
    fail(ucx, std::string(name) + "=" + value, status);
}

std::string local_interfaces() {
    std::string all;
    struct if_nameindex* const interfaces = if_nameindex();
    for (const auto* one = interfaces; one && one->if_name; ++one) all += (all.empty() ? "" : ", ") + std::string(one->if_name);
    if (interfaces) if_freenameindex(interfaces);
    return all;
}

// UCX would go on without the network.
void check_interfaces(const std::string& names) {
    for (size_t start = 0, end; start <= names.size(); start = end + 1) {
        end = std::min(names.find(',', start), names.size());
        const std::string name = names.substr(start, end - start);
        const std::string device = "/sys/class/infiniband/" + name.substr(0, name.find(':'));
        if (!name.empty() && (if_nametoindex(name.c_str()) || access(device.c_str(), F_OK) == 0)) continue;
        throw Failed{"there is no network interface \"" + name + "\" here; there are " + local_interfaces()};
    }
}

ucx::Status make_context(const ucx::Library& ucx, const Options& options, ucx::Context*& context) {
    ucx::Config* config = nullptr;
    required(ucx, "its settings", ucx.config_read(nullptr, nullptr, &config));
    if (!options.interface.empty()) set(ucx, config, "NET_DEVICES", options.interface);
    // UCX sends 64 KiB at a time by default, and a large message takes 1.6 times as long.
    for (const char* each : {"TCP_TX_SEG_SIZE", "TCP_RX_SEG_SIZE"}) set(ucx, config, each, "256k");
    const ucx::ContextParams params{.field_mask = ucx::ContextParams::kFeatures,
                                    .features = ucx::ContextParams::kMessages | ucx::ContextParams::kWakeup};
    const ucx::Status status = ucx.init_version(ucx::kMajor, ucx::kMinor, &params, config, &context);
    ucx.config_release(config);
    return status;
}

// An interface that goes away while UCX looks at all of them, as those of containers do, fails the whole.
void make_worker(const ucx::Library& ucx, const Options& options, ucx::Context*& context, ucx::Worker*& worker) {
    const ucx::WorkerParams params{.field_mask = ucx::WorkerParams::kThreads, .threads = ucx::WorkerParams::kOneAtATime};
    for (int look = 1;; ++look) {
        const char* what = "its transports";
        ucx::Status status = make_context(ucx, options, context);
        if (status == ucx::Status::ok) {
            what = "its worker";
            status = ucx.worker_create(context, &params, &worker);
            if (status == ucx::Status::ok) return;
            ucx.cleanup(std::exchange(context, nullptr));
        }
        if (status != ucx::Status::no_device || look == kLooks) fail(ucx, what, status);
    }
}

// The threads that UCX starts are to leave the program's signals alone.
class NoSignals {
  public:
    NoSignals() {
        sigset_t all;
        sigfillset(&all);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

template <class Body>
void start_thread(const Body& body) {
    try {
        log::own_thread(body).detach();
    } catch (const std::system_error& error) {
        throw Failed{std::string("a thread: ") + error.what()};
    }
}

}  // namespace

Engine::Engine() = default;

Engine& Engine::start(const Options& options, Handler& handler) {
    static std::mutex starting;
    const std::lock_guard lock(starting);
    if (Engine* const one = get()) return *one;
    if (was_used_before_fork)
        throw Failed{"this process was forked from one that uses UCX, which does not survive a fork; start it with exec (the "
                     "multiprocessing method \"spawn\")"};
    if (!options.interface.empty()) check_interfaces(options.interface);
    const NoSignals no_signals;
    const ucx::Settings settings;
    std::unique_ptr<Engine> one(new Engine);
    one->state_ = std::make_unique<State>(*one, ucx::load(options.library), handler);
    State& state = *one->state_;
    const ucx::Library& ucx = state.ucx;
    list_threads_named("async", [&] { make_worker(ucx, options, state.context, state.worker); });
    void* bytes = nullptr;
    size_t size = 0;
    try {
        const ucx::HandlerParams arrivals{
            .field_mask = ucx::HandlerParams::kId | ucx::HandlerParams::kCall | ucx::HandlerParams::kArgument,
            .id = kMessages,
            .call = State::arrived,
            .argument = &state};
        required(ucx, "its active messages", ucx.worker_set_am_recv_handler(state.worker, &arrivals));
        required(ucx, "its descriptor", ucx.worker_get_efd(state.worker, &state.events));
        required(ucx, "its address", ucx.worker_get_address(state.worker, &bytes, &size));
        one->address_ = marked({static_cast<const char*>(bytes), size});
        ucx.worker_release_address(state.worker, bytes);
        state.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (state.bell < 0) throw Failed{std::string("eventfd: ") + std::strerror(errno)};
        state.ticked = clock_ns();
        start_thread([&state] { state.serve(); });   // it waits for the lock
    } catch (...) {
        if (state.bell >= 0) ::close(state.bell);
        ucx.worker_destroy(state.worker);
        ucx.cleanup(state.context);
        throw;
    }
    one->library_ = ucx.path;
    one->version_ = ucx.version;
    see_forks();
    // UCX's own ends of the process come after this, and must find no thread inside it, of its own neither.
    static const bool is_ended_in_time [[maybe_unused]] = [] {
        std::atexit([] {
            if (Engine* const engine = get()) engine->state_->leave();
        });
        return true;
    }();
    one_.store(one.get(), std::memory_order_release);
    state.unlock();
    return *one.release();
}

void Engine::see_forks() {
    static const int is_registered [[maybe_unused]] = pthread_atfork(nullptr, nullptr, begin_anew);
}

void Engine::begin_anew() {
    if (one_.exchange(nullptr)) was_used_before_fork = true;
}

// ---- the lock, and who holds it

void Engine::push(Work& work) {
    Work* head = posted_.load(std::memory_order_relaxed);
    do work.next_ = head;
    while (!posted_.compare_exchange_weak(head, &work, std::memory_order_seq_cst));
}

void Engine::post(Work& work) {
    push(work);
    state_->wake();
}

void Engine::kick() {
    State& state = *state_;
    for (int round = 0; posted_.load(std::memory_order_seq_cst); ++round) {
        if (round == kRounds) return state.wake();
        if (!state.try_lock()) return;
        state.make_progress(1);
        state.unlock();
    }
}

bool Engine::help() {
    State& state = *state_;
    if (!state.try_lock()) {
        state.is_wanted.store(true, std::memory_order_relaxed);
        return false;
    }
    state.helps.store(state.helps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const bool any = state.make_progress(1);
    if (!any) state.handler.idle();
    if (state.is_tick_due.load(std::memory_order_relaxed)) state.tick(clock_ns());
    state.unlock();
    kick();
    return any;
}

void Engine::rest() {
    State& state = *state_;
    state.has_rested.store(true, std::memory_order_seq_cst);
    if (state.stands_by.load(std::memory_order_seq_cst) && state.stands_by.exchange(false, std::memory_order_seq_cst)) state.ring();
}

bool Engine::State::carry_out() {
    if (!engine.posted_.load(std::memory_order_relaxed)) return false;
    Work* last = engine.posted_.exchange(nullptr, std::memory_order_seq_cst);
    Work* first = nullptr;
    while (last) {
        Work* const before = last->next_;
        last->next_ = first;
        first = last;
        last = before;
    }
    while (first) {
        Work* const work = first;
        first = work->next_;   // run() may end its life
        work->run();
    }
    return true;
}

bool Engine::State::make_progress(int most) {
    bool any = carry_out();
    for (int i = 0; i < most; ++i) {
        if (ucx.worker_progress(worker) == 0) break;
        any = true;
        if (is_wanted.load(std::memory_order_relaxed)) break;
    }
    if (!ending.empty()) see_off_all(clock_ns());
    is_stirred |= any;
    return any;
}

void Engine::State::tick(uint64_t now) {
    is_tick_due.store(false, std::memory_order_relaxed);
    ticked.store(now, std::memory_order_relaxed);
    handler.tick(now);
}

void Engine::State::serve() {
    begin_own_thread();
    pthread_setname_np(pthread_self(), "peerlane-net");
    uint64_t seen = 0, busy_ns = 0;   // when there was something to do
    uint64_t nap_ns = kNap;
    while (!is_leaving.load(std::memory_order_relaxed)) {
        // Threads that help find the lock free: this one only looks whether they still do.
        const uint64_t helped = helps.load(std::memory_order_relaxed);
        const bool is_helped = std::exchange(seen, helped) != helped || is_wanted.exchange(false, std::memory_order_relaxed);
        if (is_helped || !try_lock()) {
            stand_by(nap_ns);
            nap_ns = std::min(2 * nap_ns, kLongestNap);
            if (clock_ns() - ticked.load(std::memory_order_relaxed) >= kTick) is_tick_due.store(true, std::memory_order_relaxed);
            continue;
        }
        nap_ns = kNap;
        const uint64_t now = clock_ns();
        if (now - ticked.load(std::memory_order_relaxed) >= kTick) tick(now);
        const bool any = make_progress(kMostProgress);
        handler.idle();
        if (any) busy_ns = now;
        if (now - busy_ns < kLinger) {
            unlock();
            sched_yield();
            continue;
        }
        const bool may_sleep = !any && !is_stirred && ucx.worker_arm(worker) == ucx::Status::ok;
        const uint64_t left = ending.empty() ? ticked.load(std::memory_order_relaxed) + kTick - now : kNap;
        is_stirred = false;   // this thread goes on
        // Before the lock is free: what another thread begins from then on wakes this one.
        is_asleep.store(may_sleep, std::memory_order_seq_cst);
        unlock();
        if (may_sleep) sleep(left);
    }
    take_down();
}

// The lock is kept: nobody comes after.
void Engine::State::take_down() {
    while (!try_lock()) nap();
    ucx.worker_destroy(worker);
    ucx.cleanup(context);
    has_left.store(true, std::memory_order_release);
}

// The process ends, whether or not UCX does.
void Engine::State::leave() {
    is_leaving = true;
    wake();
    for (const uint64_t end = clock_ns() + kExit; !has_left.load(std::memory_order_acquire) && clock_ns() < end;) nap();
}

void Engine::State::sleep(uint64_t nanoseconds) {
    if (!engine.posted_.load(std::memory_order_seq_cst)) wait_for(true, std::min(nanoseconds, kTick));
    is_asleep.store(false, std::memory_order_seq_cst);
}

// Threads that spin do this one's work, quicker than it could.
void Engine::State::stand_by(uint64_t nanoseconds) {
    stands_by.store(true, std::memory_order_seq_cst);
    if (!has_rested.exchange(false, std::memory_order_seq_cst)) wait_for(false, nanoseconds);
    stands_by.store(false, std::memory_order_relaxed);
}

void Engine::State::wait_for(bool events_too, uint64_t nanoseconds) {
    pollfd watched[] = {{.fd = bell, .events = POLLIN, .revents = 0}, {.fd = events, .events = POLLIN, .revents = 0}};
    const timespec limit{.tv_sec = 0, .tv_nsec = static_cast<long>(nanoseconds)};
    ppoll(watched, events_too ? 2 : 1, &limit, nullptr);
    uint64_t rings;
    if (watched[0].revents) [[maybe_unused]] const ssize_t size = read(bell, &rings, sizeof rings);
}

// ---- messages

Flight* Engine::State::flight(Completion* completion, Peer* peer) {
    Flight* const one = spare ? spare : new Flight;
    if (spare) spare = one->next;
    *one = {.completion = completion, .peer = peer, .next = peer ? peer->flights : nullptr};
    if (one->next) one->next->previous = one;
    if (peer) peer->flights = one;
    return one;
}

void Engine::State::over(Flight* flight, bool is_ok) {
    Completion* const completion = flight->completion;
    if (flight->next) flight->next->previous = flight->previous;
    if (flight->previous) flight->previous->next = flight->next;
    else if (flight->peer) flight->peer->flights = flight->next;
    *flight = {};
    flight->next = std::exchange(spare, flight);
    if (completion && !is_leaving.load(std::memory_order_relaxed)) completion->done(is_ok);
}

void Engine::State::sent(void* request, ucx::Status status, void* argument) noexcept {
    State& state = *Engine::get()->state_;
    state.ucx.request_free(request);
    state.over(static_cast<Flight*>(argument), status == ucx::Status::ok);
}

void Engine::State::received(void* request, ucx::Status status, size_t, void* argument) noexcept {
    sent(request, status, argument);
}

ucx::Status Engine::State::arrived(void* argument, const void* header, size_t header_size, void* data, size_t size,
                                   const ucx::Arrived* message) noexcept {
    State& state = *static_cast<State*>(argument);
    if (state.is_leaving.load(std::memory_order_relaxed)) return ucx::Status::ok;
    const bool is_parcel = message->attributes & ucx::Arrived::kParcel;
    state.parcel = is_parcel ? data : nullptr;
    state.is_refused = false;
    state.handler.arrived({.header = header,
                           .header_size = static_cast<uint32_t>(header_size),
                           .size = size,
                           .data = is_parcel ? nullptr : data ? data : header,
                           .parcel = state.parcel});
    state.parcel = nullptr;
    if (!is_parcel) return ucx::Status::ok;
    return state.is_refused ? ucx::Status::rejected : ucx::Status::in_progress;
}

void Engine::send(Peer& peer, const void* header, uint32_t header_size, const void* data, uint64_t size, Completion* completion) {
    State& state = *state_;
    Flight* const flight = state.flight(completion, &peer);
    if (peer.state != Peer::State::open) return state.over(flight, false);
    const Request params{
        .field_mask = Request::kCall | Request::kArgument | Request::kFlags | Request::kMemory | (size <= kShort ? Request::kSoonOver : 0),
        .flags = Request::kCopyHeader | (size < kFetchedFrom ? Request::kEager : Request::kRendezvous),
        .sent = State::sent,
        .argument = flight,
        .memory = Request::kHost};
    const ucx::Pending pending = state.ucx.am_send_nbx(peer.endpoint, kMessages, header, header_size, data, size, &params);
    if (pending && !ucx::has_failed(pending)) state.is_stirred = true;
    else state.over(flight, !pending);
}

void Engine::fetch(void* parcel, void* to, uint64_t size, Completion* completion) {
    State& state = *state_;
    Flight* const flight = state.flight(completion, nullptr);
    const Request params{
        .field_mask = Request::kCall | Request::kArgument | Request::kMemory,
        .received = State::received,
        .argument = flight,
        .memory = Request::kHost};
    const ucx::Pending pending = state.ucx.am_recv_data_nbx(state.worker, parcel, to, size, &params);
    if (pending && !ucx::has_failed(pending)) state.is_stirred = true;
    else state.over(flight, !pending);
}

void Engine::refuse(void* parcel) {
    State& state = *state_;
    state.is_stirred = true;
    if (parcel == state.parcel) state.is_refused = true;
    else state.ucx.am_data_release(state.worker, parcel);
}

// ---- peers

Peer& Engine::connect(std::string_view address) {
    State& state = *state_;
    const auto [position, is_new] = state.peers.try_emplace(std::string(address), nullptr);
    if (is_new) {
        constexpr size_t kMark = sizeof(uint64_t);
        std::unique_ptr<Peer> peer(new Peer{.address = position->first});
        try {
            if (address.size() <= kMark || marked(address.substr(kMark)) != address)
                throw Failed{"the " + std::to_string(address.size()) + " bytes given are not the address of an engine"};
            const ucx::EndpointParams params{
                .field_mask = ucx::EndpointParams::kAddress | ucx::EndpointParams::kFailures | ucx::EndpointParams::kOnFailure,
                .address = peer->address.data() + kMark,
                .failures = ucx::EndpointParams::kPeerFailures,
                .on_failure = State::failed,
                .argument = &state};
            required(state.ucx, "a connection", state.ucx.ep_create(state.worker, &params, &peer->endpoint));
        } catch (...) {
            state.peers.erase(position);
            throw;
        }
        state.by_endpoint[peer->endpoint] = peer.get();
        position->second = peer.release();
        state.is_stirred = true;
    }
    ++position->second->connects;
    return *position->second;
}

void Engine::disconnect(Peer& peer) {
    State& state = *state_;
    if (--peer.connects > 0) return;
    state.peers.erase(peer.address);
    if (peer.is_reported) delete &peer;
    else if (peer.state == Peer::State::open) state.end(peer, Peer::State::leaving);
}

std::vector<std::string> Engine::transports(Peer& peer) {
    State& state = *state_;
    std::vector<std::string> all;
    if (peer.state != Peer::State::open) return all;
    ucx::Transport listed[16] = {};   // what UCX leaves empty is not there
    ucx::EndpointAttributes attributes{.asked = ucx::EndpointAttributes::kTransports,
                                       .transports = listed,
                                       .transport_count = std::size(listed),
                                       .transport_size = sizeof listed[0]};
    if (state.ucx.ep_query(peer.endpoint, &attributes) != ucx::Status::ok) return all;
    for (unsigned i = 0; i < std::min<unsigned>(attributes.transport_count, std::size(listed)); ++i) {
        if (!listed[i].name || !listed[i].device) continue;
        std::string one = std::string(listed[i].name) + "/" + listed[i].device;
        if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(std::move(one));
    }
    return all;
}

void Engine::State::failed(void* argument, ucx::Endpoint* endpoint, ucx::Status status) noexcept {
    State& state = *static_cast<State*>(argument);
    const auto entry = state.by_endpoint.find(endpoint);
    if (entry == state.by_endpoint.end()) return;
    Peer& peer = *entry->second;
    if (peer.state != Peer::State::open && peer.state != Peer::State::leaving) return;
    peer.is_lost = true;
    peer.why = state.ucx.status_string(status);
    if (peer.state == Peer::State::open) state.end(peer, Peer::State::lost);
    else peer.state = Peer::State::lost;
}

// No endpoint is closed within a call from UCX: that is left to the end of the turn.
void Engine::State::end(Peer& peer, Peer::State next) {
    peer.state = next;
    peer.since = clock_ns();
    ending.push_back(&peer);
    is_stirred = true;
    if (next != Peer::State::leaving) return;
    const Request params{.field_mask = Request::kCall | Request::kArgument,
                                    .sent = flushed_or_closed,
                                    .argument = &peer};
    const ucx::Pending pending = ucx.ep_flush_nbx(peer.endpoint, &params);
    if (pending && !ucx::has_failed(pending)) ++peer.requests;
}

void Engine::State::flushed_or_closed(void* request, ucx::Status, void* argument) noexcept {
    Engine::get()->state_->ucx.request_free(request);
    --static_cast<Peer*>(argument)->requests;
}

void Engine::State::close(Peer& peer, uint64_t now) {
    peer.state = Peer::State::closing;
    peer.since = now;
    const Request params{
        .field_mask = Request::kCall | Request::kArgument | Request::kFlags,
        .flags = Request::kForce,
        .sent = flushed_or_closed,
        .argument = &peer};
    const ucx::Pending pending = ucx.ep_close_nbx(peer.endpoint, &params);
    if (pending && !ucx::has_failed(pending)) ++peer.requests;
}

// False: not yet.
bool Engine::State::see_off(Peer& peer, uint64_t now) {
    const bool is_still = peer.requests == 0;
    if (peer.state == Peer::State::lost) close(peer, now);
    else if (peer.state == Peer::State::leaving && (is_still || now - peer.since >= kFarewell)) close(peer, now);
    if (peer.state != Peer::State::closing) return false;
    if ((peer.requests > 0 || peer.flights) && now - peer.since < kClosing) return false;
    for (Flight* one = peer.flights; one; one = peer.flights) {   // what UCX still owes is nobody's any more
        Completion* const completion = std::exchange(one->completion, nullptr);
        peer.flights = one->next;
        if (one->next) one->next->previous = nullptr;
        one->next = nullptr;
        one->peer = nullptr;
        if (completion) completion->done(false);
    }
    return true;
}

void Engine::State::see_off_all(uint64_t now) {
    for (size_t i = 0; i < ending.size();) {
        Peer& peer = *ending[i];
        if (!see_off(peer, now)) {
            ++i;
            continue;
        }
        ending.erase(ending.begin() + static_cast<ptrdiff_t>(i));
        by_endpoint.erase(peer.endpoint);
        peer.state = Peer::State::closed;
        if (peer.is_lost && peer.connects > 0) handler.lost(peer, peer.why);
        peer.is_reported = true;
        if (peer.connects == 0 && peer.requests == 0) delete &peer;
    }
}

}  // namespace peerlane::net

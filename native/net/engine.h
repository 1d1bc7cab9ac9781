// Messages between processes of several machines: active messages of UCX, which is loaded when it is first used.
//
// One lock guards UCX.  Its holder carries out what others have posted meanwhile, so nobody waits for it to post.  The engine calls
// back under that lock, which is taken before the scheduler's and the heap's: a thread that holds one of those may post, and does
// nothing else with the engine.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace peerlane::net {

// Why there is no engine: the attempts, with the error of each.
struct Unavailable {
    std::vector<std::string> tried;
};

// UCX refused something, in its words.
struct Failed {
    std::string what;
};

struct Options {
    std::string library;     // a path: this and no other; empty: the wheel's or the system's, see load() in ucx.h
    std::string interface;   // the network interface that it listens on; empty: UCX chooses
};

class Peer;   // another process, by the address of its engine

// What waits for the end of a send or a fetch.  It lives until then.
struct Completion {
    // Under the engine's lock.  `ok`: a send's bytes were read, a fetch's are there.  Not ok: the peer is lost, or has refused at once.
    virtual void done(bool ok) = 0;

  protected:
    ~Completion() = default;
};

// What is carried out under the engine's lock, once.  It lives until then.
struct Work {
    virtual void run() = 0;   // throws nothing

  protected:
    ~Work() = default;

  private:
    friend class Engine;
    Work* next_ = nullptr;
};

// A message that has come.
struct Arrival {
    const void* header;      // unaligned; until the handler returns
    uint32_t header_size;
    uint64_t size;           // bytes of the payload
    const void* data;        // until the handler returns; null: the sender still has the bytes, see Engine::fetch
    void* parcel;            // names such bytes; null: there are none to fetch
};

// Who uses the engine.  All calls come under its lock, and may call it.
struct Handler {
    // A parcel is to be fetched or refused, now or later, once.
    virtual void arrived(const Arrival& arrival) = 0;
    // No message of this peer will come any more, and none goes there.  Its sends and fetches are over when this is called.
    virtual void lost(Peer& peer, const char* why) = 0;
    // Some time has passed, kTick at most, unless a thread of the program keeps the engine busy.
    virtual void tick(uint64_t now_ns) = 0;
    // Nothing more has come for now: what was put off may be sent.
    virtual void idle() {}

  protected:
    ~Handler() = default;
};

class Engine {
  public:
    static constexpr uint64_t kFetchedFrom = uint64_t{192} << 10;   // payloads from here on stay with the sender until they are fetched
    static constexpr uint64_t kTick = 50'000'000;                  // nanoseconds

    // The engine of this process, made at the first call, with a thread that serves it.  `handler` lives as long as the process.
    // Throws Unavailable or Failed.
    static Engine& start(const Options& options, Handler& handler);
    static void see_forks();   // what start() does first: to be there before others see them
    static Engine* get() { return one_.load(std::memory_order_acquire); }   // null: it was not started

    const std::string& address() const { return address_; }     // for connect() of another process: any bytes
    const std::string& library() const { return library_; }     // its path
    const std::string& version() const { return version_; }     // "1.22.0"

    // Threads that hold no lock of this program.

    // Carry out what was posted, and what has come; false: there was nothing, or another thread does it.
    bool help();
    // The end of helping: the serving thread, which stood by meanwhile, is to go on at once.
    void rest();
    // Post, and carry it out now if no other thread holds the lock: else that thread does.
    void submit(Work& work) {
        push(work);
        kick();
    }
    void kick();

    // Any thread, under any lock: `work` is run at the next kick() of anybody, or soon.
    void post(Work& work);

    // Under the engine's lock: in a Work, a Handler or a Completion.

    // One peer for one address, however often it is called; throws Failed.
    Peer& connect(std::string_view address);
    void disconnect(Peer& peer);   // once for each connect(); the last one ends its sends and fetches
    // `header` is copied; `data` stays as it is until `completion` is called, which may be before this returns.  To a lost peer: it
    // is called with false.
    void send(Peer& peer, const void* header, uint32_t header_size, const void* data, uint64_t size, Completion* completion);
    void fetch(void* parcel, void* to, uint64_t size, Completion* completion);   // `size`: all bytes of the arrival
    // In arrived(): the sender's completion gets false.  Later UCX cannot refuse: it gets true, as if the bytes had been read.
    void refuse(void* parcel);
    // Which ways UCX took to a peer: "tcp/eth0", "rc_mlx5/mlx5_0:1", ...
    std::vector<std::string> transports(Peer& peer);

    // In the child of a fork: it has no engine.
    static void begin_anew();

  private:
    struct State;
    Engine();
    void push(Work& work);
    static std::atomic<Engine*> one_;
    std::string address_, library_, version_;
    std::unique_ptr<State> state_;
    std::atomic<Work*> posted_{nullptr};
};

}  // namespace peerlane::net

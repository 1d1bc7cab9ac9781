// Runs streams: eager, lazy or seeded; by workers, by who waits, never by a thread that must take the GIL.
//
// One lock guards all streams.  It is held for bookkeeping and for copies of a few KiB, never while larger ones
// run, never while the GIL is taken; the heap's lock may be taken inside it.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <random>

#include "copy/copy_engine.h"
#include "stream/stream.h"

namespace peerlane {

enum class Schedule : uint8_t { eager, lazy, seeded };
enum class Outcome : uint8_t { reached, timed_out, interrupted };

struct Deadline {
    Clock::time_point at = Clock::time_point::max();
    static Deadline in(double seconds);   // negative: never
};

// What an observer is told: when an operation was submitted or started, and what it touches.
struct Seen {
    struct Span {
        uint64_t block;      // 0: host memory, and then `offset` is an address
        uint64_t offset, size;
        bool written;
    };
    uint64_t order = 0, stream = 0, sequence = 0;
    OpKind kind = OpKind::copy;
    uint64_t notify = 0, record = 0;
    std::vector<Span> spans;
};

struct Submitted {
    uint64_t sequence = 0;
    bool at_once = false;    // it is over, and nothing was kept
    uint64_t order = 0;      // observers: when
};

// A stream that is not done, and what it waits for: the record `record` of stream `what`, or the notify `what`.
struct Waiting {
    uint64_t stream, sequence, submitted;
    Park park;
    uint64_t what, record;
    uint32_t device;
    uint64_t site;                        // what submitted the operation; 0: not known
};

// What a process waits for in which nothing can run: only other processes, and threads that are not in a wait of the
// scheduler's, can let it go on.
struct NoProgress {
    struct Host {
        uint64_t thread, stream;          // pthread_self(), and what it waits for
    };
    struct Parked {
        uint64_t stream, sequence, site;
        Park park;                        // for a mark or a notify
        uint64_t what;                    // its stream; the notify's id
        bool is_local;                    // nobody outside of this process can record it
    };
    uint64_t token = 0;                   // while it stays so, nothing has happened; 0: something can run
    bool is_timed = false;                // a wait of a thread or of a stream ends by itself some time
    std::vector<Host> hosts;
    std::vector<Parked> parked;
};

class Scheduler {
  public:
    static Scheduler& get();   // leaked: workers may outlive static destruction
    Scheduler();

    void configure(Schedule schedule, uint64_t seed);
    Schedule schedule() const { return schedule_.load(std::memory_order_relaxed); }

    StreamPtr create(uint32_t device, bool stops, std::shared_ptr<Group> group, bool legacy);
    // Takes the operation over, its pins and references included; its sequence number.  When it throws
    // it has taken nothing.
    Submitted submit(Stream& stream, const Op& op, uint64_t site = 0);
    // For an operation without bytes, of which nothing is queued; throws Refusal as submit().
    void submit_nothing(const Stream& stream) const;
    Mark* record(Stream& stream, Submitted* done = nullptr);   // the caller drops it
    // `only`: if what is waited for has failed, this stream has not; no more than that many operations behind it are cancelled.
    Submitted wait(Stream& stream, Mark& mark, uint64_t timeout_ns, uint64_t site = 0, uint64_t only = 0);

    bool query(Stream& stream);                     // all done?
    bool query(Mark& mark);
    // Until everything submitted by now is over.  Runs it, if nobody else does.
    Outcome synchronize(Stream& stream, Deadline deadline, Poll poll);
    Outcome synchronize(Mark& mark, Deadline deadline, Poll poll);
    FailurePtr take_failure(Stream& stream);        // the first one not reported; the stream goes on
    // Until nothing more can run: for allocations that found no room.
    Outcome drain(Poll poll);
    int event_fd(Mark& mark);                       // throws Refusal

    // What can still happen happens; waits that nothing submitted will satisfy are cancelled.  Waits for that
    // unless the stream's own callback asks, or `wait` is false.
    Outcome close(Stream& stream, bool wait, Poll poll);
    void abort(Stream& stream, bool close);         // running copies end at their next chunk, the rest is cancelled
    void drop(Stream& stream);                      // close, and a failure that was not taken is kept for take_lost
    void close_device(uint32_t device);             // abort and close its streams
    void set_stops(Stream& stream, bool stops);

    // By the thread that took the item.  False: it was cancelled meanwhile, and is over.
    bool begin_callback(Stream& stream, uint64_t token);
    void finish_callback(Stream& stream, uint64_t token, bool raised);
    // Outside of any stream: the number of the record; throws Refusal when it is doubled.
    uint64_t notify_recorded(Notify& notify);
    void share(Notify& notify, std::shared_ptr<SharedSignal> with, bool keep, uint32_t index = 0);
    void use_bell(std::shared_ptr<Ledger> node);   // what other processes ring for this one lies there from now on
    void reset(Notify& notify);                     // its records are consumed
    void abandon(Notify& notify);                   // only what is queued already will record it: waits in vain fail
    void promise(Notify& notify);                   // the program will record it, whatever is cancelled

    Doorbell& bell();                               // what peers ring when they record for this process
    void take_released(std::vector<void*>& objects, std::vector<uint64_t>& tokens);   // for a thread with the GIL
    bool has_released() const { return has_released_.load(std::memory_order_relaxed); }

    std::vector<FailurePtr> untold();               // the failures that nobody was told of, and that stay so
    std::vector<FailurePtr> take_lost();            // of streams that were dropped
    bool has_lost() const { return has_lost_.load(std::memory_order_relaxed); }

    std::atomic<bool> tracing{false};
    std::atomic<bool> observing{false};
    std::vector<Seen> take_seen();
    void note(Seen seen);
    uint64_t next_order() { return order_.fetch_add(1, std::memory_order_relaxed); }
    std::vector<Traced> take_trace(Stream& stream, uint64_t& lost);

    std::vector<Waiting> waiting();
    // `others_wait`: threads that are in no wait of the scheduler's wait for other processes.
    NoProgress no_progress(bool others_wait);
    // The waits for notifies fail, and `id` is what a text is found by; false, and none does, if something has happened.
    void put_off_losses();   // for a second no wait fails because a peer is lost
    bool end_waits(uint64_t token, uint64_t id, bool others_wait);
    // The program's waits are refused, and the streams stay as they are; false, and none is, if something has happened.
    bool refuse_waits(uint64_t token, uint64_t id);
    void fork_prepare() { mutex_.lock(); }
    void fork_done() { mutex_.unlock(); }
    bool begin_anew();   // in a forked child, without its parent's threads; false: the parent had streams

  private:
    using Lock = std::unique_lock<std::mutex>;
    // When whoever runs a stream must do something else.
    struct Leave {
        Clock::time_point at = Clock::time_point::max();
        const std::atomic<uint64_t>* others = nullptr;   // workers: leave only if somebody else is ready
        uint64_t steps = UINT64_MAX;
        bool single = false;
    };

    // scheduler.cpp: what is submitted, what is ready, the workers.  Throws before anything is taken over, or not.
    Submitted push(Lock& lock, Stream& stream, Op op, uint64_t site);
    void run_at_once(Stream& stream, const Op& op, uint64_t site);
    void make_ready(Stream& stream);
    bool can_run(const Stream& stream) const;
    bool can_help(const Stream& stream) const { return stream.job ? stream.job->may_join() : can_run(stream); }
    void add_worker();
    void serve();
    void demand(Stream& stream, uint64_t sequence);
    void demand_all();
    void refuse_unusable(const Stream& stream) const;
    static void wake(HostWaiter* waiters);

    // stream_run.cpp: what runs
    bool run_slice(Lock& lock, Stream& stream, Leave leave);
    bool start_head(Lock& lock, Stream& stream, Leave& leave);
    void run_small(Lock& lock, Stream& stream, const Leave& leave);
    void start_wait(Stream& stream, Op& op);
    void start_notify(Stream& stream, Op& op);
    void start_wait_notify(Stream& stream, Op& op);
    void start_wait_value(Stream& stream, const Op& op);
    void cancel_head(Lock& lock, Stream& stream);
    // The head, while it holds its pins; or any.
    void fail(Stream& stream, const Op& op, const Refusal& refusal, FailurePtr cause = nullptr);
    void fail(Stream& stream, const Op& op, const Refusal& refusal, uint64_t sequence, uint64_t site, const Ends& ends,
              FailurePtr cause = nullptr);
    void complete(Stream& stream, uint64_t n, uint32_t phase);
    void finish_head(Lock& lock, Stream& stream);        // releases what the head holds, outside the lock
    void settle(Mark& mark, FailurePtr failure);
    void release(void* keep);                            // by a later Python call
    void release_token(uint64_t token);

    // stream_job.cpp: operations of many steps
    void open_job(Lock& lock, Stream& stream);
    bool join_job(Lock& lock, Stream& stream, Leave& leave);
    void finish_job(Lock& lock, Stream& stream);

    // seen.cpp
    void note_started(const Stream& stream, uint64_t sequence, const Op& op, const Job* job);
    void note_time(Stream& stream, uint64_t sequence, const Op& op, uint64_t start_ns);

    // stream_wait.cpp: who waits, and what is waited for
    Outcome wait_until(Lock& lock, const std::function<bool()>& done, const std::function<Stream*()>& stream, HostWaiter*& list,
                       uint64_t target, Deadline deadline, Poll poll);
    Stream* find_help(Stream& stream);
    void pump(Lock& lock, unsigned steps, bool small_only);
    Stream* choose(bool small_only);
    Stream* find_able();
    void sleep(Lock& lock, HostWaiter& waiter, HostWaiter*& list, Clock::time_point until);
    struct ListedHost;                     // for the time of a long wait of the program

    // progress.cpp
    uint64_t progress_token(bool others_wait) const;     // 0: something can run

    // stream_end.cpp: abort, close, and who waits in vain
    // Nothing that was submitted lets the stream go on; `alone`: nor will anybody submit more, or a deadline count.
    bool is_hopeless(Stream& stream, bool alone);
    bool seems_hopeful(const Stream& stream, bool alone);
    template <class Visit>
    bool any_helper(const Stream& stream, const Visit& visit);
    bool is_let_on(const Stream& stream);
    bool is_awaited(const Stream& stream) const;
    bool is_cancelled(const Stream& stream) const;
    bool is_mine(const Stream& stream) const;   // parked for a callback that only this thread lets go on
    bool give_up_if_hopeless(Stream& stream);
    void refuse_if_hopeless(Stream& stream);
    void give_up(Lock& lock, Stream& stream);
    void keep_lost(Stream& stream);
    void cancel(Stream& stream, uint64_t until, uint64_t lost_to = 0);   // from its head on; `lost_to`: who ended

    // stream_watch.cpp: parked streams, and the thread that wakes them
    void park(Stream& stream, Park park, uint64_t timeout_ns);
    void unpark(Stream& stream);
    void wake_all(ParkList& parked);
    // What is known of the lines with one hash: who is parked, and what is queued that will record them.
    struct Lines {
        ParkList parked;
        Op* recorders = nullptr;
    };
    Lines& lines_of(const SignalLine& line) {
        return lines_[(reinterpret_cast<uintptr_t>(&line) >> 6) % lines_.size()];
    }
    template <class Visit>
    void each_parked_on(const SignalLine& line, const Visit& visit) {
        for (Stream* stream = lines_of(line).parked.first; stream;) {
            Stream* const next = stream->park_next;   // the visit may take it out
            if (&stream->queue.front().notify->line == &line) visit(*stream);
            stream = next;
        }
    }
    // Whether the visit says true for one of the streams with an operation queued that records the line.
    template <class Visit>
    bool any_recorder(const SignalLine& line, const Visit& visit) {
        for (const Op* op = lines_of(line).recorders; op; op = op->next)
            if (&op->notify->line == &line && visit(*op->recorder)) return true;
        return false;
    }
    bool is_awaited(const SignalLine& line);
    void add_recorder(Stream& stream, Op& op);
    void remove_recorder(const Op& op);
    void wake_notify(SignalLine& line);
    void wake_waiters(Notify& notify);
    Doorbell& doorbell() const { return bell_node_ ? bell_node_->bell() : bell_page_->bell(); }
    void fail_those_lost(Lock& lock);
    void count_shared_wait(Stream& stream);
    void watch();
    void expire(Lock& lock, Stream& stream);
    void fail_parked(Lock& lock, Stream& stream, const Refusal& refusal);
    void look_at_lines();
    uint64_t look_at_values();             // nanoseconds until the next look
    uint64_t look_at_rest(Lock& lock);     // the same; at rest all that is queued is asked for
    bool is_any_queued() const;
    void note_call() {                     // a submission, a question, either end of a wait, the end of a stream
        if (schedule() == Schedule::eager) return;
        moved_at_ = now_ns();
        at_rest_ = false;
    }
    void ensure_watch();
    void wake_watch();
    void ring_before(uint64_t at);         // the watching thread must be awake by then

    std::mutex mutex_;
    std::condition_variable work_;
    std::atomic<Schedule> schedule_{Schedule::eager};
    std::mt19937_64 random_;
    std::map<uint64_t, StreamPtr> streams_;              // all that are not closed
    StreamSet able_{&Stream::able_place};                // seeded: all that can be helped, and some that cannot
    StreamPtr ready_first_;
    Stream* ready_last_ = nullptr;
    std::atomic<uint64_t> ready_count_{0};
    unsigned workers_ = 0, idle_ = 0;
    uint64_t next_stream_ = 1;
    bool background_ = false;                            // seeded: somebody polls a descriptor, so workers must run
    uint64_t demanding_ = 0;                             // lazy: streams that wait for a notify while demanded
    uint64_t hope_ = 1;                                  // counts what may let a stream go on that waited in vain
    bool all_demanded_ = false;                          // lazy: nothing is queued that was not
    static constexpr uint64_t kRest = 1'000'000'000;
    uint64_t moved_at_ = 0;                              // not eager: when last a call was noted or an operation ran
    bool at_rest_ = false;                               // that was kRest ago, and no call was noted since
    unsigned waiting_ = 0;                               // threads in waits
    std::vector<HostWaiter*> sleepers_;
    std::vector<HostWaiter*> hosts_;                     // those that wait for long
    uint64_t next_host_ = 1;
    std::array<Lines, 4096> lines_;                      // by a hash of the line
    ParkList parked_on_values_;
    Stream::Deadlines deadlines_;
    uint64_t look_ns_ = 0;
    std::shared_ptr<Ledger> bell_node_;
    uint64_t shared_waits_ = 0, next_pulse_ = 0;         // parked for what other processes may record
    std::unique_ptr<SignalPage> bell_page_;              // from the first stream on
    bool watching_ = false;
    uint64_t watch_until_ = UINT64_MAX;                  // it sleeps until then; the largest: it is awake

    std::atomic<bool> has_released_{false};
    std::vector<void*> released_;                        // Python objects
    std::vector<uint64_t> released_tokens_;              // callbacks that will not run
    std::atomic<bool> has_lost_{false};
    std::vector<FailurePtr> lost_;
    std::vector<Seen> seen_;
    std::atomic<uint64_t> order_{1};
};

// What the word that an operation waits for holds; `gone`, with the reason, is only host memory that nobody pinned.
enum class Word { as_wanted, other, gone };
Word look_at_word(const Op& op, Refusal& why);

// What an operation touches, by block, and what it records or waits for.
void add_spans(std::vector<Seen::Span>& spans, const Op& op);
void add_spans(std::vector<Seen::Span>& spans, const std::vector<Piece>& pieces);
void add_host_span(std::vector<Seen::Span>& spans, const char* host, uint64_t size, bool written);
void add_signals(Seen& seen, const Op& op, bool started);

}  // namespace peerlane

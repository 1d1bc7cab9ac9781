// Runs streams by an eager, lazy or seeded schedule, in worker threads and in threads that wait for a stream.
//
// One lock guards all streams.  It is held for bookkeeping and for copies of a few KiB, never while larger copies run, and
// never while the GIL is taken.  The heap's lock may be taken inside it.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <random>

#include "copy/copy_engine.h"
#include "ranks/turns.h"
#include "stream/host_sources.h"
#include "stream/stream.h"

namespace peerlane {

class WaitSet;

enum class Schedule : uint8_t { eager, lazy, seeded };
enum class Outcome : uint8_t { reached, timed_out, interrupted };

struct Deadline {
    Clock::time_point at = Clock::time_point::max();
    // Of a time-out that is so long that no program goes on after it on purpose: such a wait can be in vain.
    bool is_net = false;
    static constexpr double kNetSeconds = 10;
    static Deadline in(double seconds);   // negative: never
};

struct Submitted {
    uint64_t sequence = 0;
    bool at_once = false;    // it is over, and nothing was queued
    uint32_t watches = 0;    // how many more times its Python object is held
};

// A stream that is not done, and its wait: for operation `record` of stream `what`, or for the notify `what`.
struct Waiting {
    uint64_t stream, sequence, submitted;
    Park park;
    uint64_t what, record;
    uint32_t device;
    uint64_t site;                        // the line that submitted the operation; 0: not noted
};

// A stream that waits for a word of memory, without a time-out.
struct AwaitedWord {
    uint64_t stream, sequence, address, seen, wanted, mask;
    unsigned width;
    Compare compare;
    uint64_t site;                        // the line that submitted the wait; 0: not noted
};

// The waits of a process in which no operation can run.  Only other processes, and threads that do not wait in the
// scheduler, can let it go on.
struct NoProgress {
    struct Host {
        uint64_t thread, stream;          // pthread_self(), and the stream that it waits for
    };
    struct Parked {
        uint64_t stream, sequence, site;
        Park park;                        // for a mark or a notify
        uint64_t what;                    // the mark's stream, or the notify's id
        bool is_local;                    // no other process can record it
    };
    uint64_t token = 0;                   // changes when anything happens; 0: an operation can run
    std::vector<Host> hosts;
    std::vector<Parked> parked;
};

class Scheduler {
  public:
    static Scheduler& get();   // leaked: workers may outlive static destruction
    Scheduler();

    void configure(Schedule schedule, Draws draws);
    Schedule schedule() const { return schedule_.load(std::memory_order_relaxed); }

    StreamPtr create(uint32_t device, bool stops, std::shared_ptr<Group> group, bool legacy);
    // Takes the operation over, with its pins and references; returns its sequence number.  If it throws, the caller still
    // owns them.
    Submitted submit(Stream& stream, const Op& op, uint64_t site = 0);
    // The checks of submit() for an operation of 0 bytes, which is not queued; throws Refusal.
    void submit_nothing(const Stream& stream) const;
    Mark* record(Stream& stream);                   // the caller drops it
    // `only` (0: off): a failure of the awaited operation cancels at most this many operations behind the wait, and is not a
    // failure of this stream.
    Submitted wait(Stream& stream, Mark& mark, uint64_t timeout_ns, uint64_t site = 0, uint64_t only = 0);

    // A function in C, which the thread of the queue calls.
    Submitted call(Stream& stream, CallbackQueue& queue, const HostCall& function, uint64_t site = 0);

    bool query(Stream& stream);                     // all done?
    bool query(Mark& mark);
    // The same, of a program that asks again and again: run a piece of the mark's stream if no other thread has begun it.
    bool query_and_help(Mark& mark);
    // Wait until all operations submitted so far are over; run them if no other thread does.
    Outcome synchronize(Stream& stream, Deadline deadline, Poll poll);
    Outcome synchronize(Mark& mark, Deadline deadline, Poll poll);
    FailurePtr take_failure(Stream& stream);        // the first one that was not reported; the stream goes on
    FailurePtr failure_before(const Mark& mark);    // the one of its stream's earlier work that was not reported, or its own
    bool awaits_abort(const Stream& stream);        // its failure does
    void set_abort_flag(Stream& stream, std::shared_ptr<AbortFlag> flag);   // of what fails from now on
    void log_rest() {                              // before the checker's log ends
        Lock lock(mutex_);
        sources_.end();
        release_sources();
    }
    // For the checker, before a thread learns that the stream has come so far.
    void look_at_sources(uint64_t stream, uint64_t sequence);
    // Run all operations that can run: for an allocation that has no room.
    Outcome drain(Poll poll);
    int event_fd(Mark& mark);                       // throws Refusal

    // Take no more operations.  Queued ones run, but waits that no submitted operation will satisfy are cancelled.  Waits
    // for the end of all, unless the stream's own callback calls it or `wait` is false.
    Outcome close(Stream& stream, bool wait, Poll poll);
    void abort(Stream& stream, bool close);         // a running copy ends at its next chunk, the others are cancelled
    void drop(Stream& stream);                      // close, and keep a failure that was not reported for take_lost
    std::vector<StreamPtr> streams_of(uint32_t device);   // of the host, those of all devices without queues
    void close_device(uint32_t device);             // abort and close its streams; waits for functions that run
    void set_stops(Stream& stream, bool stops);

    // Called by the thread that took the callback.  False: it was cancelled meanwhile.
    bool begin_callback(Stream& stream, uint64_t token);
    void finish_callback(Stream& stream, uint64_t token, bool raised);
    // Record outside of any stream; the number of the record.  Throws Refusal for a strict one that was not consumed.
    uint64_t notify_recorded(Notify& notify);
    void was_recorded(Notify& notify);              // by a rank that need not wait for this lock unless somebody waits
    static constexpr uint64_t kRest = 1'000'000'000;   // nanoseconds without a call: the process rests
    bool is_at_rest();
    void share(Notify& notify, std::shared_ptr<SharedSignal> with, bool keep, uint32_t index = 0);
    void use_bell(std::shared_ptr<Ledger> node);   // from now on, other processes find this one's doorbell there
    void reset(Notify& notify);                     // discard its records
    void abandon(Notify& notify);                   // only queued operations will still record it: other waits fail
    void promise(Notify& notify);                   // the program will record it, whatever is cancelled
    void forsake(Notify& notify, uint64_t lost);    // who promised it is gone: waits that nothing here satisfies fail
    void far_moved(Stream& stream);                 // its operation on another machine's memory is over, or there is room for more
    // Wait while the stream has more than `most` operations queued behind one on another machine's memory.
    Outcome make_room(Stream& stream, uint64_t most, Poll poll);

    void attend();                                  // peers stage bytes that this process delivers while it rests
    Doorbell& bell();                               // peers ring it when they record for this process
    void take_released(std::vector<void*>& objects, std::vector<uint64_t>& tokens);   // for a thread with the GIL
    bool has_released() const { return has_released_.load(std::memory_order_relaxed); }

    std::vector<FailurePtr> unreported();           // the failures that were not reported; they stay unreported
    std::vector<FailurePtr> take_lost();            // the failures of dropped streams
    bool has_lost() const { return has_lost_.load(std::memory_order_relaxed); }

    // The calling thread takes turns and waits for something outside of streams; what the seed draws runs meanwhile.
    // False: it was not over at `until`.
    bool wait_in_turns(const std::function<bool()>& is_over, Clock::time_point until);
    // An event loop between two of its tasks, some of which wait: where no other thread would, run some operations.  True:
    // more may follow.
    bool help_loop();
    std::vector<Waiting> waiting();
    std::vector<AwaitedWord> awaited_words();
    // `others_wait`: threads outside the scheduler wait for other processes.
    NoProgress no_progress(bool others_wait);
    void put_off_losses();   // for a second, no wait fails because a peer is lost
    // Let the waits for notifies fail with the kept deadlock `id`; false, and none fails, if something has happened.
    bool end_waits(uint64_t token, uint64_t id, bool others_wait);
    // Before another rank ends its waits, and with them perhaps this process.
    void log_waits_in_vain(uint64_t token, bool others_wait);
    // Refuse the program's waits and leave the streams as they are; false, and none is refused, if something has happened.
    bool refuse_waits(uint64_t token, uint64_t id);
    void fork_prepare() {
        mutex_.lock();
        sources_.before_fork();
    }
    void fork_done() { mutex_.unlock(); }
    bool begin_anew();   // in a forked child, without its parent's threads; false: the parent had streams

  private:
    friend class WaitSet;
    using Lock = std::unique_lock<std::mutex>;
    // When a thread that runs a stream must leave it.
    struct Leave {
        Clock::time_point at = Clock::time_point::max();
        const std::atomic<uint64_t>* others = nullptr;   // workers: leave only if another stream is ready
        uint64_t steps = UINT64_MAX;
        bool single = false;
    };

    // scheduler.cpp: submission, ready streams, workers.  These throw before they take an operation over, or not at all.
    Submitted push(Lock& lock, Stream& stream, Op op, uint64_t site);
    void run_at_once(Stream& stream, const Op& op, uint64_t site);
    // Under the checker: operations that write the host's memory wait until the program waits or asks, or for a while.
    void hold_back(Stream& stream, uint64_t sequence);
    void let_held_run();
    bool is_held_back(const Stream& stream) const {
        return stream.held != 0 && stream.head() >= stream.held && !stream.closing;
    }
    void make_ready(Stream& stream);
    bool can_run(const Stream& stream) const;
    bool can_help(const Stream& stream) const { return stream.job ? stream.job->may_join() : can_run(stream); }
    void add_worker();
    void serve();
    void demand(Stream& stream, uint64_t sequence);
    void demand_all();
    void refuse_unusable(const Stream& stream) const;
    static void wake(HostWaiter* waiters);

    // stream_run.cpp: running operations
    bool run_slice(Lock& lock, Stream& stream, Leave leave);
    bool start_head(Lock& lock, Stream& stream, Leave& leave);
    void note_polled(const Stream& stream, const Op& op, uint64_t sequence);
    void run_small(Lock& lock, Stream& stream, const Leave& leave);
    void start_wait(Stream& stream, Op& op);
    void start_notify(Stream& stream, Op& op);
    void start_wait_notify(Stream& stream, Op& op);
    void start_wait_value(Stream& stream, const Op& op);
    void start_far(Stream& stream, const Op& op);
    bool comes_soon(Lock& lock, Stream& stream, Stepwise& work, const Leave& leave);
    void start_stepwise(Lock& lock, Stream& stream, Op& op, const Leave& leave);
    bool runs_function(const Stream& stream);
    void post_far(Stream& stream);
    void cancel_head(Lock& lock, Stream& stream);
    // For the head, while it holds its pins; the second one for any operation.
    void fail(Stream& stream, const Op& op, const Refusal& refusal, FailurePtr cause = nullptr);
    void fail(Stream& stream, const Op& op, const Refusal& refusal, uint64_t sequence, uint64_t site, const Ends& ends,
              FailurePtr cause = nullptr);
    void complete(Stream& stream, uint64_t n, uint32_t phase);
    void end_head(Stream& stream, const Op& op);
    void pass_waits(Stream& stream);
    void finish_head(Lock& lock, Stream& stream);        // releases the head's pins and references, outside the lock
    void settle(Mark& mark, FailurePtr failure);
    static void notify_loops(LoopWait* waits, uint64_t upto);   // wait_set.cpp
    void release(void* keep);                            // by a later Python call
    void release_token(uint64_t token);
    void watch_sources(Stream& stream, const Op& op, Submitted& submitted, bool may_hold_back);
    void release_sources();                              // that nobody watches any more

    // stream_job.cpp: operations of many steps
    void open_job(Lock& lock, Stream& stream);
    bool join_job(Lock& lock, Stream& stream, Leave& leave);
    void finish_job(Lock& lock, Stream& stream);

    // stream_wait.cpp: waits of the program
    Outcome wait_until(Lock& lock, const std::function<bool()>& done, const std::function<Stream*()>& stream, HostWaiter*& list,
                       uint64_t target, Deadline deadline, Poll poll);
    Stream* find_help(Stream& stream);
    void pump(Lock& lock, unsigned steps, bool small_only);
    Stream* choose(bool small_only);
    Stream* find_able();
    void sleep(Lock& lock, HostWaiter& waiter, HostWaiter*& list, Clock::time_point until);
    static void take_turn(Lock& lock, bool (*step)(uint64_t), Clock::time_point until);
    bool is_busy() const;
    struct ListedHost;                     // for the time of a long wait of the program

    // progress.cpp
    uint64_t progress_token(bool others_wait) const;     // 0: something can run

    // stream_end.cpp: abort, close, and waits in vain
    // No submitted operation lets the stream go on; `alone`: ignore deadlines, and operations that may come later.
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
    void forsake_locked(Notify& notify, uint64_t lost);
    void cancel(Stream& stream, uint64_t until, uint64_t lost_to = 0);   // from its head on; `lost_to`: the process that ended

    // stream_watch.cpp: parked streams, and the thread that wakes them
    void park(Stream& stream, Park park, uint64_t timeout_ns);
    void unpark(Stream& stream);
    void wake_all(ParkList& parked);
    // The streams that are parked on lines with one hash, and the queued operations that will record such lines.
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
            Stream* const next = stream->park_next;   // the visit may remove it from the list
            if (&stream->queue.front().notify->line == &line) visit(*stream);
            stream = next;
        }
    }
    // Whether the visit is true for a stream that has an operation queued that records the line.
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
    uint64_t look_at_held();               // the same, for operations that are held back
    uint64_t look_at_values();             // nanoseconds until the next look
    uint64_t look_at_rest(Lock& lock);     // the same; an idle process runs all that is queued
    bool is_any_queued() const;
    void note_call() {                     // a submission, a query, the begin or end of a wait, the end of a stream
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
    StreamSet able_{&Stream::able_index};                // seeded: all streams that a thread can help, and some others
    StreamPtr ready_first_;
    Stream* ready_last_ = nullptr;
    std::atomic<uint64_t> ready_count_{0};
    unsigned workers_ = 0, idle_ = 0;
    uint64_t next_stream_ = 1;
    bool background_ = false;                            // seeded: the program polls a descriptor, so workers must run
    uint64_t demanding_ = 0;                             // lazy: streams that wait for a notify while demanded
    uint64_t hope_ = 1;                                  // counts changes after which a hopeless wait may have hope
    bool all_demanded_ = false;                          // lazy: all queued operations are demanded
    uint64_t moved_at_ = 0;                              // not eager: the time of the last noted call or operation
    bool at_rest_ = false;                               // kRest has passed since then
    unsigned waiting_ = 0;                               // threads in waits
    std::vector<HostWaiter*> sleepers_;
    std::vector<WaitSet*> wait_sets_;                    // of event loops whose tasks wait
    std::vector<HostWaiter*> hosts_;                     // those that wait for long
    uint64_t next_host_ = 1;
    std::array<Lines, 4096> lines_;                      // by a hash of the line
    ParkList parked_on_values_;
    Stream::Deadlines deadlines_;
    uint64_t look_ns_ = 0;
    std::shared_ptr<Ledger> bell_node_;
    uint64_t shared_waits_ = 0, next_pulse_ = 0;         // streams parked on lines that other processes may record
    std::unique_ptr<SignalPage> bell_page_;              // from the first stream on
    bool watching_ = false;
    uint64_t watch_until_ = UINT64_MAX;                  // the watching thread sleeps until then; the largest: it is awake
    uint64_t watch_due_ = 0;                             // when it should go on at the latest: later, the process was stopped

    HostSources sources_;
    uint64_t logged_in_vain_ = 0;                        // the token with which that was logged last
    std::vector<StreamPtr> held_;                        // streams with operations that are held back
    uint64_t held_until_ = UINT64_MAX, hold_ns_ = kLongestHold;
    static constexpr uint64_t kLongestHold = 400'000'000, kShortestHold = 1'000'000;
    std::atomic<bool> has_released_{false};
    std::vector<void*> released_;                        // Python objects
    std::vector<uint64_t> released_tokens_;              // callbacks that will not run
    std::atomic<bool> has_lost_{false};
    bool has_posted_ = false;                            // operations for other machines, which nobody has sent yet
    std::vector<FailurePtr> lost_;
};

// The state of the word that an operation waits for; `gone`, with the reason, is for host memory without a pin only.
enum class Word { as_wanted, other, gone };
Word look_at_word(const Op& op, Refusal& why, uint64_t* seen = nullptr);

}  // namespace peerlane

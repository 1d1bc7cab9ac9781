// Streams, the marks that events stand for, groups, and queues of callbacks: plain state, changed by the scheduler.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "stream/notify.h"
#include "stream/operation.h"

namespace peerlane {

using Clock = std::chrono::steady_clock;
inline uint64_t now_ns() { return static_cast<uint64_t>(Clock::now().time_since_epoch().count()); }
struct Stream;
struct LoopWait;
using StreamPtr = std::shared_ptr<Stream>;

// Of operations that the program may abort together.  Once they are, their failures are no failures of what waited for them.
struct AbortFlag {
    std::atomic<bool> is_set{false};
    std::atomic<uint64_t> failed_ns{0};        // when the first of them failed; steady clock
};

// Why an operation did not do what it was asked.
struct Failure {
    Refusal refusal;
    uint64_t stream = 0, sequence = 0;
    OpKind kind = OpKind::copy;
    uint64_t token = 0;                        // of the callback that failed
    std::shared_ptr<const Failure> cause{};    // cancelled because of this one
    uint32_t causes = 0;                       // how many are behind it, one behind the other
    uint32_t device = 0;                       // of the stream
    uint64_t site = 0, stream_site = 0;        // what submitted it, and made the stream; 0: not known
    Ends ends{};
    std::shared_ptr<AbortFlag> abort_flag{};   // of the operation that failed first

    bool is_aborted() const { return abort_flag && abort_flag->is_set.load(std::memory_order_acquire); }
    // For some seconds the program has the time to abort; then a query reports it as another failure.
    bool awaits_abort() const;

    // A chain that grows too long names the first cause instead of all between.  Without memory: one that says so.
    static std::shared_ptr<const Failure> keep(Failure&& failure) noexcept;
};
using FailurePtr = std::shared_ptr<const Failure>;

// A thread that sleeps until a stream or a mark gets somewhere.
struct HostWaiter {
    std::condition_variable wake;
    std::atomic<bool> woken{false};
    uint64_t target = 0;
    HostWaiter* next = nullptr;

    // Once it has waited for some 100 ms: in the scheduler's list of such threads.
    uint64_t thread = 0, number = 0, stream = 0;   // pthread_self(); unlike all others'; what it waits for at present
    Clock::time_point deadline = Clock::time_point::max();
    bool is_net = false;                           // the deadline's
    uint64_t refused = 0;                          // it is in vain: the number of the refusal
};

// Streams parked for the same reason, in the order in which they came.  A parked stream has an operation at its head, so
// the scheduler holds it.
struct ParkList {
    Stream* first = nullptr;
    Stream* last = nullptr;

    void add(Stream& stream);
    void remove(Stream& stream);
};

// Streams in no order: one is added, taken out or drawn at once.  Each that may be in it is admitted before, which may
// throw; then nothing does.
class StreamSet {
  public:
    explicit StreamSet(size_t Stream::*index) : index_(index) {}
    void admit();
    void dismiss(Stream& stream);
    void add(Stream& stream);                  // once more: nothing happens
    void remove(Stream& stream);
    void clear();

    size_t size() const { return streams_.size(); }
    Stream& operator[](size_t i) const { return *streams_[i]; }
    auto begin() const { return streams_.begin(); }
    auto end() const { return streams_.end(); }

  private:
    size_t Stream::*const index_;              // where a stream keeps its number here, from 1
    std::vector<Stream*> streams_;
    size_t admitted_ = 0;
};

// One record of an event.
struct Mark {
    enum State : uint32_t { pending, done, failed };

    std::atomic<uint32_t> state{pending};
    std::atomic<uint32_t> references{1};
    uint64_t time_ns = 0;                      // steady clock, once it is done
    StreamPtr stream;                          // while it is pending
    uint64_t stream_id = 0, sequence = 0;
    FailurePtr failure;
    ParkList parked;
    HostWaiter* waiters = nullptr;
    int fd = -1;                               // an eventfd, readable once it is over

    ~Mark();
    void hold() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop() {
        if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }
};

// Streams with a legacy barrier: an operation of the default stream waits for all earlier ones of the others, and
// their later ones wait for it.  Counts per phase, whatever the number of streams.
struct Group {
    struct Phase {
        uint64_t outstanding = 0;
        bool legacy = false;
    };
    const uint64_t id;                         // unique in this process
    std::deque<Phase> phases{1};
    uint32_t first = 0;                        // the number of the front phase, the one that may run
    ParkList parked;                           // for a phase
    StreamSet held_up;                         // its streams that are parked for anything else
    std::atomic<uint64_t> outstanding{0};      // of all phases

    Group();
    bool is_idle() const { return outstanding.load(std::memory_order_acquire) == 0; }
    uint32_t enter(bool legacy);
    bool may_run(uint32_t phase) const { return phase == first; }
    bool leave(uint32_t phase, uint64_t n);    // true: another phase began
};

// Where callbacks wait for the thread that runs them.
class CallbackQueue {
  public:
    struct Item {
        uint64_t token;
        StreamPtr stream;
        const HostCall* call = nullptr;        // of the operation, which lives until the call is finished
    };
    void push(Item item);
    // False after `timeout_ns`, or when `interrupt` was called.
    bool take(Item& item, uint64_t timeout_ns);
    void remove(const Stream& stream);         // what nobody has taken yet
    void interrupt();

    // Under the scheduler's lock: who runs the items.
    std::thread::id server{};
    bool shared = false;                       // several threads do
    unsigned running = 0;                      // items taken and not finished

    void hold() { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop() {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

  private:
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Item> items_;
    bool interrupted_ = false;
    std::atomic<uint32_t> references_{1};
};

// An operation of many steps that threads join and leave.
struct Job {
    Task task;
    Side sides[2];
    unsigned side_count = 0;
    uint64_t start_ns = 0;
    unsigned workers = 0;                      // under the scheduler's lock
    std::atomic<uint64_t> cursor{0};
    std::atomic<bool> is_stopped{false};       // aborted, or faulted
    std::atomic<bool> claimed{false}, failed{false};
    Refusal refusal;                           // written by who claimed, before `failed`

    bool has_steps() const {
        return cursor.load(std::memory_order_relaxed) < task.steps && !is_stopped.load(std::memory_order_relaxed);
    }
    bool may_join() const { return has_steps() && (workers == 0 || task.parallel); }
    void fail(const Refusal& why);
};

enum class Park : uint8_t { none, mark, notify, callback, phase, value, far };

struct Stream : std::enable_shared_from_this<Stream> {
    uint64_t id = 0;
    uint32_t device = 0;
    bool stops = true;                         // failure mode: stop, or continue
    bool legacy = false;                       // the group's default stream
    bool logged = false;                       // the event log has its beginning, and gets its end
    uint64_t site = 0, closed_site = 0;        // where the program made it, and closed it; 0: not known
    std::shared_ptr<Group> group;

    std::atomic<uint64_t> submitted{0}, completed{0};   // sequence numbers; written under the lock
    std::atomic<uint64_t> by_lane{0};          // that of the last operation which HCOMM's C library submitted without Python
    OpQueue queue;
    unsigned active = 0;                       // threads at the head
    std::unique_ptr<Job> job;
    bool ready = false;                        // in the scheduler's queue
    StreamPtr ready_next;
    uint64_t fallen = 0;                       // seeded with priorities: where it fell to; 0: it did not
    uint64_t demanded = 0;                     // lazy: run up to here
    uint64_t held = 0;                         // the first operation that waits until the program does; 0: none
    uint64_t posted = 0;                       // operations of other machines' memory are handed over up to here

    Park park = Park::none;
    ParkList* parked_in = nullptr;
    Stream* park_next = nullptr;
    bool waits_shared = false;                 // parked for what another process may record
    Stream* park_previous = nullptr;
    // An entry of the scheduler's deadlines, made before a wait that may need it is queued: parking cannot fail.
    using Deadlines = std::multimap<uint64_t, Stream*>;
    Deadlines::node_type deadline_entry;
    Deadlines::iterator deadline{};
    bool has_deadline = false;                 // of the present park
    uint64_t timed_head = 0, timed_until = 0;  // the last operation with a deadline: woken in vain it keeps it
    std::thread::id callback_thread{};         // who runs the callback it is parked for

    std::shared_ptr<AbortFlag> abort_flag;     // of its operations
    FailurePtr failure;                        // the first that was not reported yet: see keep() and take()
    FailurePtr cause;                          // set: what comes next is cancelled,
    uint64_t cause_until = 0;                  // up to this one
    std::atomic<bool> failed{false};           // `failure` is set; written under the lock, before `completed`
    bool dropped = false;                      // nobody will take its failure
    std::atomic<bool> closing{false}, closed{false};   // written under the lock
    bool asked_about = false, hopeful = false; // while it is found out who waits in vain
    Stream* asked_next = nullptr;
    uint64_t hopeless_since = 0;               // it waits in vain while this is the scheduler's hope
    size_t able_index = 0, group_index = 0;    // in the scheduler's set of streams to draw from; in Group::held_up

    HostWaiter* waiters = nullptr;
    LoopWait* loop_waits = nullptr;

    uint64_t head() const { return completed.load(std::memory_order_relaxed) + 1; }
    bool is_idle() const { return queue.empty() && active == 0; }

    // Without the lock: what is submitted now waits for nothing, and a wait would report no failure.
    bool is_settled() const {
        const bool is_over = group ? group->is_idle() : completed.load(std::memory_order_acquire) == submitted.load(std::memory_order_relaxed);
        return is_over && !failed.load(std::memory_order_relaxed);
    }

    static inline std::atomic<uint64_t> failures{0};   // of all streams, so far
    static inline std::atomic<uint64_t> unreported{0}; // streams with a failure

    ~Stream() {
        if (failure) take();
    }
    void keep(const FailurePtr& new_failure) {
        if (failure && !failure->is_aborted()) return;
        if (!failure) unreported.fetch_add(1, std::memory_order_relaxed);
        failure = new_failure;
        failed.store(true, std::memory_order_relaxed);
        failures.fetch_add(1, std::memory_order_release);   // who sees the number finds the failure under the lock
    }
    FailurePtr take() {
        if (failure) unreported.fetch_sub(1, std::memory_order_relaxed);
        failed.store(false, std::memory_order_relaxed);
        FailurePtr taken = std::exchange(failure, nullptr);
        return taken && taken->is_aborted() ? nullptr : taken;
    }
};

}  // namespace peerlane

// Signals: two cache lines in shared memory.  Recorders write one, the consuming process writes the other.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "memory/refusal.h"
#include "stream/doorbell.h"

namespace peerlane {

// Another process may write anything here: values are compared and counted, never trusted.
struct alignas(64) SignalLine {
    static constexpr uint64_t kWaiter = 1, kRecord = 2;

    std::atomic<uint64_t> word{0};          // number of records, times two; lowest bit: there is a waiter
    std::atomic<uint64_t> time_ns{0};       // an event's record: the time at which it was over
    uint64_t reserved[6] = {};
    // On a cache line of its own, so that a recorder does not wait for the consumer's line.
    alignas(64) std::atomic<uint64_t> consumed{0};   // written by the consumer only
    std::atomic<uint64_t> generation{0};    // how often it was reset

    uint64_t recorded() const { return word.load(std::memory_order_acquire) / kRecord; }
};
static_assert(sizeof(SignalLine) == 128);

enum class NotifyKind : uint8_t {
    binary,   // a wait consumes all records
    fifo,     // a wait consumes one
    strict,   // a wait consumes one; a second record before that is refused
    level,    // one record of an event, by its number: once reached it stays reached, and nothing is consumed
    queued,   // one of several notifies with a completion queue: a wait consumes the next record of any of them
};

// Lines in a sealed memfd: another process maps the same ones.
class SignalPage {
  public:
    // A page starts with the doorbell of the process that made it, in a cache line of its own.
    explicit SignalPage(uint32_t lines);   // throws Refusal
    // Maps `fd`, without keeping it; throws Refusal unless it is sealed and large enough.
    SignalPage(int fd, uint32_t lines);
    ~SignalPage();
    SignalPage(const SignalPage&) = delete;
    SignalPage& operator=(const SignalPage&) = delete;

    int fd() const { return fd_; }
    uint32_t lines() const { return lines_; }
    Doorbell& bell() const { return *reinterpret_cast<Doorbell*>(base_); }
    SignalLine& line(uint32_t i) const { return reinterpret_cast<SignalLine*>(base_)[1 + i]; }

    uint64_t bytes() const { return (uint64_t{lines_} + 1) * sizeof(SignalLine); }

  private:
    const uint32_t lines_;
    int fd_ = -1;
    char* base_ = nullptr;
};

class Completions;
class LateArea;
class Members;
class SharedSignal;
class Undelivered;
struct FarArrivals;

// One use of a line by this process.
struct Notify {
    // A notify of this process alone; throws Refusal.  The caller drops it.
    static Notify* local(NotifyKind kind, uint32_t device);
    // Record `number` of an event that processes share.
    static Notify* record_of(std::shared_ptr<SharedSignal> event, uint64_t number, uint32_t device);

    // Notify `number` of a completion queue.
    static Notify* queued(std::shared_ptr<Completions> queue, uint32_t number, uint32_t device);

    // A record of `line`, of a bank, as entry `entry` of an area of late delivery.  `staged`: its consumer delivers the earlier
    // entries.  Else a process that takes the entry over can see whether the record was made.
    static Notify* late_record(const Notify& line, std::shared_ptr<LateArea> in, uint64_t entry, bool staged = false);
    // A step of a channel's late delivery, in stream order: to stage an entry, to deliver all of a source, or a fence.
    enum class Step : uint8_t { none, record, record_staged, stage, deliver_source, fence };
    static Notify* step(Step step, std::shared_ptr<LateArea> in, std::shared_ptr<Undelivered> by, uint64_t argument);

    // In a forked child: forget the parent's lines; false: the parent had notifies.
    static bool begin_anew();
    // Ids of so many notifies, one behind the other; return the first.
    static uint64_t take_ids(uint32_t count);
    // While one exists, a forked child cannot begin anew.
    struct Living {
        Living();
        ~Living();
        Living(const Living&) = delete;
    };

    Notify(std::shared_ptr<SignalPage> page, uint32_t line, NotifyKind kind);

    // The number of the record; 0: it is strict and its last record was not consumed, or the queue is full.  `wake`: there
    // is a waiter.  A step to stage throws Refusal if the peer has taken the memory back.
    uint64_t record(bool& wake);
    // Consume a record; the number of the newest one that was consumed, 0: there is none.  `other`: the notify whose record
    // came instead, if it was not this one's.
    uint64_t consume(std::optional<uint32_t>& other);
    bool is_recorded() const;
    // The rank that recorded it has closed it, or has sent its farewell.
    bool is_let_go() const;
    // Announce a waiter, then look again: a record after this rings the doorbell.
    bool announce();
    void reset();
    // It counts as recorded from the next record on; to be called by its only waiter.
    void look_past();
    // Let other processes record it and wait for it.  `keep`: its present records are shared too; `index`: the line of a
    // bank.  Under the scheduler's lock.
    void share(std::shared_ptr<SharedSignal> with, bool keep, uint32_t index = 0);
    SharedSignal* shared() const { return used_.load(std::memory_order_acquire); }
    std::shared_ptr<SharedSignal> sharing() const { return shared_; }   // not while it is being shared
    uint32_t index() const { return index_; }   // of its line in a bank
    uint32_t number_in_bank() const { return queue_ ? number_ : index_; }   // unique among the notifies of the bank
    bool is_local() const { return local_ && !shared(); }   // no other process can record it
    // The line that records change: its own line until it is shared.
    SignalLine& signal() const;
    // For an event's record: the record was cancelled, and no other will come.
    void fail();
    bool has_failed() const { return signal().generation.load(std::memory_order_acquire) == target && kind == NotifyKind::level; }

    const Living living;   // first: it ends last
    const std::shared_ptr<SignalPage> page;   // null: queued
    SignalLine& line;       // identifies it in this process, even if it is shared
    const NotifyKind kind;
    uint64_t target = 0;    // level: the number of the record
    std::atomic<bool> abandoned{false};  // only queued operations will still record it
    std::atomic<bool> promised{false};   // the program will record it, whatever is cancelled
    bool is_far = false;                 // a process of another machine records it
    uint64_t far_bank = 0, far_line = 0;   // then its bank and line in event logs, which both machines know
    std::shared_ptr<FarArrivals> far_arrivals;   // null: what comes is there
    std::shared_ptr<const Members> members;      // a wait ends too when one of these is lost
    std::atomic<uint64_t> lost_to{0};    // who would have recorded it, on another machine, and is gone; 0: nobody
    uint64_t id = 0;        // unique in this process, for texts
    uint32_t device = 0;
    std::atomic<uint32_t> references{1};

    void hold() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop() {
        if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

  private:
    Notify(std::shared_ptr<Completions> queue, uint32_t number);
    ~Notify();
    bool local_ = false;    // its line is returned at the end
    uint32_t index_ = 0;    // of its line in a bank
    uint32_t number_ = 0;   // among the notifies of its queue
    const std::shared_ptr<Completions> queue_;
    std::shared_ptr<SharedSignal> shared_;
    std::atomic<SharedSignal*> used_{nullptr};
    uint64_t record_line(bool& wake);
    uint64_t make_step(bool& wake);
    std::shared_ptr<LateArea> late_area_;   // null: its records are not late
    std::shared_ptr<Undelivered> undelivered_;
    uint64_t late_entry_ = 0;   // the number of the entry, or of the source to deliver
    Step step_ = Step::none;
};

// The refusals of a record, and of a wait that met another notify's record.
Refusal not_recorded(const Notify& notify);
Refusal out_of_order(const Notify& notify, uint32_t other);

}  // namespace peerlane

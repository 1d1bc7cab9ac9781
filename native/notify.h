// Signals: one cache line in shared memory, recorded by anyone, consumed by one process.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

namespace peerlane {

// Everything here may be written by another process: values are counted with, never trusted.
struct alignas(64) SignalLine {
    static constexpr uint64_t kWaiter = 1, kRecord = 2;

    std::atomic<uint64_t> word{0};          // how often it was recorded, times two; the lowest bit: somebody waits
    std::atomic<uint64_t> consumed{0};      // written by the consumer only
    std::atomic<uint64_t> generation{0};    // how often it was reset
    std::atomic<uint64_t> recorder{0};      // process id of the last one
    uint64_t reserved[4] = {};

    uint64_t recorded() const { return word.load(std::memory_order_acquire) / kRecord; }
};
static_assert(sizeof(SignalLine) == 64);

enum class NotifyKind : uint8_t {
    binary,   // consuming takes all records
    fifo,     // consuming takes one
    strict,   // a record is refused until the one before was consumed
};

// A futex word on which one thread of a process sleeps; peers ring it.
struct Doorbell {
    std::atomic<uint32_t> rings{0};

    void ring();
    // Sleep until it was rung after `seen` was read, or for `nanoseconds`.
    void sleep(uint32_t seen, uint64_t nanoseconds);
};

// Lines in a sealed memfd: another process maps the same ones.
class SignalPage {
  public:
    // A page starts with the doorbell of the process that made it, in a line of its own.
    explicit SignalPage(uint32_t lines);   // throws Refusal
    // Maps `fd` (not kept); throws Refusal unless it is sealed and as large as it must be.
    SignalPage(int fd, uint32_t lines);
    ~SignalPage();
    SignalPage(const SignalPage&) = delete;
    SignalPage& operator=(const SignalPage&) = delete;

    int fd() const { return fd_; }
    uint32_t lines() const { return lines_; }
    Doorbell& bell() const { return *reinterpret_cast<Doorbell*>(base_); }
    SignalLine& line(uint32_t i) const { return reinterpret_cast<SignalLine*>(base_)[1 + i]; }

  private:
    uint64_t bytes() const { return (uint64_t{lines_} + 1) * sizeof(SignalLine); }

    const uint32_t lines_;
    int fd_ = -1;
    char* base_ = nullptr;
};

// One use of a line by this process.
struct Notify {
    // One of this process alone; throws Refusal.  The caller drops it.
    static Notify* local(NotifyKind kind, uint32_t device);

    Notify(std::shared_ptr<SignalPage> page, uint32_t line, NotifyKind kind, Doorbell* far)
        : page(std::move(page)), line(this->page->line(line)), kind(kind), far(far) {}

    // The number of the record; 0: strict, and the one before was not consumed.  `wake`: somebody waits for it.
    uint64_t record(bool& wake);
    // True when a record was there; it is consumed then.
    bool consume();
    bool is_recorded() const;
    // Announce a waiter, then look again: a record after this rings.
    bool announce();
    void reset();
    bool is_local() const { return local_; }   // nobody outside of this process can record it

    const std::shared_ptr<SignalPage> page;
    SignalLine& line;
    const NotifyKind kind;
    Doorbell* const far;    // of the consumer, when it is another process
    std::atomic<bool> promised{false};   // the program will record it, whatever is cancelled
    uint64_t id = 0;        // unique in this process, for texts
    uint32_t device = 0;
    std::atomic<uint32_t> references{1};

    void hold() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop() {
        if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

  private:
    ~Notify();
    bool local_ = false;
};

}  // namespace peerlane

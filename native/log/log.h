// The writer of this process's event logs: one for each kind of reader that there is.
//
// Hot paths ask `wanted()` or `is_read()`, which is one branch while nobody reads.  The logs' lock is the innermost of all: the
// heap's and the scheduler's may be held when it is taken, and nothing is called while it is held but what the caller of Writing does.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "log/event.h"

namespace peerlane::log {

// Who reads.  Each has a log of its own, so who falls behind takes no room from the others.  The checker is another process, and
// reads a file; this process itself reads the other two.
constexpr uint8_t kChecker = 1, kObserver = 2, kTrace = 4, kAnyone = 7;
inline std::atomic<uint8_t> readers{0};
inline bool is_read(uint8_t by) { return (readers.load(std::memory_order_relaxed) & by) != 0; }

// What the calling thread is doing, for the events that it writes.
struct Context {
    uint32_t site = 0;      // the line that called
    uint32_t fixed = 0;     // 0, or the line that a call belongs to that runs later
    uint32_t thread = 0;    // 0, or the thread that waits for this one, which works for it
    uint32_t quiet = 0;     // depth: peerlane works for itself, and nothing is logged
    uint8_t flags = 0;      // of accesses: kLoose, kFetch
    uint8_t of_free = 0;    // flags of `freed`: kEnd
    uint64_t channel = 0;   // that they belong to
    uint64_t stream = 0, sequence = 0;   // what a quiet notify, or one of another machine, is logged as; sequence 0: as nothing
};
// Small, and read with each event, so it lies in the static TLS block.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit Context context;

// By the checker, whose log leaves out what peerlane does for itself.
inline bool wanted() { return is_read(kChecker) && context.quiet == 0; }
// By the checker, or by an observer, who sees that too.
inline bool is_logging() { return is_read(kChecker | kObserver) && (context.quiet == 0 || is_read(kObserver)); }

// What happens meanwhile is done by no line of the program: it drops its last reference, or leaves.
class ByNoLine {
  public:
    ByNoLine() { context.site = 0; }
    ~ByNoLine() { context.site = before_; }
    ByNoLine(const ByNoLine&) = delete;

  private:
    const uint32_t before_ = context.site;
};

class Quiet {
  public:
    Quiet() { ++context.quiet; }
    ~Quiet() { --context.quiet; }
    Quiet(const Quiet&) = delete;
};

// The spans of an event.  Those that continue the last one of their kind make it longer.
class Spans {
  public:
    void add(uint64_t block, uint64_t offset, uint64_t size, bool written);   // throws std::bad_alloc
    void add(const Span& span, const Rows& rows);                             // of a rectangle: then each of them
    const Span* data() const { return many_.empty() ? few_ : many_.data(); }
    uint32_t size() const { return many_.empty() ? count_ : static_cast<uint32_t>(many_.size()); }
    const Rows* rows() const { return rows_.empty() ? nullptr : rows_.data(); }

  private:
    void add(const Span& span);

    static constexpr uint32_t kFew = 4, kNone = UINT32_MAX;

    Span few_[kFew];
    uint32_t count_ = 0;
    uint32_t last_[2] = {kNone, kNone};   // read, written
    std::vector<Span> many_;              // all, once there are more
    std::vector<Rows> rows_;
};

struct Event {
    Kind kind;
    uint8_t op = 0, flags = 0;
    uint64_t stream = 0, sequence = 0;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    const Spans* spans = nullptr;
    uint32_t site = context.site;
};

// Without a log, or without room, nothing happens; an event without room is counted.
void write(const Event& event, uint8_t by = kChecker) noexcept;

// The number of the calling thread.
uint32_t this_thread() noexcept;

// Whether the calling thread holds the logs' lock: a signal's handler may interrupt it.
bool is_writing() noexcept;

// Count an event for which there was no memory.
void drop(uint8_t by = kChecker) noexcept;

// Holds the logs' lock: for what must not happen before its event is there.
class Writing {
  public:
    explicit Writing(bool for_checker);   // whether the checker reads it
    ~Writing();
    Writing(const Writing&) = delete;
    void write(const Event& event, uint8_t by = kChecker) noexcept;

  private:
    std::unique_lock<std::mutex> lock_;
};

constexpr uint64_t kRoom = uint64_t{1} << 20;   // how much is reserved on the disk at once, at most
constexpr uint64_t kFirstRoom = uint64_t{1} << 16;

// This process's machine and its clock, for the logs that begin from now on.  Numbers that are unique
// on a machine only are unique among machines together with the first one.
void set_origin(uint64_t machine, uint64_t clock);
inline std::atomic<uint64_t> machine{0};
// Begin a log of this process and of those that it forks, each of which gets one of its own.  `capacity` is rounded up to
// `kRoom`; what all logs of the directory hold stays within `total`.  Throws std::system_error.  False: there is one already.
bool begin(const std::string& directory, uint64_t capacity, int32_t rank, uint64_t total = UINT64_MAX);
// The same for a reader of this process: in a file without a name, which takes memory for what is not read yet.
bool begin_in_process(uint8_t by, uint64_t capacity);
// The log is complete: the process leaves its node, or nobody reads any more.
void end(uint8_t by = kChecker) noexcept;
void see_forks();   // what the first use does: to be there before others see them

struct Facts {
    std::string path;   // empty: there is no log
    uint64_t written = 0, dropped = 0, capacity = 0;
    uint64_t start_ns = 0;   // of no two logs the same
};
Facts facts(uint8_t by = kChecker);

// Add a line to the file with the names: a JSON object.  Before the events that use it.
void write_name(const std::string& line) noexcept;
// Name a process that has opened memory of this one: it may have no log.
void name_sharer(int32_t pid) noexcept;
// Called when the process exits, before its log ends.
inline std::atomic<void (*)()> before_exit{nullptr};
// Changes with each log, of which a forked child has a new one: names must be written again then.
inline std::atomic<uint64_t> number{0};
// Let a reader in this process see the newest record: it does not grow any more.
void settle() noexcept;

// A string with its quotation marks, as JSON.
std::string quoted(const std::string& text);

}  // namespace peerlane::log

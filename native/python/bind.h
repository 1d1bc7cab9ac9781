#pragma once
#include <nanobind/nanobind.h>

#include <utility>

#include "copy/copy_engine.h"
#include "log/log.h"
#include "memory/memory.h"
#include "stream/event.h"
#include "stream/scheduler.h"

void bind_memory(nanobind::module_& m);
void bind_export(nanobind::module_& m);
void bind_dlpack(nanobind::module_& m);
void bind_mappings(nanobind::module_& m);
void bind_sharing(nanobind::module_& m);
void bind_signals(nanobind::module_& m);
void bind_copies(nanobind::module_& m);
void bind_streams(nanobind::module_& m);
void bind_submissions(nanobind::module_& m);
void bind_channels(nanobind::module_& m);
void bind_group_log(nanobind::module_& m);
void bind_collectives(nanobind::module_& m);
void bind_group_calls(nanobind::module_& m);
void bind_messages(nanobind::module_& m);
void bind_ends(nanobind::module_& m);
void bind_c_calls(nanobind::module_& m);
void bind_nccl_calls(nanobind::module_& m);
void bind_pools(nanobind::module_& m);
void bind_observer(nanobind::module_& m);
void bind_host_views(nanobind::module_& m);
void bind_touches(nanobind::module_& m);
void bind_readiness(nanobind::module_& m);
void bind_call_sites(nanobind::module_& m);
void bind_waits(nanobind::module_& m);
void bind_log(nanobind::module_& m);
void bind_processes(nanobind::module_& m);
void bind_files(nanobind::module_& m);
void bind_far(nanobind::module_& m);
void bind_device_calls(nanobind::module_& m);

// Let the dialects be asked again before calls of C are answered without Python.
void forget_c_threads();

// A number for the line of the program that is calling, which costs about 0.1 us; 0: it is not known.
uint64_t call_site();
// The same of the line that called libraries which are installed beside peerlane, such as torch.
uint64_t call_site_of_program();
// The number of a place in a program of C, by the address to which a call returns; without the GIL.
uint64_t call_site_of_c(uint64_t address);
// The number of the line in Python that calls C code; without one that of the place in C.  It needs the GIL.
uint64_t call_site_above_c(uint64_t address);
// (code, offset of the instruction), or None.
nanobind::object site_of(uint64_t number);

// Asks the interpreter for signals, when this is the thread that handles them.
peerlane::Poll poll_of_thread();
// The same in waits, which may last: there it is also looked whether anything can still run.
peerlane::Poll poll_waiting();
// By a thread that has no state of the interpreter's, or gave it away; not once the interpreter exits.
void with_gil_unless_exiting(const std::function<void()>& work);
// A refusal as the exception that Python's texts make of it.
nanobind::object as_exception(const peerlane::Refusal& refusal);
void raise_refusal(const peerlane::Refusal& refusal);   // sets it
// Lets go of what operations kept alive; with the GIL and without any lock.
void release_kept();
void release_far();   // the same, of what channels to other machines kept alive

// What Python holds of a stream; the last one to go closes it.
struct StreamHandle {
    peerlane::StreamPtr stream;
    StreamHandle(uint32_t device, bool stops, std::shared_ptr<peerlane::Group> group, bool legacy);
    ~StreamHandle();
    StreamHandle(const StreamHandle&) = delete;
};
struct EventHandle {
    std::shared_ptr<peerlane::Event> event = std::make_shared<peerlane::Event>();
};
struct GroupHandle {
    std::shared_ptr<peerlane::Group> group = std::make_shared<peerlane::Group>();
};
// What Python holds of a block; two threads may close it.  Every member function wants the GIL: it orders a look at
// the block, and the hold that follows, against the close.
class BlockHandle {
  public:
    explicit BlockHandle(peerlane::Block* held) : block_(held) {}
    ~BlockHandle();
    BlockHandle(const BlockHandle&) = delete;

    peerlane::Block& get() const;   // throws Refusal when it is closed
    bool is_closed() const { return block_ == nullptr; }
    void close();

  private:
    peerlane::Block* block_;
};
// A hold for the time of an operation that gives the GIL away.
class BlockUse {
  public:
    explicit BlockUse(const BlockHandle& handle) : block(handle.get()) { hold(&block); }
    ~BlockUse() { drop(&block); }
    BlockUse(const BlockUse&) = delete;

    peerlane::Block& block;
};
// The account outlives the Python object: blocks may be refunded after it is gone.
struct LedgerHandle {
    std::shared_ptr<peerlane::Ledger> ledger;
};
struct ReservationHandle {
    peerlane::ReservationPtr reservation;
    explicit ReservationHandle(peerlane::ReservationPtr reserved) : reservation(std::move(reserved)) {}
    ~ReservationHandle() {
        try {
            close();
        } catch (const peerlane::Refusal&) {
            // Forked: nothing of it is here.
        }
    }
    ReservationHandle(const ReservationHandle&) = delete;
    void close() {
        if (!peerlane::Heap::get().is_forked()) peerlane::Heap::get().release(*reservation);
    }
};
template <class Shared>
struct Held {   // a reference to what is counted by hold() and drop()
    Shared* shared = nullptr;
    Held() = default;
    explicit Held(Shared* taken) : shared(taken) {}
    Held(Held&& other) noexcept : shared(std::exchange(other.shared, nullptr)) {}
    Held& operator=(Held&& other) noexcept {
        std::swap(shared, other.shared);
        return *this;
    }
    ~Held() {
        if (shared) shared->drop();
    }
};

// Observers: hand over what is new in their log.  With the GIL, where the program's code may run.
void log_for_observer() noexcept;
inline void log_if_observed() {
    if (peerlane::log::is_read(peerlane::log::kObserver)) [[unlikely]] log_for_observer();
}
// A notice of a buffer, with its bytes.
void log_view_for_observer(const peerlane::Memory& memory, bool opened);

// The event log.  A number for the program's line that is calling, and its callers; 0: there is none.  With the GIL.
uint32_t log_site();
// Of the line that called libraries which are installed beside peerlane, such as NumPy.
uint32_t log_site_of_program();
// Of that line, for an operation of a library, named by two texts that are never freed; `of`: the thread that runs the line.
struct LibraryCall {
    const char *library = nullptr, *name = nullptr;
};
uint32_t log_site_of_library(const LibraryCall& call, PyThreadState* of);
// Before a call that may be logged.
inline void note_site() {
    if (peerlane::log::is_logging()) [[unlikely]] peerlane::log::context.site = peerlane::log::context.fixed ? peerlane::log::context.fixed : log_site();
}
// What that line does with what it reads; after note_site().  polls: it is in a loop that waits for it.  keeps: it gives a buffer back at
// once, and uses its bytes longer.  hidden: nobody can read its source, as in C.
enum class Line : int8_t { unknown, neither, polls, keeps, hidden };   // as in diagnostics/hooks/polls.py
Line line_that_calls() noexcept;
inline bool is_poll() noexcept { return line_that_calls() == Line::polls; }
inline bool keeps_buffer() noexcept { return line_that_calls() == Line::keeps; }
// How the log marks that it reads so many bytes.
uint8_t flags_of_look(uint64_t size) noexcept;
// What is logged meanwhile has these marks.
class Marked {
  public:
    explicit Marked(uint8_t flags) : flags_(flags) {
        if (flags_ != 0) [[unlikely]] before_ = std::exchange(peerlane::log::context.flags, peerlane::log::context.flags | flags_);
    }
    ~Marked() {
        if (flags_ != 0) [[unlikely]] peerlane::log::context.flags = before_;
    }
    Marked(const Marked&) = delete;

  private:
    const uint8_t flags_;
    uint8_t before_ = 0;
};
// (code, offset of the instruction) of a number, or None.
nanobind::object log_site_of(uint32_t number);
// An operation that is over when the call returns, while it holds its memory; with the GIL, if there is a reader.
void log_complete(peerlane::OpKind kind, const peerlane::Operand& to, const peerlane::Operand* from, uint8_t readers = peerlane::log::kAnyone) noexcept;
// Moves bytes and logs it.  The log has a word before anybody can see it: looks of loops that wait are logged when they have seen it.
template <class Move>
void move_logged(peerlane::OpKind kind, const peerlane::Operand& to, const peerlane::Operand* from, const Move& move) {
    const bool is_word = peerlane::log::wanted() && to.size <= peerlane::log::kWordBytes && to.range().device != peerlane::kHost;
    if (is_word) [[unlikely]] {
        peerlane::Heap::get().check_access(to.range(), from ? from->range() : peerlane::Range{}, peerlane::kHost);   // what is refused is not logged
        log_complete(kind, to, from, peerlane::log::kChecker);
    }
    move();
    if (is_word ? peerlane::log::is_read(peerlane::log::kObserver) : peerlane::log::is_logging()) [[unlikely]]
        log_complete(kind, to, from, is_word ? peerlane::log::kObserver : peerlane::log::kAnyone);
}
void log_rectangle(const peerlane::Operand& dst, uint64_t dst_pitch, const peerlane::Operand& src, uint64_t src_pitch, uint64_t width,
                   uint64_t height);
void log_batch(const peerlane::Batch& batch, const peerlane::Operand* table);
// The program takes, or gives back, an array on memory, whose accesses nobody tells; false: peerlane took it for itself.
bool log_alias(const peerlane::Memory& memory) noexcept;
enum class Alias : uint8_t { of_buffer, of_view, end };
void log_alias(const char* host, uint64_t size, Alias what) noexcept;
void log_waited_now(const peerlane::Notify& notify, uint64_t number);
void log_sync(uint64_t stream, uint64_t sequence);
// The same, whichever line calls; also without the GIL.
void log_known(uint64_t stream, uint64_t sequence);
// `before`: the number that it had in this process until other processes could have it; 0: none.
void log_new_notify(const peerlane::Notify& notify, uint64_t incoming, uint64_t before);
void log_of_channel(peerlane::log::Kind kind, uint64_t channel, const StreamHandle* stream);

// The GIL is given away for the life of this object.  CPython before 3.14 ends a daemon thread that comes back
// for the GIL during finalization by unwinding it, which C++ answers with an abort: after `interpreter_exits`
// such threads wait for the end of the process here instead.
class GilReleased {
  public:
    GilReleased();
    ~GilReleased();
    GilReleased(const GilReleased&) = delete;
    GilReleased& operator=(const GilReleased&) = delete;

  private:
    PyThreadState* state_;
};

// Threads of C that wait for the GIL, to call a vendor's library.
extern std::atomic<uint32_t> gil_waiters;
// Let modules that join a thread under the GIL give it away while another thread of C waits for it; not for those loaded later.
void follow_waits() noexcept;

// While a thread of C calls Python, which may give the GIL away and come back for it.  False: Python ends, and it must not.
bool begin_call_of_c() noexcept;
void end_call_of_c() noexcept;

// Called with the GIL by the thread that finalizes, as late as Python allows.
void interpreter_exits();

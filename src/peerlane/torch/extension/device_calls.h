// What extensions that are compiled apart from peerlane, such as the device of torch, call of `_core`: functions of C, in a table.
//
// Two compilers may have made the two sides, so only plain data crosses.  The functions take the GIL themselves where they need it;
// a caller holds no lock that is taken under the GIL.
#pragma once
#include <cstddef>
#include <cstdint>

struct _object;

namespace peerlane {

// Rows of bytes that an operation reads or writes; one row: height 1.
struct WorkBytes {
    const void* host;
    uint64_t pitch, width, height;
    bool is_written;
};

struct LateBytes {
    const WorkBytes* bytes;
    size_t count;
};

// An operation of a stream that is a function.  Whoever submits it fills it in; the stream ends it once.
struct Work {
    const char* name = "";                   // of the operation, for texts
    bool is_watched = false;                 // `bytes` of the host may not be touched before the program knows that it is over
    bool (*run)(Work*) noexcept = nullptr;   // in any thread, without the GIL; false: it failed, see `error`
    void (*end)(Work*) noexcept = nullptr;   // after it ran, or was cancelled: frees it
    uint64_t size = 0;                       // about how many bytes it moves
    const WorkBytes* bytes = nullptr;        // what the checker sees of it
    size_t count = 0;
    LateBytes (*look)(Work*) noexcept = nullptr;   // just before `run`: what else the checker sees of it, which other bytes decide
    const char* error_type = "";             // of a failure: the name of an exception of Python, and its text
    const char* error = "";
};

// A thread of Python for which others may work: its number there and in the log; 0: it runs no program of Python's.
struct Caller {
    uint64_t thread = 0;
    uint32_t number = 0;
};

// What the log knew of the calling thread before a call.
struct Entered {
    uint32_t site = 0, thread = 0;
};

// How far a stream has come.
struct Position {
    uint64_t stream = 0, sequence = 0;
};

struct DeviceCalls {
    static constexpr uint64_t kVersion = 3;

    uint64_t version;
    // With the GIL: the native stream of a `_core.Stream`, which is held for good; null: it is none.
    void* (*hold_stream)(_object* stream) noexcept;
    // The stream owns the work, also if it is refused (false): then raise_refused() has the reason.
    bool (*submit)(void* stream, Work* work) noexcept;
    void (*raise_refused)() noexcept;         // with the GIL: sets Python's error
    // Whether all that was submitted is over and no failure is kept.
    bool (*is_settled)(void* stream) noexcept;
    // Whether what is submitted now to a settled stream may run in the calling thread instead: the schedule is eager, and nobody reads a log.
    bool (*runs_at_once)() noexcept;
    bool (*is_checked)() noexcept;            // the checker reads a log
    // A mark of what the stream has been given by now; null: refused.
    void* (*record)(void* stream) noexcept;
    bool (*is_over)(void* mark) noexcept;
    Position (*position)(void* mark) noexcept;
    void (*drop)(void* mark) noexcept;
    // While the checker reads a log.  What is done from `enter` to `leave` belongs to the line that calls now, as an operation of a library; both texts are kept
    // for good, and null names none.  `of`: the thread that waits for this one, if one does; its line counts where this one has none.
    Entered (*enter)(const char* library, const char* operation, const Caller* of) noexcept;
    void (*leave)(Entered before) noexcept;
    Caller (*caller)() noexcept;
    void (*note_over)(Position position) noexcept;                  // the calling thread knows that the stream has come so far
    void (*note_reuse)(const void* host, uint64_t size) noexcept;   // it hands out bytes of an allocation
    // Where the host finds the bytes of device addresses: at `host_offset` from those in the window.
    uint64_t (*guard_base)() noexcept;
    uint64_t (*guard_size)() noexcept;
    int64_t (*host_offset)() noexcept;
};

}  // namespace peerlane

// Which process is which, and whether it lives: a pid alone is used again.
#pragma once
#include <cstdint>

namespace peerlane {

// The kernel's start time of a process in clock ticks; 0: there is none, or it has ended and waits to be collected.
// kUnknownStart: there is no descriptor to look with.  Who takes that for an end buries the living.
constexpr uint64_t kUnknownStart = UINT64_MAX;
uint64_t start_time(int32_t pid);
uint64_t known_start(uint64_t start);   // throws Refusal where it is not known
// Its first thread has ended, and others may still write to memory.  Where there are no pidfds: false.
bool is_ending(int32_t pid);
// A descriptor of another process, opened again here; -1 with errno.  It may stand for anything: the open does not wait.
int open_descriptor_of(int32_t pid, int fd, int mode);

// A process that is watched.  With a pidfd its end is a readable descriptor; where the kernel or a filter of
// system calls refuses one, `pidfd` is -1 and has_ended() reads the start time again.
struct Process {
    int32_t pid = 0;
    uint64_t start = 0;
    int pidfd = -1;

    // `socket`: -1, or a connected one, whose other end is asked for first: that cannot be another process by now.
    // `start` is 0 when the process ended meanwhile, kUnknownStart when that cannot be seen.  The caller closes `pidfd`.
    static Process watch(int32_t pid, int socket);
    bool has_ended() const;
    // A descriptor of the process, in this one: the same for O_RDWR where it may be traced, else its file opened again.
    // Without one, or when the process has ended, -1.  It may stand for anything: the open does not wait.
    int descriptor(int fd, int mode) const;
};

}  // namespace peerlane

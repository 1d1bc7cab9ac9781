#include "share/process.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/block.h"
#include "memory/refusal.h"

// Newer than the headers that the wheels are made with.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace peerlane {

namespace {

bool is_readable(int fd) {
    pollfd asked{fd, POLLIN, 0};
    return poll(&asked, 1, 0) == 1;
}

int pidfd_of_peer(int socket) {
    if (socket < 0) return -1;
    return new_descriptor([socket] {
        int fd = -1;
        socklen_t size = sizeof fd;
        return getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0 ? fd : -1;
    });
}

}  // namespace

uint64_t start_time(int32_t pid) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = new_descriptor([&path] { return open(path, O_RDONLY | O_CLOEXEC); });
    if (fd < 0) return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? kUnknownStart : 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    const char* at = strrchr(text, ')');   // the name before it may hold anything
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X') return 0;
    for (int field = 2; field < 22; ++field) {
        at = strchr(at + 1, ' ');
        if (!at) return 0;
    }
    return strtoull(at + 1, nullptr, 10);
}

uint64_t known_start(uint64_t start) {
    if (start == kUnknownStart) throw Refusal{.why = Why::descriptors, .role = "handle", .error = EMFILE};
    return start;
}

bool is_ending(int32_t pid) {
    const int fd = new_descriptor([pid] { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); });
    if (fd < 0) return false;
    const bool goes_on = !is_readable(fd);
    close(fd);
    return goes_on;
}

int open_descriptor_of(int32_t pid, int fd, int mode) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    return new_descriptor([&] { return open(path, mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
}

Process Process::watch(int32_t pid, int socket) {
    Process process{.pid = pid, .pidfd = pidfd_of_peer(socket)};
    if (process.pidfd >= 0) {
        process.start = start_time(pid);
        // Still that process after its start time was read: it is the time of this one.
        if (is_readable(process.pidfd)) process.start = 0;
        return process;
    }
    process.start = start_time(pid);
    process.pidfd = new_descriptor([pid] { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); });
    const uint64_t now = start_time(pid);
    if (now == kUnknownStart)
        process.start = now;
    else if (now != process.start)
        process.start = 0;
    return process;
}

bool Process::has_ended() const {
    if (pidfd >= 0) return is_readable(pidfd);
    if (start == 0) return true;
    const uint64_t now = start_time(pid);
    return now != start && now != kUnknownStart;
}

int Process::descriptor(int theirs, int mode) const {
    if (mode == O_RDWR && pidfd >= 0) {
        const int fd = new_descriptor([&] { return static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, theirs, 0)); });
        if (fd >= 0) return fd;
    }
    const int fd = open_descriptor_of(pid, theirs, mode);
    // Its end is looked for after the open: until then the pid is no other process's.
    if (fd < 0 || !has_ended()) return fd;
    close(fd);
    return -1;
}

}  // namespace peerlane

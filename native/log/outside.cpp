#include "log/outside.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace peerlane::log {

namespace {

struct Slot {
    std::atomic<uint64_t> key{0}, flags{0}, first_ns{0}, last_ns{0};   // received since the last event
    std::atomic<uint64_t> sent_in{0}, sent_ns{0}, until_ns{0}, events{0}, quick{0};   // the last event: its generation, its time, until when it stands
};

constexpr size_t kSlots = 512, kWords = kSlots / 64;   // media; a process with more of them has them all in one
constexpr uint64_t kHot = 1'000'000, kQuick = 16;      // events that follow each other within these ns span as many
Slot slots[kSlots];
std::atomic<uint64_t> changed[kWords];   // bits: slots that received
std::atomic<bool> has_received{false}, has_overflown{false};
std::atomic<bool> is_silent_child{false};   // forked, and without a log until it logs something else: most such processes become another program
std::atomic<uint64_t> generation{1};   // of what this process could tell others
std::atomic<uint64_t> logged{1};       // events of other kinds
uint64_t begun_s = 0;

uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t mixed(uint64_t one, uint64_t other) {
    uint64_t x = one * 0x9e3779b97f4a7c15u + other;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x <= kWorld ? x + kWorld + 1 : x;
}

// Null: there is no slot left.
Slot* slot_of(uint64_t key) {
    for (size_t i = 0; i < kSlots; ++i) {
        Slot& slot = slots[(key + i) % kSlots];
        uint64_t known = slot.key.load(std::memory_order_relaxed);
        if (known == key || (known == 0 && slot.key.compare_exchange_strong(known, key, std::memory_order_relaxed)) || known == key) return &slot;
    }
    return nullptr;
}

// The analysis then takes all media of the run for one, the world, which has a slot from the beginning.
Slot& slot_or_world(uint64_t key) {
    if (!has_overflown.load(std::memory_order_relaxed)) {
        if (Slot* const slot = slot_of(key)) return *slot;
        if (!is_silent_child.load(std::memory_order_relaxed) && !has_overflown.exchange(true, std::memory_order_relaxed)) write({.kind = Kind::outside, .a = kWorld, .b = kOverflown, .site = 0});
    }
    Slot* const slot = slot_of(key);
    return slot ? *slot : *slot_of(kWorld);
}

// A hook must not change what its caller sees, and a signal handler may call it while its thread writes to the log.
bool is_noted() { return wanted() && !is_writing(); }

struct Medium {
    uint64_t key = 0, flags = 0;   // 0: none
};

// A process that only passes on what it receives would log each round: then an event stands for what is sent within a time after it.
void sent(Medium medium) {
    if (medium.key == 0 || is_silent_child.load(std::memory_order_relaxed)) return;
    Slot& slot = slot_or_world(medium.key);
    const uint64_t own = generation.load(std::memory_order_relaxed), now = now_ns();
    if (slot.sent_in.load(std::memory_order_acquire) == own || now < slot.until_ns.load(std::memory_order_acquire)) return;
    const uint64_t events = logged.load(std::memory_order_relaxed);
    const bool is_quick = slot.events.exchange(events, std::memory_order_relaxed) == events && now < slot.sent_ns.load(std::memory_order_relaxed) + 2 * kHot;
    const uint64_t quick = is_quick ? slot.quick.load(std::memory_order_relaxed) + 1 : 0, span = quick < kQuick ? 0 : kHot;
    slot.quick.store(quick, std::memory_order_relaxed);
    slot.sent_ns.store(now, std::memory_order_relaxed);
    write({.kind = Kind::outside, .a = slot.key.load(std::memory_order_relaxed), .b = kSent | medium.flags, .d = span, .site = 0});
    // Only now: until it is logged, no other thread may rely on it.  The event's time is later than `now`.
    if (span != 0) slot.until_ns.store(now + span, std::memory_order_release);
    slot.sent_in.store(own, std::memory_order_release);
}

void received(Medium medium) {
    if (medium.key == 0) return;
    Slot& slot = slot_or_world(medium.key);
    const auto at = static_cast<size_t>(&slot - slots);
    const uint64_t now = now_ns();
    uint64_t none = 0;
    slot.flags.store(medium.flags, std::memory_order_relaxed);
    slot.last_ns.store(now, std::memory_order_relaxed);
    slot.first_ns.compare_exchange_strong(none, now, std::memory_order_relaxed);
    changed[at / 64].fetch_or(uint64_t{1} << at % 64, std::memory_order_release);
    if (!has_received.exchange(true, std::memory_order_acq_rel)) generation.fetch_add(1, std::memory_order_relaxed);
}

bool is_own(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return path.find("/peerlane-") != path.npos || path.find("/__pycache__/") != path.npos || (name.starts_with("node-") && name.find(".node") != name.npos) || name.starts_with("memfd:peerlane") || 
           name.starts_with("pym-") || name.starts_with("sem.");   // the last two: the hooks of multiprocessing, and of sem_open, log them
}

bool is_own_file(int fd) {
    char link[64], path[1024];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(link, path, sizeof path);
    return length > 0 && is_own({path, static_cast<size_t>(length)});
}

Medium medium_of(int fd, bool is_read) {
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) return {};
    const uint64_t key = mixed(about.st_dev, about.st_ino);
    switch (about.st_mode & S_IFMT) {
    case S_IFSOCK:
        return {kWorld, 0};
    case S_IFIFO:
        return {key, fd == 1 || fd == 2 ? 0 : kRelayed};
    case S_IFREG:
        if (is_read && static_cast<uint64_t>(about.st_mtim.tv_sec) < begun_s) return {};   // nobody wrote it since this run began
        if (is_own_file(fd)) return {};
        return {key, fd == 1 || fd == 2 ? 0 : kRelayed};
    case S_IFCHR:
        return {};
    default:
        return {kWorld, 0};   // eventfd, signalfd, timerfd: one inode for all
    }
}

// Whether a call's result tells something of others: a failure does, such as that the peer is gone, unless it is only that there is nothing yet.
template <class Result>
bool is_news(Result result) {
    if constexpr (std::is_pointer_v<Result>) return true;
    else return static_cast<int64_t>(result) >= 0 || (errno != EAGAIN && errno != EINTR && errno != EINPROGRESS && errno != ETIMEDOUT);
}

template <class Result>
bool is_failure(Result result) {
    if constexpr (std::is_pointer_v<Result>) return false;
    else return static_cast<int64_t>(result) < 0;
}

// `find` returns the medium, of which a call needs to know only if it is noted.
template <class Find, class Call>
auto sending_as(const Find& find, const Call& call) {
    const bool is_to_note = is_noted();
    Medium medium;
    if (is_to_note) {
        const int before = errno;
        sent(medium = find());
        errno = before;
    }
    const auto result = call();
    if (is_to_note && is_failure(result) && is_news(result)) {
        const int before = errno;
        received(medium);
        errno = before;
    }
    return result;
}

template <class Find, class Call>
auto receiving_as(const Find& find, const Call& call) {
    const auto result = call();
    if (is_noted() && is_news(result)) {
        const int before = errno;
        received(find());
        errno = before;
    }
    return result;
}

template <class Call>
auto sending(int fd, const Call& call) { return sending_as([&] { return medium_of(fd, false); }, call); }
template <class Call>
auto receiving(int fd, const Call& call) { return receiving_as([&] { return medium_of(fd, true); }, call); }
template <class Call>
auto sending_by(Medium medium, const Call& call) { return sending_as([&] { return medium; }, call); }
template <class Call>
auto receiving_by(Medium medium, const Call& call) { return receiving_as([&] { return medium; }, call); }

// A lock, or a queue with a limit: who takes also gives.
template <class Call>
auto both(int fd, const Call& call) { return sending(fd, [&] { return receiving(fd, call); }); }
template <class Call>
auto both_by(Medium medium, const Call& call) { return sending_by(medium, [&] { return receiving_by(medium, call); }); }

constexpr Medium kAnyone{kWorld, 0};

// Shared mappings.
struct Mapping {
    uintptr_t begin, end;
    uint64_t key;
    bool is_writable, is_relayed;   // a process without a log may have mapped it, too
};
std::mutex mappings_mutex;
std::vector<Mapping>& mappings() {
    static auto* const all = new std::vector<Mapping>;
    return *all;
}

void log_mapping(const Mapping& mapping, bool is_there) {
    write({.kind = Kind::outside, .a = mapping.key, .b = (is_there ? kMapped : kUnmapped) | (mapping.is_writable ? kWrote : 0) | (mapping.is_writable && mapping.is_relayed ? kRelayed : 0), .site = 0});
}


// Note the shared mappings in a range, as the system lists them.
void scan_mappings(uintptr_t from, uintptr_t to) {
    FILE* const file = std::fopen("/proc/self/maps", "re");
    if (!file) return;
    char line[4400];
    const Quiet quiet;   // a signal's handler may map memory, too
    const std::lock_guard lock(mappings_mutex);
    while (std::fgets(line, sizeof line, file)) {
        unsigned long begin, end, inode;
        unsigned major, minor;
        char mode[8];
        int at = 0;
        if (std::sscanf(line, "%lx-%lx %7s %*x %x:%x %lu %n", &begin, &end, mode, &major, &minor, &inode, &at) < 6 || mode[3] != 's') continue;
        std::string path(line + at);
        while (!path.empty() && path.back() == '\n') path.pop_back();
        const bool is_nameless = path.starts_with("/dev/zero");
        if (begin >= to || end <= from || is_own(path) || (path.starts_with("/dev/") && !path.starts_with("/dev/shm") && !is_nameless)) continue;
        struct stat about;
        const bool is_listed = ::stat(path.c_str(), &about) == 0 && about.st_ino == inode;   // a device number differs from stat's on some file systems
        const uint64_t key = mixed(is_listed ? about.st_dev : makedev(major, minor), inode);
        const bool is_writable = mode[1] == 'w';
        const auto same = [&](const Mapping& each) { return each.key == key && each.begin <= end && begin <= each.end; };
        const auto known = std::find_if(mappings().begin(), mappings().end(), same);
        if (known == mappings().end()) {
            mappings().push_back({begin, end, key, is_writable, !is_nameless});
            log_mapping(mappings().back(), true);
            continue;
        }
        known->begin = std::min<uintptr_t>(known->begin, begin);
        known->end = std::max<uintptr_t>(known->end, end);
        if (is_writable && !known->is_writable) {
            known->is_writable = true;
            log_mapping(*known, true);
        }
    }
    std::fclose(file);
}

// What is left of a mapping stays known, and a medium ends with its last mapping.
void unmap(uintptr_t from, uintptr_t to) {
    const Quiet quiet;
    const std::lock_guard lock(mappings_mutex);
    std::vector<Mapping>& all = mappings();
    for (size_t i = 0; i < all.size();) {
        Mapping& each = all[i];
        if (from <= each.begin && each.begin < to) each.begin = std::min(to, each.end);
        if (from < each.end && each.end <= to) each.end = std::max(from, each.begin);
        if (each.begin < each.end) {
            ++i;
            continue;
        }
        Mapping gone = each;
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        gone.is_writable = true;
        if (std::none_of(all.begin(), all.end(), [&](const Mapping& other) { return other.key == gone.key; })) log_mapping(gone, false);
    }
}

// Named semaphores.
constexpr size_t kSemaphores = 256;
struct Semaphore {
    std::atomic<const void*> at{nullptr};
    std::atomic<uint64_t> key{0};
};
Semaphore semaphores[kSemaphores];

Medium medium_of(const sem_t* semaphore) {
    if (reinterpret_cast<const int*>(semaphore)[2] == 0) return {};   // glibc: private to this process
    for (const Semaphore& each : semaphores)
        if (each.at.load(std::memory_order_relaxed) == semaphore) return {each.key.load(std::memory_order_relaxed), kRelayed};
    return kAnyone;
}

// The hooks: each has the name of the function that it replaces.
namespace hooks {

ssize_t write(int fd, const void* data, size_t size) { return sending(fd, [&] { return ::write(fd, data, size); }); }
ssize_t writev(int fd, const iovec* data, int count) { return sending(fd, [&] { return ::writev(fd, data, count); }); }
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) { return sending(fd, [&] { return ::pwrite(fd, data, size, at); }); }
ssize_t pwritev(int fd, const iovec* data, int count, off_t at) { return sending(fd, [&] { return ::pwritev(fd, data, count, at); }); }
int ftruncate(int fd, off_t size) { return sending(fd, [&] { return ::ftruncate(fd, size); }); }
ssize_t send(int fd, const void* data, size_t size, int flags) { return sending(fd, [&] { return ::send(fd, data, size, flags); }); }
ssize_t sendto(int fd, const void* data, size_t size, int flags, const sockaddr* to, socklen_t length) {
    return sending(fd, [&] { return ::sendto(fd, data, size, flags, to, length); });
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) { return sending(fd, [&] { return ::sendmsg(fd, message, flags); }); }
int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) { return sending(fd, [&] { return ::sendmmsg(fd, messages, count, flags); }); }
ssize_t sendfile(int to, int from, off_t* at, size_t size) {
    return sending(to, [&] { return receiving(from, [&] { return ::sendfile(to, from, at, size); }); });
}
ssize_t splice(int from, off64_t* from_at, int to, off64_t* to_at, size_t size, unsigned flags) {
    return sending(to, [&] { return receiving(from, [&] { return ::splice(from, from_at, to, to_at, size, flags); }); });
}
ssize_t vmsplice(int fd, const iovec* data, size_t count, unsigned flags) {
    return both(fd, [&] { return ::vmsplice(fd, data, count, flags); });
}
int connect(int fd, const sockaddr* to, socklen_t length) {
    return both(fd, [&] { return ::connect(fd, to, length); });
}
int shutdown(int fd, int how) { return sending(fd, [&] { return ::shutdown(fd, how); }); }
int close(int fd) {
    if (is_noted()) {
        const int before = errno;
        const Medium medium = medium_of(fd, false);
        struct stat about;
        if (medium.key != 0 && fstat(fd, &about) == 0 && !S_ISREG(about.st_mode)) sent(medium);   // its reader sees the end
        errno = before;
    }
    return ::close(fd);
}
int eventfd_write(int fd, eventfd_t value) { return sending(fd, [&] { return ::eventfd_write(fd, value); }); }
ssize_t read(int fd, void* data, size_t size) { return receiving(fd, [&] { return ::read(fd, data, size); }); }
ssize_t readv(int fd, const iovec* data, int count) { return receiving(fd, [&] { return ::readv(fd, data, count); }); }
ssize_t pread(int fd, void* data, size_t size, off_t at) { return receiving(fd, [&] { return ::pread(fd, data, size, at); }); }
ssize_t preadv(int fd, const iovec* data, int count, off_t at) { return receiving(fd, [&] { return ::preadv(fd, data, count, at); }); }
ssize_t recv(int fd, void* data, size_t size, int flags) { return receiving(fd, [&] { return ::recv(fd, data, size, flags); }); }
ssize_t recvfrom(int fd, void* data, size_t size, int flags, sockaddr* from, socklen_t* length) {
    return receiving(fd, [&] { return ::recvfrom(fd, data, size, flags, from, length); });
}
ssize_t recvmsg(int fd, msghdr* message, int flags) { return receiving(fd, [&] { return ::recvmsg(fd, message, flags); }); }
int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* limit) {
    return receiving(fd, [&] { return ::recvmmsg(fd, messages, count, flags, limit); });
}
int accept(int fd, sockaddr* from, socklen_t* length) { return receiving(fd, [&] { return ::accept(fd, from, length); }); }
int accept4(int fd, sockaddr* from, socklen_t* length, int flags) { return receiving(fd, [&] { return ::accept4(fd, from, length, flags); }); }
int eventfd_read(int fd, eventfd_t* value) { return receiving(fd, [&] { return ::eventfd_read(fd, value); }); }
int flock(int fd, int how) { return both(fd, [&] { return ::flock(fd, how); }); }
int lockf(int fd, int how, off_t size) { return both(fd, [&] { return ::lockf(fd, how, size); }); }

int noted_poll(pollfd* fds, nfds_t count, int ready) {
    if (ready > 0 && is_noted()) {
        const int before = errno;
        for (nfds_t i = 0; i < count; ++i)
            if (fds[i].revents & ~POLLOUT) received(medium_of(fds[i].fd, true));
        errno = before;
    }
    return ready;
}
int poll(pollfd* fds, nfds_t count, int limit) { return noted_poll(fds, count, ::poll(fds, count, limit)); }
int ppoll(pollfd* fds, nfds_t count, const timespec* limit, const sigset_t* mask) { return noted_poll(fds, count, ::ppoll(fds, count, limit, mask)); }
template <class Result>
Result ready(Result result) {
    return result > 0 ? receiving_by(kAnyone, [&] { return result; }) : result;
}
int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* limit) { return ready(::select(count, read, write, except, limit)); }
int pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* limit, const sigset_t* mask) {
    return ready(::pselect(count, read, write, except, limit, mask));
}
int epoll_wait(int fd, epoll_event* events, int count, int limit) { return ready(::epoll_wait(fd, events, count, limit)); }
int epoll_pwait(int fd, epoll_event* events, int count, int limit, const sigset_t* mask) { return ready(::epoll_pwait(fd, events, count, limit, mask)); }

Medium of_ipc(int kind, int id) { return {mixed(static_cast<uint64_t>(kind), static_cast<uint64_t>(id)), kRelayed}; }
int msgsnd(int id, const void* data, size_t size, int flags) { return both_by(of_ipc(1, id), [&] { return ::msgsnd(id, data, size, flags); }); }
ssize_t msgrcv(int id, void* data, size_t size, long type, int flags) {
    return both_by(of_ipc(1, id), [&] { return ::msgrcv(id, data, size, type, flags); });
}
int semop(int id, sembuf* operations, size_t count) {
    return both_by(of_ipc(2, id), [&] { return ::semop(id, operations, count); });
}
int semtimedop(int id, sembuf* operations, size_t count, const timespec* limit) {
    return both_by(of_ipc(2, id), [&] { return ::semtimedop(id, operations, count, limit); });
}
int semctl(int id, int number, int command, ...) {
    va_list more;
    va_start(more, command);
    void* const value = va_arg(more, void*);
    va_end(more);
    return both_by(of_ipc(2, id), [&] { return ::semctl(id, number, command, value); });
}
int mq_send(mqd_t queue, const char* data, size_t size, unsigned priority) { return both(queue, [&] { return ::mq_send(queue, data, size, priority); }); }
int mq_timedsend(mqd_t queue, const char* data, size_t size, unsigned priority, const timespec* limit) {
    return both(queue, [&] { return ::mq_timedsend(queue, data, size, priority, limit); });
}
ssize_t mq_receive(mqd_t queue, char* data, size_t size, unsigned* priority) { return both(queue, [&] { return ::mq_receive(queue, data, size, priority); }); }
ssize_t mq_timedreceive(mqd_t queue, char* data, size_t size, unsigned* priority, const timespec* limit) {
    return both(queue, [&] { return ::mq_timedreceive(queue, data, size, priority, limit); });
}
int mq_getattr(mqd_t queue, mq_attr* about) { return receiving(queue, [&] { return ::mq_getattr(queue, about); }); }

sem_t* sem_open(const char* name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    const unsigned value = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    sem_t* const semaphore = ::sem_open(name, flags, mode, value);
    if (semaphore == SEM_FAILED) return semaphore;
    for (Semaphore& each : semaphores) {
        const void* known = nullptr;
        if (!each.at.compare_exchange_strong(known, semaphore) && known != semaphore) continue;
        each.key.store(mixed(3, std::hash<std::string_view>{}(name)), std::memory_order_relaxed);
        break;
    }
    return semaphore;
}
int sem_close(sem_t* semaphore) {
    for (Semaphore& each : semaphores) {
        const void* known = semaphore;
        each.at.compare_exchange_strong(known, nullptr);
    }
    return ::sem_close(semaphore);
}
int sem_post(sem_t* semaphore) { return sending_by(medium_of(semaphore), [&] { return ::sem_post(semaphore); }); }
int sem_wait(sem_t* semaphore) { return receiving_by(medium_of(semaphore), [&] { return ::sem_wait(semaphore); }); }
int sem_trywait(sem_t* semaphore) { return receiving_by(medium_of(semaphore), [&] { return ::sem_trywait(semaphore); }); }
int sem_timedwait(sem_t* semaphore, const timespec* limit) { return receiving_by(medium_of(semaphore), [&] { return ::sem_timedwait(semaphore, limit); }); }
int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* limit) {
    return receiving_by(medium_of(semaphore), [&] { return ::sem_clockwait(semaphore, clock, limit); });
}
int sem_getvalue(sem_t* semaphore, int* value) { return receiving_by(medium_of(semaphore), [&] { return ::sem_getvalue(semaphore, value); }); }

int kill(pid_t pid, int number) { return number == SIGKILL ? ::kill(pid, number) : sending_by(kAnyone, [&] { return ::kill(pid, number); }); }
int sigqueue(pid_t pid, int number, sigval value) { return sending_by(kAnyone, [&] { return ::sigqueue(pid, number, value); }); }
int sigwait(const sigset_t* set, int* number) { return receiving_by(kAnyone, [&] { return ::sigwait(set, number); }); }
int sigwaitinfo(const sigset_t* set, siginfo_t* about) { return receiving_by(kAnyone, [&] { return ::sigwaitinfo(set, about); }); }
int sigtimedwait(const sigset_t* set, siginfo_t* about, const timespec* limit) {
    return receiving_by(kAnyone, [&] { return ::sigtimedwait(set, about, limit); });
}
ssize_t process_vm_readv(pid_t pid, const iovec* here, unsigned long count, const iovec* there, unsigned long others, unsigned long flags) {
    return receiving_by(kAnyone, [&] { return ::process_vm_readv(pid, here, count, there, others, flags); });
}
ssize_t process_vm_writev(pid_t pid, const iovec* here, unsigned long count, const iovec* there, unsigned long others, unsigned long flags) {
    return sending_by(kAnyone, [&] { return ::process_vm_writev(pid, here, count, there, others, flags); });
}

pid_t fork() { return sending_by(kAnyone, [] { return ::fork(); }); }
int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* about, char* const* words, char* const* variables) {
    return sending_by(kAnyone, [&] { return ::posix_spawn(pid, path, actions, about, words, variables); });
}
int posix_spawnp(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* about, char* const* words, char* const* variables) {
    return sending_by(kAnyone, [&] { return ::posix_spawnp(pid, path, actions, about, words, variables); });
}
int system(const char* command) { return both_by(kAnyone, [&] { return ::system(command); }); }
pid_t wait(int* status) { return ready(::wait(status)); }
pid_t waitpid(pid_t pid, int* status, int options) { return ready(::waitpid(pid, status, options)); }
pid_t wait4(pid_t pid, int* status, int options, rusage* use) { return ready(::wait4(pid, status, options, use)); }
int waitid(idtype_t kind, id_t id, siginfo_t* about, int options) { return receiving_by(kAnyone, [&] { return ::waitid(kind, id, about, options); }); }

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
    void* const made = ::mmap(at, size, protection, flags, fd, offset);
    if (made != MAP_FAILED && (flags & MAP_SHARED) && is_noted()) {
        const int before = errno;
        scan_mappings(reinterpret_cast<uintptr_t>(made), reinterpret_cast<uintptr_t>(made) + 1);
        errno = before;
    }
    return made;
}
// Before: another thread may map something else there at once.
int munmap(void* at, size_t size) {
    const auto begin = reinterpret_cast<uintptr_t>(at), end = begin + (size + 4095) / 4096 * 4096;
    const bool is_to_note = is_noted();
    if (is_to_note) unmap(begin, end);
    const int code = ::munmap(at, size);
    if (code != 0 && is_to_note) {
        const int before = errno;
        scan_mappings(begin, end);
        errno = before;
    }
    return code;
}
int mprotect(void* at, size_t size, int protection) {
    if ((protection & PROT_WRITE) && is_noted()) {
        bool is_shared;
        {
            const Quiet quiet;
            const std::lock_guard lock(mappings_mutex);
            const auto begin = reinterpret_cast<uintptr_t>(at);
            is_shared = std::any_of(mappings().begin(), mappings().end(), [&](const Mapping& each) { return each.begin < begin + size && begin < each.end; });
        }
        if (is_shared) {
            const int code = ::mprotect(at, size, protection), before = errno;
            scan_mappings(reinterpret_cast<uintptr_t>(at), reinterpret_cast<uintptr_t>(at) + size);
            errno = before;
            return code;
        }
    }
    return ::mprotect(at, size, protection);
}
void* mremap(void* at, size_t size, size_t next, int flags, ...) {   // what was moved counts as there still
    va_list more;
    va_start(more, flags);
    void* const to = flags & MREMAP_FIXED ? va_arg(more, void*) : nullptr;
    va_end(more);
    void* const made = flags & MREMAP_FIXED ? ::mremap(at, size, next, flags, to) : ::mremap(at, size, next, flags);
    if (made != MAP_FAILED && is_noted()) {
        bool is_shared;
        {
            const Quiet quiet;
            const std::lock_guard lock(mappings_mutex);
            is_shared = !mappings().empty();
        }
        if (is_shared) scan_mappings(reinterpret_cast<uintptr_t>(made), reinterpret_cast<uintptr_t>(made) + next);
    }
    return made;
}
void* shmat(int id, const void* at, int flags) {
    void* const made = ::shmat(id, at, flags);
    if (made != reinterpret_cast<void*>(-1) && is_noted()) scan_mappings(reinterpret_cast<uintptr_t>(made), reinterpret_cast<uintptr_t>(made) + 1);
    return made;
}
int shmdt(const void* at) {
    const auto begin = reinterpret_cast<uintptr_t>(at);
    uintptr_t end = begin;
    if (is_noted()) {
        const Quiet quiet;
        const std::lock_guard lock(mappings_mutex);
        for (const Mapping& each : mappings())
            if (each.begin == begin) end = each.end;
    }
    if (end != begin) unmap(begin, end);
    return ::shmdt(at);
}

// Locks of files, and streams of the C library.  A buffer may reach the file later, by another call for the stream or when the process ends.
int lock_file(int fd, int command, void* value) { return ::fcntl(fd, command, value); }
int fcntl(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    void* const value = va_arg(more, void*);
    va_end(more);
    switch (command) {
    case F_SETLK: case F_SETLKW: case F_OFD_SETLK: case F_OFD_SETLKW: case F_GETLK: case F_OFD_GETLK:
        return both(fd, [&] { return lock_file(fd, command, value); });
    default:
        return lock_file(fd, command, value);
    }
}
int number_of(FILE* file) { return file ? ::fileno(file) : -1; }
size_t fwrite(const void* data, size_t size, size_t count, FILE* file) { return sending(number_of(file), [&] { return ::fwrite(data, size, count, file); }); }
int fputs(const char* text, FILE* file) { return sending(number_of(file), [&] { return ::fputs(text, file); }); }
int fputc(int byte, FILE* file) { return sending(number_of(file), [&] { return ::fputc(byte, file); }); }
int vfprintf(FILE* file, const char* form, va_list words) { return sending(number_of(file), [&] { return ::vfprintf(file, form, words); }); }
int vfprintf_chk(FILE* file, int, const char* form, va_list words) { return hooks::vfprintf(file, form, words); }
int fprintf(FILE* file, const char* form, ...) {
    va_list words;
    va_start(words, form);
    const int code = hooks::vfprintf(file, form, words);
    va_end(words);
    return code;
}
int fprintf_chk(FILE* file, int, const char* form, ...) {
    va_list words;
    va_start(words, form);
    const int code = hooks::vfprintf(file, form, words);
    va_end(words);
    return code;
}
int fflush(FILE* file) {
    if (!file) return sending_by(kAnyone, [] { return ::fflush(nullptr); });
    return sending(number_of(file), [&] { return ::fflush(file); });
}
int fclose(FILE* file) { return sending(number_of(file), [&] { return ::fclose(file); }); }
size_t fread(void* data, size_t size, size_t count, FILE* file) {
    const int fd = number_of(file);
    return receiving_by(fd < 0 ? Medium{} : medium_of(fd, true), [&] { return ::fread(data, size, count, file); });
}
char* fgets(char* data, int size, FILE* file) {
    char* text = nullptr;
    receiving(number_of(file), [&] { text = ::fgets(data, size, file); return 0; });
    return text;
}
int fgetc(FILE* file) { return receiving(number_of(file), [&] { return ::fgetc(file); }); }
ssize_t getline(char** text, size_t* size, FILE* file) { return receiving(number_of(file), [&] { return ::getline(text, size, file); }); }
int vfscanf(FILE* file, const char* form, va_list words) { return receiving(number_of(file), [&] { return ::vfscanf(file, form, words); }); }
int fscanf(FILE* file, const char* form, ...) {
    va_list words;
    va_start(words, form);
    const int code = hooks::vfscanf(file, form, words);
    va_end(words);
    return code;
}

// What a library with checked calls imports.
ssize_t read_chk(int fd, void* data, size_t size, size_t) { return hooks::read(fd, data, size); }
ssize_t pread_chk(int fd, void* data, size_t size, off_t at, size_t) { return hooks::pread(fd, data, size, at); }
ssize_t recv_chk(int fd, void* data, size_t size, size_t, int flags) { return hooks::recv(fd, data, size, flags); }
ssize_t recvfrom_chk(int fd, void* data, size_t size, size_t, int flags, sockaddr* from, socklen_t* length) {
    return hooks::recvfrom(fd, data, size, flags, from, length);
}
int poll_chk(pollfd* fds, nfds_t count, int limit, size_t) { return hooks::poll(fds, count, limit); }
int ppoll_chk(pollfd* fds, nfds_t count, const timespec* limit, const sigset_t* mask, size_t) { return hooks::ppoll(fds, count, limit, mask); }
size_t fread_chk(void* data, size_t, size_t size, size_t count, FILE* file) { return hooks::fread(data, size, count, file); }
char* fgets_chk(char* data, size_t, int size, FILE* file) { return hooks::fgets(data, size, file); }

// Files by their names, of modules but Python's, whose files it logs itself.
bool tells_others(const char* path) {
    const std::string_view text = path ? path : "";
    return path && !text.starts_with("/proc/") && !text.starts_with("/sys/") && (!text.starts_with("/dev/") || text.starts_with("/dev/shm"));
}
// Whether somebody may have changed since the run began what a path names; for one that is not there, its folder.
bool is_recent(const char* path) {
    struct stat about;
    if (::stat(path, &about) == 0) return static_cast<uint64_t>(about.st_ctim.tv_sec) >= begun_s;
    const std::string_view text(path);
    const size_t slash = text.rfind('/');
    const std::string folder(slash == text.npos ? "." : slash == 0 ? "/" : text.substr(0, slash));
    return ::stat(folder.c_str(), &about) == 0 && static_cast<uint64_t>(about.st_ctim.tv_sec) >= begun_s;
}
bool is_recent_folder(int fd) {
    struct stat about;
    return ::fstat(fd, &about) == 0 && static_cast<uint64_t>(about.st_ctim.tv_sec) >= begun_s;
}
template <class Call>
auto looking_at(const char* path, const Call& call) {
    const auto result = call();
    if (tells_others(path) && is_noted()) {   // that it fails tells something, too
        const int before = errno;
        if (is_recent(path)) received(kAnyone);
        errno = before;
    }
    return result;
}
template <class Call>
auto opening(const char* path, int flags, const Call& call) {
    if ((flags & (O_CREAT | O_TRUNC)) && tells_others(path)) return sending_by(kAnyone, [&] { return looking_at(path, call); });
    return looking_at(path, call);
}
int open(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return opening(path, flags, [&] { return ::open(path, flags, mode); });
}
int openat(int folder, const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return opening(path, flags, [&] { return ::openat(folder, path, flags, mode); });
}
int creat(const char* path, mode_t mode) { return opening(path, O_CREAT, [&] { return ::creat(path, mode); }); }
int truncate(const char* path, off_t size) { return sending_by(kAnyone, [&] { return ::truncate(path, size); }); }
FILE* popen(const char* command, const char* mode) { return both_by(kAnyone, [&] { return ::popen(command, mode); }); }
int pclose(FILE* file) { return both_by(kAnyone, [&] { return ::pclose(file); }); }
FILE* fopen(const char* path, const char* mode) {
    return opening(path, mode && *mode == 'r' ? 0 : O_CREAT, [&] { return ::fopen(path, mode); });
}
int access(const char* path, int mode) { return looking_at(path, [&] { return ::access(path, mode); }); }
int stat(const char* path, struct stat* about) { return looking_at(path, [&] { return ::stat(path, about); }); }
int lstat(const char* path, struct stat* about) { return looking_at(path, [&] { return ::lstat(path, about); }); }
int fstatat(int folder, const char* path, struct stat* about, int flags) { return looking_at(path, [&] { return ::fstatat(folder, path, about, flags); }); }
int xstat(int, const char* path, struct stat* about) { return hooks::stat(path, about); }
int rename(const char* from, const char* to) { return sending_by(kAnyone, [&] { return looking_at(to, [&] { return ::rename(from, to); }); }); }
int link(const char* from, const char* to) { return sending_by(kAnyone, [&] { return looking_at(to, [&] { return ::link(from, to); }); }); }
int symlink(const char* from, const char* to) { return sending_by(kAnyone, [&] { return looking_at(to, [&] { return ::symlink(from, to); }); }); }
int unlink(const char* path) { return sending_by(kAnyone, [&] { return looking_at(path, [&] { return ::unlink(path); }); }); }
int remove(const char* path) { return sending_by(kAnyone, [&] { return looking_at(path, [&] { return ::remove(path); }); }); }
int mkdir(const char* path, mode_t mode) { return sending_by(kAnyone, [&] { return looking_at(path, [&] { return ::mkdir(path, mode); }); }); }
int rmdir(const char* path) { return sending_by(kAnyone, [&] { return looking_at(path, [&] { return ::rmdir(path); }); }); }
dirent* readdir(DIR* folder) {
    dirent* entry = nullptr;
    receiving_as([&] { return folder && is_recent_folder(::dirfd(folder)) ? kAnyone : Medium{}; }, [&] { entry = ::readdir(folder); return 0; });
    return entry;
}
int mkfifo(const char* path, mode_t mode) { return sending_by(kAnyone, [&] { return ::mkfifo(path, mode); }); }
int shm_open(const char* name, int flags, mode_t mode) { return both_by(kAnyone, [&] { return ::shm_open(name, flags, mode); }); }
int shm_unlink(const char* name) { return sending_by(kAnyone, [&] { return ::shm_unlink(name); }); }

// Numbers that carry nothing between processes.
bool is_silent(long number, const long (&words)[6]) {
    switch (number) {
    case SYS_futex:
        return (words[1] & FUTEX_PRIVATE_FLAG) != 0;
    case SYS_gettid: case SYS_getpid: case SYS_getrandom: case SYS_membarrier: case SYS_getcpu: case SYS_sched_getaffinity: case SYS_sched_setaffinity:
    case SYS_sched_yield: case SYS_get_mempolicy: case SYS_set_mempolicy: case SYS_mbind: case SYS_clock_gettime: case SYS_gettimeofday: case SYS_madvise:
    case SYS_perf_event_open: case SYS_rseq: case SYS_memfd_create: case SYS_pidfd_open: case SYS_sysinfo: case SYS_uname:
        return true;
    default:
        return false;
    }
}
long syscall(long number, ...) {
    long words[6];
    va_list more;
    va_start(more, number);
    for (long& each : words) each = va_arg(more, long);
    va_end(more);
    const auto call = [&] { return ::syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]); };
    if (is_silent(number, words)) return call();
    const long result = sending_by(kAnyone, call);
    if (number == SYS_mmap && result != -1 && is_noted()) scan_mappings(static_cast<uintptr_t>(result), static_cast<uintptr_t>(result) + 1);
    const int before = errno;
    if (is_noted()) received(kAnyone);
    errno = before;
    return result;
}
void* dlsym(void* library, const char* name);

}  // namespace hooks

struct Hook {
    const char* name;
    void* hook;
};
#define PEERLANE_HOOK(name) {#name, reinterpret_cast<void*>(&hooks::name)}
const Hook kHooks[] = {
    PEERLANE_HOOK(write), PEERLANE_HOOK(writev), PEERLANE_HOOK(pwrite), {"pwrite64", reinterpret_cast<void*>(&hooks::pwrite)}, PEERLANE_HOOK(pwritev),
    {"pwritev64", reinterpret_cast<void*>(&hooks::pwritev)}, PEERLANE_HOOK(ftruncate), {"ftruncate64", reinterpret_cast<void*>(&hooks::ftruncate)},
    PEERLANE_HOOK(send), PEERLANE_HOOK(sendto), PEERLANE_HOOK(sendmsg), PEERLANE_HOOK(sendmmsg), PEERLANE_HOOK(sendfile),
    {"sendfile64", reinterpret_cast<void*>(&hooks::sendfile)}, PEERLANE_HOOK(splice), PEERLANE_HOOK(vmsplice), PEERLANE_HOOK(connect),
    PEERLANE_HOOK(shutdown), PEERLANE_HOOK(close), PEERLANE_HOOK(eventfd_write), PEERLANE_HOOK(read), PEERLANE_HOOK(readv), PEERLANE_HOOK(pread),
    {"pread64", reinterpret_cast<void*>(&hooks::pread)}, PEERLANE_HOOK(preadv), {"preadv64", reinterpret_cast<void*>(&hooks::preadv)},
    PEERLANE_HOOK(recv), PEERLANE_HOOK(recvfrom), PEERLANE_HOOK(recvmsg), PEERLANE_HOOK(recvmmsg), PEERLANE_HOOK(accept), PEERLANE_HOOK(accept4),
    PEERLANE_HOOK(eventfd_read), PEERLANE_HOOK(flock), PEERLANE_HOOK(lockf), {"lockf64", reinterpret_cast<void*>(&hooks::lockf)}, PEERLANE_HOOK(poll),
    PEERLANE_HOOK(ppoll), PEERLANE_HOOK(select), PEERLANE_HOOK(pselect), PEERLANE_HOOK(epoll_wait), PEERLANE_HOOK(epoll_pwait), PEERLANE_HOOK(msgsnd),
    PEERLANE_HOOK(msgrcv), PEERLANE_HOOK(semop), PEERLANE_HOOK(semtimedop), PEERLANE_HOOK(semctl), PEERLANE_HOOK(mq_send), PEERLANE_HOOK(mq_timedsend),
    PEERLANE_HOOK(mq_receive), PEERLANE_HOOK(mq_timedreceive), PEERLANE_HOOK(mq_getattr), PEERLANE_HOOK(sem_open), PEERLANE_HOOK(sem_close),
    PEERLANE_HOOK(sem_post), PEERLANE_HOOK(sem_wait), PEERLANE_HOOK(sem_trywait), PEERLANE_HOOK(sem_timedwait), PEERLANE_HOOK(sem_clockwait),
    PEERLANE_HOOK(sem_getvalue), PEERLANE_HOOK(kill), PEERLANE_HOOK(sigqueue), PEERLANE_HOOK(sigwait), PEERLANE_HOOK(sigwaitinfo),
    PEERLANE_HOOK(sigtimedwait), PEERLANE_HOOK(process_vm_readv), PEERLANE_HOOK(process_vm_writev), PEERLANE_HOOK(mmap),
    {"mmap64", reinterpret_cast<void*>(&hooks::mmap)}, PEERLANE_HOOK(munmap), PEERLANE_HOOK(shmat), PEERLANE_HOOK(shmdt),
    PEERLANE_HOOK(fork), PEERLANE_HOOK(posix_spawn), PEERLANE_HOOK(posix_spawnp), PEERLANE_HOOK(system), PEERLANE_HOOK(wait), PEERLANE_HOOK(waitpid),
    PEERLANE_HOOK(wait4), PEERLANE_HOOK(waitid), PEERLANE_HOOK(mprotect), PEERLANE_HOOK(mremap), PEERLANE_HOOK(fcntl),
    {"fcntl64", reinterpret_cast<void*>(&hooks::fcntl)}, PEERLANE_HOOK(fwrite), {"fwrite_unlocked", reinterpret_cast<void*>(&hooks::fwrite)},
    PEERLANE_HOOK(fputs), PEERLANE_HOOK(fputc), {"putc", reinterpret_cast<void*>(&hooks::fputc)}, {"_IO_putc", reinterpret_cast<void*>(&hooks::fputc)},
    PEERLANE_HOOK(vfprintf), {"__vfprintf_chk", reinterpret_cast<void*>(&hooks::vfprintf_chk)}, PEERLANE_HOOK(fprintf),
    {"__fprintf_chk", reinterpret_cast<void*>(&hooks::fprintf_chk)}, PEERLANE_HOOK(fflush), PEERLANE_HOOK(fclose), PEERLANE_HOOK(fread),
    PEERLANE_HOOK(fgets), PEERLANE_HOOK(fgetc), {"getc", reinterpret_cast<void*>(&hooks::fgetc)}, {"_IO_getc", reinterpret_cast<void*>(&hooks::fgetc)},
    PEERLANE_HOOK(getline), PEERLANE_HOOK(vfscanf), PEERLANE_HOOK(fscanf), {"__isoc99_fscanf", reinterpret_cast<void*>(&hooks::fscanf)},
    {"__isoc23_fscanf", reinterpret_cast<void*>(&hooks::fscanf)}, {"__read_chk", reinterpret_cast<void*>(&hooks::read_chk)},
    {"__pread_chk", reinterpret_cast<void*>(&hooks::pread_chk)}, {"__pread64_chk", reinterpret_cast<void*>(&hooks::pread_chk)},
    {"__recv_chk", reinterpret_cast<void*>(&hooks::recv_chk)}, {"__recvfrom_chk", reinterpret_cast<void*>(&hooks::recvfrom_chk)},
    {"__poll_chk", reinterpret_cast<void*>(&hooks::poll_chk)}, {"__ppoll_chk", reinterpret_cast<void*>(&hooks::ppoll_chk)},
    {"__fread_chk", reinterpret_cast<void*>(&hooks::fread_chk)}, {"__fgets_chk", reinterpret_cast<void*>(&hooks::fgets_chk)}, PEERLANE_HOOK(syscall),
    PEERLANE_HOOK(dlsym),
};
// Of modules but Python's.
const Hook kNames[] = {
    PEERLANE_HOOK(open), {"open64", reinterpret_cast<void*>(&hooks::open)}, PEERLANE_HOOK(openat), {"openat64", reinterpret_cast<void*>(&hooks::openat)},
    PEERLANE_HOOK(creat), {"creat64", reinterpret_cast<void*>(&hooks::creat)}, PEERLANE_HOOK(truncate),
    {"truncate64", reinterpret_cast<void*>(&hooks::truncate)}, PEERLANE_HOOK(popen), PEERLANE_HOOK(pclose), PEERLANE_HOOK(fopen), {"fopen64", reinterpret_cast<void*>(&hooks::fopen)}, PEERLANE_HOOK(access), PEERLANE_HOOK(stat),
    {"stat64", reinterpret_cast<void*>(&hooks::stat)}, PEERLANE_HOOK(lstat), {"lstat64", reinterpret_cast<void*>(&hooks::lstat)}, PEERLANE_HOOK(fstatat),
    {"fstatat64", reinterpret_cast<void*>(&hooks::fstatat)}, {"__xstat", reinterpret_cast<void*>(&hooks::xstat)},
    {"__xstat64", reinterpret_cast<void*>(&hooks::xstat)}, PEERLANE_HOOK(rename), PEERLANE_HOOK(link), PEERLANE_HOOK(symlink), PEERLANE_HOOK(unlink),
    PEERLANE_HOOK(remove), PEERLANE_HOOK(mkdir), PEERLANE_HOOK(rmdir), PEERLANE_HOOK(readdir), {"readdir64", reinterpret_cast<void*>(&hooks::readdir)},
    PEERLANE_HOOK(mkfifo), PEERLANE_HOOK(shm_open), PEERLANE_HOOK(shm_unlink),
};

// Null: none.
void* hook_of(std::string_view name, bool is_python) {
    struct Found {
        void* hook;
        bool is_name;
    };
    static const auto* const all = [] {
        auto* const made = new std::unordered_map<std::string_view, Found>;
        for (const Hook& each : kHooks) made->emplace(each.name, Found{each.hook, false});
        for (const Hook& each : kNames) made->emplace(each.name, Found{each.hook, true});
        return made;
    }();
    const auto known = all->find(name);
    return known == all->end() || (is_python && known->second.is_name) ? nullptr : known->second.hook;
}

bool is_in(const dl_phdr_info& module, const void* base) {
    for (int i = 0; base && i < module.dlpi_phnum; ++i)
        if (module.dlpi_phdr[i].p_type == PT_LOAD && module.dlpi_phdr[i].p_offset == 0) return reinterpret_cast<const void*>(module.dlpi_addr + module.dlpi_phdr[i].p_vaddr) == base;
    return false;
}

std::mutex modules_mutex;
std::set<ElfW(Addr)>& patched() {
    static auto* const all = new std::set<ElfW(Addr)>;
    return *all;
}

#ifdef __aarch64__
bool is_address(uint64_t type) { return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64; }
#else
bool is_address(uint64_t type) { return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || type == R_X86_64_64; }
#endif

// A module in Go makes system calls by itself.
bool is_go(const dl_phdr_info& module) {
    for (int i = 0; i < module.dlpi_phnum; ++i) {
        const auto& part = module.dlpi_phdr[i];
        if (part.p_type != PT_NOTE || part.p_memsz < sizeof(ElfW(Nhdr)) + 4) continue;
        uintptr_t at = module.dlpi_addr + part.p_vaddr;
        const uintptr_t end = at + part.p_memsz;
        while (end - at >= sizeof(ElfW(Nhdr))) {
            const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
            const uint64_t length = sizeof note + (uint64_t{note.n_namesz} + 3) / 4 * 4 + (uint64_t{note.n_descsz} + 3) / 4 * 4;
            if (length > end - at) break;
            if (note.n_namesz == 4 && std::memcmp(reinterpret_cast<const char*>(at + sizeof note), "Go\0", 4) == 0) return true;
            at += length;
        }
    }
    return false;
}

void patch(const dl_phdr_info& module, bool is_python) {
    const ElfW(Dyn)* entry = nullptr;
    std::vector<std::pair<uintptr_t, uintptr_t>> read_only;
    for (int i = 0; i < module.dlpi_phnum; ++i) {
        const auto& part = module.dlpi_phdr[i];
        const uintptr_t begin = module.dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_DYNAMIC) entry = reinterpret_cast<const ElfW(Dyn)*>(begin);
        if (part.p_type == PT_GNU_RELRO || (part.p_type == PT_LOAD && !(part.p_flags & PF_W))) read_only.emplace_back(begin, begin + part.p_memsz);
    }
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    uintptr_t tables[2] = {0, 0};
    size_t sizes[2] = {0, 0};
    for (; entry && entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_JMPREL) tables[0] = entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) sizes[0] = entry->d_un.d_val;
        if (entry->d_tag == DT_RELA) tables[1] = entry->d_un.d_ptr;
        if (entry->d_tag == DT_RELASZ) sizes[1] = entry->d_un.d_val;
    }
    if (!symbols || !names) return;
    const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    for (int table = 0; table < 2; ++table) {
        const auto* const all = reinterpret_cast<const ElfW(Rela)*>(tables[table]);
        for (size_t i = 0; all && i < sizes[table] / sizeof *all; ++i) {
            if (!is_address(ELF64_R_TYPE(all[i].r_info))) continue;
            const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(all[i].r_info)];
            if (symbol.st_shndx != SHN_UNDEF || all[i].r_addend != 0) continue;
            void* const hook = hook_of(names + symbol.st_name, is_python);
            if (!hook) continue;
            const uintptr_t at = module.dlpi_addr + all[i].r_offset, begin = at / page * page;
            const bool is_read_only = std::any_of(read_only.begin(), read_only.end(), [&](const auto& each) { return each.first <= at && at < each.second; });
            if (is_read_only && ::mprotect(reinterpret_cast<void*>(begin), page, PROT_READ | PROT_WRITE) != 0) continue;
            std::atomic_ref(*reinterpret_cast<void**>(at)).store(hook, std::memory_order_relaxed);
            if (is_read_only) ::mprotect(reinterpret_cast<void*>(begin), page, PROT_READ);
        }
    }
}

// Modules of the system are not hooked for what they do among themselves, and peerlane's log what they do.
bool is_left_alone(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    for (const std::string_view each : {"libc.so", "libc-", "ld-linux", "libpthread", "libdl.", "linux-vdso", "libpeerlane", "libasan", "libtsan", "libubsan", "libgcc_s"})
        if (name.starts_with(each)) return true;
    return path.find("/peerlane/") != path.npos && (path.find("/peerlane/_") != path.npos || path.find("/peerlane/lib/") != path.npos);
}

uint64_t patched_loads = 0, patched_unloads = 0;   // the system's counts; under modules_mutex

void patch_modules() {
    Dl_info own{}, python{};
    ::dladdr(reinterpret_cast<void*>(&patch_modules), &own);
    if (void* const symbol = ::dlsym(RTLD_DEFAULT, "Py_IsInitialized")) ::dladdr(symbol, &python);
    struct Work {
        const void *own, *python;
        bool has_go = false;
    } work{own.dli_fbase, python.dli_fbase};
    {
        const Quiet quiet;
        const std::lock_guard lock(modules_mutex);
        ::dl_iterate_phdr(
            [](dl_phdr_info* module, size_t, void* about) {
                auto& work = *static_cast<Work*>(about);
                const auto* const base = reinterpret_cast<const void*>(module->dlpi_addr);
                const std::string_view path = module->dlpi_name ? module->dlpi_name : "";
                patched_loads = module->dlpi_adds;
                if (patched_unloads != module->dlpi_subs) patched().clear();   // another module may be where one was
                patched_unloads = module->dlpi_subs;
                if (base == work.own || is_left_alone(path) || !patched().insert(module->dlpi_addr).second) return 0;
                const bool is_python = base == work.python || path.find("/lib-dynload/") != path.npos || (path.empty() && is_in(*module, work.python));
                patch(*module, is_python);
                work.has_go = work.has_go || is_go(*module);
                return 0;
            },
            &work);
    }
    if (work.has_go && is_noted()) write({.kind = Kind::outside, .site = 0});
}

bool has_new_modules() {
    uint64_t loads = 0;
    ::dl_iterate_phdr(
        [](dl_phdr_info* module, size_t, void* count) {
            *static_cast<uint64_t*>(count) = module->dlpi_adds;
            return 1;
        },
        &loads);
    const Quiet quiet;
    const std::lock_guard lock(modules_mutex);
    return loads != patched_loads;
}

// Who loads a module takes a function from it next.  The C library asks who calls it only for the two special handles: then its own
// function is called last, and returns to the caller.
void* hooks::dlsym(void* library, const char* name) {
    if (library == RTLD_NEXT) return ::dlsym(library, name);
    void* const hook = hook_of(name, false);
    if (library == RTLD_DEFAULT) return hook ? hook : ::dlsym(library, name);
    if (has_new_modules()) patch_modules();
    void* const address = ::dlsym(library, name);
    return hook && address && address == ::dlsym(RTLD_DEFAULT, name) ? hook : address;
}

}  // namespace

void take_received(const std::function<void(const Received&)>& log) {
    if (!has_received.load(std::memory_order_relaxed) || !has_received.exchange(false, std::memory_order_acq_rel)) return;
    for (size_t word = 0; word < kWords; ++word) {
        for (uint64_t bits = changed[word].exchange(0, std::memory_order_acquire); bits != 0; bits &= bits - 1) {
            Slot& slot = slots[word * 64 + static_cast<size_t>(std::countr_zero(bits))];
            const uint64_t first = slot.first_ns.exchange(0, std::memory_order_relaxed), last = slot.last_ns.load(std::memory_order_relaxed);
            log({slot.key.load(std::memory_order_relaxed), slot.flags.load(std::memory_order_relaxed), first == 0 ? last : std::min(first, last), last});
        }
    }
}

void note_logged() noexcept {
    if (is_silent_child.load(std::memory_order_relaxed)) is_silent_child.store(false, std::memory_order_relaxed);
    generation.fetch_add(1, std::memory_order_relaxed);
    logged.fetch_add(1, std::memory_order_relaxed);
}

void forget_outside() noexcept {
    for (Slot& slot : slots) {
        slot.first_ns.store(0, std::memory_order_relaxed);
        slot.until_ns.store(0, std::memory_order_relaxed);
    }
    for (auto& word : changed) word.store(0, std::memory_order_relaxed);
    has_received.store(false, std::memory_order_relaxed);
    note_logged();
    is_silent_child.store(true, std::memory_order_relaxed);
}

void follow_outside() {
    see_forks();   // the log's lock is the innermost: a fork takes it after these
    static const int is_registered [[maybe_unused]] = pthread_atfork([] { modules_mutex.lock(), mappings_mutex.lock(); },
                                                                    [] { mappings_mutex.unlock(), modules_mutex.unlock(); },
                                                                    [] { mappings_mutex.unlock(), modules_mutex.unlock(); });
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    if (begun_s == 0) begun_s = static_cast<uint64_t>(now.tv_sec) - 60;   // another process of the run may have begun before
    is_silent_child.store(false, std::memory_order_relaxed);
    slot_of(kWorld);
    if (has_overflown.load(std::memory_order_relaxed)) write({.kind = Kind::outside, .a = kWorld, .b = kOverflown, .site = 0});   // a child's log
    patch_modules();
    {
        const Quiet quiet;
        const std::lock_guard lock(mappings_mutex);
        mappings().clear();
    }
    scan_mappings(0, UINTPTR_MAX);
}

}  // namespace peerlane::log

#include "log/outside.h"

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <link.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>
#include <wchar.h>

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
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "log/imports.h"

#pragma GCC diagnostic ignored "-Wignored-attributes"   // of the functions that templates name: only callers heed them

extern "C" {   // what a library with checked calls imports
ssize_t __read_chk(int, void*, size_t, size_t), __pread_chk(int, void*, size_t, off_t, size_t), __recv_chk(int, void*, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void*, size_t, size_t, int, sockaddr*, socklen_t*);
int __poll_chk(pollfd*, nfds_t, int, size_t), __ppoll_chk(pollfd*, nfds_t, const timespec*, const sigset_t*, size_t);
size_t __fread_chk(void*, size_t, size_t, size_t, FILE*);
char* __fgets_chk(char*, size_t, int, FILE*);
int __vfprintf_chk(FILE*, int, const char*, va_list), __vprintf_chk(int, const char*, va_list), __vdprintf_chk(int, int, const char*, va_list);
}

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
std::atomic<pid_t> owner{0};           // of the log
std::atomic<bool> has_shared_descriptors{false};

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
    return x <= kAnyDescriptor ? x + kAnyDescriptor + 1 : x;
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
    bool has_limit = false;        // who receives makes room, for which a sender may wait
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
    if (getpid() != owner.load(std::memory_order_relaxed)) return;   // between `vfork`, or `clone`, and another program: the log is the parent's
    write({.kind = Kind::outside, .a = slot.key.load(std::memory_order_relaxed), .b = kSent | medium.flags, .d = span, .site = 0});
    // Only now: until it is logged, no other thread may rely on it.  The event's time is later than `now`.
    if (span != 0) slot.until_ns.store(now + span, std::memory_order_release);
    slot.sent_in.store(own, std::memory_order_release);
}

// `until_ns`: when it was over at the latest; UINT64_MAX: before the next event.
void received(Medium medium, uint64_t until_ns = 0) {
    if (medium.key == 0) return;
    Slot& slot = slot_or_world(medium.key);
    const auto at = static_cast<size_t>(&slot - slots);
    const uint64_t now = now_ns();
    uint64_t none = 0;
    slot.flags.store(medium.flags, std::memory_order_relaxed);
    slot.last_ns.store(std::max(now, until_ns), std::memory_order_relaxed);
    slot.first_ns.compare_exchange_strong(none, now, std::memory_order_relaxed);
    changed[at / 64].fetch_or(uint64_t{1} << at % 64, std::memory_order_release);
    if (!has_received.exchange(true, std::memory_order_acq_rel)) generation.fetch_add(1, std::memory_order_relaxed);
}

// With a slash behind it.  Never freed: a hook of another thread may read it.
std::atomic<const std::string*> log_folder{nullptr};

// By the names that peerlane gives, and by no folder's alone: the program's own may be called alike.
bool is_own(std::string_view path) {
    std::string_view name = path.substr(path.rfind('/') + 1);
    const bool is_deleted = name.ends_with(" (deleted)");
    if (is_deleted) name.remove_suffix(10);
    const auto is_numbered = [](std::string_view text, std::string_view end) {   // <number>-<number><end>
        if (!text.ends_with(end)) return false;
        text.remove_suffix(end.size());
        const size_t digits = text.find_first_not_of("0123456789");
        return digits != text.npos && digits != 0 && text[digits] == '-' && digits + 1 < text.size() && text.find_first_not_of("0123456789", digits + 1) == text.npos;
    };
    if (name.starts_with("memfd:peerlane") || (name.starts_with("node-") && name.find(".node") != name.npos) || path.find("/__pycache__/") != path.npos) return true;
    if (name == "room" && path.find("/peerlane-") != path.npos) return true;
    const std::string* const folder = log_folder.load(std::memory_order_acquire);
    if (is_numbered(name, ".log") || is_numbered(name, ".names") || (folder && path.starts_with(*folder))) return true;
    if (name.starts_with("meet-") && name.size() == 37) return true;
    // The hooks of sem_open and of multiprocessing log these.
    return path.starts_with("/dev/shm/sem.") || (is_deleted && name.starts_with("pym-"));
}

// To ask for a name is dear.  Only what is not peerlane's is kept: an inode may be another file's later.
std::atomic<uint64_t> files_of_others[256];
bool is_own_file(int fd, uint64_t key) {
    std::atomic<uint64_t>& known = files_of_others[key % std::size(files_of_others)];
    if (known.load(std::memory_order_relaxed) == key) return false;
    char link[64], path[1024];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(link, path, sizeof path);
    if (length > 0 && is_own({path, static_cast<size_t>(length)})) return true;
    known.store(key, std::memory_order_relaxed);
    return false;
}

std::atomic<uint64_t> outputs[2];   // keys
bool is_output(uint64_t key) { return std::any_of(std::begin(outputs), std::end(outputs), [&](const auto& each) { return each.load(std::memory_order_relaxed) == key; }); }

// The memory of a process, which others may read and write.
uint64_t key_of_memory(pid_t pid) { return mixed(5, static_cast<uint64_t>(pid)); }
Medium memory_of(pid_t pid) { return has_overflown.load(std::memory_order_relaxed) ? Medium{kAnyMedium, 0} : Medium{key_of_memory(pid), 0}; }

// Whose memory a file of /proc is; 0: it is another file.
pid_t owner_of_memory(int fd) {
    char link[64], path[64] = {};
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (::readlink(link, path, sizeof path - 1) <= 0) return 0;
    int pid = 0, end = 0;
    return std::sscanf(path, "/proc/%d/mem%n", &pid, &end) == 1 && end > 0 && path[end] == '\0' ? pid : 0;
}

Medium medium_of(int fd, const struct stat& about, bool is_read) {
    const uint64_t key = mixed(about.st_dev, about.st_ino);
    switch (about.st_mode & S_IFMT) {
    case S_IFSOCK:
        return {kWorld, 0, true};
    case S_IFIFO:
        return {key, is_output(key) ? 0 : kRelayed, true};
    case S_IFREG:
        if (about.st_size == 0 && about.st_blocks == 0)
            if (const pid_t pid = owner_of_memory(fd)) return memory_of(pid);
        if (is_read && static_cast<uint64_t>(about.st_mtim.tv_sec) < begun_s) return {};   // nobody wrote it since this run began
        if (is_own_file(fd, key)) return {};
        return {key, is_output(key) ? 0 : kRelayed};
    case S_IFCHR: {   // a terminal; memory's own devices have the number 1
        const bool is_terminal = major(about.st_rdev) != 1 && (fd > 2 || (is_read && fd == 0));
        return {is_terminal ? kWorld : 0, 0};
    }
    default:
        return {is_read ? kAnyDescriptor : kWorld, 0};   // one inode for all: eventfd, signalfd, inotify
    }
}

Medium medium_of(int fd, bool is_read) {
    struct stat about;
    return fd < 0 || ::fstat(fd, &about) != 0 ? Medium{} : medium_of(fd, about, is_read);
}

// Whether a call's result depends on others.  A failure does too (the peer is gone), unless it means that there is nothing yet.
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

// Media that were full when this process last sent to them.
std::atomic<uint64_t> full[64];
std::atomic<uint64_t>& full_by(Medium medium) { return full[medium.key % std::size(full)]; }
void note_full(Medium medium) {
    if (medium.has_limit) full_by(medium).store(medium.key, std::memory_order_relaxed);
}
bool was_full(Medium medium) {
    uint64_t key = medium.key;
    return full_by(medium).load(std::memory_order_relaxed) == key && full_by(medium).compare_exchange_strong(key, 0, std::memory_order_relaxed);
}
long times_slept() {
    rusage use;
    return ::getrusage(RUSAGE_THREAD, &use) == 0 ? use.ru_nvcsw : 0;
}

// `find` returns the medium, of which a call needs to know only if it is noted.
template <class Find, class Call>
auto sending_as(const Find& find, const Call& call) {
    const bool is_to_note = is_noted();
    Medium medium;
    long slept = 0;
    if (is_to_note) {
        const int before = errno;
        sent(medium = find());
        if (medium.has_limit) slept = times_slept();
        errno = before;
    }
    const auto result = call();
    if (is_to_note) {
        const int before = errno;
        if (is_failure(result)) {
            if (is_news(result)) received(medium);
            else if (before == EAGAIN) note_full(medium);
        } else if (medium.has_limit && (times_slept() != slept || was_full(medium))) {
            received(medium);   // somebody made room
        }
        errno = before;
    }
    return result;
}

template <class Find, class Call>
auto receiving_as(const Find& find, const Call& call) {
    Medium medium;
    if (is_noted()) {
        const int before = errno;
        medium = find();
        if (medium.has_limit) sent(medium);
        errno = before;
    }
    const auto result = call();
    if (is_noted() && is_news(result)) {
        const int before = errno;
        received(medium.key != 0 ? medium : find());   // a file may have changed meanwhile
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

constexpr Medium kEverybody{kWorld, 0};
constexpr Medium kAny{kAnyMedium, 0}, kDescriptor{kAnyDescriptor, 0};   // which one is not known

// Shared mappings.
struct Mapping {
    uintptr_t begin, end;
    uint64_t key;
    bool is_writable, is_relayed;   // a process without a log may have mapped it, too
};
// An allocator may unmap memory under its lock: who holds this allocates nothing, frees nothing, and writes no event.
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
    std::vector<Mapping> seen, news, larger;
    while (std::fgets(line, sizeof line, file)) {
        unsigned long begin, end, inode;
        unsigned major, minor;
        char mode[8];
        int at = 0;
        if (std::sscanf(line, "%lx-%lx %7s %*x %x:%x %lu %n", &begin, &end, mode, &major, &minor, &inode, &at) < 6 || mode[3] != 's') continue;
        std::string path(line + at);
        while (!path.empty() && path.back() == '\n') path.pop_back();
        const bool is_nameless = path.starts_with("/dev/zero");
        if (begin >= to || end <= from || is_own(path) || (path.starts_with("/dev/") && !path.starts_with("/dev/shm") && !path.starts_with("/dev/infiniband") && !is_nameless)) continue;
        struct stat about;
        const bool is_listed = ::stat(path.c_str(), &about) == 0 && about.st_ino == inode;   // a device number differs from stat's on some file systems
        const uint64_t key = mixed(is_listed ? about.st_dev : makedev(major, minor), inode);
        seen.push_back({begin, end, key, mode[1] == 'w', !is_nameless});
    }
    std::fclose(file);
    news.reserve(seen.size());
    {
        std::unique_lock lock(mappings_mutex);
        for (size_t most; mappings().capacity() < (most = mappings().size() + seen.size());) {
            if (larger.capacity() >= most) {
                larger.assign(mappings().begin(), mappings().end());
                mappings().swap(larger);
                break;
            }
            lock.unlock();
            larger.reserve(2 * most);
            lock.lock();
        }
        for (const Mapping& each : seen) {
            const auto same = [&](const Mapping& other) { return other.key == each.key && other.begin <= each.end && each.begin <= other.end; };
            const auto known = std::find_if(mappings().begin(), mappings().end(), same);
            if (known == mappings().end()) {
                mappings().push_back(each);
                news.push_back(each);
                continue;
            }
            known->begin = std::min(known->begin, each.begin);
            known->end = std::max(known->end, each.end);
            if (each.is_writable && !known->is_writable) {
                known->is_writable = true;
                news.push_back(*known);
            }
        }
    }
    for (const Mapping& each : news) log_mapping(each, true);
}

// What is left of a mapping stays known.  Returns the first that ends and is the last one of its medium; none: there is none.
std::optional<Mapping> cut(uintptr_t from, uintptr_t to) {
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
        if (std::none_of(all.begin(), all.end(), [&](const Mapping& other) { return other.key == gone.key; })) return gone;
    }
    return {};
}

void unmap(uintptr_t from, uintptr_t to) {
    const Quiet quiet;
    while (const std::optional<Mapping> gone = cut(from, to)) log_mapping(*gone, false);
}

bool is_shared(uintptr_t begin, size_t size) {
    const Quiet quiet;
    const std::lock_guard lock(mappings_mutex);
    return std::any_of(mappings().begin(), mappings().end(), [&](const Mapping& each) { return each.begin < begin + size && begin < each.end; });
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
    return kEverybody;
}

int number_of(FILE* file) { return file ? ::fileno(file) : -1; }

// The medium that a call names: by a stream of the C library among its words, or by its first word.
template <class First, class... More>
Medium medium_named(bool is_read, First first, More... more) {
    if constexpr (std::is_same_v<First, sem_t*>) {
        return medium_of(first);
    } else {
        int fd = -1;
        if constexpr (std::is_same_v<First, int>) fd = first;
        [[maybe_unused]] const auto take = [&](auto each) {
            if constexpr (std::is_same_v<decltype(each), FILE*>) fd = number_of(each);
        };
        take(first);
        (take(more), ...);
        return medium_of(fd, is_read);
    }
}

// Files by their names, in modules but Python's, whose own calls `diagnostics/hooks/files.py` logs.
bool is_seen_by_others(const char* path) {
    const std::string_view text = path ? path : "";
    if (text.starts_with("/proc/")) return text.size() > 6 && text[6] >= '0' && text[6] <= '9';   // a process, which may end
    return path && !text.starts_with("/sys/") && (!text.starts_with("/dev/") || text.starts_with("/dev/shm"));
}
// Whether somebody may have changed since the run began what a path names; for one that is not there, its folder.
bool is_recent(int from, const char* path) {
    const auto has_changed = [&](const char* what) {
        struct stat about;
        return ::fstatat(from, what, &about, 0) == 0 ? static_cast<uint64_t>(about.st_ctim.tv_sec) >= begun_s : -1;
    };
    const int own = has_changed(path);
    if (own >= 0) return own != 0;
    const std::string_view text(path);
    const size_t slash = text.rfind('/');
    const std::string folder(slash == text.npos ? "." : slash == 0 ? "/" : text.substr(0, slash));
    return has_changed(folder.c_str()) != 0;
}
// What a process is known to be in /proc, it can change at any time by calls that no hook has, as it can its memory.
void look_at_process(const char* path, uint64_t until_ns = 0) {
    int pid = 0;
    if (std::sscanf(path, "/proc/%d", &pid) == 1 && pid != getpid()) received(memory_of(pid), until_ns);
}
void look_at(int from, const char* path) {
    if (!is_seen_by_others(path) || !(std::string_view(path).starts_with("/proc/") || is_recent(from, path))) return;
    received(kEverybody);
    look_at_process(path);
}

// Hooks for a function, by what a call of it does: by the medium that it names, by a file's name, or by what may reach anyone.
template <auto kCall, class Type = decltype(kCall)>
struct Calls;
template <auto kCall, class Result, class... Words>
struct Calls<kCall, Result (*)(Words...)> {
    static Result sends(Words... words) {
        return sending_as([&] { return medium_named(false, words...); }, [&] { return kCall(words...); });
    }
    static Result receives(Words... words) {
        const auto medium = [&] { return medium_named(true, words...); };
        if constexpr ((std::is_same_v<Words, FILE*> || ...)) {   // its end tells something, and leaves `errno` as it was
            Result result{};
            receiving_as(medium, [&] { result = kCall(words...); return 0; });
            return result;
        } else {
            return receiving_as(medium, [&] { return kCall(words...); });
        }
    }
    static Result exchanges(Words... words) {
        return sending_as([&] { return medium_named(false, words...); }, [&] { return receives(words...); });
    }
    static Result broadcasts(Words... words) {
        return sending_by(kEverybody, [&] { return kCall(words...); });
    }
    static Result hears(Words... words) {
        return receiving_by(kEverybody, [&] { return kCall(words...); });
    }
    static Result talks(Words... words) {
        return both_by(kEverybody, [&] { return kCall(words...); });
    }
    static Result waits(Words... words) {   // 0: nothing is there yet
        const Result result = kCall(words...);
        return result == 0 ? result : receiving_by(kDescriptor, [&] { return result; });
    }
    static Result looks(Words... words) {   // that it fails tells something, too
        const Result result = kCall(words...);
        if (is_noted()) {
            const int before = errno;
            int from = AT_FDCWD;
            const char* path = nullptr;
            const auto take = [&](auto each) {
                if constexpr (std::is_same_v<decltype(each), int>) from = path ? from : each;
                if constexpr (std::is_same_v<decltype(each), const char*>) path = each;
            };
            (take(words), ...);
            if (path) look_at(from, path);
            errno = before;
        }
        return result;
    }
    static Result changes(Words... words) {
        return sending_by(kEverybody, [&] { return looks(words...); });
    }
};
template <auto kCall, class Result, class... Words>
struct Calls<kCall, Result (*)(Words...) noexcept> : Calls<kCall, Result (*)(Words...)> {};

// The hooks that need a body of their own: each has the name of the function that it replaces.
namespace hooks {

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    if (message && message->msg_controllen != 0) has_shared_descriptors.store(true, std::memory_order_relaxed);
    return Calls<&::sendmsg>::sends(fd, message, flags);
}
int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
    has_shared_descriptors.store(true, std::memory_order_relaxed);
    return Calls<&::sendmmsg>::sends(fd, messages, count, flags);
}
ssize_t sendfile(int to, int from, off_t* at, size_t size) {
    return sending(to, [&] { return receiving(from, [&] { return ::sendfile(to, from, at, size); }); });
}
ssize_t splice(int from, off64_t* from_at, int to, off64_t* to_at, size_t size, unsigned flags) {
    return sending(to, [&] { return receiving(from, [&] { return ::splice(from, from_at, to, to_at, size, flags); }); });
}
ssize_t copy_file_range(int from, off64_t* from_at, int to, off64_t* to_at, size_t size, unsigned flags) {
    return sending(to, [&] { return receiving(from, [&] { return ::copy_file_range(from, from_at, to, to_at, size, flags); }); });
}
// Files that this process has locked.
std::atomic<uint64_t> locked[64];
void note_locked(int fd) {
    if (!is_noted()) return;
    const int before = errno;
    if (const Medium medium = medium_of(fd, false); medium.key != 0) locked[medium.key % std::size(locked)].store(medium.key, std::memory_order_relaxed);
    errno = before;
}
// Its reader sees the end, and who waits for its lock gets that.
void note_closed(int fd) {
    if (!is_noted()) return;
    const int before = errno;
    struct stat about;
    if (::fstat(fd, &about) == 0) {
        const Medium medium = S_ISREG(about.st_mode) && locked[mixed(about.st_dev, about.st_ino) % std::size(locked)].load(std::memory_order_relaxed) == 0
                                  ? Medium{} : medium_of(fd, about, false);
        sent(medium);
    }
    errno = before;
}
int flock(int fd, int how) {
    note_locked(fd);
    return Calls<&::flock>::exchanges(fd, how);
}
int lockf(int fd, int how, off_t size) {
    note_locked(fd);
    return Calls<&::lockf>::exchanges(fd, how, size);
}
int close(int fd) {
    note_closed(fd);
    return ::close(fd);
}
int dup2(int from, int to) {
    if (from != to) note_closed(to);
    return ::dup2(from, to);
}
int dup3(int from, int to, int flags) {
    note_closed(to);
    return ::dup3(from, to, flags);
}
off_t lseek(int fd, off_t at, int whence) {   // where a file ends
    return whence == SEEK_END ? receiving(fd, [&] { return ::lseek(fd, at, whence); }) : ::lseek(fd, at, whence);
}
int ioctl(int fd, unsigned long what, ...) {
    va_list more;
    va_start(more, what);
    void* const value = va_arg(more, void*);
    va_end(more);
    if (what == FIONREAD || what == TIOCOUTQ) return receiving(fd, [&] { return ::ioctl(fd, what, value); });
    return ::ioctl(fd, what, value);
}

template <class Call>
int noted_poll(pollfd* fds, nfds_t count, const Call& call) {
    const bool is_to_note = is_noted();
    const long slept = is_to_note ? times_slept() : 0;
    const int ready = call();
    if (!is_to_note || ready < 0) return ready;
    const int before = errno;
    const bool has_slept = times_slept() != slept;
    for (nfds_t i = 0; i < count; ++i) {
        if (fds[i].revents & ~POLLOUT) {
            received(medium_of(fds[i].fd, true));
        } else if (fds[i].events & POLLOUT) {
            const Medium medium = medium_of(fds[i].fd, false);
            if (fds[i].revents == 0) note_full(medium);
            else if (has_slept || was_full(medium)) received(medium);
        }
    }
    errno = before;
    return ready;
}
int poll(pollfd* fds, nfds_t count, int limit) {
    return noted_poll(fds, count, [&] { return ::poll(fds, count, limit); });
}
int ppoll(pollfd* fds, nfds_t count, const timespec* limit, const sigset_t* mask) {
    return noted_poll(fds, count, [&] { return ::ppoll(fds, count, limit, mask); });
}
int poll_chk(pollfd* fds, nfds_t count, int limit, size_t size) {
    return noted_poll(fds, count, [&] { return __poll_chk(fds, count, limit, size); });
}
int ppoll_chk(pollfd* fds, nfds_t count, const timespec* limit, const sigset_t* mask, size_t size) {
    return noted_poll(fds, count, [&] { return __ppoll_chk(fds, count, limit, mask, size); });
}

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
mqd_t mq_open(const char* name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    mq_attr* const about = flags & O_CREAT ? va_arg(more, mq_attr*) : nullptr;
    va_end(more);
    return both_by(kEverybody, [&] { return ::mq_open(name, flags, mode, about); });
}
sem_t* sem_open(const char* name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    const unsigned value = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    sem_t* const semaphore = both_by(kEverybody, [&] { return ::sem_open(name, flags, mode, value); });   // it may appear when others are ready
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
// A process may get a signal at any time; from processes outside this run it counts only with a handler.
Medium signals_of(pid_t pid) { return {mixed(4, static_cast<uint64_t>(pid)), kRelayed}; }
// The end of a child may call a handler of its parent.
uint64_t ends_of_children(pid_t parent) { return mixed(6, static_cast<uint64_t>(parent)); }
void note_handler(int number) {
    if (number == SIGCHLD && is_noted()) write({.kind = Kind::outside, .a = ends_of_children(getpid()), .b = kMapped, .site = 0});
    if (number == SIGINT || number == SIGTERM || number == SIGCHLD || number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE ||
        number == SIGTRAP || number == SIGABRT || number == SIGPIPE || number == SIGALRM || number == SIGPROF || number == SIGWINCH || !is_noted())
        return;
    write({.kind = Kind::outside, .a = signals_of(getpid()).key, .b = kMapped | kRelayed, .site = 0});
}
int sigaction(int number, const struct sigaction* next, struct sigaction* last) {
    const int code = ::sigaction(number, next, last), before = errno;
    if (code == 0 && next && next->sa_handler != SIG_DFL && next->sa_handler != SIG_IGN) note_handler(number);
    errno = before;
    return code;
}
sighandler_t signal(int number, sighandler_t handler) {
    const sighandler_t last = ::signal(number, handler);
    const int before = errno;
    if (last != SIG_ERR && handler != SIG_DFL && handler != SIG_IGN) note_handler(number);
    errno = before;
    return last;
}
int kill(pid_t pid, int number) {
    if (number == SIGKILL) return Calls<&::kill>::broadcasts(pid, number);   // others see that it is gone
    return number == 0 || pid <= 0 ? Calls<&::kill>::talks(pid, number) : sending_by(signals_of(pid), [&] { return ::kill(pid, number); });
}
// What a process is known to be: who asks for another one's may wait until that changes it.
template <class Call>
auto asking_for(id_t process, const Call& call) { return process == 0 || static_cast<pid_t>(process) == getpid() ? call() : receiving_by(kEverybody, call); }
pid_t getpgid(pid_t pid) { return asking_for(static_cast<id_t>(pid), [&] { return ::getpgid(pid); }); }
pid_t getsid(pid_t pid) { return asking_for(static_cast<id_t>(pid), [&] { return ::getsid(pid); }); }
int getpriority(__priority_which_t which, id_t who) { return asking_for(who, [&] { return ::getpriority(which, who); }); }
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t* set) { return asking_for(static_cast<id_t>(pid), [&] { return ::sched_getaffinity(pid, size, set); }); }
int sched_getscheduler(pid_t pid) { return asking_for(static_cast<id_t>(pid), [&] { return ::sched_getscheduler(pid); }); }
int sched_getparam(pid_t pid, sched_param* about) { return asking_for(static_cast<id_t>(pid), [&] { return ::sched_getparam(pid, about); }); }
std::atomic<pid_t> parent{0};   // when the log began
pid_t getppid() {
    const pid_t pid = ::getppid();
    if (pid != parent.load(std::memory_order_relaxed) && is_noted()) received(kEverybody);   // the one before has ended
    return pid;
}
int sigpending(sigset_t* set) { return receiving_by(signals_of(getpid()), [&] { return ::sigpending(set); }); }
int prctl(int what, ...) {
    unsigned long words[4];
    va_list more;
    va_start(more, what);
    for (unsigned long& each : words) each = va_arg(more, unsigned long);
    va_end(more);
    const auto call = [&] { return ::prctl(what, words[0], words[1], words[2], words[3]); };
    return what == PR_SET_NAME ? sending_by(kEverybody, call) : call();
}
[[noreturn]] void _exit(int code) {   // without the end of the log: others see that it is gone, and that its descriptors are closed
    if (is_noted() && !is_silent_child.load(std::memory_order_relaxed) && getpid() == owner.load(std::memory_order_relaxed)) write({.kind = Kind::ended, .site = 0});
    ::_exit(code);
}
ssize_t process_vm_readv(pid_t pid, const iovec* own, unsigned long owns, const iovec* others, unsigned long count, unsigned long flags) {
    return receiving_by(memory_of(pid), [&] { return ::process_vm_readv(pid, own, owns, others, count, flags); });
}
ssize_t process_vm_writev(pid_t pid, const iovec* own, unsigned long owns, const iovec* others, unsigned long count, unsigned long flags) {
    return sending_by(memory_of(pid), [&] { return ::process_vm_writev(pid, own, owns, others, count, flags); });
}
int sigqueue(pid_t pid, int number, sigval value) { return sending_by(signals_of(pid), [&] { return ::sigqueue(pid, number, value); }); }

// Memory is mapped and unmapped by functions and by the numbers of system calls, which libraries that replace the functions use.
template <class Call>
auto mapping(int flags, const Call& call) {
    const auto mapped = call();
    if (const auto at = std::bit_cast<uintptr_t>(mapped); at != UINTPTR_MAX && (flags & MAP_SHARED) && is_noted()) {
        const int before = errno;
        scan_mappings(at, at + 1);
        errno = before;
    }
    return mapped;
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
    return mapping(flags, [&] { return ::mmap(at, size, protection, flags, fd, offset); });
}
// Before: another thread may map something else there at once.
template <class Call>
auto unmapping(uintptr_t begin, size_t size, const Call& call) {
    const uintptr_t end = begin + (size + 4095) / 4096 * 4096;
    const bool is_to_note = is_noted();
    if (is_to_note) unmap(begin, end);
    const auto code = call();
    if (code != 0 && is_to_note) {
        const int before = errno;
        scan_mappings(begin, end);
        errno = before;
    }
    return code;
}
int munmap(void* at, size_t size) { return unmapping(reinterpret_cast<uintptr_t>(at), size, [&] { return ::munmap(at, size); }); }
int mprotect(void* at, size_t size, int protection) {
    if ((protection & PROT_WRITE) && is_noted()) {
        const auto begin = reinterpret_cast<uintptr_t>(at);
        if (is_shared(begin, size)) {
            const int code = ::mprotect(at, size, protection), before = errno;
            scan_mappings(begin, begin + size);
            errno = before;
            return code;
        }
    }
    return ::mprotect(at, size, protection);
}
template <class Call>
auto remapping(uintptr_t begin, size_t size, size_t next, const Call& call) {   // what was moved counts as there still
    const bool is_to_note = is_noted() && is_shared(begin, std::max<size_t>(size, 1));   // 0: a second mapping of the same memory
    const auto mapped = call();
    if (const auto at = std::bit_cast<uintptr_t>(mapped); is_to_note && at != UINTPTR_MAX) scan_mappings(at, at + next);
    return mapped;
}
void* mremap(void* at, size_t size, size_t next, int flags, ...) {
    va_list more;
    va_start(more, flags);
    void* const to = flags & MREMAP_FIXED ? va_arg(more, void*) : nullptr;
    va_end(more);
    return remapping(reinterpret_cast<uintptr_t>(at), size, next,
                     [&] { return flags & MREMAP_FIXED ? ::mremap(at, size, next, flags, to) : ::mremap(at, size, next, flags); });
}
void* shmat(int id, const void* at, int flags) {
    void* const mapped = ::shmat(id, at, flags);
    if (mapped != reinterpret_cast<void*>(-1) && is_noted()) scan_mappings(reinterpret_cast<uintptr_t>(mapped), reinterpret_cast<uintptr_t>(mapped) + 1);
    return mapped;
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
        note_locked(fd);
        return both(fd, [&] { return lock_file(fd, command, value); });
    default:
        return lock_file(fd, command, value);
    }
}
// A call that prints its further words, or reads into them.
#define PEERLANE_VARIADIC(verb, type, name, call, declared, values) \
    type name declared {                                            \
        va_list words;                                              \
        va_start(words, form);                                      \
        const type result = Calls<&call>::verb values;              \
        va_end(words);                                              \
        return result;                                              \
    }
PEERLANE_VARIADIC(sends, int, fprintf, ::vfprintf, (FILE* file, const char* form, ...), (file, form, words))
PEERLANE_VARIADIC(sends, int, fprintf_chk, ::__vfprintf_chk, (FILE* file, int flag, const char* form, ...), (file, flag, form, words))
PEERLANE_VARIADIC(sends, int, dprintf, ::vdprintf, (int fd, const char* form, ...), (fd, form, words))
PEERLANE_VARIADIC(sends, int, dprintf_chk, ::__vdprintf_chk, (int fd, int flag, const char* form, ...), (fd, flag, form, words))
int scanf(const char* form, ...) {
    va_list words;
    va_start(words, form);
    const int result = Calls<&::vfscanf>::receives(stdin, form, words);
    va_end(words);
    return result;
}
int getchar() { return Calls<&::fgetc>::receives(stdin); }
// Who asks for the end of an operation knows that it is over.
template <class Call>
auto ending(const aiocb* operation, const Call& call) {
    const auto result = call();
    return receiving(operation->aio_fildes, [&] { return result; });
}
int aio_write(aiocb* operation) { return sending(operation->aio_fildes, [&] { return ::aio_write(operation); }); }
int aio_read(aiocb* operation) { return receiving(operation->aio_fildes, [&] { return ::aio_read(operation); }); }
int aio_error(const aiocb* operation) {
    const int code = ::aio_error(operation);
    return code == EINPROGRESS ? code : ending(operation, [&] { return code; });
}
ssize_t aio_return(aiocb* operation) { return ending(operation, [&] { return ::aio_return(operation); }); }
int aio_suspend(const aiocb* const operations[], int count, const timespec* limit) {
    return receiving_by(kDescriptor, [&] { return ::aio_suspend(operations, count, limit); });
}
int lio_listio(int mode, aiocb* const operations[], int count, sigevent* event) {
    return both_by(kAny, [&] { return ::lio_listio(mode, operations, count, event); });
}
PEERLANE_VARIADIC(receives, int, fscanf, ::vfscanf, (FILE* file, const char* form, ...), (file, form, words))
int vprintf(const char* form, va_list words) { return Calls<&::vfprintf>::sends(stdout, form, words); }
int vprintf_chk(int flag, const char* form, va_list words) { return Calls<&::__vfprintf_chk>::sends(stdout, flag, form, words); }
int printf(const char* form, ...) {
    va_list words;
    va_start(words, form);
    const int result = hooks::vprintf(form, words);
    va_end(words);
    return result;
}
int printf_chk(int flag, const char* form, ...) {
    va_list words;
    va_start(words, form);
    const int result = hooks::vprintf_chk(flag, form, words);
    va_end(words);
    return result;
}
int puts(const char* text) { return sending(1, [&] { return ::puts(text); }); }
int putchar(int byte) { return sending(1, [&] { return ::putchar(byte); }); }
int fflush(FILE* file) { return file ? Calls<&::fflush>::sends(file) : Calls<&::fflush>::broadcasts(nullptr); }

template <class Call>
auto opening(const char* path, int flags, int from, const Call& call) {
    const auto looked = [&] {
        const auto result = call();
        if (is_noted()) {
            const int before = errno;
            if (path) look_at(from, path);
            errno = before;
        }
        return result;
    };
    return (flags & (O_CREAT | O_TRUNC)) && is_seen_by_others(path) ? sending_by(kEverybody, looked) : looked();
}
int open(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return opening(path, flags, AT_FDCWD, [&] { return ::open(path, flags, mode); });
}
int openat(int from, const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return opening(path, flags, from, [&] { return ::openat(from, path, flags, mode); });
}
FILE* fopen(const char* path, const char* mode) {
    return opening(path, mode && *mode == 'r' ? 0 : O_CREAT, AT_FDCWD, [&] { return ::fopen(path, mode); });
}
int xstat(int, const char* path, struct stat* about) { return Calls<&::stat>::looks(path, about); }
int lxstat(int, const char* path, struct stat* about) { return Calls<&::lstat>::looks(path, about); }
int fstat(int fd, struct stat* about) {
    const int code = ::fstat(fd, about), before = errno;
    if (code == 0 && S_ISREG(about->st_mode) && is_noted())
        if (const Medium medium = medium_of(fd, *about, true); medium.key != 0) received(medium), received(kEverybody);
    errno = before;
    return code;
}
int fxstat(int, int fd, struct stat* about) { return hooks::fstat(fd, about); }
dirent* readdir(DIR* folder) {
    const auto medium = [&] {
        struct stat about;
        const bool is_recent = folder && ::fstat(::dirfd(folder), &about) == 0 && static_cast<uint64_t>(about.st_ctim.tv_sec) >= begun_s;
        return is_recent ? kEverybody : Medium{};
    };
    dirent* entry = nullptr;
    receiving_as(medium, [&] { entry = ::readdir(folder); return 0; });
    return entry;
}

// Who waits for the end of a child knows that all it did is over.
template <class Call>
pid_t waiting_for_end(int* status, const Call& call) {
    int how = 0;
    const pid_t child = call(&how);
    if (child <= 0) return child;
    if (status) *status = how;
    if (is_noted() && (WIFEXITED(how) || WIFSIGNALED(how))) write({.kind = Kind::take, .a = kProcess, .b = static_cast<uint64_t>(child), .site = 0});
    return child;
}
pid_t wait(int* status) { return waiting_for_end(status, Calls<&::wait>::waits); }
pid_t waitpid(pid_t child, int* status, int options) {
    return waiting_for_end(status, [&](int* how) { return Calls<&::waitpid>::waits(child, how, options); });
}
pid_t wait3(int* status, int options, rusage* used) {
    return waiting_for_end(status, [&](int* how) { return Calls<&::wait3>::waits(how, options, used); });
}
pid_t wait4(pid_t child, int* status, int options, rusage* used) {
    return waiting_for_end(status, [&](int* how) { return Calls<&::wait4>::waits(child, how, options, used); });
}
// What a program did before it started another one comes before all that this one does.
void note_start(pid_t child) {
    if (child > 0 && is_noted()) write({.kind = Kind::post, .a = kStarted, .b = static_cast<uint64_t>(child), .site = 0});
}
pid_t fork() {
    const pid_t child = Calls<&::fork>::broadcasts();
    note_start(child);
    return child;
}
template <auto kSpawn, class... Words>
int starting(pid_t* child, Words... words) {
    pid_t own = 0;
    const int code = Calls<kSpawn>::broadcasts(child ? child : &own, words...);
    if (code == 0) note_start(child ? *child : own);
    return code;
}
int posix_spawn(pid_t* child, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes, char* const words[],
                char* const environment[]) {
    return starting<&::posix_spawn>(child, path, actions, attributes, words, environment);
}
int posix_spawnp(pid_t* child, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes, char* const words[],
                 char* const environment[]) {
    return starting<&::posix_spawnp>(child, name, actions, attributes, words, environment);
}
int waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
    siginfo_t own{};
    siginfo_t& how = info ? *info : own;
    const int code = Calls<&::waitid>::hears(type, id, &how, options);
    const bool is_end = code == 0 && how.si_pid != 0 && (how.si_code == CLD_EXITED || how.si_code == CLD_KILLED || how.si_code == CLD_DUMPED);
    if (is_end && is_noted()) write({.kind = Kind::take, .a = kProcess, .b = static_cast<uint64_t>(how.si_pid), .site = 0});
    return code;
}

// Numbers that carry nothing between processes.
bool is_silent(long number, const long (&words)[6]) {
    switch (number) {
    case SYS_futex:
        return (words[1] & FUTEX_PRIVATE_FLAG) != 0;
    case SYS_gettid: case SYS_getpid: case SYS_getrandom: case SYS_membarrier: case SYS_getcpu: case SYS_sched_getaffinity: case SYS_sched_setaffinity:
    case SYS_sched_yield: case SYS_get_mempolicy: case SYS_set_mempolicy: case SYS_mbind: case SYS_clock_gettime: case SYS_gettimeofday: case SYS_madvise:
    case SYS_perf_event_open: case SYS_rseq: case SYS_memfd_create: case SYS_pidfd_open: case SYS_sysinfo: case SYS_uname: case SYS_brk:
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
    if (number == SYS_mmap) return mapping(static_cast<int>(words[3]), call);
    const auto at = static_cast<uintptr_t>(words[0]);
    const auto size = static_cast<size_t>(words[1]);
    if (number == SYS_munmap) return unmapping(at, size, call);
    if (number == SYS_mremap) return remapping(at, size, static_cast<size_t>(words[2]), call);
    const long result = sending_by(kAny, call);
    const int before = errno;
    if (is_noted()) received(kAny);
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
#define PEERLANE_AS(name, hook) {name, reinterpret_cast<void*>(&hooks::hook)}
#define PEERLANE_CALL(verb, name) {#name, reinterpret_cast<void*>(&Calls<&::name>::verb)}
#define PEERLANE_CALL_AS(verb, other, name) {other, reinterpret_cast<void*>(&Calls<&::name>::verb)}
const Hook kHooks[] = {
    // by descriptors
    PEERLANE_CALL(sends, write), PEERLANE_CALL(sends, writev), PEERLANE_CALL(sends, pwrite), PEERLANE_CALL_AS(sends, "pwrite64", pwrite), PEERLANE_CALL(sends, pwritev),
    PEERLANE_CALL_AS(sends, "pwritev64", pwritev), PEERLANE_CALL(sends, pwritev2), PEERLANE_CALL_AS(sends, "pwritev64v2", pwritev2), PEERLANE_CALL(sends, ftruncate),
    PEERLANE_CALL_AS(sends, "ftruncate64", ftruncate), PEERLANE_CALL(sends, fallocate), PEERLANE_CALL_AS(sends, "fallocate64", fallocate), PEERLANE_CALL(sends, posix_fallocate),
    PEERLANE_CALL_AS(sends, "posix_fallocate64", posix_fallocate), PEERLANE_CALL(sends, futimens), PEERLANE_CALL(sends, fchmod), PEERLANE_CALL(sends, send),
    PEERLANE_CALL(sends, sendto), PEERLANE_HOOK(sendmsg), PEERLANE_HOOK(sendmmsg), PEERLANE_HOOK(sendfile), PEERLANE_AS("sendfile64", sendfile),
    PEERLANE_HOOK(splice), PEERLANE_HOOK(copy_file_range), PEERLANE_CALL(exchanges, vmsplice), PEERLANE_CALL(exchanges, tee), PEERLANE_CALL(exchanges, connect),
    PEERLANE_CALL(exchanges, bind), PEERLANE_CALL(sends, listen), PEERLANE_CALL(sends, shutdown), PEERLANE_HOOK(close), PEERLANE_HOOK(dup2), PEERLANE_HOOK(dup3),
    PEERLANE_CALL(sends, eventfd_write), PEERLANE_CALL(receives, read), PEERLANE_CALL(receives, readv), PEERLANE_CALL(receives, pread),
    PEERLANE_CALL_AS(receives, "pread64", pread), PEERLANE_CALL(receives, preadv), PEERLANE_CALL_AS(receives, "preadv64", preadv), PEERLANE_CALL(receives, preadv2),
    PEERLANE_CALL_AS(receives, "preadv64v2", preadv2), PEERLANE_CALL(receives, recv), PEERLANE_CALL(receives, recvfrom), PEERLANE_CALL(receives, recvmsg),
    PEERLANE_CALL(receives, recvmmsg), PEERLANE_CALL(receives, accept), PEERLANE_CALL(receives, accept4), PEERLANE_CALL(receives, eventfd_read),
    PEERLANE_CALL(receives, __read_chk), PEERLANE_CALL(receives, __pread_chk), PEERLANE_CALL_AS(receives, "__pread64_chk", __pread_chk),
    PEERLANE_CALL(receives, __recv_chk), PEERLANE_CALL(receives, __recvfrom_chk), PEERLANE_HOOK(fstat), PEERLANE_AS("fstat64", fstat),
    PEERLANE_AS("__fxstat", fxstat), PEERLANE_AS("__fxstat64", fxstat), PEERLANE_HOOK(lseek), PEERLANE_AS("lseek64", lseek), PEERLANE_HOOK(ioctl),
    PEERLANE_HOOK(flock), PEERLANE_HOOK(lockf), PEERLANE_AS("lockf64", lockf), PEERLANE_HOOK(fcntl), PEERLANE_AS("fcntl64", fcntl),
    PEERLANE_HOOK(poll), PEERLANE_HOOK(ppoll), PEERLANE_AS("__poll_chk", poll_chk), PEERLANE_AS("__ppoll_chk", ppoll_chk), PEERLANE_CALL(waits, select),
    PEERLANE_CALL(waits, pselect), PEERLANE_CALL(waits, epoll_wait), PEERLANE_CALL(waits, epoll_pwait), PEERLANE_CALL(exchanges, mq_send),
    PEERLANE_CALL(exchanges, mq_timedsend), PEERLANE_CALL(exchanges, mq_receive), PEERLANE_CALL(exchanges, mq_timedreceive), PEERLANE_CALL(receives, mq_getattr),
    // streams of the C library: a buffer may reach the file later, by another call for the stream or when the process ends
    PEERLANE_CALL(sends, fwrite), PEERLANE_CALL_AS(sends, "fwrite_unlocked", fwrite), PEERLANE_CALL(sends, fputs), PEERLANE_CALL_AS(sends, "fputs_unlocked", fputs),
    PEERLANE_CALL(sends, fputc), PEERLANE_CALL_AS(sends, "putc", fputc), PEERLANE_CALL_AS(sends, "_IO_putc", fputc), PEERLANE_CALL(sends, vfprintf),
    PEERLANE_CALL(sends, __vfprintf_chk), PEERLANE_HOOK(fprintf), PEERLANE_AS("__fprintf_chk", fprintf_chk), PEERLANE_CALL(sends, vdprintf),
    PEERLANE_CALL(sends, __vdprintf_chk), PEERLANE_HOOK(dprintf), PEERLANE_AS("__dprintf_chk", dprintf_chk), PEERLANE_HOOK(printf), PEERLANE_AS("__printf_chk", printf_chk),
    PEERLANE_HOOK(vprintf), PEERLANE_AS("__vprintf_chk", vprintf_chk), PEERLANE_HOOK(puts), PEERLANE_HOOK(putchar), PEERLANE_HOOK(fflush),
    PEERLANE_CALL(sends, fclose), PEERLANE_CALL(receives, fread), PEERLANE_CALL_AS(receives, "fread_unlocked", fread), PEERLANE_CALL(receives, __fread_chk),
    PEERLANE_CALL(receives, fgets), PEERLANE_CALL_AS(receives, "fgets_unlocked", fgets), PEERLANE_CALL(receives, __fgets_chk), PEERLANE_CALL(receives, fgetc),
    PEERLANE_CALL_AS(receives, "getc", fgetc), PEERLANE_CALL_AS(receives, "_IO_getc", fgetc), PEERLANE_CALL(receives, getw), PEERLANE_CALL(sends, putw), PEERLANE_CALL(receives, getline),
    PEERLANE_CALL_AS(receives, "__getdelim", getdelim), PEERLANE_CALL(receives, getdelim), PEERLANE_CALL(receives, vfscanf), PEERLANE_HOOK(fscanf),
    PEERLANE_AS("__isoc99_fscanf", fscanf), PEERLANE_AS("__isoc23_fscanf", fscanf),
    // semaphores, queues and memory of System V and of POSIX
    PEERLANE_HOOK(msgsnd), PEERLANE_HOOK(msgrcv), PEERLANE_HOOK(semop), PEERLANE_HOOK(semtimedop), PEERLANE_HOOK(semctl), PEERLANE_CALL(talks, semget),
    PEERLANE_CALL(talks, msgget), PEERLANE_CALL(talks, msgctl), PEERLANE_CALL(talks, shmget), PEERLANE_CALL(talks, shmctl), PEERLANE_HOOK(mq_open),
    PEERLANE_CALL(broadcasts, mq_unlink), PEERLANE_HOOK(sem_open), PEERLANE_HOOK(sem_close), PEERLANE_CALL(broadcasts, sem_unlink), PEERLANE_CALL(sends, sem_post),
    PEERLANE_CALL(exchanges, sem_wait), PEERLANE_CALL(exchanges, sem_trywait), PEERLANE_CALL(exchanges, sem_timedwait), PEERLANE_CALL(exchanges, sem_clockwait),
    PEERLANE_CALL(receives, sem_getvalue),
    // of descriptors, what is known of their files; asynchronous input and output, whose end is asked for
    PEERLANE_CALL(sends, fsetxattr), PEERLANE_CALL(sends, fremovexattr), PEERLANE_CALL(sends, fchown), PEERLANE_CALL(sends, futimes), PEERLANE_CALL(receives, fgetxattr),
    PEERLANE_CALL(receives, flistxattr), PEERLANE_CALL(receives, getsockopt), PEERLANE_CALL(receives, getpeername), PEERLANE_CALL(receives, fgetwc),
    PEERLANE_CALL_AS(receives, "getwc", fgetwc), PEERLANE_CALL(receives, fgetws), PEERLANE_CALL_AS(receives, "getc_unlocked", getc_unlocked),
    PEERLANE_CALL_AS(receives, "fgetc_unlocked", getc_unlocked), PEERLANE_CALL(receives, ftell), PEERLANE_CALL(receives, ftello), PEERLANE_CALL_AS(receives, "ftello64", ftello),
    PEERLANE_HOOK(getchar), PEERLANE_AS("getchar_unlocked", getchar), PEERLANE_HOOK(scanf), PEERLANE_AS("__isoc99_scanf", scanf), PEERLANE_AS("__isoc23_scanf", scanf),
    PEERLANE_CALL(sends, fputwc), PEERLANE_CALL(sends, fputws), PEERLANE_CALL(sends, putc_unlocked), PEERLANE_CALL_AS(sends, "fputc_unlocked", putc_unlocked),
    PEERLANE_HOOK(aio_write), PEERLANE_AS("aio_write64", aio_write), PEERLANE_HOOK(aio_read), PEERLANE_AS("aio_read64", aio_read), PEERLANE_HOOK(lio_listio),
    PEERLANE_AS("lio_listio64", lio_listio),
    PEERLANE_HOOK(aio_error), PEERLANE_AS("aio_error64", aio_error), PEERLANE_HOOK(aio_suspend), PEERLANE_AS("aio_suspend64", aio_suspend), PEERLANE_HOOK(aio_return),
    PEERLANE_AS("aio_return64", aio_return),
    // processes
    PEERLANE_HOOK(kill), PEERLANE_HOOK(sigqueue), PEERLANE_CALL(talks, killpg), PEERLANE_CALL(hears, sigwait), PEERLANE_CALL(hears, sigwaitinfo),
    PEERLANE_CALL(hears, sigtimedwait), PEERLANE_HOOK(sigaction), PEERLANE_HOOK(signal), PEERLANE_HOOK(process_vm_readv), PEERLANE_HOOK(process_vm_writev), PEERLANE_HOOK(_exit), PEERLANE_AS("_Exit", _exit),
    PEERLANE_CALL(broadcasts, fork), PEERLANE_CALL(broadcasts, posix_spawn), PEERLANE_CALL(broadcasts, posix_spawnp), PEERLANE_CALL(talks, system), PEERLANE_CALL(waits, wait),
    PEERLANE_CALL(waits, waitpid), PEERLANE_CALL(waits, wait3), PEERLANE_CALL(waits, wait4), PEERLANE_CALL(hears, waitid),
    PEERLANE_CALL(broadcasts, nice), PEERLANE_CALL(broadcasts, setpriority), PEERLANE_CALL(broadcasts, setpgid), PEERLANE_CALL(broadcasts, setpgrp), PEERLANE_CALL(broadcasts, setsid),
    PEERLANE_CALL(broadcasts, sched_setaffinity), PEERLANE_CALL(broadcasts, sched_setscheduler), PEERLANE_CALL(broadcasts, sched_setparam), PEERLANE_CALL(broadcasts, setrlimit),
    PEERLANE_CALL_AS(broadcasts, "setrlimit64", setrlimit), PEERLANE_CALL(talks, prlimit), PEERLANE_CALL_AS(talks, "prlimit64", prlimit), PEERLANE_CALL(broadcasts, tcsetpgrp),
    PEERLANE_CALL(hears, tcgetpgrp), PEERLANE_CALL(broadcasts, pthread_setname_np), PEERLANE_CALL(sends, timerfd_settime), PEERLANE_CALL(receives, timerfd_gettime), PEERLANE_HOOK(getpgid), PEERLANE_HOOK(getsid),
    PEERLANE_HOOK(getpriority), PEERLANE_HOOK(sched_getaffinity), PEERLANE_HOOK(sched_getscheduler), PEERLANE_HOOK(sched_getparam), PEERLANE_HOOK(getppid),
    PEERLANE_HOOK(sigpending), PEERLANE_HOOK(prctl),
    // mappings
    PEERLANE_HOOK(mmap), PEERLANE_AS("mmap64", mmap), PEERLANE_HOOK(munmap), PEERLANE_HOOK(mprotect), PEERLANE_HOOK(mremap), PEERLANE_HOOK(shmat), PEERLANE_HOOK(shmdt),
    PEERLANE_HOOK(syscall), PEERLANE_HOOK(dlsym),
};
// Of modules but Python's, whose own hooks log this.
const Hook kOfOthers[] = {
    // children
    PEERLANE_HOOK(fork), PEERLANE_HOOK(posix_spawn), PEERLANE_HOOK(posix_spawnp),
    PEERLANE_HOOK(wait), PEERLANE_HOOK(waitpid), PEERLANE_HOOK(wait3), PEERLANE_HOOK(wait4), PEERLANE_HOOK(waitid),
    // files by their names
    PEERLANE_HOOK(open), PEERLANE_AS("open64", open), PEERLANE_HOOK(openat), PEERLANE_AS("openat64", openat), PEERLANE_CALL(changes, creat),
    PEERLANE_CALL_AS(changes, "creat64", creat), PEERLANE_HOOK(fopen), PEERLANE_AS("fopen64", fopen), PEERLANE_CALL(talks, popen), PEERLANE_CALL(talks, pclose),
    PEERLANE_CALL(looks, access), PEERLANE_CALL(looks, euidaccess), PEERLANE_CALL(looks, faccessat), PEERLANE_CALL(looks, stat), PEERLANE_CALL_AS(looks, "stat64", stat),
    PEERLANE_CALL(looks, lstat), PEERLANE_CALL_AS(looks, "lstat64", lstat), PEERLANE_CALL(looks, fstatat), PEERLANE_CALL_AS(looks, "fstatat64", fstatat),
    PEERLANE_CALL(looks, statx), PEERLANE_AS("__xstat", xstat), PEERLANE_AS("__xstat64", xstat), PEERLANE_AS("__lxstat", lxstat), PEERLANE_AS("__lxstat64", lxstat),
    PEERLANE_CALL(looks, readlink), PEERLANE_CALL(looks, readlinkat), PEERLANE_HOOK(readdir), PEERLANE_AS("readdir64", readdir), PEERLANE_CALL(changes, truncate),
    PEERLANE_CALL_AS(changes, "truncate64", truncate), PEERLANE_CALL(changes, rename), PEERLANE_CALL(changes, renameat), PEERLANE_CALL(changes, renameat2),
    PEERLANE_CALL(changes, link), PEERLANE_CALL(changes, linkat), PEERLANE_CALL(changes, symlink), PEERLANE_CALL(changes, symlinkat), PEERLANE_CALL(changes, unlink),
    PEERLANE_CALL(changes, unlinkat), PEERLANE_CALL(changes, remove), PEERLANE_CALL(changes, mkdir), PEERLANE_CALL(changes, mkdirat), PEERLANE_CALL(changes, rmdir),
    PEERLANE_CALL(changes, mkfifo), PEERLANE_CALL(changes, utimensat), PEERLANE_CALL(changes, utimes), PEERLANE_CALL(changes, chmod),
    PEERLANE_CALL(changes, utime), PEERLANE_CALL(changes, lutimes), PEERLANE_CALL(changes, futimesat), PEERLANE_CALL(changes, fchmodat), PEERLANE_CALL(changes, chown),
    PEERLANE_CALL(changes, lchown), PEERLANE_CALL(changes, fchownat), PEERLANE_CALL(changes, mkfifoat), PEERLANE_CALL(changes, mknod), PEERLANE_CALL(changes, mknodat),
    PEERLANE_CALL(changes, setxattr), PEERLANE_CALL(changes, lsetxattr), PEERLANE_CALL(changes, removexattr), PEERLANE_CALL(changes, lremovexattr),
    PEERLANE_CALL(looks, getxattr), PEERLANE_CALL(looks, lgetxattr), PEERLANE_CALL(looks, listxattr), PEERLANE_CALL(looks, llistxattr), PEERLANE_CALL(looks, opendir),
    PEERLANE_CALL(looks, realpath), PEERLANE_CALL(looks, statvfs), PEERLANE_CALL(looks, chdir), PEERLANE_CALL(looks, pathconf), PEERLANE_CALL(hears, scandir),
    PEERLANE_CALL_AS(hears, "scandir64", scandir), PEERLANE_CALL(hears, glob), PEERLANE_CALL_AS(hears, "glob64", glob), PEERLANE_CALL(hears, ftw), PEERLANE_CALL(hears, nftw),
    PEERLANE_CALL_AS(hears, "nftw64", nftw), PEERLANE_CALL(broadcasts, mkstemp), PEERLANE_CALL_AS(broadcasts, "mkstemp64", mkstemp), PEERLANE_CALL(broadcasts, mkostemp),
    PEERLANE_CALL_AS(broadcasts, "mkostemp64", mkostemp), PEERLANE_CALL(broadcasts, mkstemps), PEERLANE_CALL(broadcasts, mkostemps), PEERLANE_CALL(broadcasts, mkdtemp), PEERLANE_CALL(talks, shm_open),
    PEERLANE_CALL(broadcasts, shm_unlink),
};
#undef PEERLANE_HOOK
#undef PEERLANE_AS
#undef PEERLANE_CALL
#undef PEERLANE_CALL_AS

// Null: none.
void* hook_of(std::string_view name, bool is_python) {
    using Hooks = std::unordered_map<std::string_view, void*>;
    const auto map_of = [](const auto& hooks) {
        auto* const map = new Hooks;
        for (const Hook& each : hooks) map->emplace(each.name, each.hook);
        return map;
    };
    static const Hooks& all = *map_of(kHooks);
    static const Hooks& of_others = *map_of(kOfOthers);
    if (!is_python)
        if (const auto known = of_others.find(name); known != of_others.end()) return known->second;
    const auto known = all.find(name);
    return known == all.end() ? nullptr : known->second;
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

uint64_t patched_loads = 0, patched_unloads = 0;   // the system's counts; under modules_mutex

void patch_modules() {
    Dl_info own{}, python{};
    ::dladdr(reinterpret_cast<void*>(&patch_modules), &own);
    if (void* const symbol = ::dlsym(RTLD_DEFAULT, "Py_IsInitialized")) ::dladdr(symbol, &python);
    struct Work {
        const void *own, *python;
        Ranges system;
        bool has_go = false;
    } work{own.dli_fbase, python.dli_fbase, {}};
    {
        const Quiet quiet;
        const std::lock_guard lock(modules_mutex);
        work.system = system_ranges();
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
                hook_imports(*module, work.system, [is_python](std::string_view name) { return hook_of(name, is_python); });
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

void set_outputs(const std::vector<uint64_t>& files) {
    for (size_t i = 0; i < std::size(outputs); ++i) outputs[i].store(2 * i + 1 < files.size() ? mixed(files[2 * i], files[2 * i + 1]) : 0, std::memory_order_relaxed);
}

void note_changed_file() {
    if (is_noted()) sent(kEverybody);
}

void note_file(int fd, bool writes) {
    if (!is_noted()) return;
    const Medium medium = medium_of(fd, !writes);
    writes ? sent(medium) : received(medium);
}

// The call goes on, and what it looks at may still change.
void note_looked_at(const char* path) {
    struct stat about;
    if (!is_noted() || !is_seen_by_others(path) || (::stat(path, &about) == 0 && static_cast<uint64_t>(about.st_ctim.tv_sec) < begun_s)) return;
    received(kEverybody, UINT64_MAX);
    look_at_process(path, UINT64_MAX);
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
                                                                    [] {
                                                                        mappings_mutex.unlock(), modules_mutex.unlock();
                                                                        has_shared_descriptors.store(true, std::memory_order_relaxed);
                                                                    },
                                                                    [] { mappings_mutex.unlock(), modules_mutex.unlock(); });
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    if (begun_s == 0) begun_s = static_cast<uint64_t>(now.tv_sec) - 60;   // another process of the run may have begun before
    if (const char* const name = std::getenv("PEERLANE_LOG")) {
        const std::string* const before = log_folder.load(std::memory_order_relaxed);
        if (std::string path = std::string(name) + "/"; !before || *before != path) log_folder.store(new std::string(std::move(path)), std::memory_order_release);
    }
    is_silent_child.store(false, std::memory_order_relaxed);
    owner.store(getpid(), std::memory_order_relaxed);
    hooks::parent.store(::getppid(), std::memory_order_relaxed);
    slot_of(kWorld);
    write({.kind = Kind::take, .a = kStarted, .b = static_cast<uint64_t>(getpid()), .site = 0});
    if (has_overflown.load(std::memory_order_relaxed)) write({.kind = Kind::outside, .a = kWorld, .b = kOverflown, .site = 0});   // a child's log
    patch_modules();
    {
        const Quiet quiet;
        const std::lock_guard lock(mappings_mutex);
        mappings().clear();
    }
    scan_mappings(0, UINTPTR_MAX);
    write({.kind = Kind::outside, .a = hooks::signals_of(getpid()).key, .b = kMapped, .site = 0});
    write({.kind = Kind::outside, .a = hooks::ends_of_children(getppid()), .b = kSent, .site = 0});   // what it has used tells of its end, too
    for (int number = 1; number < NSIG; ++number) {
        struct sigaction known{};
        if (::sigaction(number, nullptr, &known) == 0 && known.sa_handler != SIG_DFL && known.sa_handler != SIG_IGN) hooks::note_handler(number);
    }
    write({.kind = Kind::outside, .a = key_of_memory(getpid()), .b = kMapped | kWrote | kApart, .site = 0});
}

void note_readable() noexcept {
    if (has_shared_descriptors.load(std::memory_order_relaxed)) write({.kind = Kind::outside, .a = kWorld, .b = kSent, .site = 0});
}

}  // namespace peerlane::log

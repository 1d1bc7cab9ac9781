#include "memory/threads.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mutex>
#include <new>
#include <pthread.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace peerlane {

namespace {

struct Own {
    std::mutex mutex;
    std::vector<int32_t> threads;
};

Own& own() {
    static auto* all = new Own;   // leaked: threads may outlive static destruction
    return *all;
}

int32_t kernel_id() { return static_cast<int32_t>(syscall(SYS_gettid)); }

struct Listed {
    Listed() {
        const std::lock_guard lock(own().mutex);
        try {
            own().threads.push_back(kernel_id());
        } catch (const std::bad_alloc&) {   // it passes for a foreign one, and nothing is proved
        }
    }
    ~Listed() {
        const std::lock_guard lock(own().mutex);
        std::erase(own().threads, kernel_id());
    }
};

// The bytes of a file of a thread, with a 0 behind them; false if it cannot be read.
template <size_t kRoom>
bool read_of(const char* thread, const char* name, char (&text)[kRoom]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%.16s/%s", thread, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, text, kRoom - 1);
    close(fd);
    text[std::max<ssize_t>(n, 0)] = 0;
    return n > 0;
}

uint64_t field(const char* status, const char* name, int base) {
    const char* const at = strstr(status, name);
    return at ? strtoull(at + strlen(name), nullptr, base) : 0;
}

enum class Sleep : uint8_t { none, timed, endless };

// How a thread sleeps on a futex of this process alone.
Sleep sleep_of(const char* thread) {
    char text[256];
    if (!read_of(thread, "syscall", text)) return Sleep::none;
    long number = -1;
    unsigned long long address = 0, operation = 0, value = 0, timeout = 0;
    if (sscanf(text, "%ld %llx %llx %llx %llx", &number, &address, &operation, &value, &timeout) != 5) return Sleep::none;
    if (number != SYS_futex || !(operation & FUTEX_PRIVATE_FLAG)) return Sleep::none;
    switch (operation & FUTEX_CMD_MASK) {
        case FUTEX_WAIT:
        case FUTEX_WAIT_BITSET:
        case FUTEX_LOCK_PI:
            return timeout == 0 ? Sleep::endless : Sleep::timed;
        default:
            return Sleep::none;
    }
}

std::vector<int32_t> threads_named(const std::string& name) {
    std::vector<int32_t> ids;
    DIR* const all = opendir("/proc/self/task");
    if (!all) return ids;
    char text[64];
    while (const dirent* const each = readdir(all))
        if (const auto thread = static_cast<int32_t>(strtol(each->d_name, nullptr, 10)); thread > 0)
            if (read_of(each->d_name, "comm", text) && name + "\n" == text) ids.push_back(thread);
    closedir(all);
    return ids;
}

// The thread of Python's faulthandler blocks all signals that can be blocked.
constexpr uint64_t kAllSignals = 0xfffffffe7ffbfeff;

}  // namespace

void begin_own_thread() {
    sigset_t all;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    static thread_local const Listed listed;
}

void list_threads_named(const char* name, const std::function<void()>& start) {
    const std::vector<int32_t> before = threads_named(name);
    start();
    for (const int32_t thread : threads_named(name)) {
        if (std::find(before.begin(), before.end(), thread) != before.end()) continue;
        const std::lock_guard lock(own().mutex);
        own().threads.push_back(thread);
    }
}

std::optional<uint64_t> foreign_threads(const std::vector<int32_t>& known, bool may_watch) {
    DIR* const all = opendir("/proc/self/task");
    if (!all) return std::nullopt;
    uint64_t token = 1;
    bool is_still = true;
    while (const dirent* const each = is_still ? readdir(all) : nullptr) {
        const auto thread = static_cast<int32_t>(strtol(each->d_name, nullptr, 10));
        if (thread == 0 || std::find(known.begin(), known.end(), thread) != known.end()) continue;
        {
            const std::lock_guard lock(own().mutex);
            if (std::find(own().threads.begin(), own().threads.end(), thread) != own().threads.end()) continue;
        }
        char status[4096];
        const Sleep sleep = sleep_of(each->d_name);
        is_still = sleep != Sleep::none && read_of(each->d_name, "status", status);
        if (is_still && sleep == Sleep::timed)
            is_still = std::exchange(may_watch, false) && (field(status, "SigBlk:", 16) & kAllSignals) == kAllSignals;
        if (!is_still) break;
        const uint64_t ran = field(status, "\nvoluntary_ctxt_switches:", 10) + field(status, "nonvoluntary_ctxt_switches:", 10);
        for (const uint64_t value : {static_cast<uint64_t>(thread), ran}) token = (token ^ value) * 0x9E3779B97F4A7C15;
    }
    closedir(all);
    return is_still ? std::optional(token) : std::nullopt;
}

}  // namespace peerlane

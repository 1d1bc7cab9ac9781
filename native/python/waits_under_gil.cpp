// A module that waits under the GIL for a thread of C: that thread may need the GIL to call a vendor's library, and both would wait
// for ever.  Here the wait gives the GIL away: a join, a lock of a mutex, and the system call by which other locks sleep.
#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <mutex>
#include <set>
#include <string_view>

#include "log/imports.h"
#include "python/bind.h"

std::atomic<uint32_t> gil_waiters{0};

namespace {

constexpr long kPatience = 10'000'000, kNanoseconds = 1'000'000'000;   // nanoseconds

bool holds_gil() { return Py_IsInitialized() && PyGILState_GetThisThreadState() && PyGILState_Check(); }

// Wait in steps, each of which returns ETIMEDOUT when it is over; as soon as a thread of C waits for the GIL, all at once without it.
template <class Step, class Whole>
int wait_under_gil(const Step& step, const Whole& whole) {
    while (true) {
        timespec until{};
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += kPatience;
        until.tv_sec += until.tv_nsec / kNanoseconds;
        until.tv_nsec %= kNanoseconds;
        const int code = step(until);
        if (code != ETIMEDOUT) return code;
        if (gil_waiters.load(std::memory_order_acquire) == 0) continue;
        const GilReleased gil;
        return whole();
    }
}

int join(pthread_t thread, void** result) {
    const auto whole = [&] { return ::pthread_join(thread, result); };
    return holds_gil() ? wait_under_gil([&](const timespec& until) { return ::pthread_timedjoin_np(thread, result, &until); }, whole) : whole();
}

int lock(pthread_mutex_t* mutex) {
    const int code = ::pthread_mutex_trylock(mutex);
    if (code != EBUSY) return code;
    const auto whole = [&] { return ::pthread_mutex_lock(mutex); };
    return holds_gil() ? wait_under_gil([&](const timespec& until) { return ::pthread_mutex_timedlock(mutex, &until); }, whole) : whole();
}

// Six words, as the system has no call with more; those that the caller did not pass are not read.
long call_system(long number, long a, long b, long c, long d, long e, long f) {
    const int command = static_cast<int>(b) & FUTEX_CMD_MASK;
    const auto whole = [&]() -> int { return ::syscall(number, a, b, c, d, e, f) == 0 ? 0 : errno; };
    if (number != SYS_futex || (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET) || d != 0 || !holds_gil())
        return ::syscall(number, a, b, c, d, e, f);
    const long mask = command == FUTEX_WAIT ? static_cast<long>(FUTEX_BITSET_MATCH_ANY) : f;
    const long operation = FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME | (b & FUTEX_PRIVATE_FLAG);
    const int code = wait_under_gil(
        [&](const timespec& until) { return ::syscall(number, a, operation, c, &until, e, mask) == 0 ? 0 : errno; }, whole);
    if (code == 0) return 0;
    errno = code;
    return -1;
}

void* hook_of(std::string_view name) {
    if (name == "pthread_join") return reinterpret_cast<void*>(&join);
    if (name == "pthread_mutex_lock") return reinterpret_cast<void*>(&lock);
    // The log has a hook of its own for it.
    if (name == "syscall" && !peerlane::log::is_logging()) return reinterpret_cast<void*>(&call_system);
    return nullptr;
}

// Its locks are those of the GIL itself.
const void* base_of_python() {
    static const void* const base = [] {
        Dl_info module{};
        return ::dladdr(reinterpret_cast<void*>(&PyGILState_Check), &module) ? module.dli_fbase : nullptr;
    }();
    return base;
}

bool is_python(const dl_phdr_info& module) {
    for (int i = 0; i < module.dlpi_phnum; ++i) {
        const auto& part = module.dlpi_phdr[i];
        const uintptr_t begin = module.dlpi_addr + part.p_vaddr, at = reinterpret_cast<uintptr_t>(base_of_python());
        if (part.p_type == PT_LOAD && at >= begin && at < begin + part.p_memsz) return true;
    }
    return false;
}

struct HookedModules {
    std::mutex mutex;
    std::set<ElfW(Addr)> hooked;
    uint64_t loads = 0, unloads = 0;   // the system's counts
};

HookedModules& hooked_modules() {
    static auto* const all = new HookedModules;
    return *all;
}

uint64_t loads_of_system() {
    uint64_t loads = 0;
    ::dl_iterate_phdr(
        [](dl_phdr_info* module, size_t, void* count) {
            *static_cast<uint64_t*>(count) = module->dlpi_adds;
            return 1;
        },
        &loads);
    return loads;
}

}  // namespace

void follow_waits() noexcept {
    HookedModules& all = hooked_modules();
    const std::unique_lock lock(all.mutex, std::try_to_lock);   // in a forked child nobody may open it
    if (!lock) return;
    if (const uint64_t loads = loads_of_system(); std::exchange(all.loads, loads) == loads) return;
    const peerlane::log::Ranges system = peerlane::log::system_ranges();
    ::dl_iterate_phdr(
        [](dl_phdr_info* module, size_t, void* about) {
            HookedModules& all = hooked_modules();
            if (std::exchange(all.unloads, module->dlpi_subs) != module->dlpi_subs) all.hooked.clear();   // another module may be where one was
            if (peerlane::log::is_left_alone(module->dlpi_name ? module->dlpi_name : "") || !all.hooked.insert(module->dlpi_addr).second) return 0;
            if (!is_python(*module)) peerlane::log::hook_imports(*module, *static_cast<const peerlane::log::Ranges*>(about), hook_of);
            return 0;
        },
        const_cast<peerlane::log::Ranges*>(&system));
}

// A module that joins a thread under the GIL, while that thread waits for the GIL to call a vendor's library: both would wait for
// ever.  Here the join gives the GIL away.
#include <link.h>
#include <pthread.h>

#include <cerrno>
#include <ctime>
#include <mutex>
#include <set>
#include <string_view>

#include "log/imports.h"
#include "python/bind.h"

std::atomic<uint32_t> gil_waiters{0};

namespace {

constexpr long kJoinPatience = 10'000'000, kNanoseconds = 1'000'000'000;   // nanoseconds

bool holds_gil() { return PyGILState_GetThisThreadState() && PyGILState_Check(); }

int join_in_steps(pthread_t thread, void** result) {
    if (!Py_IsInitialized() || !holds_gil()) return ::pthread_join(thread, result);
    while (true) {
        timespec until{};
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += kJoinPatience;
        until.tv_sec += until.tv_nsec / kNanoseconds;
        until.tv_nsec %= kNanoseconds;
        const int code = ::pthread_timedjoin_np(thread, result, &until);
        if (code != ETIMEDOUT) return code;
        if (gil_waiters.load(std::memory_order_acquire) == 0) continue;
        const GilReleased gil;
        return ::pthread_join(thread, result);
    }
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

void follow_joins() noexcept {
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
            peerlane::log::hook_imports(*module, *static_cast<const peerlane::log::Ranges*>(about), [](std::string_view name) {
                return name == "pthread_join" ? reinterpret_cast<void*>(&join_in_steps) : nullptr;
            });
            return 0;
        },
        const_cast<peerlane::log::Ranges*>(&system));
}

#include "memory/fault_guard.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "memory/kernel_call.h"

namespace peerlane {

thread_local FaultGuard* active_guard __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS};

// Whenever somebody stepped in front of us we step in front of him, by another entry: an entry knows whom it stands
// over.  By a single one, who withdraws (faulthandler) or calls whom he found would lead the fault to himself again,
// for ever; and counting rounds instead would end a program that rightly repairs one page again and again.
constexpr int kEntries = 16;
struct sigaction stood_over[2][kEntries];
std::atomic<int> newest[2] = {-1, -1};   // entry, by signal

std::mutex install_mutex;
std::atomic<bool> installed{false};
std::atomic<bool (*)(uintptr_t, void*) noexcept> asked_first{nullptr};
std::atomic<uintptr_t> explained_base{0};
std::atomic<uint64_t> explained_size{0};

// Only async-signal-safe calls below.
void explain(uintptr_t address) {
    char text[] =
        "peerlane: host code touched device address 0x................ directly. A device address is valid "
        "in copies and fills only. Copy the bytes to host memory, use Buffer.view(), or choose a node with "
        "host_access=map (PEERLANE_NODE).\n";
    char* digits = strchr(text, '.');
    for (int i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[(address >> (60 - 4 * i)) & 15];
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
}

void hand_over(struct sigaction& before, int signal, siginfo_t* info, void* context) {
    const struct sigaction asked = before;
    if (asked.sa_flags & SA_RESETHAND) before = {};
    if (asked.sa_flags & SA_SIGINFO) {
        asked.sa_sigaction(signal, info, context);
    } else if (asked.sa_handler == SIG_IGN && info->si_code <= 0) {
        return;   // sent, and not wanted; a fault cannot be ignored
    } else if (asked.sa_handler == SIG_DFL || asked.sa_handler == SIG_IGN) {
        // Returning repeats the faulting instruction, now with the default action.
        struct sigaction fallback {};
        fallback.sa_handler = SIG_DFL;
        sigaction(signal, &fallback, nullptr);
        if (info->si_code <= 0) raise(signal);
    } else {
        asked.sa_handler(signal);
    }
}

// May be left by a jump, ours or another's: nothing is held or counted here.
template <int entry>
void on_fault(int signal, siginfo_t* info, void* context) {
    const bool from_hardware = info->si_code > 0;
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    if (const auto repairs = asked_first.load(std::memory_order_acquire); from_hardware && signal == SIGSEGV && repairs && repairs(address, context)) return;
    FaultGuard* guard = active_guard;
    if (guard != nullptr && from_hardware) {
        guard->address = address;
        guard->signal = signal;
        guard->is_denied = signal == SIGSEGV && info->si_code == SEGV_ACCERR;
        siglongjmp(guard->landing, 1);
    }
    if (from_hardware && signal == SIGSEGV && lend_to_kernel(address)) return;
    const uintptr_t base = explained_base.load(std::memory_order_relaxed);
    if (from_hardware && base != 0 && address - base < explained_size.load(std::memory_order_relaxed))
        explain(address);
    hand_over(stood_over[signal == SIGBUS][entry], signal, info, context);
}

using Handler = void (*)(int, siginfo_t*, void*);

template <int... entry>
constexpr std::array<Handler, kEntries> all_entries(std::integer_sequence<int, entry...>) {
    return {on_fault<entry>...};
}

constexpr auto kHandlers = all_entries(std::make_integer_sequence<int, kEntries>{});

// Which of our entries is installed; -1 for a stranger.
int entry_of(const struct sigaction& present) {
    if (!(present.sa_flags & SA_SIGINFO)) return -1;
    const auto handler = std::find(kHandlers.begin(), kHandlers.end(), present.sa_sigaction);
    return handler == kHandlers.end() ? -1 : static_cast<int>(handler - kHandlers.begin());
}

bool is_same(const struct sigaction& one, const struct sigaction& other) {
    return one.sa_flags == other.sa_flags && one.sa_handler == other.sa_handler;
}

int entry_over(const struct sigaction& stranger, int which) {
    const int last = newest[which].load(std::memory_order_relaxed);
    if (last >= 0 && is_same(stranger, stood_over[which][last])) return last;   // withdrawn and back
    if (last + 1 < kEntries) {
        stood_over[which][last + 1] = stranger;
        return last + 1;
    }
    // Too many that never withdrew: whom this entry stood over may have found this very entry since.
    stood_over[which][last] = stood_over[which][0];
    return last;
}

void install_locked() {
    struct sigaction action {};
    // SA_NODEFER: the handler is left by siglongjmp, which does not restore the mask.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (int which = 0; which < 2; ++which) {
        struct sigaction present {};
        sigaction(kSignals[which], nullptr, &present);
        int entry = entry_of(present);
        if (entry < 0) {
            entry = entry_over(present, which);
            action.sa_sigaction = kHandlers[entry];
            sigaction(kSignals[which], &action, nullptr);
        }
        newest[which].store(entry, std::memory_order_relaxed);
    }
}

}  // namespace

void install_fault_handlers() {
    if (installed.load(std::memory_order_acquire)) return;
    std::lock_guard lock(install_mutex);
    install_locked();
    installed.store(true, std::memory_order_release);
}

void rearm_fault_handlers(bool is_mapped) {
    for (int which = is_mapped ? 1 : 0; which < 2; ++which) {
        struct sigaction present {};
        sigaction(kSignals[which], nullptr, &present);
        const int entry = entry_of(present);
        if (entry >= 0 && entry == newest[which].load(std::memory_order_relaxed)) continue;
        std::lock_guard lock(install_mutex);
        install_locked();
        return;
    }
}

void let_first(bool (*repairs)(uintptr_t address, void* context) noexcept) { asked_first.store(repairs, std::memory_order_release); }

void explain_faults_in(uintptr_t base, uint64_t size) {
    explained_size.store(size, std::memory_order_relaxed);
    explained_base.store(base, std::memory_order_relaxed);
}

}  // namespace peerlane

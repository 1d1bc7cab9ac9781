#include "fault_guard.h"

#include <csignal>
#include <cstring>
#include <mutex>
#include <unistd.h>

namespace peerlane {

thread_local FaultGuard* active_guard __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS};
struct sigaction previous[2];          // before our first installation
struct sigaction later[2];             // in front of us until we stepped in front again
std::atomic<bool> displaced[2];
std::mutex install_mutex;
std::atomic<bool> installed{false};
std::atomic<uintptr_t> explained_base{0};
std::atomic<uint64_t> explained_size{0};

// Only async-signal-safe calls below.
void explain(uintptr_t address) {
    char text[] =
        "peerlane: host code touched device address 0x................ directly. A device address is valid "
        "in copies and fills only; use Buffer.view() or copy the bytes to host memory.\n";
    char* digits = strchr(text, '.');
    for (int i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[(address >> (60 - 4 * i)) & 15];
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
}

// Who stepped in front of us and was stepped over again (faulthandler) may lead the fault back here: it is asked a
// few times at one place, and then those who were there before us, who are asked always.
constexpr int kMostRounds = 4;
thread_local uintptr_t last_fault __attribute__((tls_model("initial-exec"))) = 0;
thread_local int rounds __attribute__((tls_model("initial-exec"))) = 0;
thread_local bool asking __attribute__((tls_model("initial-exec"))) = false;

void hand_over(const struct sigaction& before, int signal, siginfo_t* info, void* context) {
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler == SIG_IGN && info->si_code <= 0) {
        return;   // sent, and not wanted; a fault cannot be ignored
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        // Returning repeats the faulting instruction, now with the default action.
        struct sigaction fallback {};
        fallback.sa_handler = SIG_DFL;
        sigaction(signal, &fallback, nullptr);
        if (info->si_code <= 0) raise(signal);
    } else {
        before.sa_handler(signal);
    }
}

void chain(int signal, siginfo_t* info, void* context) {
    const int which = signal == SIGBUS;
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    rounds = address == last_fault ? rounds + 1 : 0;
    last_fault = address;
    if (!displaced[which].load(std::memory_order_acquire) || asking || rounds >= kMostRounds) {
        hand_over(previous[which], signal, info, context);
        return;
    }
    asking = true;
    hand_over(later[which], signal, info, context);
    asking = false;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    const bool from_hardware = info->si_code > 0;
    FaultGuard* guard = active_guard;
    if (guard != nullptr && from_hardware) {
        guard->address = reinterpret_cast<uintptr_t>(info->si_addr);
        guard->signal = signal;
        siglongjmp(guard->landing, 1);
    }
    const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
    const uintptr_t base = explained_base.load(std::memory_order_relaxed);
    if (from_hardware && base != 0 && address - base < explained_size.load(std::memory_order_relaxed))
        explain(address);
    chain(signal, info, context);
}

void install_locked() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    // SA_NODEFER: the handler is left by siglongjmp, which does not restore the mask.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; ++i) {
        struct sigaction present {};
        sigaction(kSignals[i], nullptr, &present);
        if ((present.sa_flags & SA_SIGINFO) && present.sa_sigaction == on_fault) continue;
        if (installed.load(std::memory_order_relaxed)) {
            later[i] = present;
            displaced[i].store(present.sa_handler != SIG_DFL, std::memory_order_release);
        } else {
            previous[i] = present;
        }
        sigaction(kSignals[i], &action, nullptr);
    }
}

}  // namespace

void install_fault_handlers() {
    if (installed.load(std::memory_order_acquire)) return;
    std::lock_guard lock(install_mutex);
    install_locked();
    installed.store(true, std::memory_order_release);
}

void rearm_fault_handlers() {
    for (int signal : kSignals) {
        struct sigaction present {};
        sigaction(signal, nullptr, &present);
        if ((present.sa_flags & SA_SIGINFO) && present.sa_sigaction == on_fault) continue;
        std::lock_guard lock(install_mutex);
        install_locked();
        return;
    }
}

void explain_faults_in(uintptr_t base, uint64_t size) {
    explained_size.store(size, std::memory_order_relaxed);
    explained_base.store(base, std::memory_order_relaxed);
}

}  // namespace peerlane

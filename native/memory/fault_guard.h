// Touching memory that may not be there: a thread-local jump target for SIGSEGV and SIGBUS.
#pragma once
#include <csetjmp>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace peerlane {

struct Fault {
    uintptr_t address = 0;
    int signal = 0;
    bool is_denied = false;   // something is mapped there, and may not be touched so
};

struct FaultGuard : Fault {
    sigjmp_buf landing;
    FaultGuard* outer = nullptr;
    std::mutex* held[2] = {};   // by what is run, which may be abandoned

    void let_go() {
        for (std::mutex*& mutex : held)
            if (mutex) std::exchange(mutex, nullptr)->unlock();
    }
};

extern thread_local FaultGuard* active_guard __attribute__((tls_model("initial-exec")));

// Install the handlers once; chain to whoever was there.  `rearm` also looks whether somebody replaced
// them since (faulthandler does) and steps in front again.  Each look is a call of the system: memory that is
// mapped can fault with SIGBUS only, where its file was cut.
void install_fault_handlers();
void rearm_fault_handlers(bool is_mapped = false);

// Asked first of each SIGSEGV that the hardware raised: true if what faulted is to be repeated.  Only async-signal-safe calls, as
// nothing is known of what it interrupts.
void let_first(bool (*repairs)(uintptr_t address, void* context) noexcept);

// Addresses in [base, base + size) are device addresses: a stray host access there is explained on stderr.
void explain_faults_in(uintptr_t base, uint64_t size);

// Run `touch`; false when it faulted, and then `guard` says where.  `touch` is abandoned in the middle:
// it must own nothing, and hold no lock but those that the guard names.
template <class Touch>
__attribute__((noinline)) bool guarded(FaultGuard& guard, Touch&& touch) {
    guard.outer = active_guard;
    if (sigsetjmp(guard.landing, 0) == 0) {
        active_guard = &guard;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        touch();
        std::atomic_signal_fence(std::memory_order_seq_cst);
        active_guard = guard.outer;
        return true;
    }
    active_guard = guard.outer;
    guard.let_go();
    return false;
}

// Read a byte of each page: then a fault hits the process that shares the memory, and not those that open it.
inline void look_at_pages(const char* bytes, uint64_t n) {
    constexpr uint64_t kPage = 4096;
    for (uint64_t at = 0; at < n; at += kPage) (void)*static_cast<const volatile char*>(bytes + at);
    if (n != 0) (void)*static_cast<const volatile char*>(bytes + n - 1);
}

}  // namespace peerlane

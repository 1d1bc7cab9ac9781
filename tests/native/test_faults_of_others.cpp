// Foreign fault handlers, installed before and after our first installation.  Not under TSan, which cannot leave a
// signal handler by a jump.
#include <csetjmp>

#include "faults.h"
#include "memory/fault_guard.h"

using namespace peerlane;

namespace {

constexpr int kTimes = 10;
enum class When { before_us, in_front_of_us };
constexpr When kBoth[] = {When::before_us, When::in_front_of_us};

int calls = 0;
sigjmp_buf landing;
struct sigaction stepped_over {};

void repairs(int, siginfo_t*, void*) {
    ++calls;
    mprotect(forbidden(), 4096, PROT_READ | PROT_WRITE);
}

void jumps(int, siginfo_t*, void*) {
    ++calls;
    siglongjmp(landing, 1);
}

void withdraws(int signal, siginfo_t*, void*) {
    if (++calls > 1) _exit(3);
    sigaction(signal, &stepped_over, nullptr);
}

void raises_after_withdrawing(int signal, siginfo_t* info, void* context) {
    withdraws(signal, info, context);
    raise(signal);
}

void passes_on(int signal, siginfo_t* info, void* context) {
    ++calls;
    stepped_over.sa_sigaction(signal, info, context);
}

void returns(int, siginfo_t*, void*) {
    if (++calls > 1) _exit(3);
}

void set_handler(void (*handler)(int, siginfo_t*, void*), int flags = 0) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | flags;
    sigaction(SIGSEGV, &action, &stepped_over);
}

// Removes the sanitizer's handler, so that an unhandled fault ends the child by its signal.
template <class Set>
void installed(When when, const Set& set) {
    signal(SIGSEGV, SIG_DFL);
    if (when == When::before_us) set();
    install_fault_handlers();
    if (when == When::in_front_of_us) set();
    rearm_fault_handlers();
    FaultGuard guard;
    if (guarded(guard, [] { touch(forbidden()); })) _exit(2);
}

void a_repairing_handler_is_called_every_time() {
    for (When when : kBoth) {
        const int status = status_of_child([=] {
            installed(when, [] { set_handler(repairs); });
            for (int i = 0; i < kTimes; ++i) {
                mprotect(forbidden(), 4096, PROT_NONE);
                touch(forbidden());
            }
            _exit(calls);
        });
        CHECK(exited_with(status, kTimes));
    }
}

void a_jumping_handler_is_called_every_time() {
    for (When when : kBoth) {
        const int status = status_of_child([=] {
            installed(when, [] { set_handler(jumps); });
            for (volatile int i = 0; i < kTimes; i = i + 1)
                if (sigsetjmp(landing, 1) == 0) touch(forbidden());
            _exit(calls);
        });
        CHECK(exited_with(status, kTimes));
    }
}

void an_ignored_signal_that_was_sent_is_survived() {
    for (When when : kBoth) {
        const int sent = status_of_child([=] {
            installed(when, [] { signal(SIGSEGV, SIG_IGN); });
            for (int i = 0; i < kTimes; ++i) raise(SIGSEGV);
            _exit(5);
        });
        CHECK(exited_with(sent, 5));
        const int fault = status_of_child([=] {
            installed(when, [] { signal(SIGSEGV, SIG_IGN); });
            touch(forbidden());
        });
        CHECK(died_of(fault, SIGSEGV));
    }
}

void a_withdrawn_handler_is_not_called_again() {
    for (auto handler : {withdraws, raises_after_withdrawing})
        for (When when : kBoth) {
            const int status = status_of_child([=] {
                installed(when, [=] { set_handler(handler); });
                touch(forbidden());
            });
            CHECK(died_of(status, SIGSEGV));
        }
    for (When when : kBoth) {
        const int status = status_of_child([=] {
            installed(when, [] { set_handler(returns, static_cast<int>(SA_RESETHAND)); });
            touch(forbidden());
        });
        CHECK(died_of(status, SIGSEGV));
    }
}

void a_later_handler_passes_faults_to_the_first() {
    for (bool withdrawn : {false, true}) {
        const int status = status_of_child([=] {
            installed(When::before_us, [] { set_handler(repairs); });
            set_handler(passes_on);
            if (withdrawn) sigaction(SIGSEGV, &stepped_over, nullptr);
            rearm_fault_handlers();
            for (int i = 0; i < kTimes; ++i) {
                mprotect(forbidden(), 4096, PROT_NONE);
                touch(forbidden());
            }
            _exit(calls);
        });
        CHECK(exited_with(status, withdrawn ? kTimes : 2 * kTimes));
    }
}

void a_restored_default_handler_ends_the_process() {
    const int status = status_of_child([] {
        installed(When::before_us, [] { set_handler(returns); });
        signal(SIGSEGV, SIG_DFL);
        rearm_fault_handlers();
        touch(forbidden());
    });
    CHECK(died_of(status, SIGSEGV));
}

void a_thousand_changes_of_handlers_are_survived() {
    const int status = status_of_child([] {
        installed(When::before_us, [] { set_handler(repairs); });
        for (int i = 0; i < 1000; ++i) {
            set_handler(i % 2 ? passes_on : jumps);
            rearm_fault_handlers();
        }
        FaultGuard guard;
        if (guarded(guard, [] { touch(forbidden()); })) _exit(2);
        if (sigsetjmp(landing, 1) == 0) touch(forbidden());
        _exit(5);
    });
    CHECK(exited_with(status, 5));
}

}  // namespace

NATIVE_TEST(test_faults_of_others) {
    forbidden();
    a_repairing_handler_is_called_every_time();
    a_jumping_handler_is_called_every_time();
    an_ignored_signal_that_was_sent_is_survived();
    a_withdrawn_handler_is_not_called_again();
    a_later_handler_passes_faults_to_the_first();
    a_restored_default_handler_ends_the_process();
    a_thousand_changes_of_handlers_are_survived();
    return 0;
}

// Not under TSan, which cannot leave a signal handler by a jump.
#include "memory/fault_guard.h"

#include "faults.h"

using namespace peerlane;

namespace {

void earlier(int, siginfo_t*, void*) {
    _exit(42);
}

void a_fault_lands() {
    FaultGuard outer, inner;
    char* page = forbidden();
    CHECK(!guarded(outer, [&] { touch(page + 17); }));
    CHECK(outer.address == reinterpret_cast<uintptr_t>(page) + 17 && outer.signal == SIGSEGV);
    bool inner_ok = true, outer_ok = guarded(outer, [&] {
        inner_ok = guarded(inner, [&] { touch(page); });
    });
    CHECK(outer_ok && !inner_ok && active_guard == nullptr);

    const int fd = memfd_create("short", MFD_CLOEXEC);
    auto* bytes = static_cast<char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
    CHECK(!guarded(outer, [&] { (void)*static_cast<volatile char*>(bytes); }) && outer.signal == SIGBUS);
    close(fd);
}

void earlier_handlers_still_run() {
    const int status = status_of_child([] { touch(forbidden()); });
    CHECK(exited_with(status, 42));
    // Another handler is installed over ours, and then ours over it.
    const int again = status_of_child([] {
        struct sigaction mine {};
        mine.sa_handler = [](int) { _exit(7); };
        sigaction(SIGSEGV, &mine, nullptr);
        rearm_fault_handlers();
        FaultGuard guard;
        if (guarded(guard, [] { touch(forbidden()); })) _exit(1);
        touch(forbidden());
    });
    CHECK(exited_with(again, 7));
}

void a_sent_signal_is_not_taken_for_a_fault() {
    const int status = status_of_child([] {
        FaultGuard guard;
        guarded(guard, [] { raise(SIGSEGV); });
        _exit(1);
    });
    CHECK(exited_with(status, 42));
}

void a_device_address_is_explained() {
    std::string errors;
    status_of_child(
        [] {
            explain_faults_in(reinterpret_cast<uintptr_t>(forbidden()), 4096);
            touch(forbidden() + 5);
        },
        &errors);
    CHECK(errors.find("host code touched device address 0x") != std::string::npos);
}

}  // namespace

NATIVE_TEST(test_faults) {
    struct sigaction before {};
    before.sa_sigaction = earlier;
    before.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &before, nullptr);
    install_fault_handlers();
    a_fault_lands();
    earlier_handlers_still_run();
    a_sent_signal_is_not_taken_for_a_fault();
    a_device_address_is_explained();
    return 0;
}

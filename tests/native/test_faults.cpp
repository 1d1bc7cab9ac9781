// Not under TSan, which cannot leave a signal handler by a jump.
#include "fault_guard.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

using namespace peerlane;

namespace {

void earlier(int, siginfo_t*, void*) {
    _exit(42);
}

int status_of_child(void (*work)(), std::string* errors = nullptr) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        work();
        _exit(0);
    }
    close(ends[1]);
    char text[1024];
    ssize_t n;
    while ((n = read(ends[0], text, sizeof text)) > 0)
        if (errors) errors->append(text, static_cast<size_t>(n));
    close(ends[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

char* forbidden() {
    static char* page = static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return page;
}

void a_fault_lands() {
    FaultGuard outer, inner;
    char* page = forbidden();
    CHECK(!guarded(outer, [&] { *static_cast<volatile char*>(page + 17) = 1; }));
    CHECK(outer.address == reinterpret_cast<uintptr_t>(page) + 17 && outer.signal == SIGSEGV);
    bool inner_ok = true, outer_ok = guarded(outer, [&] {
        inner_ok = guarded(inner, [&] { *static_cast<volatile char*>(page) = 1; });
    });
    CHECK(outer_ok && !inner_ok && active_guard == nullptr);

    const int fd = memfd_create("short", MFD_CLOEXEC);
    auto* bytes = static_cast<char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
    CHECK(!guarded(outer, [&] { (void)*static_cast<volatile char*>(bytes); }) && outer.signal == SIGBUS);
    close(fd);
}

void earlier_handlers_still_run() {
    const int status = status_of_child([] { *static_cast<volatile char*>(forbidden()) = 1; });
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    // Somebody steps in front of us, and we in front of him.
    const int again = status_of_child([] {
        struct sigaction mine {};
        mine.sa_handler = [](int) { _exit(7); };
        sigaction(SIGSEGV, &mine, nullptr);
        rearm_fault_handlers();
        FaultGuard guard;
        if (guarded(guard, [] { *static_cast<volatile char*>(forbidden()) = 1; })) _exit(1);
        *static_cast<volatile char*>(forbidden()) = 1;
    });
    CHECK(WIFEXITED(again) && WEXITSTATUS(again) == 7);
}

void a_sent_signal_is_not_taken_for_a_fault() {
    const int status = status_of_child([] {
        FaultGuard guard;
        guarded(guard, [] { raise(SIGSEGV); });
        _exit(1);
    });
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

void a_device_address_is_explained() {
    std::string errors;
    status_of_child(
        [] {
            explain_faults_in(reinterpret_cast<uintptr_t>(forbidden()), 4096);
            *static_cast<volatile char*>(forbidden() + 5) = 1;
        },
        &errors);
    CHECK(errors.find("host code touched device address 0x") != std::string::npos);
}

}  // namespace

int main() {
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

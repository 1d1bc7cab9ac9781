// Which addresses of a process are memory: holes, rights, ends of files, by the system's mappings and by pages.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <vector>

#include "check.h"
#include "share/process_memory.h"

using namespace peerlane;

namespace {

constexpr uint64_t kPage = 4096, kPages = 9;

// Pages of this process and of those that it forks.
struct Pages {
    uint64_t address;
    explicit Pages(int fd = -1, int rights = PROT_READ | PROT_WRITE)
        : address(reinterpret_cast<uint64_t>(mmap(nullptr, kPages * kPage, rights, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0))) {
        CHECK(address != reinterpret_cast<uint64_t>(MAP_FAILED));
    }
    ~Pages() { munmap(at(0), kPages * kPage); }
    void* at(uint64_t page) const { return reinterpret_cast<void*>(address + page * kPage); }
};

void memory_is_what_may_be_used(const ProcessMemory& memory, const Pages& pages, bool knows_rights) {
    const uint64_t from = pages.address;   // page 4 is missing, 6 is read-only, 7 has no rights
    CHECK(memory.check({{from, 4 * kPage}}, true) == 0 && memory.check({{from, 4 * kPage}}, false) == 0);
    CHECK(memory.check({{from + 5 * kPage, kPage}, {from, 1}, {from + kPage, 2 * kPage}, {from, 1}}, true) == 0);
    CHECK(memory.check({{from, 4 * kPage + 1}}, false) == EFAULT && memory.check({{from + 5 * kPage, 8}, {from + 5 * kPage - 1, 1}}, false) == EFAULT);
    CHECK(memory.check({{from + 5 * kPage, 2 * kPage}}, false) == 0 && memory.check({{from + 7 * kPage, 1}}, false) == EFAULT);
    if (knows_rights) CHECK(memory.check({{from + 5 * kPage, 2 * kPage}}, true) == EFAULT);
    CHECK(memory.check({}, true) == 0 && memory.check({{0, 0}}, true) == 0 && memory.check({{0, 1}}, true) == EFAULT);
    CHECK(memory.check({{UINT64_MAX - 7, 16}}, false) == EFAULT && memory.check({{UINT64_MAX - 7, 7}}, false) == EFAULT);
}

void holes_and_rights_are_seen() {
    const Pages pages;
    CHECK(munmap(pages.at(4), kPage) == 0 && mprotect(pages.at(6), kPage, PROT_READ) == 0 && mprotect(pages.at(7), kPage, PROT_NONE) == 0);
    const pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0)
        for (;;) pause();
    {
        const ProcessMemory own(getpid()), theirs(other);
        memory_is_what_may_be_used(own, pages, true);
        memory_is_what_may_be_used(theirs, pages, true);
        rlimit before{};
        CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
        const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        const ProcessMemory by_pages(other);   // has no descriptor to ask with
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        memory_is_what_may_be_used(by_pages, pages, false);
        CHECK(kill(other, SIGKILL) == 0 && waitpid(other, nullptr, 0) == other);
        CHECK(theirs.check({{pages.address, 1}}, false) == ESRCH && by_pages.check({{pages.address, 1}}, false) == ESRCH);
    }
}

void pages_behind_a_file_s_end_are_seen() {
    const int fd = memfd_create("pages", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, kPages * kPage) == 0);
    const Pages pages(fd);
    const ProcessMemory own(getpid());
    CHECK(own.check({{pages.address, kPages * kPage}}, true) == 0);   // no page is there yet
    CHECK(ftruncate(fd, 3 * kPage) == 0);
    for (const bool writes : {false, true}) {
        CHECK(own.check({{pages.address, 3 * kPage}}, writes) == 0 && own.check({{pages.address, 3 * kPage + 1}}, writes) == EFAULT);
        CHECK(own.check({{pages.address + 5 * kPage, 8}, {pages.address, 8}}, writes) == EFAULT);
    }
    const Pages fixed(fd, PROT_READ);
    CHECK(own.check({{fixed.address, 3 * kPage}}, false) == 0 && own.check({{fixed.address, 8}}, true) == EFAULT);
    close(fd);
}

}  // namespace

NATIVE_TEST(test_process_memory) {
    RUN(holes_and_rights_are_seen());
    RUN(pages_behind_a_file_s_end_are_seen());
    return 0;
}

// Copies between processes by the system: pieces of any number and size, both ways, and what is refused.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "check.h"
#include "share/process_copies.h"

using namespace peerlane;

namespace {

uint64_t at(const void* address) { return reinterpret_cast<uint64_t>(address); }

// Another process, whose memory lies where this one's does; it changes nothing by itself.
struct Other {
    pid_t pid = fork();
    Other() {
        CHECK(pid >= 0);
        if (pid == 0)
            for (;;) pause();
    }
    ~Other() { end(); }
    void end() {
        if (pid == 0) return;
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, nullptr, 0) == pid);
        pid = 0;
    }
};

void drawn_pieces_arrive(std::mt19937_64& random, uint64_t size, size_t count) {
    std::vector<unsigned char> theirs(size), mine(size), back(size);
    Other other;
    for (unsigned char& each : mine) each = static_cast<unsigned char>(random());
    mine.front() |= 1;   // a byte that theirs has not
    std::vector<ProcessCopies::Piece> there, own;
    for (uint64_t from = 0, i = 0; from < size; ++i) {
        const uint64_t part = i + 1 == count ? size - from : std::min(size - from, size / count);
        there.push_back({at(&mine[from]), at(&theirs[from]), part});
        own.push_back({at(&back[from]), at(&theirs[from]), part});
        from += part;
    }
    const ProcessCopies out(other.pid, true, there), in(other.pid, false, own);
    CHECK(out.size() == size && out.run() == 0 && in.run() == 0);
    CHECK(back == mine && theirs != mine);
}

void refusals_are_the_system_s() {
    unsigned char mine[16] = {};
    const auto wrong = [&](pid_t pid, uint64_t own, uint64_t there) { return ProcessCopies(pid, true, {{own, there, 16}}).run(); };
    Other other;
    CHECK(wrong(other.pid, at(mine), at(mine)) == 0);
    CHECK(wrong(other.pid, at(mine), 0) == EFAULT && wrong(other.pid, at(mine), UINT64_MAX - 7) == EFAULT && wrong(other.pid, 8, at(mine)) == EFAULT);
    void* const pages = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    Other later;   // has the pages
    CHECK(munmap(static_cast<char*>(pages) + 4096, 4096) == 0);
    // The half of the bytes that is memory here.
    CHECK(ProcessCopies(later.pid, true, {{at(pages) + 4088, at(pages), 16}}).run() == EFAULT);
    munmap(pages, 4096);
    const pid_t gone = other.pid;
    other.end();
    CHECK(wrong(gone, at(mine), at(mine)) == ESRCH);
    CHECK(ProcessCopies(gone, true, {}).run() == 0);
}

}  // namespace

NATIVE_TEST(test_process_copies) {
    auto random = seeded("test_process_copies");
    RUN(drawn_pieces_arrive(random, 1, 1));
    RUN(drawn_pieces_arrive(random, 10'000, 5'000));
    RUN(drawn_pieces_arrive(random, uint64_t{20} << 20, 3));
    RUN(drawn_pieces_arrive(random, uint64_t{9} << 20, 3'000));
    RUN(refusals_are_the_system_s());
    return 0;
}

// Memory that moves, ends or cannot be unmapped while other threads use it, share it or fork.
#include <cstddef>
#include <cstring>
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <thread>
#include <vector>

#include "faults.h"
#include "memory/heap.h"

using namespace peerlane;

namespace {

// A pin or a look during a move must not report that the allocation has ended.
void what_moves_is_alive(uint32_t device, bool looks, uint64_t size, int rounds) {
    Heap& heap = Heap::get();
    for (int round = 0; round < rounds; ++round) {
        Extent* const extent = heap.allocate(device, size, false);
        const uint64_t id = extent->id.load();
        std::atomic<bool> stop{false};
        std::atomic<int> started{0};
        const auto use = [&] {
            for (++started; !stop;) {
                if (looks) {
                    CHECK(heap.is_current(extent, id));
                } else {
                    CHECK(heap.pin(extent));
                    heap.unpin(extent);
                    std::this_thread::yield();
                }
            }
        };
        std::thread one(use), other(use);
        while (started != 2) std::this_thread::yield();
        CHECK(heap.pin(extent));
        uint64_t within;
        Block* block = nullptr;
        while (!block)
            if (const auto refusal = refused([&] { block = heap.share(extent, within); })) CHECK(refusal->why == Why::in_use);
        heap.unpin(extent);
        stop = true;
        one.join();
        other.join();
        drop(block);
        heap.retire(extent, id);
    }
}

// Forbids this thread to map inaccessible memory, as the limit of mappings does.
void forbid_unmapping() {
    constexpr uint32_t kNumber = offsetof(seccomp_data, nr), kRights = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);
    const sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kRights),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_NONE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
    };
    const sock_fprog filter{std::size(program), const_cast<sock_filter*>(program)};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

bool is_reachable(const char* byte) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const bool read = write(ends[1], byte, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return read;
}

// Bytes written through one mapping stay in the other mappings and in other processes.
void bytes_outlive_a_mapping(uint32_t device) {
    Heap& heap = Heap::get();
    Block* const block = heap.create_physical(device, kGranule, true);
    const ReservationPtr kept = heap.reserve(kGranule, 0, device), ended = heap.reserve(kGranule, 0, device);
    heap.map(*kept, 0, block);
    heap.map(*ended, 0, block);
    char* const shown = heap.space().shadow(kept->offset);
    memcpy(shown, "here", 4);
    uint64_t within;
    Extent* const shared = heap.allocate(device, kGranule, false);
    CHECK(heap.pin(shared));
    Block* const shared_block = heap.share(shared, within);   // as an importer would hold it
    heap.unpin(shared);
    memcpy(heap.host_of(shared, 0), "there", 5);
    const char* const before = heap.host_of(shared, 0);
    std::thread([&] {
        forbid_unmapping();
        heap.unmap(*ended, 0);
        heap.retire(shared, shared->id.load());
    }).join();
    CHECK(memcmp(shown, "here", 4) == 0);
    CHECK(!is_reachable(heap.space().shadow(ended->offset)) && !is_reachable(before));
    void* const again = mmap(nullptr, shared_block->size, PROT_READ, MAP_SHARED, shared_block->fd, 0);
    CHECK(memcmp(again, "there", 5) == 0);
    munmap(again, shared_block->size);
    drop(shared_block);
    heap.release(*kept);
    heap.release(*ended);
    drop(block);
}

int blocks_open() {
    int seen = 0;
    DIR* const all = opendir("/proc/self/fd");
    while (const dirent* entry = readdir(all)) {
        char target[64] = {};
        const ssize_t n = readlinkat(dirfd(all), entry->d_name, target, sizeof target - 1);
        seen += n > 0 && strstr(target, "memfd:peerlane ") != nullptr;
    }
    closedir(all);
    return seen;
}

// A child that keeps a descriptor keeps its parent's memory.
void forks_meet_the_ends_of_blocks(uint32_t device) {
    for (int round = 0, rounds = scaled(100, 300); round < rounds; ++round) {
        std::vector<Block*> blocks;
        for (int i = 0; i < 100; ++i) blocks.push_back(create_block(4096, device));
        std::atomic<bool> started{false};
        std::thread ends([&] {
            started = true;
            for (Block* block : blocks) drop(block);
        });
        while (!started) std::this_thread::yield();
        std::string kept;
        status_of_child([] {
            dprintf(STDERR_FILENO, "kept %d;", blocks_open());
            raise(SIGKILL);   // TSan would wait for the threads that the child lacks
        }, &kept);
        ends.join();
        CHECK(kept.find("kept 0;") != std::string::npos);
    }
    CHECK(blocks_open() == 0);
}

}  // namespace

NATIVE_TEST(test_mappings_at_once) {
    Heap& heap = Heap::get();
    heap.configure({.window_bytes = kTestWindow, .cache_bytes = 0});
    const uint32_t device = heap.add_device({.capacity = uint64_t{1} << 40}, nullptr, 0);
    RUN(what_moves_is_alive(device, true, uint64_t{1} << 20, scaled(40, 100)));
    RUN(what_moves_is_alive(device, false, 256, scaled(300, 1000)));
    RUN(bytes_outlive_a_mapping(device));
    RUN(forks_meet_the_ends_of_blocks(device));
    return 0;
}

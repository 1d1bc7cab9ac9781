#include "block.h"

#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "refusal.h"

namespace peerlane {

namespace {

std::atomic<uint64_t> next_block_id{1};

// Leaked on purpose: a forked child and late threads may still look.
std::set<int>& descriptors() {
    static auto* all = new std::set<int>;
    return *all;
}
std::mutex descriptors_mutex;

int create_memfd() {
    int fd = memfd_create("peerlane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 && errno == EMFILE && raise_descriptor_limit())
        fd = memfd_create("peerlane", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

}  // namespace

bool raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

Block* create_block(uint64_t size, uint32_t device) {
    const int fd = create_memfd();
    if (fd < 0) {
        const int error = errno;
        const bool no_descriptor = error == EMFILE || error == ENFILE;
        throw Refusal{.why = no_descriptor ? Why::descriptors : Why::system_memory, .size = size, .error = error};
    }
    if (ftruncate(fd, static_cast<off_t>(size)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        const int error = errno;
        close(fd);
        throw Refusal{.why = Why::system_memory, .size = size, .error = error};
    }
    try {
        auto block = std::make_unique<Block>();
        block->fd = fd;
        block->size = size;
        block->device = device;
        block->id = next_block_id.fetch_add(1, std::memory_order_relaxed);
        std::lock_guard lock(descriptors_mutex);
        descriptors().insert(fd);
        return block.release();
    } catch (const std::bad_alloc&) {
        close(fd);
        throw Refusal{.why = Why::system_memory, .size = size, .error = ENOMEM};
    }
}

void hold(Block* block) { block->references.fetch_add(1, std::memory_order_relaxed); }

void drop(Block* block) {
    if (block->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    {
        std::lock_guard lock(descriptors_mutex);
        descriptors().erase(block->fd);
    }
    close(block->fd);
    delete block;
}

void close_all_descriptors() {
    for (int fd : descriptors()) close(fd);
    descriptors().clear();
}

void map_block(const Block* block, void* at, bool inherited_by_fork) {
    void* got = mmap(at, block->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, block->fd, 0);
    if (got == MAP_FAILED) throw Refusal{.why = Why::system_memory, .size = block->size, .error = errno};
    if (!inherited_by_fork) madvise(at, block->size, MADV_DONTFORK);
}

void unmap_range(void* at, uint64_t size) {
    void* got = mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    // At the limit of mappings: the pages go back at least, and the next block here is mapped over it.
    if (got == MAP_FAILED) madvise(at, size, MADV_REMOVE);
}

}  // namespace peerlane

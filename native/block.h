// Physical memory: one sealed memfd.  Shared later by descriptor; never by name.
#pragma once
#include <atomic>
#include <cstdint>

namespace peerlane {

struct Block {
    int fd = -1;
    uint64_t size = 0;
    uint64_t id = 0;          // unique in this process
    uint32_t device = 0;
    std::atomic<uint32_t> references{1};
};

// A memfd of `size` bytes, sealed against shrinking, growing and further seals, so that nobody's truncate
// becomes our SIGBUS.  Raises the soft descriptor limit when it is reached.  Throws Refusal.
Block* create_block(uint64_t size, uint32_t device);
void hold(Block* block);
void drop(Block* block);   // the last one closes the descriptor

// Close every block's descriptor: for a forked child, which must not keep its parent's memory alive.
void close_all_descriptors();

// False when it is as high as this process may have it.
bool raise_descriptor_limit();

// Map the whole block at exactly `at`, or put the inaccessible reservation back.
void map_block(const Block* block, void* at, bool inherited_by_fork);
void unmap_range(void* at, uint64_t size);

}  // namespace peerlane

// What one rank calls a group for: a collective or a message, its memory, and the word by which ranks compare their calls.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "copy/copy_engine.h"
#include "memory/heap.h"

namespace peerlane {

// All ranks of a collective agree on all of it but the memory.
struct GroupCall {
    enum class Kind : uint8_t { nothing, barrier, broadcast, all_gather, all_reduce, reduce, reduce_scatter, all_to_all, scatter,
                                // Messages and parts: only for the report of calls that differ.
                                send, receive, give_part, take_part };

    Kind kind = Kind::nothing;
    uint32_t root = 0;
    unsigned operation = 0;             // the number of a reduction
    const Reduction* reduction = nullptr;
    Range dst{}, src{};                 // pinned, each for itself
    bool can_fault = true;              // a read of host memory among them; an array that owns its bytes cannot
    uint64_t dst_size = 0, src_size = 0;
    uint64_t number = 0;                // of this call among the group's
    uint64_t size = 0;                  // bytes of the whole, or of one rank's part; 0 of a barrier
    // Offsets and bytes of the ranks' parts, where parts may differ: of the destination's, or of the only ones.
    std::vector<uint64_t> at, sizes;
    // The same for the source's parts of an all-to-all, whose bytes the ranks of a pair must agree on.
    std::vector<uint64_t> source_at, source_sizes;

    // Each rank has bytes of its own for each other one.
    bool has_source_parts() const { return kind == Kind::reduce_scatter || kind == Kind::all_to_all || kind == Kind::scatter; }
    // Each rank receives bytes of each other one.
    bool has_result_parts() const { return kind == Kind::all_gather || kind == Kind::all_to_all; }
    bool reduces() const { return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter; }
    bool is_from_root() const { return kind == Kind::broadcast || kind == Kind::scatter; }
    bool is_by_pairs() const { return !source_sizes.empty(); }

    uint64_t part_size(uint32_t rank) const { return sizes.empty() ? size : sizes[rank]; }
    uint64_t source_part_size(uint32_t to) const { return is_by_pairs() ? source_sizes[to] : part_size(to); }
    // The offset in the source of what is for a rank, and in the destination of what comes from one.
    uint64_t source_offset(uint32_t to) const {
        if (!has_source_parts()) return 0;
        if (is_by_pairs()) return source_at[to];
        return at.empty() ? to * size : at[to];
    }
    uint64_t result_offset(uint32_t from) const {
        if (!has_result_parts()) return 0;
        return at.empty() ? from * size : at[from];
    }
    uint64_t longest_part() const {
        uint64_t longest = size;
        for (const uint64_t each : is_by_pairs() ? source_sizes : sizes) longest = std::max(longest, each);
        return longest;
    }

    // Set the size of a call whose parts are all equal; false: who checks its arguments says what is wrong.
    bool take_size(uint32_t rank, uint64_t ranks);
    bool has_whole_elements() const;
    void unpin() const {
        Heap::get().unpin(src);
        Heap::get().unpin(dst);
    }

    // Stands for the call where ranks compare theirs: equal calls have equal words.
    uint64_t word() const;
    // What can be read back from a word.  `size`: 0 if parts differ.
    struct Summary {
        Kind kind;
        unsigned operation;
        uint32_t root;
        uint64_t size;
        bool has_parts;
    };
    static Summary summary(uint64_t word);
    // Whether a rank may end the call with this word before another rank has begun it.
    static bool ends_alone(uint64_t word, uint32_t rank);
};

}  // namespace peerlane

#include "ranks/barrier_tree.h"

#include <numeric>

namespace peerlane {

std::vector<uint32_t> BarrierTree::neighbours(uint32_t rank, uint32_t ranks) {
    std::vector<uint32_t> all;
    if (!serves(ranks)) {
        for (uint32_t step = 1; step < ranks; ++step) all.push_back((rank + step) % ranks);
        return all;
    }
    all.resize(children(rank, ranks));
    std::iota(all.begin(), all.end(), first_child(rank));
    if (rank != 0) all.push_back(parent(rank));
    return all;
}

// A child announces a barrier only after the parent has answered the one before, for which it had read the child's line; and a
// parent answers only after the child's next announcement.  So each line has at most one record that was not read.
Rounds::Peer* BarrierTree::advance(Rounds& rounds, uint64_t call) {
    const uint32_t rank = rounds.rank, first = first_child(rank), count = children(rank, rounds.size);
    for (; children_come_ < count; ++children_come_) {
        Rounds::Peer& child = rounds.peer(first + children_come_);
        if (!has_come(child, call)) return &child;
    }
    if (rank != 0) {
        Rounds::Peer& above = rounds.peer(parent(rank));
        if (!is_announced_) Rounds::announce_barrier(above, number_, call);
        is_announced_ = true;
        if (!has_come(above, call)) return &above;
    }
    for (uint32_t i = 0; i < count; ++i) Rounds::announce_barrier(rounds.peer(first + i), number_, call);
    return nullptr;
}

// A peer may announce the barrier, and then a round after it, since advance() looked.  So the round is read first: a peer that has
// announced both is seen to have come.
std::optional<uint64_t> BarrierTree::word_instead(const Rounds& rounds, const Rounds::Peer& peer, uint64_t call) const {
    const std::optional<uint64_t> word = rounds.next_word(peer);
    return has_come(peer, call) ? std::nullopt : word;
}

}  // namespace peerlane

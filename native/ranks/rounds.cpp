#include "ranks/rounds.h"

#include <algorithm>

#include "ranks/sequence_lines.h"

namespace peerlane {

Rounds::Rounds(uint32_t rank, uint32_t size, Range slots, uint64_t long_slot, std::vector<Peer> peers, bool must_yield,
               std::shared_ptr<Farewell> farewell)
    : rank(rank), size(size), long_slot(long_slot), must_yield(must_yield), farewell(std::move(farewell)), sources(size), slots_(slots),
      peers_(std::move(peers)) {}

Rounds::~Rounds() {
    Heap::get().unpin(slots_);
    for (const Peer& peer : peers_) {
        if (!peer.incoming[0]) continue;
        Heap::get().unpin(peer.slots);
        for (uint32_t i = 0; i < kLines; ++i) {
            peer.incoming[i]->drop();
            peer.outgoing[i]->drop();
        }
    }
}

void Rounds::connect(uint32_t of, Range slots, const Lines& incoming, const Lines& outgoing) {
    Peer& peer = this->peer(of);
    peer.slots = slots;
    peer.incoming = incoming;
    peer.outgoing = outgoing;
    if (incoming[0]->is_local()) has_local_peer_.store(true, std::memory_order_relaxed);
    connected_.fetch_add(1, std::memory_order_release);   // is_whole() shows them to a thread that makes a call
}

// A rank announces round r only after it has read all that it needs of round r - 1.  So once all peers have announced round r,
// nobody reads a line or slot of an earlier round, and it can be written again.
Rounds::Round Rounds::next(bool is_long) {
    const uint64_t number = ++number_;
    Round round{.number = number, .slot = number % kDepth * kShortSlot, .needed = 0};
    if (number > kDepth) round.needed = number - kDepth + 1;
    if (!is_long) return round;
    const uint64_t index = long_rounds_++ % kLongSlots;
    round.slot = kDepth * kShortSlot + index * long_slot;
    if (const uint64_t last = std::exchange(used_[index], number)) round.needed = std::max(round.needed, last + 1);
    return round;
}

Notify* Rounds::blocking_line(const Round& round) {
    for (Peer& peer : peers_) {
        if (peer.announced >= round.needed) continue;
        Notify& line = *peer.incoming[round.needed % kDepth];
        if (line.signal().recorded() < round.needed) return &line;
        peer.announced = round.needed;
    }
    return nullptr;
}

void Rounds::announce(const Peer& peer, const Round& round, uint64_t word, const char* bytes, uint64_t n) const {
    record_number(*peer.outgoing[round.number % kDepth], round.number, kDepth, word, bytes, n);
}

bool Rounds::has_announced(Peer& peer, const Round& round, uint64_t word) const {
    const SignalLine& line = peer.incoming[round.number % kDepth]->signal();
    if (line.recorded() != round.number) return false;
    peer.announced = std::max(peer.announced, round.number);
    return line.time_ns.load(std::memory_order_relaxed) == word;
}

void Rounds::announce_barrier(const Peer& peer, uint64_t number, uint64_t call) {
    record_number(*peer.outgoing[kBarrierLine], number, 1, call, nullptr, 0);
}

std::optional<uint64_t> Rounds::barrier_call(const Peer& peer, uint64_t number) {
    const SignalLine& line = peer.incoming[kBarrierLine]->signal();
    if (line.recorded() != number) return {};
    return line.time_ns.load(std::memory_order_relaxed);
}

const char* Rounds::in_line(const Peer& peer, const Round& round) const {
    return reinterpret_cast<const char*>(peer.incoming[round.number % kDepth]->signal().reserved);
}

std::optional<uint64_t> Rounds::announced_word(const Peer& peer, const Round& round) const {
    const SignalLine& line = peer.incoming[round.number % kDepth]->signal();
    if (line.recorded() != round.number) return {};
    return line.time_ns.load(std::memory_order_relaxed);
}

}  // namespace peerlane

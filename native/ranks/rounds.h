// Rounds of the ranks of one machine.  In a round a rank writes bytes for its peers, announces the round to each of them, and
// reads what they have written: a few bytes in the line of the announcement, more in a slot of the writer's memory.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "memory/heap.h"
#include "ranks/farewell.h"
#include "ranks/peer_memory.h"
#include "ranks/slot_pace.h"

namespace peerlane {

class Rounds {
  public:
    static constexpr uint32_t kDepth = 16;                    // round n uses line n % 16
    static constexpr uint32_t kBarrierLine = kDepth;          // that of barriers by a tree
    static constexpr uint32_t kLines = kDepth + 1;            // between two ranks in each direction
    static constexpr uint64_t kInLine = sizeof(SignalLine::reserved);
    static constexpr uint64_t kShortSlot = uint64_t{8} << 10;   // one for each line
    static constexpr uint32_t kLongSlots = 2;

    static uint64_t bytes(uint64_t long_slot) { return kDepth * kShortSlot + kLongSlots * long_slot; }

    using Lines = std::array<Notify*, kLines>;

    // The lines are held, the memory is pinned.  Without lines it is not connected.
    struct Peer {
        uint32_t rank = 0;
        Lines incoming{}, outgoing{};
        Range slots{};
        PeerMemory memory{};       // its memory besides the slots
        uint64_t announced = 0;    // the newest round that it is known to have announced
        // Of a long call: where its source and its result are, and whether they are to be read there and not in a slot.
        PeerMemory::Bytes src{}, dst{};
        bool in_place = false;
        uint8_t confirmation = 0;  // what this rank confirms to it: ReadAccess bits
        ReadAccess access{};       // what it has confirmed to this rank
    };
    struct Round {
        uint64_t number, slot;     // the slot's offset
        uint64_t needed;           // the round that all peers must have announced before this rank writes
    };

    // `peers`: in cyclic order from the rank behind this one.  `must_yield`: this machine has more ranks than processors.
    Rounds(uint32_t rank, uint32_t size, Range slots, uint64_t long_slot, std::vector<Peer> peers, bool must_yield,
           std::shared_ptr<Farewell> farewell);
    ~Rounds();
    Rounds(const Rounds&) = delete;

    // Connect a peer, once.  Barriers may run meanwhile, by other lines.
    void connect(uint32_t of, Range slots, const Lines& incoming, const Lines& outgoing);
    // Whether all peers are connected.  Before that there are only barriers by a tree, whose peers are.
    bool is_whole() const { return connected_.load(std::memory_order_acquire) == peers_.size(); }
    bool has_local_peer() const { return has_local_peer_.load(std::memory_order_relaxed); }   // another rank is in this process

    const uint32_t rank, size;
    const uint64_t long_slot;
    const bool must_yield;
    const std::shared_ptr<Farewell> farewell;   // once it is sent, this rank begins no more rounds

    // Held during a call.  It guards all that follows, and the rounds.
    std::timed_mutex claim_mutex;
    std::atomic<bool> is_plain{false};   // nothing is queued
    uint64_t calls = 0;                  // how many there were, this one included
    std::vector<const char*> sources;    // scratch: one for each rank
    SlotPace pace;

    Round next(bool is_long);
    char* slot(const Round& round) const { return slots_.host + round.slot; }
    // The line of a peer that may still read what this rank is about to write; null: none does.
    Notify* blocking_line(const Round& round);
    // `word`: the call, on which all must agree.  At most kInLine bytes.
    void announce(const Peer& peer, const Round& round, uint64_t word, const char* bytes, uint64_t n) const;
    // Whether a peer has announced the round, for the call with this word.
    bool has_announced(Peer& peer, const Round& round, uint64_t word) const;
    // The word with which a peer has announced the round.
    std::optional<uint64_t> announced_word(const Peer& peer, const Round& round) const;
    // The bytes of a peer that has announced the round.
    const char* in_line(const Peer& peer, const Round& round) const;
    const char* in_slot(const Peer& peer, const Round& round) const { return peer.slots.host + round.slot; }

    // The number of the next barrier by a tree.
    uint64_t next_barrier() { return ++barriers_; }
    static void announce_barrier(const Peer& peer, uint64_t number, uint64_t call);
    // The number of the call that was a peer's barrier of this number; none: it has not announced it.
    static std::optional<uint64_t> barrier_call(const Peer& peer, uint64_t number);
    // The word with which a peer has announced the round after the last one.
    std::optional<uint64_t> next_word(const Peer& peer) const { return announced_word(peer, {.number = number_ + 1, .slot = 0, .needed = 0}); }
    // The words of this rank's last calls, by their numbers; 0: it is not known.
    void note_call(uint64_t number, uint64_t word) { noted_[number % kNoted] = {number, word}; }
    uint64_t word_of(uint64_t number) const { return noted_[number % kNoted].number == number ? noted_[number % kNoted].word : 0; }

    Peer& peer(uint32_t of) { return peers_[(of + size - rank - 1) % size]; }
    std::vector<Peer>& peers() { return peers_; }
    const std::vector<Peer>& peers() const { return peers_; }

  private:
    static constexpr size_t kNoted = 16;
    struct Noted {
        uint64_t number = 0, word = 0;
    };

    const Range slots_;
    std::vector<Peer> peers_;
    std::atomic<size_t> connected_{0};
    std::atomic<bool> has_local_peer_{false};
    uint64_t number_ = 0, long_rounds_ = 0, barriers_ = 0;
    std::array<Noted, kNoted> noted_{};
    std::array<uint64_t, kLongSlots> used_{};   // the last round of each long slot
};

}  // namespace peerlane

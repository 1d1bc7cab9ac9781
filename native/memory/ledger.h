// What every process of a node holds of every device: one shared file, one single-writer slot a process.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "stream/doorbell.h"

namespace peerlane {

// Layout of the file (all little-endian, 8-byte fields); node/state.py writes the header and claims slots.
//   0          header page, opaque to native code but for its last fields: slots and entries ever used
//   4096       slots x { owner, pid namespace, used[devices] }: owner is 0 when the slot is free
//   (page)     entries x { block id, device in the upper 16 bits and bytes below }: the blocks that processes share
//   (page)     slots x { a bit an entry: this process holds the block; a bit a pair of devices: it enabled the peer;
//              its doorbell, in 64 bytes of its own }
// What all processes use is derived from what each says of itself, so a crash leaves nothing to put right but
// its slot.
struct LedgerLayout {
    static constexpr uint64_t kPage = 4096, kHeader = kPage, kFields = 2, kEntries = 1 << 16, kNone = UINT64_MAX;
    uint64_t devices, slots;

    uint64_t stride() const { return (kFields + devices) * 8; }
    uint64_t entries_at() const { return pages(kHeader + slots * stride()); }
    uint64_t holdings_at() const { return entries_at() + kEntries * 16; }
    uint64_t bell_at() const { return kEntries / 8 + (devices * devices + 511) / 512 * 64; }   // in a slot's holdings
    uint64_t holdings() const { return pages(bell_at() + 64); }
    uint64_t file_size() const { return holdings_at() + slots * holdings(); }

  private:
    static uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
};

class Ledger {
  public:
    // Maps `fd` (not kept).  Throws Refusal when the file is smaller than the layout says.
    Ledger(int fd, LedgerLayout layout, uint64_t slot);
    ~Ledger();
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    // Add first, look afterwards: two processes may both be refused, never both served beyond the capacity.
    // All throw Refusal when the file has no page behind it: its directory is full, or it was cut.
    bool charge(uint64_t device, uint64_t bytes, uint64_t capacity);
    void refund(uint64_t device, uint64_t bytes);
    uint64_t used(uint64_t device) const;   // over all slots that have an owner; a shared block counts once

    // Enter a block that is about to be shared; return its index in the list, which this process holds from now on.
    uint64_t list(uint64_t block, uint64_t device, uint64_t bytes);
    // Hold a block that another process listed; false when its entry is another block's by now.
    bool hold(uint64_t entry, uint64_t block);
    uint64_t find(uint64_t block) const;   // where it is, or was, listed; kNone
    void let_go(uint64_t entry);   // one hold, or the listing
    uint64_t holders(uint64_t entry) const;   // processes

    void set_peer(uint64_t from, uint64_t to, bool enabled);
    // Whether this process enabled the direction, or one that counts: it shares memory with this one, or has shared
    // some, or all count.  Returns its slot, this process's own first; kNone.
    uint64_t enabler(uint64_t from, uint64_t to) const;
    void count_all(bool counts) { counts_all_.store(counts, std::memory_order_relaxed); }
    void rely_on(uint64_t slot) const;   // a copy has passed because of it
    std::vector<uint64_t> relied_on() const;   // the owners of such slots, without this process
    std::vector<uint64_t> enablers(uint64_t from, uint64_t to) const;   // the owners of all slots but this process's

    uint64_t slot() const { return slot_; }
    uint64_t owner(uint64_t slot) const;   // as the file says; 0: nobody, or there is no such slot
    Doorbell& bell() const { return bell_of(slot_); }
    void ring(uint64_t slot) const;   // of whoever is there, if anybody
    // The process gives its slot back, and the next owner may have it at once: nothing is written any more.
    void leave() {
        std::lock_guard lock(mutex_);
        left_ = true;
    }

  private:
    using Word = std::atomic<uint64_t>;

    void add(uint64_t device, uint64_t bytes);   // modulo 2^64
    Word* at(uint64_t offset) const { return reinterpret_cast<Word*>(base_ + offset); }
    Word* field(uint64_t slot, uint64_t index) const;
    Word* holding(uint64_t slot, uint64_t bit) const;
    Word* peer(uint64_t slot, uint64_t from, uint64_t to, uint64_t& mask) const;
    Doorbell& bell_of(uint64_t slot) const {
        return *reinterpret_cast<Doorbell*>(base_ + layout_.holdings_at() + slot * layout_.holdings() + layout_.bell_at());
    }
    Word* slots_used() const { return at(LedgerLayout::kHeader - 16); }
    Word* entries_used() const { return at(LedgerLayout::kHeader - 8); }
    uint64_t slots() const {   // beyond it no process has ever been
        const uint64_t used = slots_used()->load(std::memory_order_acquire);
        return used < layout_.slots ? used : layout_.slots;
    }
    Word* entry(uint64_t index) const { return at(layout_.entries_at() + index * 16); }
    bool is_live(uint64_t slot) const { return field(slot, 0)->load(std::memory_order_relaxed) != 0; }
    uint64_t held_by_others(uint64_t word) const;
    bool has_enabled(uint64_t slot, uint64_t from, uint64_t to) const;
    bool shares_memory_with(uint64_t slot) const;
    uint64_t shared(uint64_t device) const;
    void count_held(uint64_t facts, int64_t holds);   // modulo 2^64

    LedgerLayout layout_;
    uint64_t slot_;
    const int32_t pid_;   // whose mapping it is: no child has it
    char* base_;
    std::mutex mutex_;   // what this process writes, but for its doorbell
    struct Hold {
        uint64_t count = 0, facts = 0;   // how often this process holds an entry, and its device and bytes
    };
    std::unordered_map<uint64_t, Hold> holds_;
    std::unique_ptr<std::atomic<uint64_t>[]> held_;   // bytes of these, by device: to walk them costs more than an allocation
    uint64_t cursor_ = 0;   // no entry below it was free lately
    bool left_ = false;
    std::atomic<bool> counts_all_{false};
    // By slot, the owner that shared memory with this process, and the one on whose peer access a copy relied.
    std::unique_ptr<std::atomic<uint64_t>[]> sharers_, relied_;
};

}  // namespace peerlane

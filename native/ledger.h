// What every process of a node holds of every device: one shared file, one single-writer slot a process.
#pragma once
#include <atomic>
#include <cstdint>

namespace peerlane {

// Layout of the file (all little-endian, 8-byte fields); node/state.py writes the header and claims slots.
//   0      header page, opaque to native code
//   4096   slots x { owner, pid namespace, used[devices] }: owner is 0 when the slot is free
struct LedgerLayout {
    static constexpr uint64_t kHeader = 4096, kFields = 2;
    uint64_t devices, slots;
    uint64_t stride() const { return (kFields + devices) * 8; }
    uint64_t file_size() const { return kHeader + slots * stride(); }
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
    uint64_t used(uint64_t device) const;   // over all slots that have an owner

  private:
    std::atomic<uint64_t>* field(uint64_t slot, uint64_t index) const;

    LedgerLayout layout_;
    uint64_t slot_;
    char* base_;
};

}  // namespace peerlane

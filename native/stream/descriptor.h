// A copy list in device memory, read when it starts.
//
// Layout, little-endian: a header of 32 bytes { magic "PLCOPIES", u32 version 1, u32 entry size 32, u64 count,
// u64 reserved 0 }, then `count` entries of 32 bytes { u64 dst, u64 src, u64 bytes, u64 reserved 0 }.
#pragma once
#include "memory/memory.h"
#include "stream/operation.h"

namespace peerlane {

struct ListHeader {
    static constexpr uint64_t kMagic = 0x534549504F434C50;   // "PLCOPIES"
    static constexpr uint32_t kVersion = 1;
    uint64_t magic = kMagic;
    uint32_t version = kVersion, entry_size = 32;
    uint64_t count = 0, reserved = 0;
};
struct ListEntry {
    uint64_t dst = 0, src = 0, size = 0, reserved = 0;
};
static_assert(sizeof(ListHeader) == 32 && sizeof(ListEntry) == 32);

// What of a list was wrong, in Refusal::error.
enum class ListField : int { magic = 1, version, entry_size, count, reserved, dst, src, wrong_device };

struct Launch : Batch {
    uint64_t table_size = 0;
    uint32_t only_device = 0;   // not 0: both ends of every entry must be there

    // Read the table at `host`, check it, resolve and pin what it names; throws Refusal.
    void read(const char* host, bool direct);
};

// Fills a batch: pins what its pieces touch, neighbours of one allocation once.  After a refusal the batch still
// owns what was pinned.
class PinList {
  public:
    explicit PinList(Batch& batch) : batch_(batch) {}

    Range dst(const Memory& memory);   // throws Refusal
    Range src(const Memory& memory);
    Range dst(uint64_t address, uint64_t size) { return end("dst", address, size, last_dst_); }
    Range src(uint64_t address, uint64_t size) { return end("src", address, size, last_src_); }
    // A piece between ranges that were got above.
    void add(const Range& dst, const Range& src, uint64_t size, bool direct);

  private:
    Range end(const char* role, uint64_t address, uint64_t size, Extent*& last);
    Range keep(const Range& range, Extent*& last);

    Batch& batch_;
    Extent* last_dst_ = nullptr;   // held by the batch
    Extent* last_src_ = nullptr;
};

}  // namespace peerlane

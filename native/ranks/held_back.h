// What a rank holds back of what it has given to a channel, in memory that its peer has too: if the rank ends before it
// has brought all of it, the peer takes it over from there.
#pragma once
#include <mutex>
#include <vector>

#include "copy/copy_engine.h"
#include "memory/memory.h"
#include "share/shared_signal.h"

namespace peerlane {

struct HeldEntry {
    enum State : uint64_t {
        none,    // free, or over
        taken,   // its stream has not come to it
        given,   // its stream said that it is there
        begun,   // given; the peer's memory or line may have changed, and `before` says what was there
    };
    enum Kind : uint64_t { write, blocks, reduce, notify };

    using Word = std::atomic<uint64_t>;

    Word state;
    Word sequence;   // in which order they were submitted
    Word what;       // the kind, and above 8 bits the number of a reduction
    Word place;      // of the peer's memories, or of its lines
    Word at;         // the first byte there; of blocks, how many
    Word size;       // bytes
    Word bytes;      // where they lie in the area
    Word before;     // reduce: where the bytes from before lie; blocks: where the table does; notify: how many records
};
static_assert(sizeof(HeldEntry) == 64);

// The area: a table of entries, and bytes.  It is a bank whose lines hold these.
class HeldBack {
  public:
    static constexpr uint64_t kEntries = 1024;
    static constexpr uint32_t kLines = (64 << 20) / sizeof(SignalLine);

    explicit HeldBack(std::shared_ptr<SharedSignal> bank) : bank_(std::move(bank)) {}

    char* base() const { return reinterpret_cast<char*>(&bank_->line()); }
    uint64_t size() const { return uint64_t{bank_->bank()} * sizeof(SignalLine); }
    HeldEntry& entry(uint64_t i) const { return reinterpret_cast<HeldEntry*>(base())[i]; }
    const SharedSignal& bank() const { return *bank_; }
    // Give the pages behind the table back: nobody needs the bytes any more.
    void discard() const;

  private:
    const std::shared_ptr<SharedSignal> bank_;
};

// The peer's side.  Everything there was written by another process: numbers are copied, then checked.
class Undelivered {
  public:
    // `memories`: what the other end may write, in the order in which it was offered.
    Undelivered(std::shared_ptr<HeldBack> from, std::vector<Memory> memories)
        : from_(std::move(from)), memories_(std::move(memories)) {}

    // Bring what the other end has given and cannot bring any more to memory, and to the lines of `bank`.  True: it lives,
    // and has a record of line `index` to bring.
    bool settle(const SharedSignal& bank, uint32_t index);

  private:
    struct Copied;
    void take_over(const SharedSignal& bank);
    // `room`: how much of the area no other entry has.
    void apply(const Copied& entry, const SharedSignal& bank, uint64_t& room) const;
    Operand part(uint64_t place, uint64_t at, uint64_t size) const;
    char* bytes(uint64_t at, uint64_t size) const;

    const std::shared_ptr<HeldBack> from_;
    const std::vector<Memory> memories_;
    std::mutex mutex_;
};

}  // namespace peerlane

// Late delivery: operations on a channel take effect later than the program made them, to show programs that rely on chance.
// Each is an entry of an area that both ranks map.  Under `seeded` the sender delivers it later, or the receiver if the sender
// has ended.  Under `lazy` the receiver's wait delivers it.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "copy/copy_engine.h"
#include "memory/memory.h"
#include "share/shared_signal.h"

namespace peerlane {

struct LateEntry {
    enum State : uint64_t {
        none,       // free
        taken,      // reserved: its stream has not reached the operation
        ready,      // its stream has reached the operation
        begun,      // ready, and being delivered: the peer's memory or line may have changed, and `before` has its old content
        staged,     // as ready, and a wait of the peer delivers it.  Of a notify: the record was made
        combining,  // a staged reduction that is being delivered
    };
    enum Kind : uint64_t { write, blocks, reduce, notify };

    using Word = std::atomic<uint64_t>;

    Word state;
    Word sequence;   // the order of submission
    Word operation;  // the kind, above 8 bits the number of a reduction, above 32 bits the source: a stream or a thread
    Word target;     // the index of the peer's memory, or of its line
    Word offset;     // of the first byte in the target; blocks: how many there are
    Word size;       // bytes
    Word bytes;      // their offset in the area
    Word before;     // reduce: the offset of the target's old bytes; blocks: of their table; notify: how many records were made
                     // before it, and of a staged one the number of its record

    static constexpr unsigned kReductionShift = 8, kSourceShift = 32;
    static constexpr uint64_t kAllSources = 0;   // the source of fenced entries: they precede the later notifies of all sources
};
static_assert(sizeof(LateEntry) == 64);

// The area: a table of entries, then bytes.  It is a bank of lines that is used as plain memory.
class LateArea {
  public:
    static constexpr uint64_t kEntries = 4096;
    struct Header {
        LateEntry::Word lock;        // the process id of its holder, and above 32 bits the thread's; 0: free
        LateEntry::Word staged_ns;   // when an entry was staged last
        LateEntry::Word next;        // the sequence of the next entry
        LateEntry::Word reserved[5];
    };
    static constexpr uint64_t kTable = kEntries * sizeof(LateEntry) + sizeof(Header);
    static constexpr uint32_t kLines = (64 << 20) / sizeof(SignalLine);

    explicit LateArea(std::shared_ptr<SharedSignal> bank) : bank_(std::move(bank)) {}

    char* base() const { return reinterpret_cast<char*>(&bank_->line()); }
    uint64_t size() const { return uint64_t{bank_->bank()} * sizeof(SignalLine); }
    LateEntry& entry(uint64_t i) const { return reinterpret_cast<LateEntry*>(base())[i]; }
    Header& header() const { return *reinterpret_cast<Header*>(base() + kEntries * sizeof(LateEntry)); }
    const SharedSignal& bank() const { return *bank_; }
    // One thread of either process has it to deliver staged entries, or to record a staged notify.  A holder whose process has
    // ended loses it.  So does one that is stopped for longer than 2 s: then the reduction that it was making may be wrong.
    class Lock {
      public:
        explicit Lock(const LateArea& area);
        ~Lock();
        Lock(const Lock&) = delete;

      private:
        LateEntry::Word& word_;
        const uint64_t me_;
    };
    void stage(uint64_t entry) const;              // its bytes are in the area; under the lock
    void fence() const;                            // staged entries precede the later notifies of all sources
    // Make a record, and stage the entry with its number.
    uint64_t record(uint64_t entry, const std::function<uint64_t()>& make) const;
    // Return the pages of the bytes to the system, once no entry is left.
    void discard() const;

  private:
    const std::shared_ptr<SharedSignal> bank_;
};

// Delivers the entries: in the receiver, and under `lazy` also in the sender.  The other process may write anything into the area
// at any time: numbers are copied before they are checked.
class Undelivered {
  public:
    // `memories`: those that the sender may write, in the order in which they were offered.
    Undelivered(std::shared_ptr<LateArea> from, std::vector<Memory> memories)
        : from_(std::move(from)), memories_(std::move(memories)) {}

    // If the sender has ended, deliver all its entries, to memory and to the lines of `bank`.  True: it lives, and will record line
    // `index`.
    bool settle(const SharedSignal& bank, uint32_t index);
    // A wait has consumed records `first` to `last` of line `index`: deliver what was staged before the first of them.
    void arrive(uint32_t index, uint64_t first, uint64_t last);
    void deliver_source(uint64_t source);                   // all that a source has staged
    void deliver_all();
    // By the sender, once its bytes are in the area.  Throws Refusal if the peer has taken the memory back.
    void stage(uint64_t entry) const;
    // This process takes back memory that it lent as `part`: deliver what was staged for it, in all areas.
    static void deliver_to(const Memory& part);
    // Whether peers still have to deliver something to memory that this process lends as `part`.  The entries of peers that have
    // ended are delivered now.
    static bool awaits_any_to(const Memory& part);
    // For a process that makes no calls: deliver everything if nothing was staged for so long.
    void deliver_if_idle(uint64_t nanoseconds);
    // Let deliver_all_if_idle() and deliver_to() reach it from now on.
    static void attend(const std::shared_ptr<Undelivered>& arriving);
    static bool is_any_attended() { return attended_.load(std::memory_order_relaxed) != 0; }
    static void deliver_all_if_idle(uint64_t nanoseconds);

  private:
    static std::atomic<uint64_t> attended_;
    static std::vector<std::shared_ptr<Undelivered>> living();
    struct Copied;
    void take_over(const SharedSignal& bank);
    template <class Match>
    std::vector<Copied> find(const Match& match) const;   // in order
    template <class Match>
    void deliver_matching(const Match& match);
    void deliver_entries(const std::vector<Copied>& entries) const;
    bool awaits(const Memory& part);
    bool is_for(const Copied& entry, const Memory& part) const;
    void apply_or_drop(const Copied& entry, const SharedSignal* bank, uint64_t& room) const;
    // `room`: bytes of the area that no entry has used yet.
    void apply(const Copied& entry, const SharedSignal* bank, uint64_t& room) const;
    Operand part(uint64_t target, uint64_t offset, uint64_t size) const;
    char* bytes(uint64_t offset, uint64_t size) const;

    const std::shared_ptr<LateArea> from_;
    const std::vector<Memory> memories_;
    std::mutex mutex_;
};

}  // namespace peerlane

// Late deliveries: operations on a channel that take effect later than they were made, to show programs that rely on chance.
// They are kept in an area that both ranks map.  Under `seeded` the sender delivers them later, or the receiver if the sender ends
// before.  Under `lazy` the receiver's wait delivers them.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "copy/copy_engine.h"
#include "memory/memory.h"
#include "share/shared_signal.h"

namespace peerlane {

struct LateDelivery {
    enum State : uint64_t {
        none,       // free
        taken,      // reserved: its stream has not reached the operation
        ready,      // its stream has reached the operation
        begun,      // ready, and being delivered: the peer's memory or line may have changed, and `before` keeps what was there
        staged,     // as ready, and a wait of the peer delivers it.  A notify was recorded already
        combining,  // a staged reduction that is being delivered
    };
    enum Kind : uint64_t { write, blocks, reduce, notify };

    using Word = std::atomic<uint64_t>;

    Word state;
    Word sequence;   // the order of submission
    Word what;       // the kind, above 8 bits the number of a reduction, above 32 bits the source: a stream or a thread
    Word place;      // the index of the peer's memory, or of its line
    Word at;         // the first byte in it; of blocks, how many
    Word size;       // bytes
    Word bytes;      // their offset in the area
    Word before;     // reduce: the offset of the bytes from before; blocks: of their table; notify: how many records were made
                     // before it, and of a staged one the number of its record

    static constexpr unsigned kNumber = 8, kSource = 32;
    static constexpr uint64_t kAll = 0;   // the source of fenced entries: they precede the later notifies of all sources
};
static_assert(sizeof(LateDelivery) == 64);

// The area: a table of entries, then bytes.  It is a bank of lines that is used as plain memory.
class LateDeliveries {
  public:
    static constexpr uint64_t kEntries = 4096;
    struct Header {
        LateDelivery::Word lock;        // the process id of its holder, and above 32 bits the thread's; 0: free
        LateDelivery::Word staged_ns;    // when an entry was staged last
        LateDelivery::Word next;        // the sequence of the next entry
        LateDelivery::Word reserved[5];
    };
    static constexpr uint64_t kTable = kEntries * sizeof(LateDelivery) + sizeof(Header);
    static constexpr uint32_t kLines = (64 << 20) / sizeof(SignalLine);

    explicit LateDeliveries(std::shared_ptr<SharedSignal> bank) : bank_(std::move(bank)) {}

    char* base() const { return reinterpret_cast<char*>(&bank_->line()); }
    uint64_t size() const { return uint64_t{bank_->bank()} * sizeof(SignalLine); }
    LateDelivery& entry(uint64_t i) const { return reinterpret_cast<LateDelivery*>(base())[i]; }
    Header& header() const { return *reinterpret_cast<Header*>(base() + kEntries * sizeof(LateDelivery)); }
    const SharedSignal& bank() const { return *bank_; }
    // Held by one thread of either process to deliver staged entries, or to record a staged notify.  A holder whose process has
    // ended loses it.  So does one that is stopped for longer than 2 s: then what it was combining may be wrong.
    class Lock {
      public:
        explicit Lock(const LateDeliveries& area);
        ~Lock();
        Lock(const Lock&) = delete;

      private:
        LateDelivery::Word& word_;
        const uint64_t me_;
    };
    void stage(uint64_t entry) const;              // its bytes are in the area; the lock is held
    void fence() const;                            // staged entries precede the later notifies of all sources
    // Make a record, and stage the entry with its number.
    uint64_t record(uint64_t entry, const std::function<uint64_t()>& make) const;
    // Give the pages of the bytes back to the system: nobody needs them any more.
    void discard() const;

  private:
    const std::shared_ptr<SharedSignal> bank_;
};

// Delivers them: in the receiver, and under `lazy` also in the sender.  Another process has written all of it: numbers are copied
// before they are checked.
class Undelivered {
  public:
    // `memories`: those that the sender may write, in the order in which they were offered.
    Undelivered(std::shared_ptr<LateDeliveries> from, std::vector<Memory> memories)
        : from_(std::move(from)), memories_(std::move(memories)) {}

    // If the sender has ended, deliver all that it has left, to memory and to the lines of `bank`.  True: it lives, and will record
    // line `index`.
    bool settle(const SharedSignal& bank, uint32_t index);
    // A wait has consumed records `first` to `last` of line `index`: deliver what was staged before the first of them.
    void arrive(uint32_t index, uint64_t first, uint64_t last);
    void bring(uint64_t source);                   // deliver all that a source has staged
    void bring_all();
    // By the sender, once its bytes are in the area.  Throws Refusal if the peer has taken the memory back.
    void stage(uint64_t entry) const;
    // This process takes back what it lent as `part`: deliver what was staged for it, in all areas.
    static void bring_all_to(const Memory& part);
    // Whether peers still have to deliver something to what this process lends as `part`.  What ended peers have left is delivered
    // now.
    static bool awaits_any_to(const Memory& part);
    // The process makes no calls: deliver everything if nothing was staged for as long.
    void bring_older_than(uint64_t nanoseconds);
    // Deliver in bring_all_older_than() from now on.
    static void attend(const std::shared_ptr<Undelivered>& arriving);
    static bool is_any_attended() { return attended_.load(std::memory_order_relaxed) != 0; }
    static void bring_all_older_than(uint64_t nanoseconds);

  private:
    static std::atomic<uint64_t> attended_;
    static std::vector<std::shared_ptr<Undelivered>> living();
    struct Copied;
    void take_over(const SharedSignal& bank);
    template <class Match>
    std::vector<Copied> find(const Match& match) const;   // in order
    template <class Match>
    void bring_those(const Match& match);
    void bring_all(const std::vector<Copied>& found) const;
    bool awaits(const Memory& part);
    bool is_for(const Copied& entry, const Memory& part) const;
    void apply_or_drop(const Copied& entry, const SharedSignal* bank, uint64_t& room) const;
    // `room`: bytes of the area that no entry has used yet.
    void apply(const Copied& entry, const SharedSignal* bank, uint64_t& room) const;
    Operand part(uint64_t place, uint64_t at, uint64_t size) const;
    char* bytes(uint64_t at, uint64_t size) const;

    const std::shared_ptr<LateDeliveries> from_;
    const std::vector<Memory> memories_;
    std::mutex mutex_;
};

}  // namespace peerlane

// What a rank holds back of what it has given to a channel, in memory that its peer has too.  Under `seeded` the rank brings
// it later, and the peer only if the rank ends before.  Under `lazy` the peer's wait brings it.
#pragma once
#include <functional>
#include <memory>
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
        staged,     // as given; a wait of the peer brings it.  A notify was recorded already
        combining,  // as begun, of what was staged
    };
    enum Kind : uint64_t { write, blocks, reduce, notify };

    using Word = std::atomic<uint64_t>;

    Word state;
    Word sequence;   // in which order they were submitted
    Word what;       // the kind, above 8 bits the number of a reduction, above 32 bits the source: a stream or a thread
    Word place;      // of the peer's memories, or of its lines
    Word at;         // the first byte there; of blocks, how many
    Word size;       // bytes
    Word bytes;      // where they lie in the area
    Word before;     // reduce: where the bytes from before lie; blocks: where the table does; notify: how many records there
                     // were before it, and of a staged one the number of its record

    static constexpr unsigned kNumber = 8, kSource = 32;
    static constexpr uint64_t kAll = 0;   // the source of what was fenced: it comes before the later notifies of any source
};
static_assert(sizeof(HeldEntry) == 64);

// The area: a table of entries, and bytes.  It is a bank whose lines hold these.
class HeldBack {
  public:
    static constexpr uint64_t kEntries = 4096;
    struct Header {
        HeldEntry::Word lock;        // the process id of its holder, and above 32 bits the thread's; 0: free
        HeldEntry::Word given_ns;    // when something was staged last
        HeldEntry::Word next;        // the sequence of the next entry
        HeldEntry::Word reserved[5];
    };
    static constexpr uint64_t kTable = kEntries * sizeof(HeldEntry) + sizeof(Header);
    static constexpr uint32_t kLines = (64 << 20) / sizeof(SignalLine);

    explicit HeldBack(std::shared_ptr<SharedSignal> bank) : bank_(std::move(bank)) {}

    char* base() const { return reinterpret_cast<char*>(&bank_->line()); }
    uint64_t size() const { return uint64_t{bank_->bank()} * sizeof(SignalLine); }
    HeldEntry& entry(uint64_t i) const { return reinterpret_cast<HeldEntry*>(base())[i]; }
    Header& header() const { return *reinterpret_cast<Header*>(base() + kEntries * sizeof(HeldEntry)); }
    const SharedSignal& bank() const { return *bank_; }
    // One thread of either process at a time brings what is staged, or records a staged notify.  A holder whose process has
    // ended loses it.  So does one that is stopped for longer than 2 s: then what it was combining may be wrong.
    class Lock {
      public:
        explicit Lock(const HeldBack& area);
        ~Lock();
        Lock(const Lock&) = delete;

      private:
        HeldEntry::Word& word_;
        const uint64_t me_;
    };
    void stage(uint64_t entry) const;              // its bytes are there; the lock is held
    void fence() const;                            // what is staged comes before the later notifies of any source
    // Make a record, and stage the entry with its number.
    uint64_t record(uint64_t entry, const std::function<uint64_t()>& make) const;
    // Give the pages behind the table back: nobody needs the bytes any more.
    void discard() const;

  private:
    const std::shared_ptr<SharedSignal> bank_;
};

// What brings it: the peer, and under `lazy` also the sender.  Everything there was written by another process: numbers are
// copied, then checked.
class Undelivered {
  public:
    // `memories`: what the sender may write, in the order in which it was offered.
    Undelivered(std::shared_ptr<HeldBack> from, std::vector<Memory> memories)
        : from_(std::move(from)), memories_(std::move(memories)) {}

    // Bring what the other end has given and cannot bring any more to memory, and to the lines of `bank`.  True: it lives,
    // and has a record of line `index` to bring.
    bool settle(const SharedSignal& bank, uint32_t index);
    // Line `index` was waited for: records `first` to `last` are consumed.  Bring what was staged before the first of them.
    void arrive(uint32_t index, uint64_t first, uint64_t last);
    void bring(uint64_t source);                   // all that a source has staged
    void bring_all();
    // The sender's: its bytes are there.  Throws Refusal if the peer has taken the memory back.
    void stage(uint64_t entry) const;
    // The peer takes back what it lent as `part`: bring what was staged for it, in all areas.
    static void bring_all_to(const Memory& part);
    // The peers have not brought yet all that they were given for memory that this process lends as `part`.  Those that
    // have ended cannot: it is brought here.
    static bool awaits_any_to(const Memory& part);
    // The process rests: bring what nobody staged anything after for as long.
    void bring_older_than(uint64_t nanoseconds);
    // All of this process that a peer may stage for: look at them while it rests.
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
    void bring_found(const std::vector<Copied>& found) const;
    bool awaits(const Memory& part);
    bool is_for(const Copied& entry, const Memory& part) const;
    void apply_or_drop(const Copied& entry, const SharedSignal* bank, uint64_t& room) const;
    // `room`: how much of the area no other entry has.
    void apply(const Copied& entry, const SharedSignal* bank, uint64_t& room) const;
    Operand part(uint64_t place, uint64_t at, uint64_t size) const;
    char* bytes(uint64_t at, uint64_t size) const;

    const std::shared_ptr<HeldBack> from_;
    const std::vector<Memory> memories_;
    std::mutex mutex_;
};

}  // namespace peerlane

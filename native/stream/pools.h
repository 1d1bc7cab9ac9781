// The memory that the pools of a vendor's program have of their devices: in use, or freed in the order of a stream and kept for reuse.
//
// Python and the calls of C without Python share it.  One lock guards all pools of a program.  Under it no operation is submitted,
// and the GIL is not taken.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stream/stream.h"

namespace peerlane {

class PoolMemory;

// Takes the caller's reference over.
std::shared_ptr<Mark> as_shared(Mark* mark);

// A free of memory that is kept; the next use of the memory ends it.
struct PoolFree {
    std::shared_ptr<Mark> mark;        // null: only Python knows whether it is over
    uint64_t stream = 0;
    std::vector<uint64_t> behind;      // the streams that are behind it, by number: there the memory may be used at once
    const PoolMemory* pool = nullptr;
};

struct PoolBlock {
    PoolMemory* pool;
    uint64_t allocation, address, size;
    bool is_in_use = true;
    bool is_quick = true;              // calls of C may free it
    bool is_changed = false;           // a call of C has used or freed it since Python looked
    bool is_reused = false;            // such a call has allocated it
    std::shared_ptr<PoolFree> freed;   // set: it is kept
};

// What was freed before the last record of an event.
struct FreedBefore {
    std::vector<std::weak_ptr<PoolFree>> frees;   // under the pools' lock
};

class Pools {
  public:
    // Without the lock: whether any memory is kept.
    bool keep_memory() const { return kept_.load(std::memory_order_acquire) != 0; }
    // Whether a pool of a device keeps more than it may keep when a stream was waited for.
    bool have_surplus(uint32_t device) const;
    // An event is recorded by a stream; a stream waits for the record.
    void record(FreedBefore& before, uint64_t stream) const;
    void wait(const FreedBefore& before, uint64_t stream) const;
    // For calls of C, as `PoolMemory::take`.  False, and nothing happens, if Python must be asked.
    bool free(uint64_t address, Stream& stream);
    // What calls of C have changed since the last call of this: the allocation, whether it is in use, and whether one allocated it.
    std::vector<std::tuple<uint64_t, bool, bool>> take_changes();

  private:
    friend PoolMemory;
    // In a forked child nobody else is there, and another thread of the parent's may have had the lock.
    class Lock {
      public:
        explicit Lock(const Pools& pools);

      private:
        std::unique_lock<std::mutex> lock_;
    };

    void note_change(const std::shared_ptr<PoolBlock>& block);

    mutable std::mutex mutex_;
    std::vector<PoolMemory*> all_;
    std::unordered_map<uint64_t, std::shared_ptr<PoolBlock>> by_address_;
    std::vector<std::weak_ptr<PoolBlock>> changed_;
    std::atomic<uint64_t> kept_{0};   // blocks
};

class PoolMemory : public std::enable_shared_from_this<PoolMemory> {
  public:
    enum Setting : uint32_t { follow_events = 1, opportunistic = 2, internal = 3, threshold = 4 };   // vendors number them alike

    PoolMemory(std::shared_ptr<Pools> pools, uint32_t device);
    ~PoolMemory();
    PoolMemory(const PoolMemory&) = delete;

    uint64_t setting(uint32_t number) const { return settings_.at(number).load(std::memory_order_relaxed); }
    void set(uint32_t number, uint64_t value) { settings_.at(number).store(value, std::memory_order_relaxed); }
    uint64_t used() const;
    uint64_t kept() const;
    // The most bytes in use, or in use and kept, since a program has reset that mark.
    uint64_t most_used() const { return most_used_.load(std::memory_order_relaxed); }
    uint64_t most_reserved() const { return most_reserved_.load(std::memory_order_relaxed); }
    void reset_most_used() { most_used_.store(0, std::memory_order_relaxed); }
    void reset_most_reserved() { most_reserved_.store(0, std::memory_order_relaxed); }

    // Memory that its location gave, in use.
    void add(uint64_t allocation, uint64_t address, uint64_t size);
    // Memory that its location gets back, whether it was in use or kept.  False: another thread was quicker.
    bool remove(uint64_t allocation);
    // No call of C frees it any more.
    void end_quick_frees(uint64_t allocation);
    // No call of C uses the pool any more.
    void end_quick_calls() { is_quick_.store(false, std::memory_order_release); }

    bool is_in_use(uint64_t allocation) const;
    // A free has two steps: no other thread can free the memory between them.  False: it is not in use.
    bool begin_free(uint64_t allocation);
    void keep(uint64_t allocation, uint64_t stream, std::shared_ptr<Mark> mark);
    // Kept memory is used again.  False: another thread was quicker.
    bool use(uint64_t allocation);
    // Kept memory that is large enough and not much larger, the smallest first, and whether a stream is behind its free.
    std::vector<std::pair<uint64_t, bool>> fitting(uint64_t size, uint64_t stream) const;
    // The kept allocations, smallest first.
    std::vector<uint64_t> kept_allocations() const;
    // Null: it is not kept.
    std::shared_ptr<const PoolFree> freed(uint64_t allocation) const;

    // For calls of C: the address of memory to be used in the order of a stream; 0: Python must be asked.
    uint64_t take(uint64_t size, const Stream& stream);

  private:
    friend Pools;
    static bool is_behind(const PoolFree& freed, uint64_t stream);
    PoolBlock* find(uint64_t allocation) const;
    void begin_use(PoolBlock& block);
    void end_use(PoolBlock& block);
    void end_free(PoolBlock& block);
    void forget(std::shared_ptr<PoolBlock> block);
    bool has_surplus() const { return kept_bytes_ > setting(threshold); }
    template <class Look>
    void each_fitting(uint64_t size, const Look& look) const;

    const std::shared_ptr<Pools> pools_;
    const uint32_t device_;
    std::atomic<bool> is_quick_{true};
    std::array<std::atomic<uint64_t>, 5> settings_{};
    std::atomic<uint64_t> most_used_{0}, most_reserved_{0};
    // Under the pools' lock:
    std::unordered_map<uint64_t, std::shared_ptr<PoolBlock>> blocks_;
    std::multimap<uint64_t, PoolBlock*> kept_;   // by size
    uint64_t used_bytes_ = 0, kept_bytes_ = 0;
};

}  // namespace peerlane

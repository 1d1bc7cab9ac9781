// What a channel's peer on another machine has written under `lazy`: it was accepted, and is in its place only when this end waits
// for a record that came later.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/heap.h"
#include "net/frame.h"
#include "stream/far_operation.h"

namespace peerlane::net {

// Bytes that were checked, at `base`, where their memory begins; false: it could not be touched.
bool write_into(const Frame& frame, const char* bytes, char* base);
bool reduce_into(const Frame& frame, const char* bytes, char* base);
bool scatter_into(const Frame& frame, const char* bytes, char* base);

class Withheld final : public FarArrivals {
  public:
    static constexpr uint64_t kMostBytes = uint64_t{64} << 20, kMostEntries = 65'536;   // beyond them all are delivered

    // `one_by_one`: each wait consumes one record; else all up to a number, which a line counts from 1.
    Withheld(size_t lines, bool one_by_one);
    ~Withheld() override;

    // Takes the pin of `range` over.  Throws std::bad_alloc, and takes nothing.
    void stage(const Frame& frame, const Range& range, std::unique_ptr<char[]> bytes, uint64_t size);
    // The next record of a line is made; `unmade`: it was refused.
    void record(uint64_t line);
    void unmade(uint64_t line);
    void arrive(uint64_t line, uint64_t newest) noexcept override;
    void deliver_all() noexcept;
    bool has_older_than(uint64_t nanoseconds) const;

    static uint64_t living() { return living_.load(std::memory_order_relaxed); }

  private:
    struct Entry {
        Frame frame;
        Range range;
        std::unique_ptr<char[]> bytes;
        uint64_t size, staged_ns;
    };
    struct Record {
        uint64_t number, before;   // of its line, from 1; so many entries came before it
    };
    struct Line {
        std::deque<Record> records;
        uint64_t recorded = 0;
    };
    void deliver_until(uint64_t count) noexcept;   // under `mutex_`

    static inline std::atomic<uint64_t> living_{0};
    const bool one_by_one_;
    mutable std::mutex mutex_;   // the scheduler's may be held when it is taken
    std::deque<Entry> entries_;
    std::vector<Line> lines_;
    uint64_t staged_ = 0, delivered_ = 0, bytes_ = 0;
};

}  // namespace peerlane::net

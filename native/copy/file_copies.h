// Copies between memory and files, by the system: the file may end early, and a disk may be full.
#pragma once
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace peerlane {

struct FilePiece {
    int fd = -1;
    uint64_t offset = 0, address = 0, size = 0;
};

// Steps 0 to `steps()` - 1, each once; several threads may run some.
class FileCopies {
  public:
    // Of the first piece of which not all bytes could be copied.
    struct Failure {
        int error = 0;              // the system's number; 0: the file ends there
        uint64_t piece = 0, moved = 0;
    };

    // `pieces`: about how many will be added.
    FileCopies(bool reads, uint64_t pieces) : reads_(reads) {
        memory_.reserve(pieces);
        parts_.reserve(pieces);
    }
    ~FileCopies();
    FileCopies(const FileCopies&) = delete;

    // Add the next piece, which lies at `host`.  Throws std::bad_alloc.
    void add(const FilePiece& piece, char* host);
    // Use descriptors of its own from now on, so that the program may close its own.  Throws std::bad_alloc.
    void keep_files();

    uint64_t size() const { return size_; }
    uint64_t steps() const { return steps_.size(); }
    // Under a fault guard: it may be abandoned in the middle.
    void step(uint64_t i);
    // Whether helpers pay for their wake-up.
    bool is_for_many() const { return size_ >= kManyBytes || parts_.size() >= kManyParts; }
    enum class AtOnce : uint8_t { done, would_wait, is_unknown };
    // All steps, unless the system would have to wait for a device, or does not say whether it would: then some were made.
    AtOnce run_at_once();
    // Whether no file bypasses the page cache, or waits for its device.
    bool is_cached() const;
    // All steps, for such files; false: some of it has to be done by steps.
    bool run_through_cache() { return run_all(0); }
    // Once all steps are over; null: none.
    const Failure* failure() const { return has_failed_.load(std::memory_order_acquire) ? &failure_ : nullptr; }

  private:
    struct Part {
        uint64_t offset, piece, before;   // bytes of the piece that lie before the part
        int fd;
    };
    struct Step {
        uint64_t first, count, size;
    };
    struct Run {                    // parts that lie one behind the other in one file
        uint64_t end, size;
    };
    Run run_of(uint64_t first, uint64_t end) const;
    static constexpr uint64_t kManyBytes = uint64_t{4} << 20, kManyParts = 256;
    bool run_all(int flags);
    ssize_t move(uint64_t first, uint64_t count, int flags) const;
    ssize_t move_apart(const Part& part, char* host, uint64_t done, uint64_t size) const;
    void finish(uint64_t at, uint64_t done);
    void fail(int error, const Part& part, uint64_t done);

    const bool reads_;
    uint64_t size_ = 0, pieces_ = 0;
    std::vector<iovec> memory_;     // of each part
    std::vector<Part> parts_;
    std::vector<Step> steps_;
    std::vector<int> kept_;
    std::atomic<bool> is_claimed_{false}, has_failed_{false};
    Failure failure_;
};

}  // namespace peerlane

// Copies between this process's memory and another's, by the system: neither has to be mapped in the other.
#pragma once
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <vector>

namespace peerlane {

// Made once and run many times; only one thread at a time runs it.
class ProcessCopies {
  public:
    struct Piece {
        uint64_t local = 0, remote = 0, size = 0;
    };
    ProcessCopies(pid_t pid, bool writes, const std::vector<Piece>& pieces);

    uint64_t size() const { return size_; }
    // Returns 0, or the number of an error: EFAULT also where some of the bytes were copied.  Large copies have helpers.
    int run() const;

  private:
    struct Step {   // one call of the system
        size_t first = 0, count = 0;
        uint64_t size = 0;
    };
    int run(const Step& step) const;

    const pid_t pid_;
    const bool writes_;
    uint64_t size_ = 0;
    std::vector<iovec> local_, remote_;
    std::vector<Step> steps_;
};

}  // namespace peerlane

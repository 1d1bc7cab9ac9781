// The processes of a group of ranks: who has left, and who ended without a word.
#pragma once
#include <memory>
#include <vector>

#include "share/process.h"

namespace peerlane {

class SharedSignal;

class Members {
  public:
    // Line i of `membership` is recorded by rank i when it leaves.
    explicit Members(std::shared_ptr<SharedSignal> membership);
    ~Members();
    Members(const Members&) = delete;

    // Before it is used by others.  The process may have ended by now.
    void add(uint32_t rank, int32_t pid, uint64_t start);
    // The pid of one that has ended and had not left; 0: none.
    uint64_t lost() const;
    bool has_ended(uint32_t rank) const;   // false for ranks of this process

  private:
    struct Member {
        uint32_t rank;
        int32_t pid;
        bool was_gone;
        Process process;
    };
    const std::shared_ptr<SharedSignal> membership_;
    std::vector<Member> members_;
};

}  // namespace peerlane

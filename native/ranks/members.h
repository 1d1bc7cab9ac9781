// The processes of a group of ranks: who has left, and who ended without a word.
#pragma once
#include <memory>
#include <vector>

#include "share/process.h"

namespace peerlane {

class SharedSignal;

class Members {
  public:
    // Line i of `membership` is recorded by rank i when it leaves; that of a rank of another machine by who finds it lost.
    explicit Members(std::shared_ptr<SharedSignal> membership);
    ~Members();
    Members(const Members&) = delete;

    // Before it is used by others.  The process may have ended by now.
    void add(uint32_t rank, int32_t pid, uint64_t start);
    // The same for a rank of another machine, which texts name by `name`.
    void add_far(uint32_t rank, uint64_t name) { far_.push_back({rank, name}); }
    // A rank of another machine is gone and had not left: all ranks of this machine see it.
    void lose_far(uint32_t rank) const;
    // The pid of one that has ended and had not left, or the name of one elsewhere; 0: none.
    uint64_t lost() const;
    bool has_ended(uint32_t rank) const;   // false for ranks of this process

  private:
    struct Member {
        uint32_t rank;
        int32_t pid;
        bool was_gone;
        Process process;
    };
    struct Far {
        uint32_t rank;
        uint64_t name;
    };
    const std::shared_ptr<SharedSignal> membership_;
    std::vector<Member> members_;
    std::vector<Far> far_;
};

}  // namespace peerlane

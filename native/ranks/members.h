// The processes of a group: which ranks have left it, and which have ended without leaving.
#pragma once
#include <memory>
#include <vector>

#include "share/process.h"

namespace peerlane {

class SharedSignal;

class Members {
  public:
    // Rank i records line i of `membership` when it leaves.  The line of a rank of another machine is recorded by whoever finds that
    // it is lost.
    explicit Members(std::shared_ptr<SharedSignal> membership);
    ~Members();
    Members(const Members&) = delete;

    // Before other threads use it.  The process may have ended already.
    void add(uint32_t rank, int32_t pid, uint64_t start);
    // The same for a rank of another machine; `name` stands for it in messages.
    void add_far(uint32_t rank, uint64_t name) { far_.push_back({rank, name}); }
    // Tell all ranks of this machine that a rank of another one has ended without leaving.
    void lose_far(uint32_t rank) const;
    // The pid of one that has ended without leaving, or the name of one of another machine; 0: none.
    uint64_t lost() const;
    uint64_t left(uint32_t rank) const;    // the pid of a rank of another process, if it has left; else 0
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

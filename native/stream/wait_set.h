// What the tasks of an event loop wait for: a descriptor is readable when something of it is over.  No thread waits.
#pragma once
#include <unordered_map>

#include "stream/scheduler.h"

namespace peerlane {

// A wait for the operations of a stream, up to one of them.  All but `token` is under the scheduler's lock.
struct LoopWait {
    WaitSet* set;
    uint64_t token, sequence;
    StreamPtr stream;
    LoopWait* next = nullptr;
    LoopWait** back_link = nullptr;   // what points to it in the stream's list; null: it is over

    void link();
    void unlink();
};

class WaitSet {
  public:
    WaitSet();   // throws Refusal when the process has no free descriptor
    ~WaitSet();
    WaitSet(const WaitSet&) = delete;

    int fd() const { return fd_; }

    // Wait for the operations that the stream has by now, or for the record.  False: that is over, and nothing was added.
    bool add(uint64_t token, Stream& stream);
    bool add(uint64_t token, const Mark& mark);
    void remove(uint64_t token);

    // The waits that are over, in the order in which they ended; the descriptor is not readable any more.
    std::vector<uint64_t> take();
    // The waits that no submitted operation would end, with the reason of each; they end here.
    std::vector<std::pair<uint64_t, Refusal>> take_hopeless();

  private:
    friend class Scheduler;
    bool add_locked(uint64_t token, const StreamPtr& stream, uint64_t sequence);
    StreamPtr extract(uint64_t token);
    void leave_if_empty();
    void ring();

    Scheduler& all_ = Scheduler::get();
    const int fd_;
    std::unordered_map<uint64_t, LoopWait> waits_;   // this and what follows: under the scheduler's lock
    std::vector<uint64_t> over_;                     // has room for all
    bool is_rung_ = false;
};

}  // namespace peerlane

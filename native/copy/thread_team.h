// Helper threads for large copies.  They never take the GIL, idle without cost and leave after a while.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace peerlane {

class ThreadTeam {
  public:
    static ThreadTeam& get();   // leaked: helpers may outlive static destruction

    // Run `work` in the caller and in up to `helpers` more threads, return when all have returned.
    // When the team is busy with another caller's work the caller works alone.
    void run(unsigned helpers, const std::function<void(bool is_caller)>& work);

    static void begin_anew();   // in a forked child: whatever its parent's helpers were doing, they are not here
    static unsigned cores();    // that this process may use

  private:
    void serve();

    std::atomic<bool> taken_{false};   // not a lock: the caller may take the GIL meanwhile
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(bool)>* work_ = nullptr;
    std::atomic<unsigned> wanted_{0}, running_{0};   // changed under the lock
    unsigned alive_ = 0;
};

}  // namespace peerlane

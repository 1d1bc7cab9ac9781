// The notifies of one direction of a channel.  Each is made when it is first used: a group has many channels, and most use few
// of their notifies.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "stream/notify.h"

namespace peerlane {

class ChannelLines {
  public:
    // Lines of a bank, which has as many; without one they are this process's alone.
    ChannelLines(NotifyKind kind, uint32_t count, uint32_t device, std::shared_ptr<SharedSignal> bank);
    // Those of a completion queue.
    ChannelLines(std::shared_ptr<Completions> queue, uint32_t count, uint32_t device);
    ~ChannelLines();
    ChannelLines(const ChannelLines&) = delete;

    const Notify::Living living;   // first: it ends last
    const NotifyKind kind;
    const uint32_t count;
    const uint64_t first_id;   // the others have the ids behind it; 0: there are none

    // The first id of the channel's notifies to which an id belongs; the id itself, if it is of another notify.
    static uint64_t first_id_of(uint64_t id);

    // Notify `i`, which lives as long as this, and longer for who holds it.  Not under the scheduler's lock; throws Refusal.
    Notify& at(uint32_t i);
    // Those that were recorded more often than consumed.
    std::vector<uint32_t> unconsumed() const;
    // Only queued operations will still record them: other waits for them fail.
    void abandon();
    // This process records them no more, for processes that wait for them.
    void let_go();

  private:
    const std::shared_ptr<Completions> queue_;
    const std::shared_ptr<SharedSignal> bank_;
    const uint32_t device_;
    const std::unique_ptr<std::atomic<Notify*>[]> notifies_;   // null: nobody has used it yet
    std::atomic<bool> is_abandoned_{false};
};

}  // namespace peerlane

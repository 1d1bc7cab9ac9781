#include "ranks/members.h"

#include <unistd.h>

#include "share/shared_signal.h"

namespace peerlane {

Members::Members(std::shared_ptr<SharedSignal> membership) : membership_(std::move(membership)) {}

Members::~Members() {
    for (const Member& member : members_)
        if (member.process.pidfd >= 0) close(member.process.pidfd);
}

void Members::add(uint32_t rank, int32_t pid, uint64_t start) {
    const Process process = Process::watch(pid, -1);
    const bool is_other = process.start != kUnknownStart && process.start != start;   // its process has ended, and another one has the pid now
    members_.push_back({rank, pid, is_other, process});
}

uint64_t Members::lost() const {
    for (const Member& member : members_) {
        if (!member.was_gone && !member.process.has_ended()) continue;
        if (membership_->line(member.rank).recorded() == 0) return static_cast<uint64_t>(member.pid);
    }
    for (const Far& far : far_)
        if (membership_->line(far.rank).recorded() != 0) return far.name;
    return 0;
}

// It wakes nobody: waiters look several times a second.
void Members::lose_far(uint32_t rank) const { membership_->line(rank).word.fetch_or(SignalLine::kRecord, std::memory_order_acq_rel); }

bool Members::has_ended(uint32_t rank) const {
    for (const Member& member : members_)
        if (member.rank == rank) return member.was_gone || member.process.has_ended();
    return false;
}

}  // namespace peerlane

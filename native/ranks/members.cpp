#include "ranks/members.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "share/shared_signal.h"

namespace peerlane {

namespace {

constexpr size_t kAskedAtOnce = 64;

}  // namespace

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

// Waiters of all ranks ask several times a second, so it asks the system once for many processes.
uint64_t Members::lost() const {
    std::array<pollfd, kAskedAtOnce> asked;
    for (size_t first = 0; first < members_.size(); first += kAskedAtOnce) {
        const size_t count = std::min(kAskedAtOnce, members_.size() - first);
        for (size_t i = 0; i < count; ++i) asked[i] = {members_[first + i].process.pidfd, POLLIN, 0};   // -1 is passed over
        if (poll(asked.data(), count, 0) < 0) std::fill_n(asked.begin(), count, pollfd{-1, 0, 0});   // next time
        for (size_t i = 0; i < count; ++i) {
            const Member& member = members_[first + i];
            const bool has_ended = member.was_gone || asked[i].revents != 0 || (member.process.pidfd < 0 && member.process.has_ended());
            if (has_ended && membership_->line(member.rank).recorded() == 0) return static_cast<uint64_t>(member.pid);
        }
    }
    for (const Far& far : far_)
        if (membership_->line(far.rank).recorded() != 0) return far.name;
    return 0;
}

uint64_t Members::left(uint32_t rank) const {
    if (membership_->line(rank).recorded() == 0) return 0;
    const auto member = std::find_if(members_.begin(), members_.end(), [rank](const Member& each) { return each.rank == rank; });
    return member == members_.end() ? 0 : static_cast<uint64_t>(member->pid);
}

// It wakes nobody: waiters look several times a second.
void Members::lose_far(uint32_t rank) const { membership_->line(rank).word.fetch_or(SignalLine::kRecord, std::memory_order_acq_rel); }

bool Members::has_ended(uint32_t rank) const {
    for (const Member& member : members_)
        if (member.rank == rank) return member.was_gone || member.process.has_ended();
    return false;
}

}  // namespace peerlane

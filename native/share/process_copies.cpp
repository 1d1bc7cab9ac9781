#include "share/process_copies.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "copy/task.h"
#include "copy/thread_team.h"

namespace peerlane {

// Of a step: what one call takes, and so many bytes that the call itself costs little.
constexpr size_t kMostPieces = 1024;   // IOV_MAX
constexpr uint64_t kMostBytes = uint64_t{4} << 20;

ProcessCopies::ProcessCopies(pid_t pid, bool writes, const std::vector<Piece>& pieces) : pid_(pid), writes_(writes) {
    for (Piece piece : pieces) {
        while (piece.size != 0) {
            if (steps_.empty() || steps_.back().count == kMostPieces || steps_.back().size == kMostBytes) steps_.push_back({.first = local_.size()});
            Step& step = steps_.back();
            const uint64_t part = std::min(piece.size, kMostBytes - step.size);
            local_.push_back({reinterpret_cast<void*>(piece.local), part});
            remote_.push_back({reinterpret_cast<void*>(piece.remote), part});
            ++step.count;
            step.size += part;
            size_ += part;
            piece = {.local = piece.local + part, .remote = piece.remote + part, .size = piece.size - part};
        }
    }
}

int ProcessCopies::run(const Step& step) const {
    const auto call = writes_ ? process_vm_writev : process_vm_readv;
    const ssize_t done = call(pid_, &local_[step.first], step.count, &remote_[step.first], step.count, 0);
    if (done < 0) return errno;
    return static_cast<uint64_t>(done) == step.size ? 0 : EFAULT;
}

int ProcessCopies::run() const {
    std::atomic<size_t> next{0};
    std::atomic<int> failed{0};
    const auto work = [&](bool) {
        for (size_t at; failed.load(std::memory_order_relaxed) == 0 && (at = next.fetch_add(1, std::memory_order_relaxed)) < steps_.size();)
            if (const int error = run(steps_[at])) failed.store(error, std::memory_order_relaxed);
    };
    if (size_ < kTeamFrom)
        work(true);
    else
        ThreadTeam::get().run(ThreadTeam::cores() - 1, work);
    return failed.load(std::memory_order_relaxed);
}

}  // namespace peerlane

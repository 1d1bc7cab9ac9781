#include "ranks/split_copy.h"

#include <new>

namespace peerlane {

SplitCopy SplitCopy::open(char* board, uint64_t size) {
    new (board) Board{};
    return SplitCopy(board, size, kReader);
}

std::optional<Span> SplitCopy::claim() {
    uint64_t seen = board_->claims.load(std::memory_order_relaxed);
    do {
        const uint64_t claimed = (seen & kCount) + (seen >> kCountBits & kCount);
        is_claimed_ = is_claimed_ || (seen & kClosed) || claimed >= pieces_ || own_ == pieces_;
        if (is_claimed_) return {};
    } while (!board_->claims.compare_exchange_weak(seen, seen + step_, std::memory_order_acq_rel, std::memory_order_relaxed));
    const uint64_t index = step_ == kReader ? own_ : pieces_ - 1 - own_, first = index * piece_;
    ++own_;
    return Span{first, std::min(piece_, size_ - first)};
}

Span SplitCopy::unwritten() const {
    const uint64_t claimed = std::min(writers_claims(), pieces_ - own_);
    const uint64_t written = std::min(board_->written.load(std::memory_order_acquire), claimed);
    const uint64_t first = std::min((pieces_ - claimed) * piece_, size_);
    return {first, std::min((pieces_ - written) * piece_, size_) - first};
}

bool SplitCopy::close() {
    board_->claims.fetch_or(kClosed, std::memory_order_acq_rel);
    return is_being_written();
}

bool SplitCopy::is_being_written() const { return board_->written.load(std::memory_order_acquire) != writers_claims(); }

}  // namespace peerlane

// A long copy between two processes that both make at once, piece by piece: the reader from the front, the writer from the back.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "schedules/schedule.h"

namespace peerlane {

class SplitCopy {
  public:
    // The system takes microseconds for each call, so pieces are long.  Of a short copy each process has one.
    static uint64_t piece_of(uint64_t size) {
        constexpr uint64_t kLongest = uint64_t{256} << 10;
        const uint64_t count = std::max<uint64_t>((size - 1) / (2 * kLongest) + 1, 1) * 2;
        return ((size - 1) / count / kPage + 1) * kPage;
    }
    // In the reader's memory, and both map it.  Either process may write anything there, so each counts its own pieces itself.
    struct Board {
        std::atomic<uint64_t> claims;    // pieces of the reader, above 31 bits those of the writer; the last bit ends all claims
        std::atomic<uint64_t> written;   // pieces of the writer that are over
    };

    SplitCopy() = default;
    // The reader's, before it shows the board to the writer.
    static SplitCopy open(char* board, uint64_t size);
    // The writer's, of a board that the reader has shown.
    static SplitCopy join(char* board, uint64_t size) { return SplitCopy(board, size, kWriter); }

    explicit operator bool() const { return board_; }
    // The next piece for this process; none: both processes have all pieces.
    std::optional<Span> claim();
    bool is_claimed() const { return is_claimed_; }   // all of it
    // By the writer: its piece is over.  After a piece that failed it calls stop() instead, and claims no other.
    void end_piece() { board_->written.store(own_, std::memory_order_release); }
    void stop() { is_claimed_ = true; }
    // By the reader, once the writer has ended: what the writer has claimed and has not written.
    Span unwritten() const;
    // By a reader that gives up: the writer claims no more.  True: it may still write the piece that it has.
    bool close();
    bool is_being_written() const;

  private:
    static constexpr unsigned kCountBits = 31;
    static constexpr uint64_t kReader = 1, kWriter = kReader << kCountBits, kCount = kWriter - 1, kClosed = uint64_t{1} << 63;

    SplitCopy(char* board, uint64_t size, uint64_t step)
        : board_(reinterpret_cast<Board*>(board)), size_(size), piece_(piece_of(size)), pieces_((size + piece_ - 1) / piece_), step_(step) {}
    uint64_t writers_claims() const { return board_->claims.load(std::memory_order_acquire) >> kCountBits & kCount; }

    Board* board_ = nullptr;
    uint64_t size_ = 0, piece_ = 0, pieces_ = 0, step_ = 0;
    uint64_t own_ = 0;   // pieces that this process has claimed
    bool is_claimed_ = false;
};

}  // namespace peerlane

// Every rank combines one share of each piece, and gives the others that result in a second round: no byte is combined twice.
#include "schedules/schedule.h"

namespace peerlane {

namespace {

// Of fewer bytes a second round takes longer than combining them at each rank.  All ranks must decide alike, so only what
// they agree on may count here: not, for instance, how many processors one of them has.
constexpr uint64_t kLongestOneShotOfTwo = uint64_t{16} << 10, kLongestOneShot = uint64_t{32} << 10;

class TwoShot final : public CollectiveSchedule {
  public:
    bool serves(const GroupCall& call, uint32_t ranks) const override {
        const bool has_gain = call.kind == GroupCall::Kind::all_reduce || (call.kind == GroupCall::Kind::reduce && ranks > 2);
        return has_gain && call.size > (ranks == 2 ? kLongestOneShotOfTwo : kLongestOneShot);
    }

    Pattern pattern() const override { return Pattern::combine_and_share; }

    Span moves(const CallPiece& piece, uint32_t round, uint32_t from, uint32_t to) const override {
        if (round == 0) return share(piece, to);
        return has_result(piece.call, to) ? share(piece, from) : Span{};
    }

    bool awaits(const CallPiece& piece, uint32_t round, uint32_t) const override { return round == 0 || has_result(piece.call, piece.rank); }
    bool gives_all_the_same(const GroupCall&) const override { return false; }

  private:
    static bool has_result(const GroupCall& call, uint32_t rank) { return call.kind != GroupCall::Kind::reduce || rank == call.root; }

    // Of the piece, in whole cache lines; the last ranks' shares may be empty.
    static Span share(const CallPiece& piece, uint32_t rank) {
        const Span whole = piece.of(piece.call.size);
        const uint64_t lines = (whole.size + kLine - 1) / kLine, each = (lines + piece.ranks - 1) / piece.ranks * kLine;
        const uint64_t first = std::min(rank * each, whole.size);
        return {whole.first + first, std::min(each, whole.size - first)};
    }
};

constexpr TwoShot kTwoShot;

}  // namespace

const CollectiveSchedule& two_shot = kTwoShot;

}  // namespace peerlane

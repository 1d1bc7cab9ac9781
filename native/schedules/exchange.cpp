// Every rank gives each other one what is for it, in one round, and stores what it gets: barrier, broadcast, all-gather,
// all-to-all and scatter.
#include "schedules/schedule.h"

namespace peerlane {

namespace {

class Exchange final : public CollectiveSchedule {
  public:
    bool serves(const GroupCall& call, uint32_t) const override { return !call.reduces(); }
    Pattern pattern() const override { return Pattern::store; }

    Span moves(const CallPiece& piece, uint32_t, uint32_t from, uint32_t to) const override {
        if (piece.call.is_from_root() && from != piece.call.root) return {};
        return piece.of(piece.part(from, to));
    }

    bool awaits(const CallPiece& piece, uint32_t, uint32_t peer) const override { return !piece.call.is_from_root() || peer == piece.call.root; }
    bool gives_all_the_same(const GroupCall& call) const override { return !call.has_source_parts(); }
};

constexpr Exchange kExchange;

}  // namespace

const CollectiveSchedule& exchange = kExchange;

}  // namespace peerlane

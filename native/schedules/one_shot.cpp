// Every rank gives all that the others combine, in one round, and each that wants a result combines it alone.
#include "schedules/schedule.h"

namespace peerlane {

namespace {

class OneShot final : public CollectiveSchedule {
  public:
    bool serves(const GroupCall& call, uint32_t) const override { return call.reduces(); }
    Pattern pattern() const override { return Pattern::combine; }

    Span moves(const CallPiece& piece, uint32_t, uint32_t from, uint32_t to) const override {
        return has_result(piece.call, to) ? piece.of(piece.part(from, to)) : Span{};
    }

    bool awaits(const CallPiece& piece, uint32_t, uint32_t) const override { return has_result(piece.call, piece.rank); }
    bool gives_all_the_same(const GroupCall& call) const override { return !call.has_source_parts(); }

  private:
    static bool has_result(const GroupCall& call, uint32_t rank) { return call.kind != GroupCall::Kind::reduce || rank == call.root; }
};

constexpr OneShot kOneShot;

}  // namespace

const CollectiveSchedule& one_shot = kOneShot;

}  // namespace peerlane

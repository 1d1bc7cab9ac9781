// One rank's part in one collective: it carries out a schedule over slots or in place, until it must wait, and then from there.
#pragma once
#include <memory>

#include "ranks/barrier_tree.h"
#include "ranks/in_place.h"
#include "ranks/rounds.h"
#include "schedules/schedule.h"
#include "stream/operation.h"

namespace peerlane {

class Collective final : public Stepwise {
  public:
    // Takes over the pins of `call`.
    Collective(std::shared_ptr<Rounds> rounds, GroupCall&& call);
    Collective(Collective&& other) noexcept;
    // Before the call is over: sends the farewell of its rank, as no later round can run.
    ~Collective() override;

    Step advance(Refusal& why) override;
    bool has_come() override;
    uint64_t word() const { return word_; }
    bool is_brief() const override { return longest_ <= kBriefBytes; }
    Touched written() const override { return {call_.dst.host, call_.dst_size}; }
    Touched read() const override { return {call_.src.host, call_.src_size}; }

  private:
    static constexpr uint64_t kBriefBytes = uint64_t{32} << 10;   // a copy takes as long as handing it to another thread
    // `begin` to `take` run once for each round of each piece, but `listen` only in the first round of a call that is in place.
    // `leave` to `await_confirmations` run once for such a call.  A barrier by a tree has no stage but `meet`.
    enum class Stage : uint8_t { call, meet, begin, give, listen, take, leave, confirm, await_confirmations, over };
    enum class Awaits : uint8_t { peer, room, loss, barrier };   // loss: of a peer that has sent its farewell or ended

    CallPiece piece() const { return {call_, rounds_->rank, rounds_->size, number_ * piece_size_, piece_size_}; }
    // The span that one rank gives another one in the present round, or in the first round of the piece.
    Span moves(uint32_t from, uint32_t to) const { return schedule_->moves(piece(), schedule_round_, from, to); }
    Span first_moves(uint32_t from, uint32_t to) const { return schedule_->moves(piece(), 0, from, to); }
    char* source(uint32_t to, const Span& span) const { return call_.src.host + call_.source_offset(to) + span.first; }
    char* result(uint32_t from, const Span& span) const { return call_.dst.host + call_.result_offset(from) + span.first; }
    uint64_t slot_offset(uint32_t to, const Span& span) const;
    const char* source_of(Rounds::Peer& peer, const Span& span) const;
    const char* result_of(Rounds::Peer& peer, const Span& span) const;

    void count_pieces();
    void begin_round();
    void give();
    void show_source();
    void fill_slot();
    void copy_by_slot(SlotPace::Copy copy, char* to, const char* from, uint64_t size);   // and note how long it takes
    void announce();
    bool take(Rounds::Peer& peer, Refusal& why);   // false: it failed, or waits for a loss
    bool read(const Rounds::Peer& peer, char* to, uint64_t address, uint64_t size, Refusal& why);
    void end_bytes();
    void fold(char* to, const Span& span);
    bool keep_own(const CallPiece& piece);
    Stage after_round();
    bool passes_room(Stage next);
    bool listens() const { return in_place_.is_on() && number_ == 0 && schedule_round_ == 0; }
    // A rank whose bytes no peer reads waits for no confirmation.
    bool awaits_confirmations() const { return !call_.is_from_root() || rounds_->rank == call_.root; }
    Rounds::Peer* who_gave_up();
    Step wait_for_loss(Rounds::Peer& peer);
    Step wait_for(Rounds::Peer& peer);
    bool differs(const Rounds::Peer& peer, Refusal& why) const;
    bool differs_in_barrier(const Rounds::Peer& peer, Refusal& why) const;
    Refusal difference(const Rounds::Peer& peer, uint64_t number, uint64_t own, uint64_t theirs) const;
    template <class Work>
    bool touch(Refusal& why, const Work& work);

    std::shared_ptr<Rounds> rounds_;
    GroupCall call_;
    uint64_t word_ = 0, longest_ = 0;           // bytes of the longest part
    const CollectiveSchedule* schedule_ = nullptr;
    InPlace in_place_;
    BarrierTree tree_;
    const Rounds::Peer* awaited_peer_ = nullptr;   // in a barrier by a tree
    uint64_t number_ = 0, pieces_ = 1, piece_size_ = 0;   // of the piece
    uint32_t schedule_round_ = 0;               // of the piece
    bool is_own_kept_ = false;                  // all of this rank's own bytes are in its result
    Rounds::Round round_{}, first_round_{};     // the transport's: the present one, and the first one of the piece
    Stage stage_ = Stage::call;
    Awaits awaits_ = Awaits::peer;
    uint32_t served_ = 0;                       // how many peers, in the present stage
    uint64_t moved_ = 0;                        // bytes in this call of advance()
};

}  // namespace peerlane

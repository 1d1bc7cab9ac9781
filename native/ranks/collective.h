// One rank's part in one collective: it carries out a schedule over slots or in place, until it must wait, and then from there.
#pragma once
#include <memory>

#include "ranks/in_place.h"
#include "ranks/rounds.h"
#include "schedules/schedule.h"
#include "stream/operation.h"

namespace peerlane {

class Collective final : public Stepwise {
  public:
    // Takes the pins over.
    Collective(std::shared_ptr<Rounds> rounds, GroupCall&& call);
    Collective(Collective&& other) noexcept;
    // One that is not over ends the rounds of its rank.
    ~Collective() override;

    Step advance(Refusal& why) override;
    bool has_come() override;
    uint64_t word() const { return word_; }
    bool is_brief() const override { return longest_ <= kBriefBytes; }
    Touched written() const override { return {call_.dst.host, call_.dst_size}; }
    Touched read() const override { return {call_.src.host, call_.src_size}; }

  private:
    static constexpr uint64_t kBriefBytes = uint64_t{32} << 10;   // as long to move as handing it to another thread takes
    // Of each piece: begin to take, once for each round of its schedule.  The others: once for the call, if they are needed.
    enum class Stage : uint8_t { begin, give, listen, take, leave, confirm, await_confirmations, over };
    enum class Awaits : uint8_t { peer, room, loss };   // the loss of a peer that was found to have given up or ended

    CallPiece piece() const { return {call_, rounds_->rank, rounds_->size, number_ * piece_size_, piece_size_}; }
    // What a rank gives another one in the present round, or in the first one of the piece.
    Span moves(uint32_t from, uint32_t to) const { return schedule_->moves(piece(), shot_, from, to); }
    Span first_moves(uint32_t from, uint32_t to) const { return schedule_->moves(piece(), 0, from, to); }
    char* source(uint32_t to, const Span& span) const { return call_.src.host + call_.source_offset(to) + span.first; }
    char* result(uint32_t from, const Span& span) const { return call_.dst.host + call_.result_offset(from) + span.first; }
    uint64_t slot_offset(uint32_t to, const Span& span) const;
    const char* source_of(Rounds::Peer& peer, const Span& span) const;
    const char* result_of(Rounds::Peer& peer, const Span& span) const;

    void count_pieces();
    void begin_round();
    void give();
    void fill_slot();
    void tell();
    bool take(Rounds::Peer& peer, Refusal& why);   // false: it failed, or awaits a loss
    bool read(const Rounds::Peer& peer, char* to, uint64_t address, uint64_t size, Refusal& why);
    void end_bytes();
    void fold(char* to, const Span& span);
    void keep_own();
    Stage after_round();
    bool passes_room(Stage next);
    bool listens() const { return in_place_.is_on() && number_ == 0 && shot_ == 0; }
    // Who gave no bytes has nobody's confirmation to wait for.
    bool awaits_confirmations() const { return !call_.is_from_root() || rounds_->rank == call_.root; }
    Rounds::Peer* who_gave_up();
    Step wait_for_loss(Rounds::Peer& peer);
    Step wait_for(Rounds::Peer& peer);
    bool differs(const Rounds::Peer& peer, Refusal& why) const;
    template <class Work>
    bool touch(Refusal& why, const Work& work);

    std::shared_ptr<Rounds> rounds_;
    GroupCall call_;
    uint64_t word_ = 0, longest_ = 0;           // bytes of the longest part
    const CollectiveSchedule* schedule_ = nullptr;
    InPlace in_place_;
    uint64_t number_ = 0, pieces_ = 1, piece_size_ = 0;   // of the piece
    uint32_t shot_ = 0;                         // the round of the piece
    Rounds::Round round_{}, first_round_{};     // the present one, and the first one of the piece
    Stage stage_ = Stage::begin;
    Awaits awaits_ = Awaits::peer;
    uint32_t served_ = 0;                       // how many peers, in the present stage
    uint64_t moved_ = 0;                        // bytes in this call of advance()
};

}  // namespace peerlane

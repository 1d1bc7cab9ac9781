// One collective of one rank, as rounds: it goes on until it must wait for another rank, and then from there.
#pragma once
#include <memory>
#include <vector>

#include "copy/copy_engine.h"
#include "ranks/rounds.h"
#include "stream/operation.h"

namespace peerlane {

class Collective final : public Stepwise {
  public:
    enum class Kind : uint8_t { nothing, barrier, broadcast, all_gather, all_reduce, reduce, reduce_scatter, all_to_all, scatter,
                                // Messages and parts, in what ranks are told of calls that differ.
                                send, receive, give_part, take_part };

    // What this rank has called; all ranks agree on all but the memory.
    struct Call {
        Kind kind = Kind::nothing;
        uint32_t root = 0;
        unsigned operation = 0;             // of a reduction: its number
        const Reduction* reduction = nullptr;
        Range dst{}, src{};                 // pinned, each for itself
        uint64_t dst_size = 0, src_size = 0;
        uint64_t number = 0;                // how many calls this one is
        uint64_t size = 0;                  // bytes: of the whole, or of one rank's part
        std::vector<uint64_t> at, sizes;    // of parts that differ, by rank: offsets in this rank's memory, and bytes
        std::vector<uint64_t> given_at, given;   // all-to-all: of what this rank gives, which the ranks of a pair agree on

        uint64_t word() const;              // stands for the call
    };
    // Of a call's word: what it was called with.  `size`: 0 if parts differ.
    struct Said {
        Kind kind;
        unsigned operation;
        uint32_t root;
        uint64_t size;
        bool has_parts;
    };
    static Said said(uint64_t word);
    // Whether a rank may end this call before another rank has begun it.
    static bool ends_alone(uint64_t word, uint32_t rank);

    // Takes the pins over.
    Collective(std::shared_ptr<Rounds> rounds, Call&& call);
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
    struct Bytes {
        char* at = nullptr;
        uint64_t size = 0;
    };
    enum class Stage : uint8_t { begin, give, take, over };

    struct Stretch {
        uint64_t first = 0, size = 0;
    };

    uint64_t part_size(uint32_t of) const { return call_.sizes.empty() ? call_.size : call_.sizes[of]; }
    uint64_t part_at(uint32_t of) const { return call_.at.empty() ? of * call_.size : call_.at[of]; }
    bool is_by_pairs() const { return !call_.given.empty(); }
    uint64_t given_size(uint32_t to) const { return is_by_pairs() ? call_.given[to] : part_size(to); }
    uint64_t given_at(uint32_t to) const { return is_by_pairs() ? call_.given_at[to] : part_at(to); }
    void set_pieces(uint64_t longest);
    Stretch piece_of(uint64_t whole) const;           // the present one
    Stretch share_of(uint32_t of) const;              // of the present piece, where each rank combines one
    Stretch shared_part(uint32_t of) const;           // the same in the whole
    Stretch taken_part(uint32_t peer) const;          // of its part, in the present piece
    uint64_t place_of(uint32_t peer) const;           // in a slot, of the bytes for this rank
    bool folds() const;
    bool comes_from_root() const { return call_.kind == Kind::broadcast || call_.kind == Kind::scatter; }
    bool gives() const { return !comes_from_root() || call_.root == rounds_->rank; }
    bool takes_parts() const { return call_.kind == Kind::all_gather || call_.kind == Kind::all_to_all; }   // one of each rank
    bool takes_of(uint32_t peer) const;
    Bytes given_to(uint32_t peer) const;
    Bytes taken_of(uint32_t peer) const;
    const char* source_of(uint32_t peer);             // what it gives this rank
    const char* result_of(uint32_t peer);             // the share that it has combined
    bool is_read_by_calls() const;
    void begin_round();
    void give();
    void keep();
    void combine();
    void tell();
    bool note(Rounds::Peer& peer, Refusal& why);      // what it has told
    bool take(Rounds::Peer& peer, Refusal& why);      // false: it failed, or has to wait
    bool read(const Rounds::Peer& peer, const Bytes& to, const PeerMemory::Bytes& from, Refusal& why);
    Step wait_for_loss(Rounds::Peer& peer);
    void fold(char* to, const Bytes& own);
    bool is_all_in_place() const;
    Rounds::Peer* who_gave_up();                      // of those whose memory was read, and so may hold something else by now
    bool end_round();                                 // false: it was the last one
    template <class Work>
    bool touch(Refusal& why, const Work& work);
    bool has_passed(const Rounds::Peer& peer, Refusal& why) const;

    std::shared_ptr<Rounds> rounds_;
    Call call_;
    uint64_t word_ = 0, longest_ = 0;         // bytes of the longest part
    bool is_split_ = false, is_two_shot_ = false, is_second_shot_ = false;
    bool is_long_ = false;                    // others may read where bytes lie
    bool is_read_ = false;                    // bytes of any rank may be, so a last round says that they have been
    bool is_last_ = false;                    // this is that round
    bool has_heard_ = false;                  // where the bytes of all others lie
    MemoryPlace src_{}, dst_{};               // of a long call: where its bytes and its result lie
    bool in_place_ = false;                   // others read them there
    uint64_t piece_ = 0, pieces_ = 1, piece_size_ = 0;
    Rounds::Round round_{}, first_shot_{};
    Stage stage_ = Stage::begin;
    uint32_t taken_ = 0;                     // of how many peers
    uint64_t moved_ = 0;                     // bytes in this call of advance()
    bool waits_for_room_ = false;
    bool waits_for_loss_ = false;            // of a peer that was found to have given up or ended
};

}  // namespace peerlane

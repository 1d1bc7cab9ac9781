// Messages between two ranks of one machine.  A short message travels in the line that announces it, a longer one in pieces
// through slots of the receiver's memory.  A receiver that can reads a long one in place.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "memory/heap.h"
#include "ranks/farewell.h"
#include "ranks/sequence_lines.h"
#include "ranks/peer_memory.h"

namespace peerlane {

// One rank's end.
class Mail {
  public:
    static constexpr uint64_t kInLine = sizeof(SignalLine::reserved);

    // By `sent` lines the sender announces pieces, by `taken` lines the receiver says that it has read them.  As many slots.
    struct Direction {
        SequenceLines sent, taken;
        const Range slots;          // pinned
        const uint64_t slot;        // bytes of one
        const bool is_local;        // the other rank is in this process
        std::timed_mutex claim_mutex{};   // locked during a message; it guards all that follows
        uint64_t pieces = 0, messages = 0;
        uint64_t calls = 0;         // of a message

        Direction(std::vector<Notify*> of_sent, std::vector<Notify*> of_taken, Range slots, uint64_t slot)
            : sent(std::move(of_sent)), taken(std::move(of_taken)), slots(slots), slot(slot), is_local(sent.of(0).is_local()) {}
        ~Direction() { Heap::get().unpin(slots); }
        Direction(const Direction&) = delete;

        uint64_t longest() const { return sent.depth() * slot; }   // the sender of more bytes waits for the receiver anyway
        uint64_t pieces_of(uint64_t size) const { return size == 0 ? 1 : (size + slot - 1) / slot; }   // of a message through slots
        // Whether a message of `count` pieces behind the first `before` would not wait for the peer; without the mutex.
        bool may_send(uint64_t before, uint64_t count) const;
        bool may_receive(uint64_t before, uint64_t count) const;
    };
    Mail(uint32_t rank, uint32_t peer, pid_t owner, bool must_yield, std::shared_ptr<Farewell> farewell)
        : rank(rank), peer(peer), must_yield(must_yield), farewell(std::move(farewell)), memory(owner) {}

    const uint32_t rank, peer;
    const bool must_yield;                      // this machine has more ranks than processors
    const std::shared_ptr<Farewell> farewell;   // once it is sent, this rank sends and receives no more
    std::unique_ptr<Direction> out, in;         // each from its first message on
    PeerMemory memory;                          // the peer's
    ReadAccess access{};                        // what the peer has confirmed

    std::unique_ptr<Direction>& direction(bool sends) { return sends ? out : in; }
};

class Message final : public Stepwise {
  public:
    // Takes the pin over.
    Message(std::shared_ptr<Mail> mail, bool sends, Range memory, uint64_t size);
    Message(Message&& other) noexcept = default;
    // One that is not over ends all messages of this rank with the peer.
    ~Message() override;

    Step advance(Refusal& why) override;
    bool has_come() override;
    bool is_brief() const override { return size_ <= kBriefBytes; }
    Touched written() const override { return sends_ ? Touched{} : Touched{memory_.host, size_}; }
    Touched read() const override { return sends_ ? Touched{memory_.host, size_} : Touched{}; }

  private:
    static constexpr uint64_t kBriefBytes = uint64_t{32} << 10;
    enum class Stage : uint8_t { begin, piece, until_taken, over };

    bool send_piece(Refusal& why);
    bool receive_piece(Refusal& why);
    template <class Work>
    bool touch(const Work& work, Refusal& why);
    bool move(char* to, const char* from, uint64_t n, Refusal& why);
    bool read(char* to, uint64_t address, uint64_t n, Refusal& why);
    bool is_awaited() const;
    char* slot_of_piece() const;
    bool differs(uint64_t theirs, Refusal& why) const;
    Step wait_for(const SequenceLines& lines, uint64_t number);

    std::shared_ptr<Mail> mail_;
    Mail::Direction* direction_;
    bool sends_, in_place_ = false;
    PeerMemory::Bytes source_{};                 // the peer's bytes, if they can be read in place
    bool waits_for_loss_ = false;                // the peer has given up or ended: the wait reports it
    Range memory_;
    uint64_t size_, moved_ = 0;
    uint64_t message_ = 0, number_ = 0;          // the numbers of the message and of its present piece
    Stage stage_ = Stage::begin;
    const SequenceLines* awaited_lines_ = nullptr;
    uint64_t awaited_number_ = 0;
};

}  // namespace peerlane

// Messages between two ranks of one machine.  The sender leaves a message in slots of the receiver's memory, a short one in the
// line that it records, and a long one where it lies, if the receiver can read it there.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "memory/heap.h"
#include "ranks/farewell.h"
#include "ranks/numbered_lines.h"
#include "ranks/peer_memory.h"

namespace peerlane {

// What one of the two has of it.
class Mail {
  public:
    static constexpr uint64_t kInLine = sizeof(SignalLine::reserved);

    // One way: lines with which the sender tells that a piece is there, and the receiver that it was taken; as many slots.
    struct Way {
        NumberedLines sent, taken;
        const Range slots;          // pinned
        const uint64_t slot;        // bytes of one
        const bool is_beside;       // the other rank is in this process
        std::timed_mutex turn{};    // one message at a time takes numbers
        uint64_t pieces = 0, messages = 0;
        uint64_t calls = 0;         // how many messages were called for

        Way(std::vector<Notify*> of_sent, std::vector<Notify*> of_taken, Range slots, uint64_t slot)
            : sent(std::move(of_sent)), taken(std::move(of_taken)), slots(slots), slot(slot), is_beside(sent.of(0).is_local()) {}
        ~Way() { Heap::get().unpin(slots); }
        Way(const Way&) = delete;

        uint64_t longest() const { return sent.depth() * slot; }   // of more bytes the sender waits for the receiver anyway
    };
    Mail(uint32_t rank, uint32_t peer, pid_t owner, bool must_yield, std::shared_ptr<Farewell> farewell)
        : rank(rank), peer(peer), must_yield(must_yield), farewell(std::move(farewell)), memory(owner) {}

    const uint32_t rank, peer;
    const bool must_yield;                      // there are more ranks here than processors
    const std::shared_ptr<Farewell> farewell;   // this rank does nothing for the peer any more
    std::unique_ptr<Way> out, in;               // each made before its first message
    PeerMemory memory;                          // the peer's
    ReadHere reads_here{};                      // what the peer has found

    std::unique_ptr<Way>& way(bool sends) { return sends ? out : in; }
};

class Message final : public Stepwise {
  public:
    // Takes the pin over.
    Message(std::shared_ptr<Mail> mail, bool sends, Range memory, uint64_t size);
    Message(Message&& other) noexcept = default;
    // One that is not over ends what this rank does for the peer.
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
    Step wait_for(const NumberedLines& lines, uint64_t number);

    std::shared_ptr<Mail> mail_;
    Mail::Way* way_;
    bool sends_, in_place_ = false;
    PeerMemory::Bytes there_{};                  // where the peer's bytes lie, if they can be read there
    bool waits_for_loss_ = false;                // of the peer, which was found to have given up or ended
    Range memory_;
    uint64_t size_, moved_ = 0;
    uint64_t message_ = 0, number_ = 0;          // of the message, and of its present piece
    Stage stage_ = Stage::begin;
    const NumberedLines* awaited_lines_ = nullptr;
    uint64_t awaited_number_ = 0;
};

}  // namespace peerlane

// The calls of a group that native code queues on streams: the order, the posts and the checks of Python's CallOrder (collectives/call_order.py).
#pragma once
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ranks/group_call.h"
#include "ranks/mail.h"
#include "ranks/rounds.h"
#include "stream/event.h"

namespace peerlane {

// The last calls that native code queued in this process, for texts about waits.
void note_queued(uint64_t stream, uint64_t first, uint64_t last, const char* call);
std::string queued_call(uint64_t stream, uint64_t operation);   // empty: not known

class CallQueue {
  public:
    // Calls of one lane run in order.
    using Lane = int64_t;
    static constexpr Lane kCollectives = -1;
    static Lane lane_of(uint32_t peer, bool sends) { return 2 * static_cast<Lane>(peer) + sends; }

    // A call with its memory pinned, until it is queued.
    struct Call {
        GroupCall of;             // the root of a message is its peer
        Range copied{}, copied_to{};   // pinned: what is copied, before the call, to its source, and that source once more
        StreamPtr stream{};       // of the lane; it stops at a failure
        const char* name = "";    // as the program called it; never freed
        uint64_t site = 0;        // 0: not known

        Call() = default;
        Call(Call&& other) noexcept
            : of(std::exchange(other.of, {})), copied(std::exchange(other.copied, {})), copied_to(std::exchange(other.copied_to, {})),
              stream(std::move(other.stream)), name(other.name), site(other.site) {}
        ~Call() { unpin(); }
        void unpin() {
            of.unpin();
            Heap::get().unpin(copied);
            Heap::get().unpin(copied_to);
            of.src = of.dst = copied = copied_to = {};
        }
        bool sends() const { return of.kind == GroupCall::Kind::send; }
        Lane lane() const { return sends() || of.kind == GroupCall::Kind::receive ? lane_of(of.root, sends()) : kCollectives; }
    };

    // What a rank posts of its calls, as collectives/agreement.py lays it out, and where the other ranks do.
    struct Posts {
        uint64_t kept = 0, entry = 0;   // how many calls there is room for, and the bytes of one
        Range mine{};                   // pinned, as the others
        std::vector<Range> theirs{};    // by rank; nothing for this one

        Posts() = default;
        Posts(Posts&& other) noexcept
            : kept(other.kept), entry(other.entry), mine(std::exchange(other.mine, {})), theirs(std::exchange(other.theirs, {})) {}
        ~Posts();
        Posts& operator=(Posts&&) = delete;
    };

    CallQueue(const std::shared_ptr<Rounds>& rounds, Posts&& posts, uint64_t timeout_ns) : rounds_(rounds), posts_(std::move(posts)), timeout_ns_(timeout_ns) {}

    void know_mail(uint32_t peer, bool sends, const std::shared_ptr<Mail>& mail);
    // The text of a call that has this word, with its checksum.
    void know_words(uint64_t word, uint32_t checksum, const std::string& text);
    // The end of the last call of a lane; null: all calls of the lane are over.
    void note_last(Lane lane, std::shared_ptr<Event> last);
    void forget_lasts();

    // This thread's right to queue some calls, while it lives.
    class Turn {
      public:
        explicit Turn(CallQueue& queue) : queue_(queue), lock_(queue.mutex_, std::try_to_lock) {}   // a thread may want several
        // False: nothing has happened, and Python must make the calls: for instance it makes one now, or a rank calls something else.
        bool begin(std::span<Call* const> calls);
        // In the order of begin(), each once.  Returns the end of the call, whose reference is the caller's.
        Mark* queue(Call& call);
        // Behind a call of begin() that cannot be queued: no peer waits for it, nor for a later one.
        void give_up() noexcept;

      private:
        bool claim(std::timed_mutex& mutex);
        bool begin_collective(const Call& call, uint64_t number);
        bool begin_message(const Call& call, uint64_t number);
        void wait_for_earlier(const Call& call);

        CallQueue& queue_;
        std::unique_lock<std::mutex> lock_;
        std::shared_ptr<Rounds> rounds_;
        std::map<Lane, std::shared_ptr<Mail>> mails_;
        std::vector<std::unique_lock<std::timed_mutex>> claims_;
    };

  private:
    static constexpr size_t kMostTexts = 256;
    struct Text {
        uint32_t checksum = 0;
        std::string text;
    };

    bool agrees(uint32_t rank, uint64_t at, uint64_t word, unsigned number_at) const;
    uint64_t* post_at(uint64_t at) const { return reinterpret_cast<uint64_t*>(posts_.mine.host + at); }

    std::mutex mutex_;   // of all that follows; the claims of a group are taken inside it
    const std::weak_ptr<Rounds> rounds_;   // a group that ends lets go of it
    std::map<Lane, std::weak_ptr<Mail>> mails_;
    const Posts posts_;
    const uint64_t timeout_ns_;
    std::map<Lane, std::shared_ptr<Event>> lasts_;
    std::unordered_map<uint64_t, Text> texts_;
};

}  // namespace peerlane

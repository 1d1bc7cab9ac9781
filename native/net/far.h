// Channels to ranks of other machines: operations on the memory and the notifies of a peer that this process cannot map.
//
// A frame goes to a lane.  The target carries out the frames of a lane in their order, and those of different lanes in any.  A
// stream with operations under way has a lane of its own.  The target acknowledges what is over, and checks each frame by
// itself: no frame can name what was not granted to its channel.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "copy/copy_engine.h"
#include "log/log.h"
#include "memory/memory.h"
#include "net/engine.h"
#include "net/frame.h"
#include "net/withheld.h"
#include "ranks/members.h"
#include "stream/far_operation.h"
#include "stream/scheduler.h"

namespace peerlane::net {

class FarChannel;
class FarNode;
struct Placing;
struct FarPeer;
using FarChannelPtr = std::shared_ptr<FarChannel>;

// One operation on a peer's memory.
class FarOp final : public std::enable_shared_from_this<FarOp> {
  public:
    enum class Verb : uint8_t { write, reduce, read, notify };
    struct Block {
        uint64_t remote;
        char* local;
        uint64_t size;
    };

    FarOp(FarChannelPtr channel, Verb verb) : channel(std::move(channel)), verb(verb) {}
    ~FarOp();
    FarOp(const FarOp&) = delete;

    const FarChannelPtr channel;
    const Verb verb;
    uint32_t memory = 0, notify = 0;      // as in Frame
    uint32_t reduction = 0, width = 1;
    bool goes_on = false;                 // its stream goes on after a failure
    uint64_t at = 0, size = 0;
    char* local = nullptr;
    std::vector<Block> blocks;            // instead of `local` and `at`
    std::vector<Range> pins;
    void* keep = nullptr;                 // a Python object
    std::unique_ptr<char[]> copied;       // the bytes of `local`, of a host object that nothing keeps
    StreamPtr stream;                     // null: a thread waits in FarNode::wait
    uint64_t logged_stream = 0, logged_sequence = 0;   // which operation its record is in this process's event log; 0: in none

    // For the checker: `event` becomes a notify, or stays an access and gets its bytes on both machines.
    void describe(log::Event& event, log::Spans& spans);
    bool is_over() const { return over_.load(std::memory_order_seq_cst); }
    const std::optional<Refusal>& failure() const { return failure_; }   // once it is over

  private:
    friend class FarChannel;
    friend struct Sending;
    friend struct Getting;
    // What goes into one frame.
    struct Part {
        uint64_t first_block = 0, blocks = 0;   // 0: bytes of `local`
        uint64_t offset = 0, size = 0;
    };
    Part next_part() const;
    void pack(const Part& part, char* to, bool with_bytes) const;
    void take_blocks(const Part& part, const char* from) const;
    std::atomic<bool> over_{false};
    std::optional<Refusal> failure_;
    // Under the channel's lock.
    bool begun_ = false, posted_ = false;
    uint64_t next_ = 0;                   // the byte, or the block, that the next part begins with
    uint32_t lane_ = 0;
    uint64_t last_ = 0;                   // the sequence number of its last frame, once that is posted
};
using FarOpPtr = std::shared_ptr<FarOp>;

class FarChannel final : public std::enable_shared_from_this<FarChannel> {
  public:
    static constexpr uint32_t kMostFrames = 1024;                  // under way at a time
    static constexpr uint64_t kMostBytes = uint64_t{8} << 20;      // of those that the target may have to keep
    static constexpr uint64_t kMostPlaced = uint64_t{4} << 20;     // of the others: a small frame waits until they have passed
    static constexpr uint64_t kPart = uint64_t{1} << 20;           // bytes of a frame at most, but for a longer block

    // `grants`: what the peer may use, by number.  `lines`: what it may record; they are held.  `withholds`: what it writes is in its
    // place when this end waits for a later record.
    // `members`: of the group whose rank `peer` is at the other end.
    FarChannel(std::vector<Memory> grants, std::vector<Notify*> lines, bool withholds, std::shared_ptr<const Members> members = nullptr,
               uint32_t peer = 0);
    ~FarChannel();
    FarChannel(const FarChannel&) = delete;

    uint64_t number() const { return number_; }   // for the peer's end
    uint64_t secret() const { return secret_; }

    // Let frames for this end come; once, before the peer can know its number.
    void enter();
    // The other end.  `id`: what refusals name it by, not 0.  Throws Failed if there is no way to it.
    void open(const std::string& address, uint64_t process, uint64_t number, uint64_t secret, uint32_t id);
    // This end: it notifies the peer once its operations are over.  Idempotent.
    void close();
    // In event logs: the bank of the other end's notifies, and where its memories lie, by number.
    uint64_t peer_bank() const { return peer_bank_; }
    void set_peer_spans(std::vector<std::vector<log::Span>> spans) { peer_spans_ = std::move(spans); }
    std::vector<log::Span> peer_spans_of(uint32_t memory, uint64_t at, uint64_t size) const;
    bool is_lost() const { return lost_.load(std::memory_order_acquire); }
    std::string why_lost();   // empty: it is not
    std::vector<std::string> transports();

    // Hand over what there is room for; true: all of it.  Called under the scheduler's lock, and without.  The rest of an
    // operation without a stream is handed over when there is room, and nobody calls this again.
    bool post(FarOp& op);

  private:
    friend class FarNode;
    friend struct Sending;
    friend struct Placing;
    friend struct Getting;

    // The sender's side, under `mutex_`.
    struct Sent {
        uint64_t sequence;
        FarOpPtr op;
        uint32_t epoch;
        uint64_t charged;                  // bytes of the credit
        FarOp::Part part;
        bool is_placed;
        bool asked = false, has_arrived = true;  // a read: whether its bytes come, and have come
    };
    struct OutLane {
        uint32_t epoch = 1, refused_epoch = 0;
        uint64_t next = 1, acked = 0;
        uint64_t refused = 0;              // of that epoch
        uint64_t stream = 0;               // the only one that uses it now; 0: an operation without one
        FarWhy why = FarWhy::none;
        uint32_t notify = 0;
        std::deque<Sent> sent;
    };
    void connect(const std::string& address, uint64_t process, uint64_t number, uint64_t secret);
    void announce_open();
    void take_opening(const Frame& frame, const Arrival& arrival);
    uint32_t lane_for(const FarOp& op);
    bool post_part(FarOp& op);
    void settle(uint32_t lane, std::vector<FarOpPtr>& over);       // what has become over in a lane
    void fail_all(FarWhy why);                                     // the peer is lost
    void fail(FarOp& op, FarWhy why, uint32_t notify);
    bool is_settled(const FarOp& op) const;
    void complete(std::unique_lock<std::mutex>& lock, const std::vector<FarOpPtr>& over);   // lets go of the lock
    void give_up();
    void take_read(uint32_t lane, uint64_t sequence);              // the bytes of a read
    void send_closed_if_over();

    // The target's side, under the engine's lock.
    struct Early {                         // a frame that cannot be started yet
        Frame frame;
        uint64_t size;
        std::unique_ptr<char[]> bytes{};   // null: a parcel, or there are none
        void* parcel = nullptr;
    };
    struct Running {
        uint64_t sequence;
        uint32_t epoch;
        uint32_t notify, memory;
        bool goes_on, is_whole;            // whether it may use any byte of the memory
        uint64_t at, size;
        uint64_t logged_stream, logged_sequence;   // of the record, in the sender's event log
        bool over = false;
        FarWhy why = FarWhy::none;
    };
    struct InLane {
        uint64_t next = 1, finished = 0;   // the next to start; the last that is over
        uint32_t epoch = 0;                // of the last refusal
        uint64_t refused = 0;
        FarWhy why = FarWhy::none;
        uint32_t notify = 0;
        bool owes_ack = false, is_advancing = false;
        std::map<uint64_t, Early> early;
        std::deque<Running> running;
    };
    void take(const Frame& frame, const Arrival& arrival);
    bool take_acked(uint32_t lane, uint64_t sequence);
    void take_ack(const Frame& frame, const Arrival& arrival);
    void take_data(const Frame& frame, const Arrival& arrival);
    bool keep(const Frame& frame, const Arrival& arrival);         // false: more than the sender may send
    void drop_early();
    void advance(uint32_t lane);
    bool may_start(const InLane& lane, const Frame& frame) const;
    void start(uint32_t lane, const Frame& frame, const char* bytes, uint64_t size, void* parcel);
    FarWhy start_checked(uint32_t lane, const Frame& frame, const char* bytes, uint64_t size, void*& parcel, bool& goes_on);
    void answer(const Frame& asked, const char* from, uint64_t size, std::unique_ptr<Placing> placing);
    // What came whole, into its place or aside; `range` is given away if it is withheld.  `all`: bytes of the memory.
    FarWhy store_or_withhold(const Frame& frame, uint64_t all, std::unique_ptr<char[]> bytes, uint64_t size, Range& range) const;
    static FarWhy may_combine(const Frame& frame, uint64_t all, const char* bytes, const char* base);
    static FarWhy gather(const Frame& frame, uint64_t all, const char* entries, const char* base, char* into);
    static bool are_inside(const Frame& frame, uint64_t all, const char* entries);
    bool keeps(Placing& placing, uint64_t size);
    void end(uint32_t lane, uint64_t sequence, FarWhy why);        // a running one is over
    void finish(uint32_t lane, uint64_t sequence, FarWhy why);     // and others may start
    FarWhy record(const Running& by);
    void lose_lines();
    void owe_ack(uint32_t lane);
    void send_acks();
    void lose(const char* why);
    void report_lost() const;
    void broken(const char* why);                                  // the peer does not keep to the protocol
    void send(const Frame& frame, const void* data, uint64_t size, Completion* completion);

    std::mutex mutex_;
    std::deque<OutLane> out_;
    std::vector<uint32_t> free_lanes_;
    std::unordered_map<uint64_t, uint32_t> lane_of_;               // by the stream of what is under way
    std::vector<StreamPtr> waiting_;                               // for credits
    std::vector<FarOpPtr> waiting_alone_;                          // without a stream
    uint64_t frames_out_ = 0, bytes_out_ = 0, placed_out_ = 0;
    bool closing_ = false, sent_closed_ = false;

    const uint64_t number_, secret_;
    const std::shared_ptr<const Members> members_;   // null: of no group
    const uint32_t rank_;                            // of the peer, among them
    uint64_t peer_number_ = 0, peer_secret_ = 0;                   // under the engine's lock, with `peer_`
    uint64_t peer_bank_ = 0;                                       // this and the next before the first operation
    std::vector<std::vector<log::Span>> peer_spans_;
    uint32_t id_ = 0;
    std::atomic<bool> lost_{false};
    std::string why_lost_;                                         // under `mutex_`

    std::vector<Memory> grants_;
    std::vector<Notify*> lines_;
    const std::shared_ptr<Withheld> withheld_;                     // null: nothing is
    std::deque<InLane> in_;
    std::vector<uint32_t> owing_;                                  // lanes with something to acknowledge
    bool is_owing_ = false, peer_closed_ = false, is_open_ = false;
    uint64_t kept_bytes_ = 0;              // of what cannot be started yet, or is on its way
    uint64_t unfinished_ = 0;              // frames that have come and are not over
    FarPeer* peer_ = nullptr;
};

// A process of another machine, for the channels to it.
struct FarPeer {
    Peer* peer = nullptr;
    std::string address;
    uint64_t process = 0;   // its number, which only its peers know
    std::vector<FarChannel*> channels;
    uint64_t heard_ns = 0, sent_ns = 0;
    bool lost = false;
    std::string why;   // it is lost
};

// All channels of this process.
class FarNode final : public Handler {
  public:
    static FarNode& get();
    // The engine; made at the first call.
    static Engine& start(const Options& options);

    void arrived(const Arrival& arrival) override;
    void lost(Peer& peer, const char* why) override;
    void tick(uint64_t now_ns) override;
    void idle() override;

    // The number of this process: whoever knows it may say that he is there.
    uint64_t process() const { return process_; }
    void set_unreachable(uint64_t nanoseconds) { unreachable_ns_.store(nanoseconds, std::memory_order_relaxed); }
    // Wait for an operation without a stream, which was posted.
    Outcome wait(FarOp& op, Poll poll);
    void wake();
    static void refuse(const Arrival& arrival);
    void give_back(void* object);
    std::vector<void*> take_returned();
    void deliver_all();                              // what any channel withholds
    bool has_returned() const { return has_returned_.load(std::memory_order_relaxed); }
    uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }   // messages that are not frames of a channel here

  private:
    friend class FarChannel;
    void enter(const FarChannelPtr& channel);      // under `mutex_` of its own
    void owe_acks(FarChannel& channel);
    std::vector<std::shared_ptr<Withheld>> withheld();
    void count_refused() { refused_.fetch_add(1, std::memory_order_relaxed); }
    FarPeer& peer_at(const std::string& address, uint64_t process);  // under the engine's lock, as what follows
    void take_ping(const Frame& frame, const Arrival& arrival);
    void ping(FarPeer& peer);
    void lose(FarPeer& peer, const char* why);
    void drop_if_lost(FarPeer& peer);
    void erase(FarChannel& channel);

    FarNode();
    const uint64_t process_;
    std::mutex mutex_;
    std::unordered_map<uint64_t, FarChannelPtr> channels_;
    std::map<std::string, std::unique_ptr<FarPeer>> peers_;
    std::vector<FarChannelPtr> owing_;
    std::atomic<uint64_t> unreachable_ns_{10'000'000'000}, refused_{0};
    uint64_t ticked_ns_ = 0;
    std::vector<void*> returned_;                // under `mutex_`
    std::atomic<bool> has_returned_{false};
    std::mutex wait_mutex_;
    std::condition_variable wait_;
    std::atomic<uint32_t> asleep_{0};
};

uint64_t random_number();   // of the system: nobody can guess it
uint64_t bank_of(uint64_t process, uint64_t number);   // in event logs, of the notifies of a channel's end: unique among machines

}  // namespace peerlane::net

// The analysis of event logs: docs/design/checker.md has its rules and their reasons.
//
// One thread uses it.  Logs are what other processes wrote: nothing in them is trusted, and no event takes memory without bound.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "check/clock.h"
#include "check/media.h"
#include "check/findings.h"
#include "check/shadow.h"
#include "log/reader.h"

namespace peerlane::check {

struct Pair {
    uint64_t a, b;

    bool operator==(const Pair&) const = default;
};
struct PairHash {
    size_t operator()(const Pair& pair) const { return static_cast<size_t>((pair.a * 0x9e3779b97f4a7c15u ^ pair.b) * 0xff51afd7ed558ccdu >> 7); }
};
template <class Value>
using ByPair = std::unordered_map<Pair, Value, PairHash>;

// An event, at the cursor of its log or in the queue of its stream.
struct Event {
    log::Head head;
    uint64_t words[4];
    const log::Span* spans;
    const log::Rows* rows;
    uint64_t number;   // its position among the events of its process

    uint64_t a() const { return words[0]; }
    uint64_t b() const { return words[1]; }
    uint64_t c() const { return words[2]; }
    uint64_t d() const { return words[3]; }
};

struct Stats {
    uint64_t events = 0, dropped = 0, forgotten = 0, unexplained = 0, cells = 0, accesses = 0, actors = 0, waiting = 0, compactions = 0;
};

// A vector that moves nothing when it grows.
template <class Value>
class Pages {
  public:
    Value& operator[](uint64_t i) { return pages_[i / kPage][i % kPage]; }
    const Value& operator[](uint64_t i) const { return pages_[i / kPage][i % kPage]; }
    uint64_t size() const { return size_; }
    void push_back(const Value& value) {
        if (size_ / kPage == pages_.size()) pages_.push_back(std::make_unique<Value[]>(kPage));
        (*this)[size_++] = value;
    }
    void shrink(uint64_t size) {
        size_ = size;
        pages_.resize((size + kPage - 1) / kPage);
    }

  private:
    static constexpr uint64_t kPage = 16384;
    std::vector<std::unique_ptr<Value[]>> pages_;
    uint64_t size_ = 0;
};

class Analysis {
  public:
    // At most about `limit` bytes: beyond them the oldest history is forgotten, which is counted.
    explicit Analysis(uint64_t limit = uint64_t{768} << 20);
    ~Analysis();
    Analysis(const Analysis&) = delete;

    // The number of the new log, whose times are `shift_ns` later on the clock of the others.  Throws log::BadLog.
    uint32_t add(const std::string& path, bool may_give_back, int64_t shift_ns = 0);
    // The process is dead, or done: nothing will be added to its log.
    void close(uint32_t log);
    // Ends the growth of each log's newest record, which the next poll can read.
    void end_growth();
    // Reads what is there.  Events after `horizon_ns` are left: another process may still publish an earlier one.
    void poll(uint64_t horizon_ns);
    // All logs are over: reads their rest, and judges what is left.
    void finish();

    const std::vector<Finding>& findings();
    const UnwatchedCount& unwatched(Unwatched what) const { return unwatched_[static_cast<size_t>(what)]; }
    Stats stats() const;
    struct LogFacts {
        int32_t pid, rank;
        std::string problem;   // why the log could not be read on
    };
    LogFacts facts(uint32_t log) const;
    // What a line of a log did, as `Runs::verbs`.
    std::vector<std::pair<uint32_t, uint64_t>> verbs_of_lines(uint32_t log) const;

  private:
    // One thread of peerlane's runs the callbacks of all streams, and orders nothing by that: those of a stream are a thread of their own.
    static uint32_t body_of(uint64_t stream) { return EventRef::kBody | static_cast<uint32_t>(stream); }

    static constexpr uint32_t kOld = 1;             // an access that comes before all that is still to come
    static constexpr uint64_t kPatienceNs = 1'000'000'000;
    static constexpr uint64_t kMostRows = 65536, kMostFindings = 10000, kMostRecords = 1024, kMostVersions = 256, kMostFreed = 4096,
                              kMostKeys = uint64_t{1} << 18, kMostActors = uint64_t{1} << 18, kMostIdle = uint64_t{1} << 16, kLongAgo = uint64_t{1} << 20;

    enum class Role : uint8_t { thread, stream, delivery, loose, loose_delivery };

    struct Learned {
        uint64_t number, time_ns;
        uint32_t log, thread;
    };
    struct ActorState {
        Role role;
        uint32_t log;
        uint64_t id = 0;                                          // of the thread or stream; of a delivery: its base
        uint64_t channel = 0;
        uint64_t newest = 0;                                      // the number of its last access or event
        std::deque<Learned> learned;                              // when threads came to know how much of it
        bool has_forgotten_learned = false;
        std::vector<std::pair<uint64_t, uint64_t>> cancelled;
    };

    // What of an access many accesses have in common.
    struct Origin {
        Actor actor;
        uint32_t log, site, thread;
        uint64_t stream, channel;
        log::Kind kind;
        uint8_t op, flags;

        bool operator==(const Origin&) const = default;
    };
    struct OriginHash {
        size_t operator()(const Origin& origin) const;
    };
    struct EdgeHash {
        size_t operator()(const Edge& edge) const;
    };
    struct Access {
        uint32_t origin, event;   // event: of its process, at most 2^32 - 1
        uint64_t number, time_ns;
    };

    struct Collection;
    static constexpr int32_t kNoRank = -1, kManyRanks = -2;
    struct Gate {                    // a collective whose other ranks are perhaps not there yet
        std::shared_ptr<Collection> collection;
        uint32_t rank = 0;
    };
    struct Thread {
        uint32_t log, id;
        Actor actor;
        Past past;
        uint64_t number = 1;
        bool is_published = false;   // somebody knows `number`: the next access needs a new one
        Past snapshot;               // `past` and `number`, if `has_snapshot`
        std::deque<std::pair<uint64_t, Past>> versions;   // what it knew at the end of its last numbers
        bool has_snapshot = false, has_ended = false;
        bool is_relay = false;       // it passes on the past of each post to it, and nothing of its own
        int32_t rank = kNoRank;      // whose channels it made
        uint64_t used = 0;           // the event at which it was used last
        Gate gate;                   // the collective that it is in
        uint64_t gate_event = 0;     // 1 + the event that began it
    };

    struct Stream;
    struct Dependency {
        Stream* stream;
        uint64_t sequence;
        bool joins;                  // what comes before that comes before this
    };
    // The last collective, or the last message of a lane, that a rank gave to a stream.
    struct LastCall {
        uint64_t stream, sequence;
    };
    // A submitted operation that has to wait in the analysis for what it waited for in the program.
    struct Item {
        Event event;
        std::vector<log::Span> spans, pieces;
        std::vector<log::Rows> rows, piece_rows;
        Past giver;                  // of the thread that submitted it, and its own part
        std::vector<Dependency> after;
        bool done = false;           // what it waited for has come
        uint64_t result = 0;         // the number of the record that it consumed
        Past ended;                  // of a callback's body
    };
    struct Version {
        uint64_t sequence;
        Past past;
    };
    struct Group {
        std::vector<Stream*> streams;
        Stream* legacy = nullptr;
    };
    struct Record {
        uint64_t number;
        Past past;
        Actor actor;
        uint64_t epoch;
        EventRef ref;
        Pair line;
    };
    struct Stream {
        uint32_t log;
        uint64_t id;
        Actor actor;
        Past past;
        uint64_t passed = 0, submitted = 0, legacy_seen = 0, legacy_seen_of_it = 0, aborted = 0;
        std::deque<Item> queue;
        std::deque<Version> versions;
        Past giver;                  // what it took from a thread last
        Group* group = nullptr;
        Gate gate;
        uint64_t gate_sequence = 0;
        std::deque<std::pair<uint64_t, uint32_t>> recorded;   // events: sequence and site
        std::map<uint64_t, Record> unnumbered;
        std::vector<Stream*> followers;
        bool is_busy = false, has_gone = false;
    };

    struct Line {
        uint8_t kind = 0;
        uint64_t index = 0;          // 1 + its index in a channel; 0: not known
        bool is_tainted = false;     // a gap: its records are not all known
        std::deque<Record> records;  // that were not consumed
        bool was_reported = false;   // they were reported
        uint64_t consumed = 0;       // the newest record that was
        bool was_consumed = false;
        Actor consumer = 0;
        uint64_t consumer_epoch = 0;
        EventRef consumption, last_record;
        uint64_t record_count = 0, waits = 0;
        uint32_t lost = Finding::kNoCause;   // the finding that a record of it may be lost
        uint32_t log = 0;            // that recorded last
        uint64_t used = 0;           // the event that named it last
    };
    struct Fence {
        Actor actor;
        uint64_t epoch, time_ns;
        Past past;
        Past of, joined;             // the last past that was asked for behind it, and what that is with its own
    };
    struct Sent {                    // a record on a channel, for texts
        Actor actor;
        uint64_t epoch, notify;
        uint64_t brings, fences;     // the event of the loose operation that it brings (0: none); the fences that it is behind
        EventRef ref;
        Pair line;                   // the key of its line
    };
    struct Delivery {
        Actor actor;
        uint64_t newest = 0, submitted = 0;
        Stream* stream = nullptr;
    };
    struct Channel {
        uint32_t log;
        uint64_t number, incoming, outgoing;
        int32_t rank, peer;
        Actor loose, loose_delivery;
        bool is_closed = false;
        uint64_t fences = 0;
        std::deque<Fence> fenced;
        std::map<Actor, Delivery> deliveries;
        std::deque<Sent> sent;
    };
    struct Signal {
        std::map<uint64_t, Record> records;
        std::vector<Stream*> waiting;
        uint64_t used = 0;
    };
    struct Key {
        uint64_t count = 0, used = 0, next = 0, free = 0;   // next: takes of the next post; free: of them that need none
        std::deque<std::pair<uint64_t, Past>> posts;   // all up to a count
        Past all;
    };
    // Messages of the same contents, by the socket that sent them: log << 32 | number.
    struct Messages {
        struct Sender {
            uint64_t count = 0;
            std::deque<Past> newest;
        };
        uint64_t used = 0;
        std::unordered_map<uint64_t, Sender> senders;
    };
    struct Collection {
        Pair key{};
        log::Collective what{};
        uint64_t size = 0, ends = 0, used = 0;
        uint32_t root = 0;
        struct Beginning {
            Past past;
            EventRef ref;
        };
        std::map<uint32_t, Beginning> begun;   // by rank
        std::vector<Stream*> waiting;
    };

    struct Allocation {
        uint64_t size;
        uint32_t log, site;
        uint64_t id;
        bool is_freed = false, is_gone = false;   // gone: its bytes, too, for whoever may have them still
        EventRef ref, freed;
    };
    // What a cache of the program handed out last.
    struct Part {
        uint64_t end;
        EventRef ref;
    };
    struct Retraction {
        uint64_t from, to;
        EventRef ref;
    };
    // A write that a program may poll for: of a few bytes, or of one value throughout; or what a look at such bytes saw.
    struct Word {
        uint64_t low, high;
        uint64_t value;          // of each `width` bytes from `low` on; width 0: not known
        uint8_t width;
        bool is_look, is_loose;
        uint32_t log, thread;
        uint64_t stream, channel, number;
    };
    // Memory that a process reads without an event: any write there may be what one of its threads waits for.
    struct Alias {
        uint64_t low, high;
        uint32_t log, count;
    };
    struct Block {
        std::vector<Word> words; // the newest ones, oldest first
        std::vector<Alias> aliases;
        Shadow shadow;
        std::map<uint64_t, Allocation> allocations;
        std::map<uint64_t, Part> parts;
        std::vector<Retraction> retractions;
        uint32_t freed = 0;
        uint64_t used = 0;
    };
    struct Lease {
        std::vector<log::Span> spans;
    };

    // A loose operation, which its notify brings alone.  That is what the same thread submits next to the stream, which has loose operations only.
    struct LooseWrite {
        static constexpr uint64_t kOwn = 1;   // the id of an actor that is of one operation only
        uint64_t sequence = 0, channel = 0, event = 0;
        uint32_t thread = 0;
        uint32_t first = 0, end = 0;         // its accesses
        std::vector<std::pair<Actor, uint64_t>> brought;   // once the notify has come
    };
    // The last times that a line of the program ran.
    struct Runs {
        static constexpr uint64_t kKept = 64;
        uint64_t count = 0;
        log::Kind kind{};            // of the events that are counted
        uint32_t first = 0;          // its first time
        uint64_t first_ns = 0;
        uint64_t verbs = 0;          // bits: kinds of events, and from kFirstOp on what accesses did
        uint32_t events[kKept];

        static constexpr uint32_t kFirstOp = 48;
    };
    // A process that may use this one's memory and notifies; without a log of this run nobody knows what it does with them.
    struct Sharer {
        uint64_t pid, since_ns;
        bool is_noted = false;              // among the media
    };
    // What its process may see through it from its next event on, unless the alias ends before.
    struct NewAlias {
        uint64_t block, low, high;
        Past shown;
    };
    // A copy of a stream whose bytes the program looks at, perhaps, once it is over.
    struct Look {
        uint64_t block, low, high, stream, number;
    };
    struct Log {
        log::Reader reader;
        const bool may_give_back;
        const log::Record* now = nullptr;   // the next one to take
        bool is_over = false, has_ended = false, has_lost_threads = false;
        uint64_t events = 0, end_ns = 0;
        std::string problem;
        std::unordered_map<uint32_t, std::unique_ptr<Thread>> threads;
        std::unordered_map<uint32_t, uint32_t> bodies;   // threads that run a callback -> what its body is
        std::unordered_map<uint64_t, std::unique_ptr<Stream>> streams;
        std::unordered_map<uint64_t, Group> groups;
        std::unordered_map<uint64_t, Channel> channels;
        std::unordered_multimap<uint64_t, uint64_t> by_outgoing;   // bank -> channels
        std::unordered_set<uint64_t> incoming;                     // banks
        std::unordered_map<uint64_t, Lease> leases;
        uint32_t last_origins[2] = {0, 0};   // which the next accesses often have too
        std::unordered_map<uint64_t, LooseWrite> loose_writes;     // by stream: the last one
        std::map<uint64_t, Record> unnumbered;                     // of threads, to other machines
        std::vector<std::unique_ptr<Runs>> runs;                   // by line
        uint64_t run = 0;                                          // 1 + the last event that counted
        uint64_t vain_ns = UINT64_MAX;                             // since when one of its waits was in vain
        std::vector<Sharer> sharers;
        std::vector<NewAlias> new_aliases;
        Clock heard;                        // as a Past's, of the process: what one of its threads heard, another one may pass on
        uint64_t sent = 0;                  // as `Media::may_hear` notes it
        std::vector<Look> looks;
    };
    enum class Step : uint8_t { taken, blocked };

    struct FindingState {
        uint64_t last_event = 0;
        uint32_t last_log = 0;
        Actor actor = 0;
        uint64_t number = 0;
        Pair help_line{};
        bool was_open = false;       // no wait had taken the helpful record when the second access came
    };
    struct Touch {
        uint32_t access;
        bool is_write;
    };
    // An order that a finding lacks: what comes after `to` is judged as if it were there.
    struct Repair {
        uint32_t cause;
        Actor to;
        Past past;
    };
    // A read before the first write of its bytes: it should have come after the write, and after what the same notify brings.
    struct EarlyRead {
        uint32_t cause;
        Actor reader, writer;
        uint64_t read, written;
    };
    // A read of bytes that nobody had written; `race`: the one with their first write, which came later.
    struct UnwrittenRead {
        uint32_t finding;
        const Block* block;
        uint64_t low, high;
        uint32_t log, site;
        uint32_t race = Finding::kNoCause;
    };
    // Whether a record orders `first` before `second`, and a wait for it was left out.
    // A record of a notify that processes share without a channel.  Who waits for it is known later.
    struct SharedRecord {
        EventRef ref;
        Pair key;
        uint64_t number;
    };
    struct Question {
        uint32_t finding;
        uint32_t from_log, to_log;
        Actor actor;                 // what the record must know, up to `number`; 0: nobody's
        uint64_t number;
        bool is_of_consumption = false;   // of a lost notify: the actor is not known before the wait
        EventRef before;                // the access or record that should have waited
        uint64_t previous;           // the event of the same line's time before
        bool has_record = false;
        EventRef record;
        Pair record_key{};           // the record's line
        uint64_t record_number = 0;
        std::vector<SharedRecord> shared;
        bool is_judged = false, is_skipped = false;
        uint32_t wait_site = 0;
    };

    // merge.cpp
    void run(uint64_t horizon_ns);
    void refill(Log& log);
    Step step(uint32_t log, const Event& event, bool give_up);
    static bool may_unblock(log::Kind kind);
    void read_gap(uint32_t log, const Event& event);
    void note_outside(uint32_t log, const Event& event);

    // order.cpp
    Actor new_actor(Role role, uint32_t log, uint64_t id, uint64_t channel);
    Thread& thread_of(uint32_t log, uint32_t id);
    static constexpr uint32_t kAnyone = 0;
    // An unknown thread of a process that may know more than events show: its knowledge orders nothing, and may excuse.
    Thread& anyone_of(uint32_t log);
    Stream& stream_of(uint32_t log, uint64_t id);
    uint64_t epoch_of(Thread& thread);
    const Past& give(Thread& thread, uint64_t time_ns);
    const Past& give_for(Thread& thread);
    void learn(Thread& thread, const Past& past, uint32_t via, uint64_t time_ns);
    void hear(uint32_t log, const Clock& heard, uint64_t time_ns);
    Past everything_of(uint32_t log) const;
    Past everything() const;
    struct Came {
        Past past;
        uint32_t via;
    };
    static const Past* version_at(const Stream& stream, uint64_t sequence);
    Came past_at(const Stream& stream, uint64_t sequence, const EventRef& to);
    uint32_t edge(const EventRef& from, const EventRef& to);
    void submit(uint32_t log, const Event& event);
    void submit_loose(uint32_t log, const Event& event, const Past& giver);
    void bring_loose(uint32_t log, const Event& notify);
    void learn_all(Thread& thread, uint64_t time_ns);
    bool advance(Stream& stream, uint64_t over, bool give_up, int depth = 0);
    bool is_ready(Stream& stream, Item& item, bool must, bool give_up, int depth);
    void perform(Stream& stream, const Event& event, const Item* item, const Past& giver, const std::vector<Dependency>& after);
    void passed(Stream& stream, uint64_t sequence);
    void settle();
    void note_version(Stream& stream, uint64_t sequence);
    Step synchronize(Thread& thread, const Event& event, bool give_up);
    void abort(uint32_t log, const Event& event);
    void cancel(uint32_t log, const Event& event);
    void post(uint32_t log, const Event& event, const Past& past);
    void send_message(uint32_t log, const Event& event, const Past& past);
    Past past_of_message(uint32_t log, const Event& event);
    static Pair post_key(uint32_t log, const Event& event);
    Step take(Thread& thread, const Event& event, bool give_up);
    Step take_process(Thread& thread, const Event& event, bool give_up);
    static bool is_send(const Event& collective);
    std::map<uint64_t, LastCall>& last_calls_of(uint32_t log, const Event& collective);
    std::vector<Dependency> earlier_calls(uint32_t log, const Event& collective);
    void note_call(uint32_t log, const Event& collective);
    Gate begin_collective(uint32_t log, const Event& event, Past past);
    bool is_complete(const Gate& gate) const;
    Step begin_collective_of(Thread& thread, const Event& event, bool give_up);
    Step end_collective_of(Thread& thread, const Event& event, bool give_up);
    Past end_collective(const Gate& gate, const EventRef& ref);
    Item* item_at(Stream& stream, uint64_t sequence);

    // notifies.cpp
    Line& line_of(uint32_t log, uint64_t bank, uint64_t line);
    Signal& signal_of(uint64_t number);
    void share_line(uint32_t log, uint64_t own, uint64_t bank, uint64_t line);
    Record record_by(uint32_t log, const Event& event, Actor actor, uint64_t epoch, const Past& past);
    void put(Line& line, Record&& record, uint64_t number, uint64_t bank, uint64_t index);
    bool has_record(const Line& line, uint64_t number) const;
    Step take_came(const Event& event, bool give_up);
    Past consume(uint32_t log, uint64_t bank, Line& line, uint64_t number, Actor actor, uint64_t epoch, const EventRef& ref);
    void reset(Line& line, uint64_t number, Actor actor, uint64_t epoch, const EventRef& ref);
    Channel* channel_of(uint32_t log, uint64_t number);
    Past recorder_of(uint32_t log, uint64_t bank) const;
    void fence(Channel& channel, Past& past, Actor actor, uint64_t epoch, uint64_t time_ns);
    static Fence* fence_before(Channel& channel, Actor actor, const Past& past);
    static const Past& behind_fence(Channel& channel, Actor actor, const Past& past);
    void note_vain(uint32_t log, const Event& event);
    void add_vain(uint32_t log, const Item& wait);
    void note_vain_of_killed();
    void judge_vain();
    void judge_lines();

    // memory.cpp
    Block& block_of(uint64_t id);
    void touch(uint32_t log, const Event& event, Actor actor, uint64_t number, const Past& past);
    void report_unwritten(uint32_t log, const Event& event, Block& block, uint64_t low, uint64_t high, uint64_t bytes, uint64_t unwritten, uint32_t writer);
    void touch_spans(uint32_t log, const Event& event, const log::Span* spans, const log::Rows* rows, uint32_t count, Actor reader, Actor writer,
                     uint64_t number, const Past& past);
    template <class Change>
    static void each_range(const log::Span& span, const log::Rows* rows, const Change& change);
    uint32_t new_access(uint32_t log, const Event& event, Actor actor, uint64_t number);
    uint32_t origin_of(uint32_t log, const Origin& origin);
    uint32_t with_reader(uint32_t read, uint32_t access, const Past& past, Actor actor, Actor also);
    template <class Visit>
    void each_reader(uint32_t read, const Visit& visit) const;
    bool comes_before(uint32_t access, const Past& past, Actor actor, Actor also) const;
    bool is_over(uint32_t access, const Past& past) const;
    Actor delivery_of(Channel& channel, Actor base);
    void allocated(uint32_t log, const Event& event);
    void reused(uint32_t log, const Event& event);
    void lend_again(const Event& event);
    void freed(uint32_t log, const Event& event, Actor by, const Past& past);
    void moved(const Event& event);
    void source_changed(uint32_t log, const Event& event);
    void touched_early(uint32_t log, const Event& event);
    void note_unwatched(Unwatched what, uint32_t log, uint64_t count, uint32_t site);
    void taken_back(uint32_t log, const Event& event, Actor by, const Past& past);
    Missing missing_before_end(const Origin& use, const EventRef& used, const EventRef& end) const;
    void check_dead(uint32_t access, const Block& block, uint64_t low, uint64_t high, bool is_write, const Past& past);
    static constexpr size_t kMostWords = 16;
    void note_word(Block& block, const Word& word);
    static constexpr size_t kMostAliases = 64;
    bool has_aliases_ = false;
    void note_alias(uint32_t log, const Event& event);
    void end_alias(uint32_t log, const Event& event);
    bool writes_behind_alias(const Event& event);
    Past shown_by(const Block& block, uint64_t low, uint64_t high, const EventRef& ref);
    void show(const Block& block, const Word& word, const Event& event, Actor base, Actor writer, const Past& past);
    void see(uint32_t log, const Event& event, const Block& block, const log::Span& span, uint64_t number);
    void see_what_came(const Thread& thread, const Event& event);
    void look(Thread& thread, const Event& event);
    void look_in(Thread& thread, const Event& event, Block& block, uint64_t low, uint64_t high);
    bool is_known(const Word& word, const Thread& thread) const;
    Past past_of(const Word& word, const EventRef& look, uint64_t number);
    static std::vector<uint32_t> writers_of(const Block& block, uint64_t low, uint64_t high);
    void join_writer(uint32_t writer, Past& past, const EventRef& ref);
    void acquire_word(const log::Span& span, Past& past, const EventRef& ref);
    void check_end(const Block& block, uint64_t low, uint64_t high, const EventRef& ref, Actor by, const Past& past, bool is_gone, bool own_only);

    // findings.cpp
    EventRef ref_of(uint32_t log, const Event& event, bool is_write, bool is_delivery = false) const;
    EventRef ref_of(uint32_t access, bool is_write) const;
    void race(Touch first, Touch second, Block& block, uint64_t low, uint64_t high, const Past& past, bool is_first_write = false);
    struct Reported {
        uint32_t number;     // of the finding; kNoCause: there are too many
        Finding* fresh;      // to be filled in; null if it was only counted
    };
    Reported report(FindingKind kind, const EventRef& first, const EventRef& second, bool certain, Missing missing, uint32_t cause);
    bool is_allocated_by(const Block& block, uint64_t at, uint32_t log) const;
    void locate(Finding& finding, const Block& block, uint64_t low, uint64_t high) const;
    void locate_part(Finding& finding, const Block& block, uint64_t low, uint64_t high) const;
    bool is_excusable(Actor actor, uint64_t number, const EventRef& first, const EventRef& second, const Clock& heard, bool is_end = false);
    Clock heard_by(const EventRef& ref) const;
    bool has_log_of(uint32_t log, uint64_t pid) const;
    bool shares_with_unseen(uint32_t log);
    bool was_cancelled(const ActorState& actor, uint64_t number) const;
    Missing missing_between(const Origin& first, const Origin& second, const EventRef& before, const EventRef& after) const;
    EventRef ranked(EventRef ref) const;
    int32_t rank_of(const EventRef& ref) const;
    bool have_channel(const EventRef& one, const EventRef& other) const;
    void help(uint32_t number);
    bool is_aside(const Finding& finding) const;
    void specify(Finding& finding);
    bool find_help(Finding& finding, FindingState& state, const Channel& channel) const;
    bool is_open(const EventRef& record, const Pair& key) const;
    void note_late_sync(const EventRef& sync, uint64_t stream, uint64_t sequence);
    void note_unwaited(Finding& finding, const EventRef& record, uint32_t waiter) const;
    void note_late_wait(Finding& finding, const FindingState& state) const;
    bool runs_again(const Finding& finding) const;
    bool lacks_fence(const EventRef& ref) const;
    static bool brings_loose(const Sent& sent, const EventRef& ref);
    bool is_telling(const Edge& edge) const;
    void note_last_order(Finding& finding, Actor actor, const Past& past);
    void note_earlier_wait(Finding& finding) const;

    // causes.cpp
    void note_run(uint32_t log, const Event& event);
    const Runs* runs_of(uint32_t log, uint32_t site) const;
    static bool counts_runs(const Runs& runs, const EventRef& ref);
    uint64_t nth(const EventRef& ref) const;
    uint64_t previous_run(const EventRef& ref) const;
    Past known_at(Actor actor, uint64_t number) const;
    uint32_t via_of(Actor by, uint64_t number, const Past& past, Actor to, uint64_t to_number) const;
    Actor holder_of(Actor actor) const;
    void repair(uint32_t cause, Actor from, uint64_t number, Actor to);
    void repair_early_read(uint32_t cause, Touch read, Touch write, bool is_first_write);
    void apply_repairs();
    void ask_of_race(uint32_t finding, uint32_t first, uint32_t second, bool first_wrote, bool second_wrote);
    void ask(Question question);
    void take_answer(Question& question, const Pair& key, const Record& record) const;
    void take_record(Question& question, const SharedRecord& record) const;
    void hear_record(const Pair& key, const Record& record);
    void hear_wait(const Record& record, const EventRef& wait);
    void judge_wait(Question& question) const;
    bool lacks_other_wait(const Question& question) const;
    void answer_questions();
    void add_elsewhere(Finding& unwritten, const EventRef& ref, uint64_t from, uint64_t to) const;
    void find_elsewhere(Finding& unwritten, const Block& block) const;
    void find_collision(Finding& unwritten) const;
    void note_late_write(uint32_t race, const Block& block, uint64_t low, uint64_t high, const EventRef& read);
    bool fold_unwritten(uint32_t finding);
    void set_cause(uint32_t finding, uint32_t cause);
    bool is_behind_skipped(uint32_t finding, const SkippedWait& skipped) const;
    void fold();

    // compact.cpp
    void compact_if_large();
    void compact();
    void forget_history();
    void forget_idle();
    void forget_channels(uint32_t log, const std::vector<bool>& is_used, std::vector<Actor>& gone);
    void forget_actors(const std::vector<bool>& is_used);
    template <class Visit>
    void each_past(const Visit& visit);

    const uint64_t limit_;
    std::vector<std::unique_ptr<Log>> logs_;
    std::vector<uint32_t> unread_;                   // logs of which there may be more
    std::vector<ActorState> actors_;
    std::vector<Actor> free_actors_;
    Pages<Access> accesses_;
    std::vector<Origin> origins_;
    std::unordered_map<Origin, uint32_t, OriginHash> origin_numbers_;
    std::vector<Edge> edges_;
    std::unordered_map<Edge, uint32_t, EdgeHash> edge_numbers_;
    std::vector<uint32_t> sets_;                     // a count, then that many accesses
    std::pair<uint64_t, uint32_t> last_set_{0, 0};   // (set << 32 | access) -> set
    std::unordered_map<uint64_t, std::unique_ptr<Block>> blocks_;
    uint64_t last_block_id_ = 0;
    Block* last_block_ = nullptr;
    std::deque<std::pair<uint64_t, uint64_t>> freed_allocations_;
    ByPair<Line> lines_;
    struct Vain {                    // a wait for a notify, in a deadlock
        Pair line;
        uint32_t log;
        EventRef ref;
    };
    std::vector<Vain> vain_;
    ByPair<bool> awaited_;           // lines for which an operation waited then
    std::unordered_map<uint64_t, Signal> signals_;
    Media media_;
    ByPair<Key> keys_;
    std::unordered_map<uint64_t, Messages> messages_;   // by their contents
    ByPair<std::shared_ptr<Collection>> collections_;
    ByPair<uint64_t> calls_;   // sends, or receives, of a pair of ranks so far
    std::map<std::tuple<uint32_t, uint64_t, uint32_t>, std::map<uint64_t, LastCall>> last_calls_;   // by log, group and rank; then by lane
    std::deque<Stream*> ready_;
    std::unordered_set<uint64_t> setup_;   // lines that make channels or lend memory: log << 32 | site
    uint64_t events_ = 0, forgotten_ = 0, unexplained_ = 0, compactions_ = 0, next_compaction_ = uint64_t{1} << 21, next_actors_ = 4096, next_idle_ = kMostIdle;
    UnwatchedCount unwatched_[kUnwatched];
    bool has_lost_keys_ = false, has_lost_lines_ = false, was_finished_ = false;

    std::vector<Finding> findings_;
    std::vector<FindingState> finding_states_;
    std::map<std::vector<uint64_t>, size_t> by_lines_;
    std::vector<Repair> repairs_;                    // of this event
    std::deque<EarlyRead> early_reads_;
    std::vector<UnwrittenRead> unwritten_reads_;
    std::vector<Question> questions_;
    std::vector<uint32_t> unsynchronized_;           // findings that lack a synchronization, which may come too late
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> waits_of_;   // log and line of a record, and the log of its wait -> the wait's line
    std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint64_t>, uint32_t> ends_;   // log and line of an end, log and channel of a use -> finding
};

template <class Visit>
void Analysis::each_reader(uint32_t read, const Visit& visit) const {
    if (read & Cell::kSet) {
        const uint32_t at = read & ~Cell::kSet;
        for (uint32_t i = 0; i < sets_[at]; ++i) visit(sets_[at + 1 + i]);
    } else if (read > kOld) {
        visit(read);
    }
}

}  // namespace peerlane::check

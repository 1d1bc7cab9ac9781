// Collectives in rounds, and messages: threads as ranks get what one thread computes, in all schedules and on streams, and all of them are
// told when one of them gives up.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "copy/reduction.h"
#include "ledgers.h"
#include "memory/memory.h"
#include "ranks/collective.h"
#include "ranks/mail.h"
#include "ranks/calling_thread.h"
#include "streams.h"

using namespace streams;

namespace {

using Kind = GroupCall::Kind;

uint32_t device;

// Ranks of this process, as the threads that use them.
class Ranks {
  public:
    // `owner`: the process in which the ranks look for one another's memory.
    Ranks(uint32_t size, uint64_t long_slot, bool must_yield, pid_t owner = getpid()) : size(size) {
        const uint64_t bytes = Rounds::bytes(long_slot);
        for (uint32_t rank = 0; rank < size; ++rank) memories_.push_back(Memory::allocate(device, bytes, true));
        // lines_[to][from]
        for (uint32_t to = 0; to < size; ++to) {
            lines_.emplace_back(size);
            for (auto& from : lines_.back())
                from = std::make_shared<ChannelLines>(NotifyKind::binary, Rounds::kLines, device, nullptr);
        }
        for (uint32_t rank = 0; rank < size; ++rank) {
            std::vector<Rounds::Peer> peers;
            for (uint32_t step = 1; step < size; ++step) peers.push_back({.rank = (rank + step) % size, .memory = PeerMemory(owner)});
            const auto farewell = std::make_shared<Farewell>(std::vector<std::shared_ptr<ChannelLines>>{});
            rounds.push_back(std::make_shared<Rounds>(rank, size, memories_[rank].pin(), long_slot, std::move(peers), must_yield, farewell));
            for (uint32_t step = 1; step < size; ++step) {
                const uint32_t peer = (rank + step) % size;
                rounds.back()->connect(peer, memories_[peer].pin(), held(*lines_[rank][peer]), held(*lines_[peer][rank]));
                farewell->add(lines_[peer][rank]);
            }
        }
    }
    template <class Work>
    void run(const Work& work) const {
        std::vector<std::thread> threads;
        for (uint32_t rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { work(rank); });
        for (std::thread& each : threads) each.join();
    }

    const uint32_t size;
    std::vector<std::shared_ptr<Rounds>> rounds;

  private:
    static Rounds::Lines held(ChannelLines& lines) {
        Rounds::Lines all{};
        for (uint32_t i = 0; i < Rounds::kLines; ++i) {
            all[i] = &lines.at(i);
            all[i]->hold();
        }
        return all;
    }

    std::vector<Memory> memories_;
    std::vector<std::vector<std::shared_ptr<ChannelLines>>> lines_;
};

// A rank's memory for a call, and what it must hold in the end.
struct Job {
    Kind kind;
    uint32_t root;
    uint64_t count;   // elements of a part
    bool in_place;
};

uint32_t element(uint32_t rank, uint64_t at) { return static_cast<uint32_t>(at * 2654435761u) ^ (rank + 1) * 40503u; }

uint64_t parts_of(Kind kind, uint32_t size, bool into) {
    const bool many_into = kind == Kind::all_gather || kind == Kind::all_to_all;
    const bool many_from = kind == Kind::reduce_scatter || kind == Kind::all_to_all || kind == Kind::scatter;
    return (into ? many_into : many_from) ? size : 1;
}

uint32_t expected(const Job& job, uint32_t rank, uint32_t size, uint64_t at) {
    const uint64_t part = at / job.count, within = at % job.count;
    uint32_t sum = 0;
    switch (job.kind) {
        case Kind::broadcast: return element(job.root, at);
        case Kind::all_gather: return element(static_cast<uint32_t>(part), within);
        case Kind::all_to_all: return element(static_cast<uint32_t>(part), rank * job.count + within);
        case Kind::scatter: return element(job.root, rank * job.count + at);
        case Kind::reduce_scatter:
            for (uint32_t each = 0; each < size; ++each) sum += element(each, rank * job.count + at);
            return sum;
        default:
            for (uint32_t each = 0; each < size; ++each) sum += element(each, at);
            return sum;
    }
}

Range range_of(const Area& area) {
    CHECK(Heap::get().pin(area.extent));
    return {area.host, area.extent, area.size, device};
}

class Called {
  public:
    // `is_host`: its memory is told as host memory.
    Called(const Job& job, uint32_t rank, uint32_t size, bool is_host = false) : job_(job), rank_(rank), size_(size), is_host_(is_host) {
        const uint64_t from = parts_of(job.kind, size, false) * job.count, into = parts_of(job.kind, size, true) * job.count;
        src_ = area(device, std::max<uint64_t>(4 * from, 4));
        dst_ = area(device, std::max<uint64_t>(4 * into, 4));
        into_ = into;
        auto* const words = reinterpret_cast<uint32_t*>(src_.host);
        for (uint64_t at = 0; at < from; ++at) words[at] = element(rank, at);
        memset(dst_.host, 0xEE, dst_.size);
        const bool may_be_in_place = job.kind == Kind::all_reduce || job.kind == Kind::reduce;
        if (job.in_place && may_be_in_place) memcpy(dst_.host, src_.host, 4 * from);
        is_in_place_ = job.in_place && may_be_in_place;
    }
    ~Called() {
        src_.close();
        dst_.close();
    }
    Called(const Called&) = delete;

    GroupCall call() const {
        GroupCall call{.kind = job_.kind, .root = job_.root, .size = job_.kind == Kind::barrier ? 0 : 4 * job_.count};
        const bool is_root = rank_ == job_.root;
        if (job_.kind == Kind::all_reduce || job_.kind == Kind::reduce || job_.kind == Kind::reduce_scatter)
            call.reduction = &reduction_of(Element::uint32, Combine::sum);
        if (job_.kind == Kind::barrier) return call;
        const bool writes = !(job_.kind == Kind::broadcast && is_root) && !(job_.kind == Kind::reduce && !is_root);
        const bool reads = !(job_.kind == Kind::broadcast || job_.kind == Kind::scatter) || is_root;
        if (writes || is_in_place_) call.dst = range(dst_);
        if (reads) call.src = range(is_in_place_ ? dst_ : src_);
        call.dst_size = dst_.size;
        call.src_size = is_in_place_ ? dst_.size : src_.size;
        return call;
    }
    Range range(const Area& area) const { return is_host_ ? Range{.host = area.host} : range_of(area); }
    void check() const {
        if (job_.kind == Kind::barrier || (job_.kind == Kind::broadcast && rank_ == job_.root) ||
            (job_.kind == Kind::reduce && rank_ != job_.root))
            return;
        const auto* const words = reinterpret_cast<const uint32_t*>(dst_.host);
        for (uint64_t at = 0; at < into_; ++at) CHECK(words[at] == expected(job_, rank_, size_, at));
    }

  private:
    const Job job_;
    const uint32_t rank_, size_;
    const bool is_host_;
    Area src_, dst_;
    uint64_t into_ = 0;
    bool is_in_place_ = false;
};

Job drawn(std::mt19937_64& random, uint32_t size) {
    constexpr Kind kKinds[] = {Kind::barrier, Kind::broadcast, Kind::all_gather, Kind::all_reduce, Kind::reduce,
                               Kind::reduce_scatter, Kind::all_to_all, Kind::scatter};
    constexpr uint64_t kCounts[] = {1, 3, 12, 13, 255, 2048, 5000, 40'000, 300'000};
    return {.kind = kKinds[random() % std::size(kKinds)], .root = static_cast<uint32_t>(random() % size),
            .count = kCounts[random() % std::size(kCounts)], .in_place = random() % 2 == 0};
}

// Each rank draws the same calls; where they wait is drawn by each for itself.
void ranks_get_what_one_thread_computes(uint64_t seed, uint32_t size, unsigned calls, bool on_streams) {
    constexpr pid_t kNobody = 0;   // then all bytes go through slots
    const Ranks ranks(size, uint64_t{16} << 10, true, seed % 3 == 0 ? kNobody : getpid());
    ranks.run([&](uint32_t rank) {
        std::mt19937_64 same(seed), own(seed ^ rank);
        const StreamPtr on = stream(device);
        for (unsigned i = 0; i < calls; ++i) {
            const Job job = drawn(same, size);
            const Called called(job, rank, size, own() % 3 == 0);
            Collective collective(ranks.rounds[rank], called.call());
            Collective::Step step{};
            Refusal why{};
            bool is_over = !on_streams && own() % 4 != 0 && run_in_calling_thread(collective, true, own() % 100'000, step, why);
            if (!is_over) {
                engine().submit(*on, {.kind = OpKind::stepwise, .timeout_ns = 0, .extra = new Collective(std::move(collective))});
                finish(*on);
            }
            called.check();
        }
        close(*on);
    });
}

// Who gives up before its turn, fails, or is cancelled tells the others.
void a_rank_that_gives_up_ends_the_waits_of_the_others() {
    const Ranks ranks(3, uint64_t{64} << 10, true);
    ranks.run([&](uint32_t rank) {
        const StreamPtr on = stream(device);
        if (rank == 1) {
            Collective never(ranks.rounds[rank], {.kind = Kind::barrier});
        } else {
            engine().submit(*on, {.kind = OpKind::stepwise, .extra = new Collective(ranks.rounds[rank], {.kind = Kind::barrier})});
            CHECK(engine().synchronize(*on, Deadline::in(kPatience), {}) == Outcome::reached);
            const FailurePtr failure = engine().take_failure(*on);
            CHECK(failure && failure->refusal.why == Why::waits_for_lost);
        }
        close(*on);
    });
}

// A root that did not wait is past its call when the other one comes with another.
void calls_that_differ_are_reported_to_who_comes_later() {
    const Ranks ranks(2, uint64_t{64} << 10, true);
    Refusal why{};
    Collective::Step step{};
    const Called root({Kind::broadcast, 0, 4, false}, 0, 2);
    Collective broadcast(ranks.rounds[0], root.call());
    CHECK(run_in_calling_thread(broadcast, true, 0, step, why) && step == Collective::Step::over);
    Collective barrier(ranks.rounds[1], {.kind = Kind::barrier, .number = 1});
    CHECK(!run_in_calling_thread(barrier, true, 1'000'000'000, step, why) && step == Collective::Step::failed);
    CHECK(why.why == Why::calls_differ && why.calls.peer == 0 && why.calls.rank == 1);
    const GroupCall::Summary their_summary = GroupCall::summary(why.calls.theirs);
    CHECK(their_summary.kind == Kind::broadcast && their_summary.size == 16 && their_summary.root == 0 && !their_summary.has_parts);
    CHECK(GroupCall::summary(why.calls.own).kind == Kind::barrier);
}

// In a tree a rank looks at its neighbours alone: whichever of the two is later finds the difference.
void a_barrier_by_a_tree_reports_a_call_that_differs(bool barrier_is_first) {
    constexpr uint32_t kRanks = 9;
    const Ranks ranks(kRanks, uint64_t{64} << 10, true);
    const auto run = [](Collective& collective, Refusal& why) {
        Collective::Step step{};
        (void)run_in_calling_thread(collective, true, 0, step, why);
        return step;
    };
    const auto barrier = [&](uint32_t rank, uint64_t number) { return Collective(ranks.rounds[rank], {.kind = Kind::barrier, .number = number}); };
    Refusal why{};
    Collective first = barrier(1, 1);
    if (barrier_is_first) CHECK(run(first, why) == Collective::Step::waits);
    const Called root({Kind::broadcast, 0, 4, false}, 0, kRanks);
    GroupCall call = root.call();
    call.number = 1;
    Collective broadcast(ranks.rounds[0], std::move(call));
    CHECK(run(broadcast, why) == Collective::Step::over);
    Collective second = barrier(0, 2);
    CHECK(run(barrier_is_first ? second : first, why) == Collective::Step::failed);
    CHECK(why.why == Why::calls_differ && why.calls.number == 1 && why.calls.rank == !barrier_is_first && why.calls.peer == barrier_is_first);
    const Kind own = GroupCall::summary(why.calls.own).kind, theirs = GroupCall::summary(why.calls.theirs).kind;
    CHECK(own == (barrier_is_first ? Kind::broadcast : Kind::barrier) && theirs == (barrier_is_first ? Kind::barrier : Kind::broadcast));
}

// The parent answers, and announces its next round, after its child has looked for the answer and before it looks for another call.
void a_parent_that_answers_and_goes_on_is_not_accused() {
    constexpr uint32_t kRanks = 9;
    constexpr uint64_t kCall = 1, kWord = 7;
    for (const bool answers : {false, true}) {
        const Ranks ranks(kRanks, uint64_t{64} << 10, true);
        Rounds &parent = *ranks.rounds[0], &child = *ranks.rounds[1];
        BarrierTree tree;
        tree.begin(child);
        Rounds::Peer* const awaited = tree.advance(child, kCall);
        CHECK(awaited && awaited->rank == 0);
        if (answers) Rounds::announce_barrier(parent.peer(1), parent.next_barrier(), kCall);
        parent.announce(parent.peer(1), parent.next(false), kWord, nullptr, 0);
        CHECK(tree.word_instead(child, *awaited, kCall) == (answers ? std::nullopt : std::optional(kWord)));
        CHECK((tree.advance(child, kCall) == nullptr) == answers);
    }
}

// Rounds that a slow rank has not read yet are not written over: the root waits.
void a_root_does_not_run_away_from_a_slow_rank() {
    const Ranks ranks(2, uint64_t{64} << 10, true);
    for (const uint64_t count : {uint64_t{4}, uint64_t{9000}}) {
        unsigned ahead = 0;
        std::vector<std::unique_ptr<Called>> held;
        std::vector<std::unique_ptr<Collective>> calls;
        Refusal why{};
        Collective::Step step{};
        while (ahead < 100) {
            held.push_back(std::make_unique<Called>(Job{Kind::broadcast, 0, count, false}, 0, 2));
            calls.push_back(std::make_unique<Collective>(ranks.rounds[0], held.back()->call()));
            if (!run_in_calling_thread(*calls.back(), true, 0, step, why)) break;
            ++ahead;
        }
        CHECK(ahead <= Rounds::kDepth && step == Collective::Step::waits);
        std::thread later([&] { CHECK(run_in_calling_thread(*calls.back(), true, 60'000'000'000, step, why)); });
        for (unsigned i = 0; i <= ahead; ++i) {
            const Called called({Kind::broadcast, 0, count, false}, 1, 2);
            Refusal own_why{};
            Collective::Step own_step{};
            Collective collective(ranks.rounds[1], called.call());
            CHECK(run_in_calling_thread(collective, true, 60'000'000'000, own_step, own_why));
            called.check();
        }
        later.join();
    }
}

// Two ranks, and what each has of their mail.
struct Pair {
    static constexpr uint32_t kSlots = 3;

    explicit Pair(uint64_t slot, pid_t owner = getpid()) {
        for (auto& text : lines)
            for (auto& kind : text) kind = std::make_shared<ChannelLines>(NotifyKind::binary, kSlots, device, nullptr);
        for (uint32_t rank = 0; rank < 2; ++rank) memories.push_back(Memory::allocate(device, kSlots * slot, true));
        for (uint32_t rank = 0; rank < 2; ++rank) {
            std::vector<std::shared_ptr<ChannelLines>> recorded{lines[rank][0], lines[1 - rank][1]};
            auto mail = std::make_shared<Mail>(rank, 1 - rank, owner, true, std::make_shared<Farewell>(std::move(recorded)));
            for (const bool sends : {false, true}) {
                const uint32_t text = sends ? rank : 1 - rank;   // from which rank
                mail->direction(sends) = std::make_unique<Mail::Direction>(all(*lines[text][0]), all(*lines[text][1]), memories[1 - text].pin(), slot);
            }
            mails.push_back(std::move(mail));
        }
    }
    static std::vector<Notify*> all(ChannelLines& lines) {
        std::vector<Notify*> notifies;
        for (uint32_t i = 0; i < kSlots; ++i) notifies.push_back(&lines.at(i));
        return notifies;
    }

    std::array<std::array<std::shared_ptr<ChannelLines>, 2>, 2> lines;   // by sender; sent, taken
    std::vector<Memory> memories;
    std::vector<std::shared_ptr<Mail>> mails;
};

// Both send and receive the same drawn messages at the same time, each way in a thread.
void messages_arrive_in_order(uint64_t seed, unsigned count, bool on_streams) {
    constexpr uint64_t kSlot = 4096, kSizes[] = {0, 1, 47, 48, 49, 4096, 4097, 12'288, 12'289, 100'000, 1'500'000};
    const Pair pair(kSlot, seed % 2 == 0 ? getpid() : 0);
    std::vector<std::thread> threads;
    for (unsigned each = 0; each < 4; ++each)
        threads.emplace_back([&, each] {
            const uint32_t rank = each % 2;
            const bool sends = each < 2;
            std::mt19937_64 same(seed + (sends ? rank : 1 - rank)), own(seed ^ each);
            const StreamPtr on = stream(device);
            for (unsigned i = 0; i < count; ++i) {
                const uint64_t size = kSizes[same() % std::size(kSizes)], salt = same();
                const Area memory = area(device, std::max<uint64_t>(size, 8));
                const auto byte = [&](uint64_t at) { return static_cast<char>((at * 31 + salt) >> (at % 5)); };
                if (sends)
                    for (uint64_t at = 0; at < size; ++at) memory.host[at] = byte(at);
                Range range = range_of(memory);
                Message message(pair.mails[rank], sends, range, size);
                Stepwise::Step step{};
                Refusal why{};
                if (on_streams || own() % 4 == 0 || !run_in_calling_thread(message, true, own() % 100'000, step, why)) {
                    engine().submit(*on, {.kind = OpKind::stepwise, .extra = new Message(std::move(message))});
                    finish(*on);
                }
                if (!sends)
                    for (uint64_t at = 0; at < size; ++at) CHECK(memory.host[at] == byte(at));
                memory.close();
            }
            close(*on);
        });
    for (std::thread& each : threads) each.join();
}

// Whoever comes last finds it, and the other one is told that nothing comes.
void messages_whose_sizes_differ_are_refused(bool sender_is_first) {
    const Pair pair(4096);
    const Area memory = area(device, 4096);
    const auto message = [&](uint32_t rank, bool sends, uint64_t size) { return Message(pair.mails[rank], sends, range_of(memory), size); };
    Refusal why{};
    Stepwise::Step step{};
    Message sends = message(0, true, 8), receives = message(1, false, 9);
    Message &first = sender_is_first ? sends : receives, &second = sender_is_first ? receives : sends;
    CHECK(run_in_calling_thread(first, true, 0, step, why) == sender_is_first);
    CHECK(!run_in_calling_thread(second, true, 0, step, why) && step == Stepwise::Step::failed && why.why == Why::calls_differ);
    const GroupCall::Summary own = GroupCall::summary(why.calls.own), theirs = GroupCall::summary(why.calls.theirs);
    CHECK(own.kind == (sender_is_first ? Kind::receive : Kind::send) && own.size == (sender_is_first ? 9 : 8));
    CHECK(theirs.kind == (sender_is_first ? Kind::send : Kind::receive) && theirs.size == (sender_is_first ? 8 : 9));
    CHECK(why.calls.number == 1 && why.calls.rank == (sender_is_first ? 1 : 0) && why.calls.peer == 1 - why.calls.rank);
    memory.close();
}

uint64_t resident(const void* at, uint64_t size) {
    std::vector<unsigned char> pages(size / 4096);
    CHECK(mincore(const_cast<void*>(at), size, pages.data()) == 0);
    return static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

// What another process says is not trusted; and that it is read elsewhere does not keep memory from the system.
void memory_is_read_where_it_lies_and_only_there() {
    constexpr uint64_t kSize = uint64_t{8} << 20;
    Area area = streams::area(device, kSize);
    const Range range = range_of(area);
    memset(area.host, 0x5A, kSize);
    const MemoryAddress address_of_range = MemoryAddress::of(range, kSize);
    CHECK(address_of_range.file != 0 && address_of_range.fd >= 0);
    CHECK(MemoryAddress::of(range, kSize + (uint64_t{64} << 20)).file == 0 && !MemoryAddress::of({.host = area.host}, 1).is_file());

    PeerMemory memory(getpid()), nobody(0);
    const char* const bytes = memory.at(address_of_range, kSize).mapped;
    CHECK(bytes && bytes != area.host && memcmp(bytes, area.host, kSize) == 0);
    area.host[kSize - 1] = 7;
    CHECK(bytes[kSize - 1] == 7 && memory.at(address_of_range, kSize).mapped == bytes);
    CHECK(!nobody.at(address_of_range, kSize));

    MemoryAddress wrong = address_of_range;
    wrong.file += 1;
    CHECK(!memory.at(wrong, 1));
    wrong = address_of_range;
    wrong.fd = 0;   // another file
    CHECK(!PeerMemory(getpid()).at(wrong, 1));
    wrong = address_of_range;
    for (const uint64_t offset : {kSize << 10, UINT64_MAX, UINT64_MAX - kSize + 2}) {
        wrong.offset = offset;
        CHECK(!memory.at(wrong, kSize));
    }
    CHECK(!memory.at(address_of_range, UINT64_MAX));
    const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat file {};
    CHECK(unsealed >= 0 && ftruncate(unsealed, 4096) == 0 && fstat(unsealed, &file) == 0);
    CHECK(!memory.at({file.st_ino, 0, unsealed}, 1));   // it could shrink
    close(unsealed);

    const MemoryAddress host = MemoryAddress::of({.host = area.host}, 4096);
    char copied[4096];
    CHECK(memory.at(host, 4096).address != 0 && memory.read(copied, host.offset, 4096) == 0 && memcmp(copied, area.host, 4096) == 0);
    std::vector<char> whole(kSize);
    for (const unsigned threads : {1u, 2u, 4u}) {
        std::fill(whole.begin(), whole.end(), 0);
        CHECK(memory.read(whole.data(), host.offset, kSize - 5, threads) == 0 && memcmp(whole.data(), area.host, kSize - 5) == 0 && whole[kSize - 5] == 0);
        CHECK(memory.read(whole.data(), 4096, kSize, threads) == EFAULT && memory.read(nullptr, host.offset, kSize, threads) == EFAULT);
    }
    CHECK(memory.read(copied, 4096, 1) == EFAULT && memory.read(nullptr, host.offset, 1) == EFAULT);
    CHECK(!nobody.at(host, 4096) && nobody.confirmation(host, nobody.at(host, 4096)) == ReadAccess::kNotMemory);

    CHECK(resident(bytes, kSize) == kSize / 4096);
    Heap::get().unpin(range);
    area.close();
    Heap::get().trim();
    CHECK(resident(bytes, kSize) == 0);
}

// Its end is what the caller then waits for, and not an error of this call.
void host_memory_of_a_process_that_has_ended_is_waited_for() {
    constexpr uint64_t kPart = uint64_t{1} << 20;   // less goes through slots
    std::vector<char> whole[2] = {std::vector<char>(2 * kPart), std::vector<char>(2 * kPart)};
    const pid_t owner = fork();   // its memory is where ours is
    if (owner == 0)
        while (true) pause();
    const Ranks ranks(2, uint64_t{64} << 10, true, owner);
    const auto gather = [&](uint32_t rank) {
        char* const host = whole[rank].data();
        return Collective(ranks.rounds[rank], {.kind = Kind::all_gather, .dst = {.host = host}, .src = {.host = host + rank * kPart},
                                               .dst_size = 2 * kPart, .src_size = kPart, .size = kPart});
    };
    for (const bool has_ended : {false, false, true}) {
        if (has_ended) CHECK(kill(owner, SIGKILL) == 0 && waitpid(owner, nullptr, 0) == owner);
        std::atomic<int> over{0};
        ranks.run([&](uint32_t rank) {
            Collective collective = gather(rank);
            Collective::Step step{};
            Refusal why{};
            if (run_in_calling_thread(collective, true, has_ended ? 20'000'000 : 20'000'000'000, step, why)) ++over;
            CHECK(step == (has_ended ? Collective::Step::waits : Collective::Step::over));
        });
        CHECK(over == (has_ended ? 0 : 2));
    }
}

}  // namespace

NATIVE_TEST(test_collectives) {
    auto random = seeded("test_collectives");
    open_heap();
    device = new_device();
    const auto calls = static_cast<unsigned>(scaled(30, 2'000));
    under_each_schedule(random, [&] {
        for (const uint32_t size : {2u, 3u, 5u})
            for (const bool on_streams : {false, true}) RUN(ranks_get_what_one_thread_computes(random(), size, calls, on_streams));
        RUN(ranks_get_what_one_thread_computes(random(), BarrierTree::kFanOut + 2, calls / 10, false));
        RUN(a_rank_that_gives_up_ends_the_waits_of_the_others());
        for (const uint64_t seed : {2 * random(), 2 * random() + 1})
            for (const bool on_streams : {false, true}) RUN(messages_arrive_in_order(seed, calls, on_streams));
    });
    for (const bool sender_is_first : {false, true}) RUN(messages_whose_sizes_differ_are_refused(sender_is_first));
    RUN(memory_is_read_where_it_lies_and_only_there());
    RUN(host_memory_of_a_process_that_has_ended_is_waited_for());
    RUN(calls_that_differ_are_reported_to_who_comes_later());
    for (const bool barrier_is_first : {false, true}) RUN(a_barrier_by_a_tree_reports_a_call_that_differs(barrier_is_first));
    RUN(a_parent_that_answers_and_goes_on_is_not_accused());
    RUN(a_root_does_not_run_away_from_a_slow_rank());
    return 0;
}

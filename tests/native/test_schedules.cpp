// The schedules of collectives, without processes, lines or slots: one thread runs the parts of all ranks.
#include <functional>
#include <utility>

#include "check.h"
#include "schedules/schedule.h"

using namespace peerlane;

namespace {

using Kind = GroupCall::Kind;
using Bytes = std::vector<uint8_t>;

constexpr uint8_t kUnwritten = 0xEE;

// Each rank's source, its result, and what it knows of the call.
struct Rank {
    GroupCall call;
    Bytes src, dst;
};

uint8_t byte(uint32_t rank, uint64_t at) { return static_cast<uint8_t>(at * 31 + rank * 7 + (at >> 8)); }

uint64_t end_of(const std::vector<uint64_t>& at, const std::vector<uint64_t>& sizes) {
    uint64_t end = 0;
    for (size_t i = 0; i < at.size(); ++i) end = std::max(end, at[i] + sizes[i]);
    return end;
}

// Sources and results as long as the call makes them.  `table`: bytes from each rank to each other one, where parts differ.
std::vector<Rank> ranks_of(Kind kind, uint32_t ranks, uint32_t root, uint64_t size, const std::function<uint64_t(uint32_t, uint32_t)>& table) {
    std::vector<Rank> all(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        GroupCall& call = all[rank].call;
        call = {.kind = kind, .root = root, .size = size};
        uint64_t from = call.has_source_parts() ? size * ranks : size, into = call.has_result_parts() ? size * ranks : size;
        if (table) {
            for (uint32_t other = 0, gap = 3; other < ranks; ++other) {   // parts lie apart
                call.sizes.push_back(table(other, rank));
                call.at.push_back(end_of(call.at, {call.sizes.begin(), call.sizes.end() - 1}) + gap);
                if (kind != Kind::all_to_all) continue;
                call.source_sizes.push_back(table(rank, other));
                call.source_at.push_back(end_of(call.source_at, {call.source_sizes.begin(), call.source_sizes.end() - 1}) + gap);
            }
            call.size = 0;
            into = kind == Kind::reduce_scatter ? call.sizes[rank] : end_of(call.at, call.sizes);
            from = kind == Kind::all_gather ? call.sizes[rank] : kind == Kind::all_to_all ? end_of(call.source_at, call.source_sizes) : end_of(call.at, call.sizes);
        }
        for (uint64_t at = 0; at < from; ++at) all[rank].src.push_back(byte(rank, at));
        all[rank].dst.assign(into, kUnwritten);
    }
    return all;
}

// What the definition of the collective says of a rank's result.
Bytes expected(const std::vector<Rank>& all, uint32_t rank) {
    const GroupCall& call = all[rank].call;
    Bytes result(all[rank].dst.size(), kUnwritten);
    const auto put = [&](uint32_t from, uint64_t source, uint64_t at, uint64_t n) {
        for (uint64_t i = 0; i < n; ++i) result[at + i] = all[from].src[source + i];
    };
    const auto sum = [&](uint64_t n, const std::function<uint64_t(uint32_t)>& source) {
        for (uint64_t i = 0; i < n; ++i) {
            result[i] = 0;
            for (uint32_t each = 0; each < all.size(); ++each) result[i] = static_cast<uint8_t>(result[i] + all[each].src[source(each) + i]);
        }
    };
    switch (call.kind) {
        case Kind::broadcast:
            if (rank != call.root) put(call.root, 0, 0, call.size);
            break;
        case Kind::scatter: put(call.root, rank * call.size, 0, call.size); break;
        case Kind::all_gather:
            for (uint32_t from = 0; from < all.size(); ++from) put(from, 0, call.result_offset(from), call.part_size(from));
            break;
        case Kind::all_to_all:
            for (uint32_t from = 0; from < all.size(); ++from) put(from, all[from].call.source_offset(rank), call.result_offset(from), call.part_size(from));
            break;
        case Kind::reduce_scatter: sum(call.part_size(rank), [&](uint32_t each) { return all[each].call.source_offset(rank); }); break;
        case Kind::reduce:
            if (rank == call.root) sum(call.size, [](uint32_t) { return 0; });
            break;
        case Kind::all_reduce: sum(call.size, [](uint32_t) { return 0; }); break;
        default: break;
    }
    return result;
}

// Run all ranks' parts piece by piece and round by round, as a transport does.
void every_rank_has_its_result(const CollectiveSchedule& schedule, std::vector<Rank> all, uint64_t piece_size) {
    const auto ranks = static_cast<uint32_t>(all.size());
    uint64_t longest = 0;
    for (const Rank& each : all) longest = std::max(longest, each.call.longest_part());
    const uint64_t pieces = longest == 0 ? 1 : (longest - 1) / piece_size + 1;
    for (uint64_t number = 0; number < pieces; ++number) {
        const auto piece = [&](uint32_t rank) { return CallPiece{all[rank].call, rank, ranks, number * piece_size, piece_size}; };
        std::vector<Bytes> combined(ranks);   // what each rank gives in the second round
        for (uint32_t round = 0; round < schedule.rounds(); ++round) {
            for (uint32_t to = 0; to < ranks; ++to) {
                Rank& mine = all[to];
                Bytes sum;
                for (uint32_t from = 0; from < ranks; ++from) {
                    const Span sent = schedule.moves(piece(from), round, from, to), taken = schedule.moves(piece(to), round, from, to);
                    CHECK(sent.size == taken.size && (sent.size == 0 || sent == taken));   // each sends what the other one awaits
                    CHECK(from == to || taken.size == 0 || schedule.awaits(piece(to), round, from));
                    if (round == 1) CHECK(sent.size == 0 || sent == schedule.moves(piece(from), 0, from, from));   // all that it has combined
                    if (number == 0 && round == 0 && schedule.gives_all_the_same(all[from].call))
                        for (uint32_t other = 0; other < ranks; ++other) {
                            const Span same = schedule.moves(piece(from), round, from, other);
                            CHECK(from == other || from == to || same.size == 0 || sent.size == 0 || same == sent);
                        }
                    const bool combines = schedule.combines() && round == 0;
                    if (combines) {
                        CHECK(from == 0 || sent.size == sum.size());   // each gives as much to be combined
                        sum.resize(sent.size);
                        for (uint64_t i = 0; i < sent.size; ++i)
                            sum[i] = static_cast<uint8_t>(sum[i] + all[from].src[all[from].call.source_offset(to) + sent.first + i]);
                        continue;
                    }
                    if (from == to && mine.call.kind == Kind::broadcast) continue;   // the root has no result
                    const uint64_t at = mine.call.result_offset(from) + taken.first;
                    for (uint64_t i = 0; i < taken.size; ++i)
                        mine.dst[at + i] = round == 0 ? all[from].src[all[from].call.source_offset(to) + sent.first + i] : combined[from][i];
                }
                if (!schedule.combines() || round != 0) continue;
                combined[to] = sum;
                if (schedule.rounds() > 1) continue;
                const Span own = schedule.moves(piece(to), 0, to, to);
                std::copy(sum.begin(), sum.end(), mine.dst.begin() + static_cast<std::ptrdiff_t>(own.first));
            }
        }
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) CHECK(all[rank].dst == expected(all, rank));
}

void equal_parts(uint32_t ranks) {
    for (const Kind kind : {Kind::barrier, Kind::broadcast, Kind::all_gather, Kind::all_reduce, Kind::reduce, Kind::reduce_scatter, Kind::all_to_all, Kind::scatter}) {
        const bool has_root = kind == Kind::broadcast || kind == Kind::scatter || kind == Kind::reduce;
        for (uint32_t root = 0; root < (has_root ? ranks : 1); ++root)
            for (const uint64_t size : {0, 1, 63, 640, 1000})
                for (const uint64_t piece_size : {uint64_t{128}, uint64_t{1} << 20}) {
                    const std::vector<Rank> all = ranks_of(kind, ranks, root, kind == Kind::barrier ? 0 : size, {});
                    const GroupCall& call = all.front().call;
                    every_rank_has_its_result(schedule_of(call, ranks), all, piece_size);
                    for (const CollectiveSchedule* const each : {&two_shot, &one_shot})   // also what is chosen for other sizes alone
                        if (kind == Kind::all_reduce || kind == Kind::reduce) every_rank_has_its_result(*each, all, piece_size);
                }
    }
}

void parts_that_differ(uint32_t ranks, std::mt19937_64& random) {
    for (const Kind kind : {Kind::all_gather, Kind::reduce_scatter, Kind::all_to_all}) {
        std::vector<uint64_t> drawn;
        for (uint32_t i = 0; i < ranks * ranks; ++i) drawn.push_back(random() % 3 == 0 ? 0 : random() % 700);
        const auto table = [&](uint32_t from, uint32_t to) { return kind == Kind::all_to_all ? drawn[from * ranks + to] : drawn[from]; };
        const std::vector<Rank> all = ranks_of(kind, ranks, 0, 0, table);
        for (const uint64_t piece_size : {128, 4096}) every_rank_has_its_result(schedule_of(all.front().call, ranks), all, piece_size);
    }
}

// All ranks choose the same schedule: only what they agree on counts.
void long_reductions_take_two_rounds() {
    for (const uint32_t ranks : {2u, 3u, 9u}) {
        CHECK(&schedule_of({.kind = Kind::all_reduce, .size = 16 << 10}, ranks) == &one_shot);
        CHECK(&schedule_of({.kind = Kind::all_reduce, .size = 64 << 10}, ranks) == &two_shot);
        CHECK(&schedule_of({.kind = Kind::reduce, .size = 64 << 10}, ranks) == (ranks == 2 ? &one_shot : &two_shot));
        CHECK(&schedule_of({.kind = Kind::reduce_scatter, .size = 64 << 10}, ranks) == &one_shot);
        CHECK(&schedule_of({.kind = Kind::all_to_all, .size = 64 << 10}, ranks) == &exchange);
    }
}

}  // namespace

NATIVE_TEST(test_schedules) {
    auto random = seeded("test_schedules");
    for (uint32_t ranks = 1; ranks <= 9; ++ranks) {
        RUN(equal_parts(ranks));
        RUN(parts_that_differ(ranks, random));
    }
    RUN(long_reductions_take_two_rounds());
    return 0;
}

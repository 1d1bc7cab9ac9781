// A copy that two processes make at once: who copies which bytes, and what is left where one of them stops.
#include <thread>
#include <vector>

#include "check.h"
#include "ranks/split_copy.h"

using namespace peerlane;

namespace {

struct alignas(64) Shown {
    char bytes[sizeof(SplitCopy::Board)];
    SplitCopy::Board& board() { return *reinterpret_cast<SplitCopy::Board*>(bytes); }
};

void count(SplitCopy& copy, std::vector<int>& times, bool ends_pieces) {
    while (const auto piece = copy.claim()) {
        for (uint64_t at = piece->first; at < piece->first + piece->size; ++at) ++times[at];
        if (ends_pieces) copy.end_piece();
    }
}

void each_byte_is_copied_once(uint64_t size) {
    Shown shown;
    SplitCopy reader = SplitCopy::open(shown.bytes, size), writer = SplitCopy::join(shown.bytes, size);
    std::vector<int> read(size), written(size);
    std::thread other([&] { count(writer, written, true); });
    count(reader, read, false);
    other.join();
    for (uint64_t at = 0; at < size; ++at) CHECK(read[at] + written[at] == 1);
    CHECK(reader.is_claimed() && writer.is_claimed() && reader.unwritten().size == 0 && !reader.is_being_written());
}

void both_have_half_of_the_pieces() {
    for (const uint64_t size : {uint64_t{128} << 10, uint64_t{700} << 10, uint64_t{8} << 20}) {
        Shown shown;
        SplitCopy reader = SplitCopy::open(shown.bytes, size), writer = SplitCopy::join(shown.bytes, size);
        uint64_t read = 0, written = 0;
        while (!reader.is_claimed()) {
            if (const auto piece = reader.claim()) read += piece->size;
            if (const auto piece = writer.claim()) written += piece->size;
        }
        CHECK(read + written == size && read - written <= 64 << 10);
    }
}

void a_piece_that_failed_is_left_to_the_reader() {
    constexpr uint64_t kSize = uint64_t{3} << 20;
    Shown shown;
    SplitCopy reader = SplitCopy::open(shown.bytes, kSize), writer = SplitCopy::join(shown.bytes, kSize);
    std::vector<int> times(kSize);
    const auto last = writer.claim();
    writer.end_piece();
    const auto failed = writer.claim();
    CHECK(last && failed && last->first + last->size == kSize && failed->first + failed->size == last->first);
    for (uint64_t at = last->first; at < kSize; ++at) ++times[at];
    writer.stop();
    CHECK(writer.is_claimed());
    count(reader, times, false);
    const Span left = reader.unwritten();
    CHECK(left == *failed);
    for (uint64_t at = left.first; at < left.first + left.size; ++at) ++times[at];
    for (const int each : times) CHECK(each == 1);
}

void a_reader_that_closes_waits_for_one_piece_at_most() {
    Shown shown;
    SplitCopy reader = SplitCopy::open(shown.bytes, uint64_t{4} << 20), writer = SplitCopy::join(shown.bytes, uint64_t{4} << 20);
    CHECK(writer.claim());
    CHECK(reader.close() && !writer.claim() && writer.is_claimed());
    writer.end_piece();
    CHECK(!reader.is_being_written());
    Shown other;
    CHECK(!SplitCopy::open(other.bytes, uint64_t{4} << 20).close());
}

void whatever_the_other_process_writes_the_pieces_are_of_the_copy(std::mt19937_64& random) {
    for (int turn = 0; turn < scaled(2'000, 50'000); ++turn) {
        const uint64_t size = 1 + random() % (uint64_t{5} << 20);
        Shown shown;
        SplitCopy reader = SplitCopy::open(shown.bytes, size), writer = SplitCopy::join(shown.bytes, size);
        uint64_t pieces = 0;
        for (SplitCopy* const each : {&reader, &writer})
            for (std::optional<Span> piece; pieces < 100; ++pieces) {
                shown.board().claims = random() % 2 ? random() : 0;
                shown.board().written = random();
                const Span left = reader.unwritten();
                CHECK(left.size <= size && left.first <= size && left.first + left.size <= size);
                piece = each->claim();
                if (!piece) break;
                CHECK(piece->size != 0 && piece->first < size && piece->size <= size - piece->first);
            }
        CHECK(pieces < 100);
    }
}

}  // namespace

NATIVE_TEST(test_split_copies) {
    auto random = seeded("test_split_copies");
    for (const uint64_t size : {uint64_t{1}, uint64_t{4096}, uint64_t{128} << 10, (uint64_t{1} << 20) + 1, uint64_t{9} << 20}) RUN(each_byte_is_copied_once(size));
    RUN(both_have_half_of_the_pieces());
    RUN(a_piece_that_failed_is_left_to_the_reader());
    RUN(a_reader_that_closes_waits_for_one_piece_at_most());
    RUN(whatever_the_other_process_writes_the_pieces_are_of_the_copy(random));
    return 0;
}

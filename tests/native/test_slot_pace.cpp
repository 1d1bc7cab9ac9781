// When calls do without slots: where copies by them were slow for long, until one was fast again.
#include "check.h"
#include "ranks/slot_pace.h"

using namespace peerlane;

namespace {

constexpr uint64_t kPart = uint64_t{256} << 10;
constexpr uint64_t kFast = 256 * 25, kSlow = 256 * 500;   // nanoseconds

void copy(SlotPace& pace, uint64_t nanoseconds) {
    pace.note(SlotPace::fill, kPart, kPart, nanoseconds);
    pace.note(SlotPace::read, kPart, kPart, nanoseconds);
}

void one_slow_copy_changes_nothing() {
    SlotPace pace;
    CHECK(!pace.avoids_slots(kPart, false, 1));
    for (int i = 0; i < 20; ++i) copy(pace, kFast);
    pace.note(SlotPace::read, kPart, kPart, 1'000'000'000);
    CHECK(!pace.avoids_slots(kPart, false, 1));
}

void slow_copies_lead_away_from_slots_and_fast_ones_back() {
    for (const bool is_piped : {false, true}) {
        SlotPace pace;
        int tries = 0;
        for (int i = 0; i < 10'000; ++i) {
            if (pace.avoids_slots(kPart, is_piped, 1)) continue;
            copy(pace, kSlow);
            ++tries;
        }
        CHECK(tries > 4 && tries < 100);
        int avoided = 0;
        for (int i = 0; i < 10'000; ++i)
            if (pace.avoids_slots(kPart, is_piped, 1))
                ++avoided;
            else
                copy(pace, kFast);
        CHECK(avoided < 5'000 && !pace.avoids_slots(kPart, is_piped, 1));
    }
}

void each_size_is_for_itself() {
    SlotPace pace;
    for (int i = 0; i < 20; ++i) copy(pace, kSlow);
    CHECK(pace.avoids_slots(kPart, false, 1) && !pace.avoids_slots(2 * kPart, false, 1) && !pace.avoids_slots(kPart / 2, false, 1));
    for (const uint64_t each : {SlotPace::kShortest, uint64_t{1} << 40}) {
        CHECK(SlotPace::serves(each) && !pace.avoids_slots(each, false, 1));
        for (int i = 0; i < 20; ++i)
            for (const auto copy : {SlotPace::fill, SlotPace::read}) pace.note(copy, each, each, each);   // a microsecond for a KiB
        CHECK(pace.avoids_slots(each, false, 1));
    }
    CHECK(!SlotPace::serves(SlotPace::kShortest - 1));
}

void several_threads_leave_slots_sooner() {
    SlotPace pace;
    for (int i = 0; i < 20; ++i) copy(pace, 256 * 35);   // both copies take 70 ns for a KiB
    CHECK(!pace.avoids_slots(kPart, false, 1) && pace.avoids_slots(kPart, false, 2));
}

}  // namespace

NATIVE_TEST(test_slot_pace) {
    RUN(one_slow_copy_changes_nothing());
    RUN(slow_copies_lead_away_from_slots_and_fast_ones_back());
    RUN(each_size_is_for_itself());
    RUN(several_threads_leave_slots_sooner());
    return 0;
}

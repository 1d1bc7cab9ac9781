#include "memory/address_space.h"

#include <map>

#include "check.h"

using namespace peerlane;

NATIVE_TEST(test_address_space) {
    auto random = seeded("test_address_space");
    AddressSpace space;
    space.open(kTestWindow);
    CHECK(space.window() == kTestWindow / 2);
    CHECK(space.guard_base() % (uint64_t{1} << 30) == 0 && space.shadow_base() % (uint64_t{1} << 30) == 0);

    uint64_t offset = 0;
    CHECK(space.contains(space.guard_base() + 5, offset) && offset == 5);
    CHECK(space.contains(space.shadow_base() + 7, offset) && offset == 7);
    CHECK(!space.contains(space.guard_base() - 1, offset));
    CHECK(!space.contains(space.shadow_base() + space.window(), offset) ||
          space.shadow_base() + space.window() == space.guard_base());
    CHECK(!space.contains(0, offset) && !space.contains(UINT64_MAX, offset));

    // Ranges taken and given back in any order never overlap, are aligned, and join to one piece at the end.
    std::map<uint64_t, uint64_t> held;
    for (int i = 0; i < 4000; ++i) {
        if (held.empty() || random() % 3) {
            const uint64_t span = kGranule * (1 + random() % 40), alignment = kGranule << (random() % 6);
            const uint64_t at = space.take(span, alignment);
            CHECK(at % alignment == 0 && at + span <= space.window());
            auto next = held.lower_bound(at);
            CHECK(next == held.end() || at + span <= next->first);
            CHECK(next == held.begin() || std::prev(next)->first + std::prev(next)->second <= at);
            held[at] = span;
        } else {
            auto which = held.lower_bound(random() % space.window());
            if (which == held.end()) which = held.begin();
            space.give(which->first, which->second);
            held.erase(which);
        }
    }
    for (auto& [at, span] : held) space.give(at, span);
    const uint64_t whole = space.take(space.window());
    CHECK(whole == 0);
    CHECK(refuses(Why::address_space, [&] { space.take(kGranule); }));
    space.give(whole, space.window());

    CHECK(space.peek(space.window() - 1) == nullptr && space.peek(12345) == nullptr);
    return 0;
}

#include "memory/ledger.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

using namespace peerlane;

namespace {

void shared_blocks_count_once(Ledger& a, Ledger& b) {
    const uint64_t first = a.list(71, 1, 5), second = a.list(72, 0, 7);
    CHECK(first != second && a.used(1) == 65 && a.used(0) == 7);
    CHECK(b.hold(first, 71) && b.used(1) == 65 && b.holders(first) == 2);
    CHECK(!b.hold(second, 71) && b.holders(second) == 1);   // another block has its place
    CHECK(a.find(71) == first && b.find(72) == second && b.find(99) == LedgerLayout::kNone);
    a.let_go(first);
    CHECK(b.used(1) == 65 && b.list(73, 1, 1) != first);
    b.let_go(first);
    CHECK(a.used(1) == 61 && b.find(71) == first && a.list(74, 0, 1) == first);   // until another block has its place
    CHECK(b.find(71) == LedgerLayout::kNone && b.find(74) == first);
    CHECK(!a.hold(LedgerLayout::kEntries, 1));
    const uint64_t huge = a.list(75, 1, (uint64_t{1} << 48) + 9);   // the ledger does not check the stated size
    CHECK(a.used(0) == 8 && a.used(1) > uint64_t{1} << 47);
    a.let_go(huge);
    const uint64_t many = LedgerLayout::kEntries;
    uint64_t listed = 0;
    CHECK(refuses(Why::shared_blocks, [&] {
        for (; listed <= many; ++listed) a.list(100 + listed, 0, 0);
    }));
    CHECK(listed == many - 3);
    for (uint64_t entry = 0; entry < many; ++entry) {
        a.let_go(entry);
        b.let_go(entry);
    }
    CHECK(a.used(0) == 0 && a.used(1) == 60);
}

// A hostile process may write any device and size beside a block that others hold.
void impossible_facts_change_no_other_total(int fd, const LedgerLayout& layout, Ledger& a, Ledger& b) {
    const uint64_t before = b.used(1), entry = a.list(76, 0, 5), facts = UINT64_MAX;
    CHECK(pwrite(fd, &facts, 8, static_cast<off_t>(layout.entries_at() + entry * 16 + 8)) == 8);
    CHECK(b.hold(entry, 76) && b.used(0) == 0 && b.used(1) == before && a.used(0) == 5);
    b.let_go(entry);
    a.let_go(entry);
    CHECK(a.used(0) == 0 && b.used(0) == 0);
}

void peers_of_any_process(Ledger& a, Ledger& b) {
    const auto has = [](const Ledger& ledger, uint64_t from, uint64_t to) { return ledger.enabler(from, to) != LedgerLayout::kNone; };
    a.set_peer(0, 1, true);
    CHECK(has(a, 0, 1) && !has(b, 0, 1));   // they share nothing
    b.count_all(true);
    CHECK(has(b, 0, 1) && !has(b, 1, 0));
    a.count_all(true);
    b.set_peer(0, 1, true);
    a.set_peer(0, 1, false);
    CHECK(has(a, 0, 1));
    b.set_peer(0, 1, false);
    CHECK(!has(a, 0, 1));
}

void set_owner(int fd, const LedgerLayout& layout, uint64_t slot, uint64_t owner) {
    CHECK(pwrite(fd, &owner, 8, static_cast<off_t>(LedgerLayout::kHeader + slot * layout.stride())) == 8);
}

// A process that listed a block has died; a process that imports it races with a process that lists another block.
void a_dead_process_s_slot_is_taken(int fd, const LedgerLayout& layout) {
    Ledger importer(fd, layout, 0), lister(fd, layout, 2);
    const int rounds = scaled(500, 300000);
    for (int round = 0; round < rounds; ++round) {
        const uint64_t old_id = 1000 + round * 2, new_id = old_id + 1;
        set_owner(fd, layout, 1, 1);
        uint64_t index;
        {
            Ledger dead(fd, layout, 1);
            index = dead.list(old_id, 0, 16);
            set_owner(fd, layout, 1, 0);
            std::atomic<int> ready{0};
            bool held = false;
            uint64_t other = LedgerLayout::kNone;
            const auto meet = [&] {
                ++ready;
                while (ready < 2) {
                }
            };
            std::thread takes([&] {
                meet();
                other = lister.list(new_id, 0, 1);
            });
            meet();
            held = importer.hold(index, old_id);
            takes.join();
            CHECK(!held || other != index);
            CHECK(importer.used(0) == (held ? 17u : 1u));
            if (held) importer.let_go(index);
            lister.let_go(other);
            set_owner(fd, layout, 1, 1);
            dead.let_go(index);
        }
        set_owner(fd, layout, 1, 0);
    }
}

void nobody_writes_into_a_slot_released(int fd, const LedgerLayout& layout) {
    const std::vector<char> nothing(layout.stride()), no_holdings(layout.holdings());
    std::vector<char> fields(layout.stride()), holdings(layout.holdings());
    const auto fields_at = static_cast<off_t>(LedgerLayout::kHeader + layout.stride());
    const auto holdings_at = static_cast<off_t>(layout.holdings_at() + layout.holdings());
    for (int round = 0, rounds = scaled(50, 5000); round < rounds; ++round) {
        Ledger leaving(fd, layout, 1);
        std::atomic<bool> done{false};
        std::atomic<int> steps{0};
        std::thread works([&] {
            while (!done) {
                leaving.charge(0, 8, 100);
                try {
                    leaving.let_go(leaving.list(5, 0, 8));
                } catch (const Refusal&) {
                }
                leaving.set_peer(0, 1, true);
                leaving.refund(0, 8);
                ++steps;
            }
        });
        while (steps < 3) std::this_thread::yield();
        leaving.leave();
        CHECK(pwrite(fd, nothing.data(), nothing.size(), fields_at) == static_cast<ssize_t>(nothing.size()));
        CHECK(pwrite(fd, no_holdings.data(), no_holdings.size(), holdings_at) == static_cast<ssize_t>(no_holdings.size()));
        for (const int before = steps; steps < before + 3;) std::this_thread::yield();
        done = true;
        works.join();
        CHECK(pread(fd, fields.data(), fields.size(), fields_at) == static_cast<ssize_t>(fields.size()) && fields == nothing);
        CHECK(pread(fd, holdings.data(), holdings.size(), holdings_at) == static_cast<ssize_t>(holdings.size()));
        CHECK(holdings == no_holdings);
    }
}

}  // namespace

NATIVE_TEST(test_ledger) {
    const LedgerLayout layout{2, 4};
    const int fd = memfd_create("ledger", MFD_CLOEXEC);
    CHECK(refuses(Why::system_memory, [&] { Ledger(fd, layout, 0); }));
    CHECK(ftruncate(fd, static_cast<off_t>(layout.file_size())) == 0);
    CHECK(refuses(Why::system_memory, [&] { Ledger(fd, layout, 4); }));
    for (uint64_t slot : {0, 2}) set_owner(fd, layout, slot, 1);
    a_dead_process_s_slot_is_taken(fd, layout);
    nobody_writes_into_a_slot_released(fd, layout);
    Ledger a(fd, layout, 0), b(fd, layout, 2), unowned(fd, layout, 3);
    CHECK(a.charge(1, 60, 100) && !b.charge(1, 41, 100) && b.charge(1, 40, 100));
    CHECK(a.used(1) == 100 && a.used(0) == 0);
    b.refund(1, 40);
    CHECK(unowned.charge(1, 1000, 100) && a.used(1) == 60);   // a slot without an owner does not count
    const uint64_t lie = UINT64_MAX - 3;
    CHECK(pwrite(fd, &lie, 8, static_cast<off_t>(LedgerLayout::kHeader + 2 * layout.stride() + 24)) == 8);
    CHECK(a.used(1) == UINT64_MAX && !a.charge(1, 1, UINT64_MAX - 1));
    const uint64_t none = 0;
    CHECK(pwrite(fd, &none, 8, static_cast<off_t>(LedgerLayout::kHeader + 2 * layout.stride() + 24)) == 8);
    shared_blocks_count_once(a, b);
    impossible_facts_change_no_other_total(fd, layout, a, b);
    peers_of_any_process(a, b);
    a.leave();
    CHECK(!a.charge(1, 1, 100) && a.used(1) == 60);
    a.refund(1, 60);
    CHECK(a.used(1) == 60);   // another process has the slot by now
    CHECK(refuses(Why::closed, [&] { a.list(1, 0, 1); }));
    close(fd);
    return 0;
}

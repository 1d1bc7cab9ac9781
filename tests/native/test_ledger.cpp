#include "ledger.h"

#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

using namespace peerlane;

namespace {

void shared_blocks_count_once(Ledger& a, Ledger& b) {
    const uint64_t first = a.list(71, 1, 5), second = a.list(72, 0, 7);
    CHECK(first != second && a.used(1) == 65 && a.used(0) == 7);
    CHECK(b.hold(first, 71) && b.used(1) == 65 && b.holders(first) == 2);
    CHECK(!b.hold(second, 71) && b.holders(second) == 1);   // its place is another's
    a.let_go(first);
    CHECK(b.used(1) == 65 && b.list(73, 1, 1) != first);
    b.let_go(first);
    CHECK(a.used(1) == 61 && a.list(74, 0, 1) == first);
    CHECK(!a.hold(LedgerLayout::kEntries, 1));
    const uint64_t huge = a.list(75, 1, (uint64_t{1} << 48) + 9);   // what others say of a block is not looked at
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

void peers_of_any_process(Ledger& a, Ledger& b) {
    a.set_peer(0, 1, true);
    CHECK(b.is_peer(0, 1) && !b.is_peer(1, 0));
    b.set_peer(0, 1, true);
    a.set_peer(0, 1, false);
    CHECK(a.is_peer(0, 1));
    b.set_peer(0, 1, false);
    CHECK(!a.is_peer(0, 1));
}

}  // namespace

int main() {
    const LedgerLayout layout{2, 4};
    const int fd = memfd_create("ledger", MFD_CLOEXEC);
    CHECK(refuses(Why::system_memory, [&] { Ledger(fd, layout, 0); }));
    CHECK(ftruncate(fd, static_cast<off_t>(layout.file_size())) == 0);
    CHECK(refuses(Why::system_memory, [&] { Ledger(fd, layout, 4); }));
    for (uint64_t slot : {0, 2}) {
        const uint64_t owner = 1;
        CHECK(pwrite(fd, &owner, 8, static_cast<off_t>(LedgerLayout::kHeader + slot * layout.stride())) == 8);
    }
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
    peers_of_any_process(a, b);
    a.leave();
    CHECK(!a.charge(1, 1, 100) && a.used(1) == 60);
    a.refund(1, 60);
    CHECK(a.used(1) == 60);   // the slot is another's by now
    CHECK(refuses(Why::closed, [&] { a.list(1, 0, 1); }));
    close(fd);
    return 0;
}

#include "ledger.h"

#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

using namespace peerlane;

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
    close(fd);
    return 0;
}

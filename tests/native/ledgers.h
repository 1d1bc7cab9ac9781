// The ledger of a node of its own.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

#include "check.h"
#include "memory/ledger.h"

inline constexpr peerlane::LedgerLayout kLedgerLayout{2, 4};

// Slot 0 is this process's.  `file` gets the node file's descriptor.
inline std::shared_ptr<peerlane::Ledger> new_ledger(int* file = nullptr) {
    const int node = memfd_create("ledger", MFD_CLOEXEC);
    CHECK(node >= 0 && ftruncate(node, static_cast<off_t>(kLedgerLayout.file_size())) == 0);
    const uint64_t owner = 1;
    CHECK(pwrite(node, &owner, 8, static_cast<off_t>(peerlane::LedgerLayout::kHeader)) == 8);
    if (file) *file = node;
    return std::make_shared<peerlane::Ledger>(node, kLedgerLayout, 0);
}

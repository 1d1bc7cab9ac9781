#include "ledger.h"

#include <cerrno>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fault_guard.h"
#include "refusal.h"

namespace peerlane {

Ledger::Ledger(int fd, LedgerLayout layout, uint64_t slot) : layout_(layout), slot_(slot) {
    struct stat facts {};
    if (slot >= layout.slots || fstat(fd, &facts) != 0 ||
        static_cast<uint64_t>(facts.st_size) < layout.file_size())
        throw Refusal{.why = Why::system_memory, .size = layout.file_size(), .error = EINVAL};
    void* got = mmap(nullptr, layout.file_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (got == MAP_FAILED)
        throw Refusal{.why = Why::system_memory, .size = layout.file_size(), .error = errno};
    base_ = static_cast<char*>(got);
    madvise(base_, layout.file_size(), MADV_DONTFORK);
}

Ledger::~Ledger() { munmap(base_, layout_.file_size()); }

std::atomic<uint64_t>* Ledger::field(uint64_t slot, uint64_t index) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(base_ + LedgerLayout::kHeader + slot * layout_.stride() +
                                                    index * 8);
}

namespace {

template <class Touch>
void touch_file(const Touch& touch) {
    FaultGuard guard;
    if (!guarded(guard, touch)) throw Refusal{.why = Why::node_file, .error = ENOSPC};
}

}  // namespace

bool Ledger::charge(uint64_t device, uint64_t bytes, uint64_t capacity) {
    std::atomic<uint64_t>* mine = field(slot_, LedgerLayout::kFields + device);
    touch_file([=] { mine->fetch_add(bytes, std::memory_order_seq_cst); });
    try {
        if (used(device) <= capacity) return true;
    } catch (const Refusal&) {
        refund(device, bytes);
        throw;
    }
    refund(device, bytes);
    return false;
}

void Ledger::refund(uint64_t device, uint64_t bytes) {
    std::atomic<uint64_t>* mine = field(slot_, LedgerLayout::kFields + device);
    touch_file([=] { mine->fetch_sub(bytes, std::memory_order_seq_cst); });
}

uint64_t Ledger::used(uint64_t device) const {
    uint64_t total = 0;
    touch_file([this, device, &total] {
        for (uint64_t slot = 0; slot < layout_.slots; ++slot) {
            if (field(slot, 0)->load(std::memory_order_relaxed) == 0) continue;
            const uint64_t bytes = field(slot, LedgerLayout::kFields + device)->load(std::memory_order_seq_cst);
            total = total + bytes < total ? UINT64_MAX : total + bytes;   // a hostile slot must not wrap it
        }
    });
    return total;
}

}  // namespace peerlane

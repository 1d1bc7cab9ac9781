#include "share/early_grants.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/block.h"

namespace peerlane {

std::unique_ptr<GrantPage> GrantPage::make(int& fd) {
    fd = memfd_create("peerlane-grants", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return nullptr;
    if (ftruncate(fd, kBytes) == 0 && fcntl(fd, F_ADD_SEALS, kFileSeals) == 0)
        if (std::unique_ptr<GrantPage> page = map(fd)) return page;
    close(std::exchange(fd, -1));
    return nullptr;
}

bool GrantPage::is_page(int fd) {
    struct stat status {};
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & kFileSeals) == kFileSeals && fstat(fd, &status) == 0 && status.st_size == kBytes;
}

std::unique_ptr<GrantPage> GrantPage::map(int fd) {
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return nullptr;
    std::unique_ptr<GrantPage> page(new (std::nothrow) GrantPage(at));
    if (!page) munmap(at, kBytes);
    return page;
}

GrantPage::~GrantPage() { munmap(static_cast<void*>(records_), kBytes); }

std::optional<EarlyGrant> GrantPage::take(uint32_t index, uint64_t nonce, unsigned nonce_bits, Kind wanted) {
    for (uint32_t i = 0; i < kRecords; ++i) {
        Record& record = records_[i];
        uint64_t state = record.state.load(std::memory_order_acquire);
        if ((state & kStateMask) != offered) continue;
        const uint64_t index_and_fd = record.index_and_fd.load(std::memory_order_relaxed), whole = record.nonce.load(std::memory_order_relaxed);
        if (index_and_fd >> 32 != index || !is_nonce(nonce, nonce_bits, whole)) continue;
        std::array<uint64_t, kGrantWords> words;
        for (unsigned w = 0; w < kGrantWords; ++w) words[w] = record.grant[w].load(std::memory_order_relaxed);
        const EarlyGrant early{std::bit_cast<Grant>(words), whole, {i, state - offered + taken},
                               static_cast<int>(index_and_fd & UINT32_MAX), record.inode.load(std::memory_order_relaxed)};
        if (early.grant.kind != wanted || early.exporter_fd < 0) continue;
        // It is written again only after it was taken back: then the state is another one.
        if (record.state.compare_exchange_strong(state, early.taken.state, std::memory_order_acq_rel)) return early;
    }
    return std::nullopt;
}

bool GrantPage::release(TakenGrant what) {
    return records_[what.record].state.compare_exchange_strong(what.state, what.state - taken + released, std::memory_order_acq_rel);
}

EarlyGrants::~EarlyGrants() {
    for (uint32_t i = 0; i < GrantPage::kRecords; ++i)
        if (written_[i].nonce != 0) end(i);
}

bool EarlyGrants::has(uint32_t index) const {
    return count_ != 0 && std::any_of(written_.begin(), written_.end(),
                                      [index](const ExportKey& key) { return key.nonce != 0 && key.index == index; });
}

bool EarlyGrants::offer(ExportKey key, const Grant& grant, int fd, uint64_t inode) {
    const auto free = std::find_if(written_.begin(), written_.end(), [](const ExportKey& each) { return each.nonce == 0; });
    if (free == written_.end() || has(key.index)) return false;
    *free = key;
    ++count_;
    GrantPage::Record& record = page_->records_[free - written_.begin()];
    const auto words = std::bit_cast<std::array<uint64_t, GrantPage::kGrantWords>>(grant);
    for (unsigned w = 0; w < GrantPage::kGrantWords; ++w) record.grant[w].store(words[w], std::memory_order_relaxed);
    record.nonce.store(key.nonce, std::memory_order_relaxed);
    record.index_and_fd.store(uint64_t{key.index} << 32 | static_cast<uint32_t>(fd), std::memory_order_relaxed);
    record.inode.store(inode, std::memory_order_relaxed);
    record.state.store(++turn_ * (GrantPage::kStateMask + 1) | GrantPage::offered, std::memory_order_release);
    return true;
}

bool EarlyGrants::is_offered(uint32_t i) const {
    return (page_->records_[i].state.load(std::memory_order_acquire) & GrantPage::kStateMask) == GrantPage::offered;
}

bool EarlyGrants::end(uint32_t i) {
    const uint64_t before = page_->records_[i].state.exchange(GrantPage::settled, std::memory_order_acq_rel) & GrantPage::kStateMask;
    written_[i] = {};
    --count_;
    return before != GrantPage::offered && before != GrantPage::released;
}

}  // namespace peerlane

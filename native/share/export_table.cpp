#include "share/export_table.h"

#include <algorithm>
#include <cerrno>
#include <sys/random.h>

namespace peerlane {

namespace {

uint64_t new_nonce() {
    uint64_t nonce = 0;
    while ((nonce & kShortNonce) == 0)
        if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce && errno != EINTR)
            throw Refusal{.why = Why::system_memory, .error = errno};
    return nonce;
}

}  // namespace

ExportKey ExportTable::add(Export what) {
    if (free_.empty() && entries_.size() == kMaxExports)
        throw Refusal{.why = Why::handles_full, .most = kMaxExports};
    const uint64_t nonce = new_nonce();
    if (free_.empty()) {
        entries_.emplace_back();
        free_.push_back(static_cast<uint32_t>(entries_.size() - 1));
    }
    const uint32_t index = free_.front();
    free_.pop_front();
    entries_[index].what = std::move(what);
    entries_[index].nonce = nonce;
    if (const auto& group = entries_[index].what.group) ++group->exports;
    return {index, nonce};
}

ExportTable::Entry* ExportTable::find(uint32_t index, uint64_t nonce, unsigned bits) {
    if (index >= entries_.size()) return nullptr;
    Entry& entry = entries_[index];
    return entry.nonce != 0 && is_nonce(nonce, bits, entry.nonce) ? &entry : nullptr;
}

bool ExportTable::was_there(uint32_t index, uint64_t nonce, unsigned bits) const {
    return std::any_of(dead_.begin(), dead_.end(), [&](const ExportKey& key) {
        return key.index == index && is_nonce(nonce, bits, key.nonce);
    });
}

Status ExportTable::status(uint32_t index, uint64_t nonce, unsigned bits) {
    if (const Entry* entry = find(index, nonce, bits)) return entry->withdrawn ? Status::stale : Status::ok;
    return was_there(index, nonce, bits) ? Status::stale : Status::unknown;
}

void ExportTable::forget(uint32_t index) {
    Entry& entry = entries_[index];
    try {
        dead_.push_back({index, entry.nonce});
        if (dead_.size() > kStaleKept) dead_.pop_front();
        free_.push_back(index);
    } catch (const std::bad_alloc&) {
        // An entry that is never used again, or a dead handle that counts as unknown.
    }
    entry = {};
}

void ExportTable::add_importer(uint32_t index) {
    Entry& entry = entries_[index];
    ++entry.importers;
    if (entry.what.group) ++entry.what.group->importers;
}

std::vector<ExportTable::Gone> ExportTable::drop_importer(uint32_t index) {
    Entry& entry = entries_[index];
    --entry.importers;
    if (entry.what.group) --entry.what.group->importers;
    return settle(index);
}

bool ExportTable::is_over(const Entry& entry) const {
    if (entry.nonce == 0 || entry.importers != 0) return false;
    return entry.withdrawn || (entry.abandoned && (!entry.what.group || entry.what.group->importers == 0));
}

void ExportTable::end(uint32_t index, std::vector<Gone>& gone) {
    Export& what = entries_[index].what;
    if (what.gone) gone.push_back(std::move(what.gone));
    if (what.group) --what.group->exports;
    forget(index);
}

std::vector<ExportTable::Gone> ExportTable::settle(uint32_t index) {
    std::vector<Gone> gone;
    const auto group = entries_[index].what.group;
    if (is_over(entries_[index])) end(index, gone);
    if (!group || group->importers != 0 || group->exports == 0) return gone;
    for (uint32_t other = 0; other < entries_.size(); ++other)
        if (entries_[other].what.group == group && is_over(entries_[other])) end(other, gone);
    return gone;
}

std::vector<ExportTable::Gone> ExportTable::take_all() {
    std::vector<Gone> all;
    for (uint32_t index = 0; index < entries_.size(); ++index) {
        if (entries_[index].nonce == 0) continue;
        end(index, all);
    }
    return all;
}

}  // namespace peerlane

#include "share/sharing.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "memory/heap.h"

namespace peerlane {

namespace {

// Block ids are never used again, so what is late finds nothing.
struct OffersOfBlock {
    std::vector<ExportKey> exports;
    std::shared_ptr<ExportGroup> group = std::make_shared<ExportGroup>();
};
struct Offers {
    std::mutex mutex;
    std::unordered_map<uint64_t, OffersOfBlock> of_block;
};
Offers& offers() {
    static auto* all = new Offers;
    return *all;
}

void abandon_offers(uint64_t block) {
    std::vector<ExportKey> exports;
    {
        std::lock_guard lock(offers().mutex);
        const auto offer = offers().of_block.find(block);
        if (offer == offers().of_block.end()) return;
        exports = offer->second.exports;
    }
    for (const ExportKey& key : exports) Broker::get().abandon(key.index, key.nonce);
}

void forget_offer(uint64_t block, const uint64_t& nonce) {
    std::lock_guard lock(offers().mutex);
    const auto offer = offers().of_block.find(block);
    if (offer == offers().of_block.end()) return;
    std::erase_if(offer->second.exports, [&](const ExportKey& key) { return key.nonce == nonce; });
    if (offer->second.exports.empty()) offers().of_block.erase(offer);
}

// Whose it is, its id there, whether it may only be read, and in which stay in the node it was opened.
using ImportKey = std::tuple<const Exporter*, uint64_t, bool, const Ledger*>;
struct Adopted {
    std::mutex mutex;
    std::map<ImportKey, Block*> blocks;
};
Adopted& adopted() {
    static auto* all = new Adopted;
    return *all;
}

// Where an imported block came from.
struct Import : Origin {
    Opening opening;
    ImportKey key;
    const Block* block = nullptr;

    Import(Opening opening, ImportKey key) : opening(std::move(opening)), key(key) {}
    ~Import() override {
        // Whoever looks for the block finds it ending, or not at all.
        std::lock_guard lock(adopted().mutex);
        const auto entry = adopted().blocks.find(key);
        if (entry != adopted().blocks.end() && entry->second == block) adopted().blocks.erase(entry);
    }
};

constexpr size_t kMostKept = 16;
struct Kept {
    std::mutex mutex;
    std::deque<std::shared_ptr<Exporter>> newest;
};
Kept& kept() {
    static auto* all = new Kept;
    return *all;
}

bool is_same_file(int a, int b) {
    struct stat one {}, other {};
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool hold_living(Block* block) {
    uint64_t before = block->holders.load(std::memory_order_relaxed);
    do {
        if (before == 0) return false;
    } while (!block->holders.compare_exchange_weak(before, before + 1, std::memory_order_acquire));
    return true;
}

}  // namespace

ExportKey offer_block(Block* block, Grant grant, bool everyone) {
    if (block->origin) throw Refusal{.why = Why::imported, .size = block->size, .device = block->device};
    abandoned.store(abandon_offers, std::memory_order_release);
    if (block->account) Heap::get().list(*block);
    grant.block = block->id;
    grant.entry = block->account ? block->account->entry() : LedgerLayout::kNone;
    grant.size = block->size;
    if (block->peer) grant.rights |= kForPeers;
    hold_for_others(block);
    const auto nonce = std::make_shared<uint64_t>(0);
    const auto gone = [block, nonce, id = block->id] {
        forget_offer(id, *nonce);
        drop_for_others(block);
    };
    ExportKey key;
    try {
        std::shared_ptr<ExportGroup> group;
        {
            std::lock_guard lock(offers().mutex);
            group = offers().of_block[block->id].group;
        }
        key = Broker::get().offer({.grant = grant, .fd = block->fd, .everyone = everyone, .gone = gone, .group = group});
    } catch (...) {
        drop_for_others(block);
        throw;
    }
    try {
        std::lock_guard lock(offers().mutex);
        *nonce = key.nonce;
        offers().of_block[block->id].exports.push_back(key);
    } catch (const std::bad_alloc&) {
        Broker::get().withdraw(key.index, key.nonce);
        throw;
    }
    return key;
}

void allow_all(const ExportKey& key, const std::vector<int32_t>& pids) {
    Broker& broker = Broker::get();
    try {
        for (const int32_t pid : pids)
            if (!broker.allow(key.index, key.nonce, pid, known_start(broker.start_of(pid)))) throw Refusal{.why = Why::closed, .role = "handle"};
    } catch (...) {
        broker.withdraw(key.index, key.nonce);
        throw;
    }
}

Block* adopt_offer(Offer& offer, Opening opening, uint32_t device, std::shared_ptr<Ledger> ledger) {
    Heap::get().begin_use();
    const Grant& grant = offer.grant;
    const bool read_only = !(grant.rights & kMayWrite);
    const bool key_has_maker = opening.exporter() != nullptr;   // else it came as a file, whose name anybody may write
    const ImportKey key{opening.exporter(), grant.block, read_only, ledger.get()};
    auto origin = std::make_unique<Import>(std::move(opening), key);
    Import& import = *origin;
    Block* const fresh = adopt_block(std::exchange(offer.fd, -1), grant.size, grant.block, device, read_only, std::move(origin));
    import.block = fresh;
    fresh->peer = grant.rights & kForPeers;
    try {
        if (ledger && device != kHost) {   // no device is charged for memory of the host
            const uint64_t entry = key_has_maker ? grant.entry : ledger->find(grant.block);
            fresh->account = held_with_others(std::move(ledger), grant.device, grant.size, grant.block, entry);
        }
        std::unique_lock lock(adopted().mutex);
        Block*& known = adopted().blocks[key];
        if (!known || known->size != grant.size || !hold_living(known)) return known = fresh;
        if (!key_has_maker && !is_same_file(known->fd, fresh->fd)) {
            Block* const false_friend = known;
            lock.unlock();
            drop(false_friend);
            return fresh;
        }
        Block* const mine = known;
        lock.unlock();
        drop(fresh);
        return mine;
    } catch (...) {
        drop(fresh);
        throw;
    }
}

int export_file(Block& block, bool read_only) {
    if (block.account) Heap::get().list(block);
    return file_of(block, read_only);
}

void keep_connection(std::shared_ptr<Exporter> exporter) {
    std::shared_ptr<Exporter> oldest;   // not let go under the lock
    std::lock_guard lock(kept().mutex);
    auto& newest = kept().newest;
    if (std::find(newest.begin(), newest.end(), exporter) != newest.end()) return;
    newest.push_back(std::move(exporter));
    if (newest.size() <= kMostKept) return;
    oldest = std::move(newest.front());
    newest.pop_front();
}

void forget_lost_connections() {
    std::vector<std::shared_ptr<Exporter>> lost;   // not let go under the lock
    std::lock_guard lock(kept().mutex);
    std::erase_if(kept().newest, [&](const std::shared_ptr<Exporter>& each) {
        const bool is_lost = each->is_lost();
        if (is_lost) lost.push_back(each);
        return is_lost;
    });
}

void forget_connections() {
    std::deque<std::shared_ptr<Exporter>> all;
    std::lock_guard lock(kept().mutex);
    all.swap(kept().newest);
}

}  // namespace peerlane

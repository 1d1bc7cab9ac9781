#include "stream/pools.h"

#include <algorithm>

#include "memory/heap.h"
#include "stream/scheduler.h"

namespace peerlane {

namespace {

constexpr uint64_t kSpare = 8;   // memory is used again for what needs at least 8 of 9 parts of it

bool is_over(const PoolFree& freed) { return freed.mark && freed.mark->state.load(std::memory_order_acquire) != Mark::pending; }

}  // namespace

std::shared_ptr<Mark> as_shared(Mark* mark) {
    return {mark, [](Mark* each) {
                if (each) each->drop();
            }};
}

Pools::Lock::Lock(const Pools& pools) : lock_(pools.mutex_, std::defer_lock) {
    if (!Heap::get().is_forked()) lock_.lock();
}

bool Pools::have_surplus(uint32_t device) const {
    if (!keep_memory()) return false;
    const Lock lock(*this);
    return std::any_of(all_.begin(), all_.end(), [&](const PoolMemory* each) { return each->device_ == device && each->has_surplus(); });
}

void Pools::record(FreedBefore& before, uint64_t stream) const {
    if (!keep_memory()) return;   // then no free is left to which an older record could refer
    const Lock lock(*this);
    before.frees.clear();
    for (const PoolMemory* pool : all_)
        for (const auto& [size, block] : pool->kept_)
            if (PoolMemory::is_behind(*block->freed, stream)) before.frees.push_back(block->freed);
}

void Pools::wait(const FreedBefore& before, uint64_t stream) const {
    if (!keep_memory()) return;
    const Lock lock(*this);
    for (const auto& each : before.frees) {
        const std::shared_ptr<PoolFree> freed = each.lock();
        if (freed && freed->pool->setting(PoolMemory::follow_events) && !PoolMemory::is_behind(*freed, stream)) freed->behind.push_back(stream);
    }
}

bool Pools::free(uint64_t address, Stream& stream) {
    std::shared_ptr<PoolMemory> pool;
    uint64_t allocation = 0;
    {
        const Lock lock(*this);
        const auto at = by_address_.find(address);
        if (at == by_address_.end()) return false;
        PoolBlock& block = *at->second;
        pool = block.pool->weak_from_this().lock();   // null: it is ending
        if (!pool || !block.is_in_use || !block.is_quick || !pool->is_quick_.load(std::memory_order_acquire)) return false;
        if (pool->kept_bytes_ > pool->used_bytes_ && pool->has_surplus()) return false;
        allocation = block.allocation;
        pool->end_use(block);
        note_change(at->second);
    }
    std::shared_ptr<Mark> mark;
    try {
        mark = as_shared(Scheduler::get().record(stream));
    } catch (...) {
        pool->use(allocation);
        throw;
    }
    pool->keep(allocation, stream.id, std::move(mark));
    return true;
}

void Pools::note_change(const std::shared_ptr<PoolBlock>& block) {
    if (!std::exchange(block->is_changed, true)) changed_.push_back(block);
}

std::vector<std::tuple<uint64_t, bool, bool>> Pools::take_changes() {
    std::vector<std::tuple<uint64_t, bool, bool>> changes;
    const Lock lock(*this);
    for (const auto& each : changed_)
        if (const std::shared_ptr<PoolBlock> block = each.lock()) {
            block->is_changed = false;
            changes.emplace_back(block->allocation, block->is_in_use, std::exchange(block->is_reused, false));
        }
    changed_.clear();
    return changes;
}

PoolMemory::PoolMemory(std::shared_ptr<Pools> pools, uint32_t device) : pools_(std::move(pools)), device_(device) {
    for (const Setting each : {follow_events, opportunistic, internal}) set(each, 1);
    const Pools::Lock lock(*pools_);
    pools_->all_.push_back(this);
}

PoolMemory::~PoolMemory() {
    const Pools::Lock lock(*pools_);
    std::erase(pools_->all_, this);
    while (!blocks_.empty()) forget(blocks_.begin()->second);
}

uint64_t PoolMemory::used() const {
    const Pools::Lock lock(*pools_);
    return used_bytes_;
}

uint64_t PoolMemory::kept() const {
    const Pools::Lock lock(*pools_);
    return kept_bytes_;
}

void PoolMemory::add(uint64_t allocation, uint64_t address, uint64_t size) {
    const auto block = std::make_shared<PoolBlock>(PoolBlock{.pool = this, .allocation = allocation, .address = address, .size = size});
    const Pools::Lock lock(*pools_);
    blocks_[allocation] = block;
    pools_->by_address_[address] = block;
    begin_use(*block);
}

bool PoolMemory::remove(uint64_t allocation) {
    const Pools::Lock lock(*pools_);
    const auto at = blocks_.find(allocation);
    if (at == blocks_.end()) return false;
    forget(at->second);
    return true;
}

void PoolMemory::forget(std::shared_ptr<PoolBlock> block) {
    if (block->is_in_use) end_use(*block);
    if (block->freed) end_free(*block);
    const auto at = pools_->by_address_.find(block->address);
    if (at != pools_->by_address_.end() && at->second == block) pools_->by_address_.erase(at);
    blocks_.erase(block->allocation);
}

void PoolMemory::end_quick_frees(uint64_t allocation) {
    const Pools::Lock lock(*pools_);
    if (PoolBlock* const block = find(allocation)) block->is_quick = false;
}

bool PoolMemory::is_in_use(uint64_t allocation) const {
    const Pools::Lock lock(*pools_);
    const PoolBlock* const block = find(allocation);
    return block && block->is_in_use;
}

bool PoolMemory::begin_free(uint64_t allocation) {
    const Pools::Lock lock(*pools_);
    PoolBlock* const block = find(allocation);
    if (!block || !block->is_in_use) return false;
    end_use(*block);
    return true;
}

void PoolMemory::keep(uint64_t allocation, uint64_t stream, std::shared_ptr<Mark> mark) {
    auto freed = std::make_shared<PoolFree>(PoolFree{.mark = std::move(mark), .stream = stream, .behind = {stream}, .pool = this});
    const Pools::Lock lock(*pools_);
    PoolBlock* const block = find(allocation);
    if (!block || block->is_in_use || block->freed) return;
    block->freed = std::move(freed);
    block->is_quick = true;
    kept_.emplace(block->size, block);
    kept_bytes_ += block->size;
    pools_->kept_.fetch_add(1, std::memory_order_acq_rel);
}

bool PoolMemory::use(uint64_t allocation) {
    const Pools::Lock lock(*pools_);
    PoolBlock* const block = find(allocation);
    if (!block || block->is_in_use) return false;
    if (block->freed) end_free(*block);
    begin_use(*block);
    return true;
}

template <class Look>
void PoolMemory::each_fitting(uint64_t size, const Look& look) const {
    for (auto at = kept_.lower_bound(size); at != kept_.end() && at->first - size <= size / kSpare; ++at)
        if (!look(*at->second)) return;
}

std::vector<std::pair<uint64_t, bool>> PoolMemory::fitting(uint64_t size, uint64_t stream) const {
    std::vector<std::pair<uint64_t, bool>> fitting;
    const Pools::Lock lock(*pools_);
    each_fitting(size, [&](const PoolBlock& block) {
        fitting.emplace_back(block.allocation, is_behind(*block.freed, stream));
        return true;
    });
    return fitting;
}

uint64_t PoolMemory::take(uint64_t size, const Stream& stream) {
    if (!is_quick_.load(std::memory_order_acquire)) return 0;
    const Pools::Lock lock(*pools_);
    PoolBlock* fits = nullptr;
    each_fitting(size, [&](PoolBlock& block) {
        const PoolFree& freed = *block.freed;
        if (is_behind(freed, stream.id) || (setting(opportunistic) && is_over(freed))) fits = &block;
        return !fits;
    });
    if (!fits) return 0;
    end_free(*fits);
    begin_use(*fits);
    fits->is_reused = true;
    pools_->note_change(blocks_.at(fits->allocation));
    return fits->address;
}

std::vector<uint64_t> PoolMemory::kept_allocations() const {
    std::vector<uint64_t> kept;
    const Pools::Lock lock(*pools_);
    for (const auto& [size, block] : kept_) kept.push_back(block->allocation);
    return kept;
}

std::shared_ptr<const PoolFree> PoolMemory::freed(uint64_t allocation) const {
    const Pools::Lock lock(*pools_);
    const PoolBlock* const block = find(allocation);
    return block ? block->freed : nullptr;
}

bool PoolMemory::is_behind(const PoolFree& freed, uint64_t stream) {
    return std::find(freed.behind.begin(), freed.behind.end(), stream) != freed.behind.end();
}

PoolBlock* PoolMemory::find(uint64_t allocation) const {
    const auto at = blocks_.find(allocation);
    return at == blocks_.end() ? nullptr : at->second.get();
}

void PoolMemory::begin_use(PoolBlock& block) {
    block.is_in_use = true;
    used_bytes_ += block.size;
    most_used_.store(std::max(most_used(), used_bytes_), std::memory_order_relaxed);
    most_reserved_.store(std::max(most_reserved(), used_bytes_ + kept_bytes_), std::memory_order_relaxed);
}

void PoolMemory::end_use(PoolBlock& block) {
    block.is_in_use = false;
    used_bytes_ -= block.size;
}

void PoolMemory::end_free(PoolBlock& block) {
    auto [first, last] = kept_.equal_range(block.size);
    kept_.erase(std::find_if(first, last, [&](const auto& each) { return each.second == &block; }));
    block.freed.reset();
    kept_bytes_ -= block.size;
    pools_->kept_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace peerlane

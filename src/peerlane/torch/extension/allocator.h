// Device memory for tensors: a caching allocator in stream order, and pinned memory of the host.
//
// A freed block may be used again by the stream that it was allocated on, whose operations run in order; by others' blocks it is
// kept apart.  record_stream() names other streams that use it: then it waits for marks of these.  The lock is never held while the
// GIL is taken: whoever frees a tensor may have it.
#pragma once
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ScopeExit.h>

#include "called.h"

namespace peerlane_torch {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kGrain = 512;                             // sizes are multiples
constexpr size_t kSmall = size_t{1} << 20;                 // at most: blocks of small segments
constexpr size_t kSmallSegment = size_t{2} << 20;          // peerlane charges a device in such units
constexpr size_t kLargeSegment = size_t{20} << 20, kOwnSegment = size_t{10} << 20;

inline size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

struct Segment {
    PyObject* buffer;
    char* address;
    size_t size;
    DeviceIndex device;
    bool is_small;
};

// What whoever gets memory knows to be over, for the checker: how far each other stream had come that used it before.
class Known {
  public:
    void add(peerlane::Position position) {
        if (!calls->is_checked()) return;
        for (auto& each : positions_)
            if (each.stream == position.stream) {
                each.sequence = std::max(each.sequence, position.sequence);
                return;
            }
        positions_.push_back(position);
    }
    void add(const Known& other) {
        for (const auto& each : other.positions_) add(each);
    }
    // Without a lock: this takes others.
    void note() const {
        for (const auto& each : positions_) calls->note_over(each);
    }

  private:
    std::vector<peerlane::Position> positions_;
};

struct Block {
    Segment* segment;
    Queue* queue;
    char* address;
    size_t size, requested = 0;
    bool is_used = false;
    unsigned marks = 0;              // that its end waits for
    unsigned holds = 0;              // of other processes that have it, or will
    bool is_ended = false;           // no tensor of this process has it
    Block *previous = nullptr, *next = nullptr;
    std::vector<Queue*> users;       // by record_stream()
    Known known;
};

class DeviceAllocator final : public c10::DeviceAllocator {
  public:
    // Of the current device, on its current stream.
    c10::DataPtr allocate(size_t size) override { return allocate(size, current_queue(current_device)); }
    c10::DataPtr allocate(size_t size, Queue& queue) {
        const Device device(kDevice, queue.device);
        if (size == 0) return {nullptr, device};
        Known known;
        char* const address = take(size, queue, known);
        if (calls->is_checked()) [[unlikely]] {
            known.note();
            calls->note_reuse(host_of(address), size);
        }
        return {address, address, &end, device};
    }
    // By the device's address, or by the host's.
    static void end(void* address) {
        if (!Devices::get().is_forked()) get().give_back(static_cast<char*>(address));   // in such a child it is the parent's
    }
    c10::DeleterFnPtr raw_deleter() const override { return &end; }
    std::mutex& mutex() { return mutex_; }   // Python is never asked while a thread has it: a fork takes it under the GIL
    bool has(const void* address) {
        const std::lock_guard lock(mutex_);
        return used_.contains(host_of(address));
    }
    // Keep a block, also if its tensors end; false: it is no memory of this allocator.
    bool hold(const void* address) {
        const std::lock_guard lock(mutex_);
        const auto entry = used_.find(host_of(address));
        if (entry == used_.end()) return false;
        ++entry->second->holds;
        return true;
    }
    void let_go(void* address) {
        {
            const std::lock_guard lock(mutex_);
            Block* const block = used_.at(host_of(address));
            if (--block->holds != 0 || !block->is_ended) return;
            block->is_ended = false;
        }
        give_back(static_cast<char*>(address));
    }
    char* device_address(void* address) {
        const std::lock_guard lock(mutex_);
        return used_.at(host_of(address))->address;
    }
    static DeviceAllocator& get() {
        static auto* allocator = new DeviceAllocator;   // tensors may outlive everything else
        return *allocator;
    }

    void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(host_of(to), host_of(from), size); }
    bool initialized() override { return true; }

    void emptyCache(c10::MempoolId_t = {0, 0}) override {
        for (DeviceIndex device = 0; device < Devices::get().count(); ++device) empty(device);
    }
    void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
        if (pointer.get_deleter() != &end) return;
        Queue& queue = Devices::get().queue(stream);
        const std::lock_guard lock(mutex_);
        Block* const block = used_.at(host_of(pointer.get_context()));
        if (&queue != block->queue && std::ranges::find(block->users, &queue) == block->users.end()) block->users.push_back(&queue);
    }
    DeviceStats getDeviceStats(DeviceIndex device) override {
        const std::lock_guard lock(mutex_);
        return of(device).stats;
    }
    void resetAccumulatedStats(DeviceIndex device) override {
        const std::lock_guard lock(mutex_);
        each_array(of(device).stats, [](auto& stat) { stat.reset_accumulated(); });
        of(device).stats.num_alloc_retries = of(device).stats.num_ooms = 0;
    }
    void resetPeakStats(DeviceIndex device) override {
        const std::lock_guard lock(mutex_);
        each_array(of(device).stats, [](auto& stat) { stat.reset_peak(); });
    }
    std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
        return with_python([&](py::handle module) { return module.attr("memory_info")(static_cast<int>(device)).cast<std::pair<size_t, size_t>>(); });
    }
    // Of each segment: (address, bytes, stream, is small, blocks), and of each block: (address, bytes, bytes asked for, state).
    using BlockFacts = std::tuple<uintptr_t, size_t, size_t, const char*>;
    using SegmentFacts = std::tuple<uintptr_t, size_t, c10::StreamId, bool, std::vector<BlockFacts>>;
    std::vector<SegmentFacts> snapshot(DeviceIndex device) {
        std::vector<SegmentFacts> segments;
        const std::lock_guard lock(mutex_);
        for (const auto& [address, first] : of(device).segments) {
            std::vector<BlockFacts> blocks;
            for (const Block* block = first; block; block = block->next) {
                const char* const state = !block->is_used ? "inactive" : block->marks != 0 ? "active_pending_free" : "active_allocated";
                blocks.emplace_back(reinterpret_cast<uintptr_t>(block->address), block->size, block->is_used ? block->requested : 0, state);
            }
            const Segment& segment = *first->segment;
            segments.emplace_back(reinterpret_cast<uintptr_t>(address), segment.size, first->queue->as_stream().id(), segment.is_small, std::move(blocks));
        }
        return segments;
    }
    // The most bytes that the segments of a device may have.
    void set_limit(DeviceIndex device, size_t bytes) {
        const std::lock_guard lock(mutex_);
        of(device).limit = bytes;
    }

  private:
    struct Order {
        bool operator()(const Block* a, const Block* b) const {
            return std::tuple(a->queue, a->size, a->address) < std::tuple(b->queue, b->size, b->address);
        }
    };
    struct Pending {   // a block that waits for a mark
        void* mark;
        Block* block;
    };
    struct OfDevice {
        std::set<Block*, Order> free[2];         // large, small
        std::map<char*, Block*> segments;        // by address: the first block
        std::vector<Pending> pending;
        DeviceStats stats;
        size_t limit = SIZE_MAX;
        size_t asked_for = 0;                    // bytes of segments that threads are about to make
    };

    OfDevice& of(DeviceIndex device) { return devices_.at(device); }

    template <class Visit>
    static void each_array(DeviceStats& stats, const Visit& visit) {
        for (StatArray* const each : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes, &stats.reserved_bytes,
                                      &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes})
            for (auto& stat : *each) visit(stat);
    }
    template <class Change>
    static void count(StatArray& stats, bool is_small, const Change& change) {
        change(stats[static_cast<size_t>(StatType::AGGREGATE)]);
        change(stats[static_cast<size_t>(is_small ? StatType::SMALL_POOL : StatType::LARGE_POOL)]);
    }
    static void grow(StatArray& stats, bool is_small, size_t amount) {
        count(stats, is_small, [&](auto& stat) { stat.increase(amount); });
    }
    static void shrink(StatArray& stats, bool is_small, size_t amount) {
        count(stats, is_small, [&](auto& stat) { stat.decrease(amount); });
    }

    char* take(size_t requested, Queue& queue, Known& known) {
        TORCH_CHECK(requested <= size_t{1} << 62, kDevice, ":", static_cast<int>(queue.device), ": ", requested, " bytes are more than any device has");
        const size_t size = round_up(requested, kGrain);
        const bool is_small = size <= kSmall;
        {
            const std::lock_guard lock(mutex_);
            settle(of(queue.device));
            if (Block* const block = find(size, is_small, queue)) {
                known = block->known;
                return use(block, requested, size)->address;
            }
        }
        Segment* const segment = make_segment(requested, size, is_small, queue.device);
        const std::lock_guard lock(mutex_);
        OfDevice& device = of(queue.device);
        auto* const block = new Block{segment, &queue, segment->address, segment->size};
        device.segments[segment->address] = block;
        grow(device.stats.segment, is_small, 1);
        device.asked_for -= segment->size;
        grow(device.stats.reserved_bytes, is_small, segment->size);
        ++device.stats.num_device_alloc;
        return use(block, requested, size)->address;
    }
    // The smallest free block of the stream that is large enough; null: none.  Taken out of the set.
    Block* find(size_t size, bool is_small, Queue& queue) {
        Block wanted{nullptr, &queue, nullptr, size};
        auto& free = of(queue.device).free[is_small];
        const auto found = free.lower_bound(&wanted);
        if (found == free.end() || (*found)->queue != &queue) return nullptr;
        Block* const block = *found;
        free.erase(found);
        if (block->previous || block->next) {
            shrink(of(queue.device).stats.inactive_split, is_small, 1);
            shrink(of(queue.device).stats.inactive_split_bytes, is_small, block->size);
        }
        return block;
    }
    Block* use(Block* block, size_t requested, size_t size) {
        OfDevice& device = of(block->segment->device);
        const bool is_small = block->segment->is_small;
        if (block->size - size >= (is_small ? kGrain : kSmall)) {   // the rest is a free block
            auto* const rest = new Block{block->segment, block->queue, block->address + size, block->size - size};
            rest->known = block->known;
            rest->previous = block;
            rest->next = block->next;
            if (rest->next) rest->next->previous = rest;
            block->next = rest;
            block->size = size;
            add_free(rest);
        }
        used_.emplace(host_of(block->address), block);
        block->is_used = true;
        block->requested = requested;
        grow(device.stats.allocation, is_small, 1);
        grow(device.stats.allocated_bytes, is_small, block->size);
        grow(device.stats.active, is_small, 1);
        grow(device.stats.active_bytes, is_small, block->size);
        grow(device.stats.requested_bytes, is_small, requested);
        return block;
    }
    void give_back(char* address) {
        std::unique_lock lock(mutex_);
        const auto entry = used_.find(host_of(address));
        Block* const block = entry->second;
        if (block->holds != 0) {
            block->is_ended = true;
            return;
        }
        used_.erase(entry);
        const std::vector<Queue*> users = std::exchange(block->users, {});
        std::vector<void*> marks;
        if (!users.empty()) {
            lock.unlock();
            for (Queue* const user : users)
                if (void* const mark = calls->record(user->native)) marks.push_back(mark);   // refused: it takes nothing any more
            lock.lock();
        }
        OfDevice& device = of(block->segment->device);
        shrink(device.stats.allocation, block->segment->is_small, 1);
        shrink(device.stats.allocated_bytes, block->segment->is_small, block->size);
        shrink(device.stats.requested_bytes, block->segment->is_small, block->requested);
        block->marks = static_cast<unsigned>(marks.size());
        for (void* const mark : marks) device.pending.push_back({mark, block});
        if (marks.empty()) retire(block);
    }
    // Nothing uses it any more.
    void retire(Block* block) {
        OfDevice& device = of(block->segment->device);
        shrink(device.stats.active, block->segment->is_small, 1);
        shrink(device.stats.active_bytes, block->segment->is_small, block->size);
        block->is_used = false;
        if (Block* const next = block->next; next && !next->is_used) absorb(block, next);
        if (Block* const previous = block->previous; previous && !previous->is_used) {
            remove_free(previous);
            absorb_into(previous, block);
            block = previous;
        }
        add_free(block);
    }
    void absorb(Block* block, Block* next) {
        remove_free(next);
        absorb_into(block, next);
    }
    static void absorb_into(Block* block, Block* next) {
        block->known.add(next->known);
        block->size += next->size;
        block->next = next->next;
        if (block->next) block->next->previous = block;
        delete next;
    }
    void add_free(Block* block) {
        OfDevice& device = of(block->segment->device);
        device.free[block->segment->is_small].insert(block);
        if (!block->previous && !block->next) return;
        grow(device.stats.inactive_split, block->segment->is_small, 1);
        grow(device.stats.inactive_split_bytes, block->segment->is_small, block->size);
    }
    void remove_free(Block* block) {
        OfDevice& device = of(block->segment->device);
        device.free[block->segment->is_small].erase(block);
        shrink(device.stats.inactive_split, block->segment->is_small, 1);
        shrink(device.stats.inactive_split_bytes, block->segment->is_small, block->size);
    }
    // Take back the blocks whose marks are over.
    void settle(OfDevice& device) {
        std::erase_if(device.pending, [this](const Pending& each) {
            if (!calls->is_over(each.mark)) return false;
            each.block->known.add(calls->position(each.mark));
            calls->drop(each.mark);
            if (--each.block->marks == 0) retire(each.block);
            return true;
        });
    }

    Segment* make_segment(size_t requested, size_t size, bool is_small, DeviceIndex device) {
        const size_t whole = is_small ? kSmallSegment : size < kOwnSegment ? kLargeSegment : round_up(size, kSmallSegment);
        std::string refusal;
        for (const size_t bytes : {whole, round_up(size, kSmallSegment)}) {   // under pressure no more than is asked for
            if (Segment* const segment = try_segment(bytes, is_small, device, refusal)) return segment;
            empty(device);
            {
                const std::lock_guard lock(mutex_);
                ++of(device).stats.num_alloc_retries;
            }
            if (Segment* const segment = try_segment(bytes, is_small, device, refusal)) return segment;
        }
        std::ostringstream text;
        {
            const std::lock_guard lock(mutex_);
            DeviceStats& stats = of(device).stats;
            ++stats.num_ooms;
            text << c10::DeviceTypeName(kDevice) << " out of memory. " << requested << " bytes were asked for on " << kDevice << ":" << static_cast<int>(device) << ". Tensors of this process have "
                 << stats.allocated_bytes[0].current << " bytes in " << stats.allocation[0].current << (stats.allocation[0].current == 1 ? " allocation" : " allocations")
                 << "; torch has reserved " << stats.reserved_bytes[0].current << " bytes, and what it had cached was returned. " << refusal;
        }
        TORCH_CHECK_WITH(OutOfMemoryError, false, text.str());
    }
    Segment* try_segment(size_t size, bool is_small, DeviceIndex device, std::string& refusal) {
        {
            const std::lock_guard lock(mutex_);
            OfDevice& at = of(device);
            const size_t limit = at.limit, reserved = static_cast<size_t>(at.stats.reserved_bytes[0].current) + at.asked_for;
            if (reserved > limit || size > limit - reserved) {
                refusal = c10::str("This process may reserve ", limit, " bytes of the device: set_per_process_memory_fraction() has set that");
                return nullptr;
            }
            at.asked_for += size;
        }
        Segment* made = nullptr;
        const auto settled = c10::make_scope_exit([&] {
            if (made) return;   // take() counts it
            const std::lock_guard lock(mutex_);
            of(device).asked_for -= size;
        });
        return made = with_python([&](py::handle module) -> Segment* {
            const py::object answer = module.attr("allocate")(static_cast<int>(device), size);
            if (py::isinstance<py::str>(answer)) {   // why there is no room
                refusal = answer.cast<std::string>();
                return nullptr;
            }
            auto* const address = reinterpret_cast<char*>(answer.attr("address").cast<uintptr_t>());
            return new Segment{py::object(answer).release().ptr(), address, size, device, is_small};
        });
    }
    // Return the segments that no tensor uses.
    void empty(DeviceIndex device) {
        Devices::get().each_queue(device, [](Queue& queue) { queue.synchronize(); });   // they may be used still
        std::vector<Segment*> unused;
        {
            const std::lock_guard lock(mutex_);
            OfDevice& at = of(device);
            settle(at);
            std::erase_if(at.segments, [&](const auto& entry) {
                Block* const block = entry.second;
                if (block->is_used || block->next) return false;
                at.free[block->segment->is_small].erase(block);
                shrink(at.stats.segment, block->segment->is_small, 1);
                shrink(at.stats.reserved_bytes, block->segment->is_small, block->segment->size);
                ++at.stats.num_device_free;
                unused.push_back(block->segment);
                delete block;
                return true;
            });
        }
        if (unused.empty()) return;
        with_python([&](py::handle) {
            for (Segment* const segment : unused) {
                py::handle(segment->buffer).attr("close")();
                Py_DECREF(segment->buffer);
                delete segment;
            }
        });
    }

    std::mutex mutex_;
    std::unordered_map<char*, Block*> used_;   // by the host's address
    std::array<OfDevice, Devices::kMost> devices_;
};

inline DeviceAllocator& allocator() { return DeviceAllocator::get(); }

// Pinned memory of the host: blocks of powers of two, each used again when the copies that used it are over.
class PinnedAllocator final : public at::HostAllocator {
  public:
    static PinnedAllocator& get() {
        static auto* allocator = new PinnedAllocator;
        return *allocator;
    }
    c10::DataPtr allocate(size_t size) override {
        if (size == 0) return {nullptr, Device(c10::DeviceType::CPU)};
        Devices::get().check_process();
        // The checker closes pages that a copy fills, so there none has room that is nobody's.
        const size_t whole = calls->is_checked() ? size : std::bit_ceil(std::max(size, kGrain));
        if (Pinned* const block = take(whole)) {
            block->known.note();
            return pointer(*block);
        }
        const auto began = std::chrono::steady_clock::now();
        const auto [buffer, address] = with_python([&](py::handle module) {
            py::object made = module.attr("allocate_pinned")(whole);
            auto* const at = reinterpret_cast<char*>(made.attr("address").template cast<uintptr_t>());
            return std::pair(made.release().ptr(), at);
        });
        const std::lock_guard lock(mutex_);
        Pinned& block = blocks_[address];
        block = {buffer, address, whole, {}, {}};
        stats_.allocations.increase(1);
        stats_.allocated_bytes.increase(whole);
        ++stats_.num_host_alloc;
        stats_.host_alloc_time.increase(microseconds_since(began));
        note_active(block);
        return pointer(block);
    }
    // What no copy uses any more goes back to the host.
    void empty_cache() override {
        std::vector<PyObject*> buffers;
        {
            const std::lock_guard lock(mutex_);
            std::erase_if(free_, [&](const auto& each) {
                Pinned& block = *each.second;
                if (!is_over(block)) return false;
                buffers.push_back(block.buffer);
                stats_.allocations.decrease(1);
                stats_.allocated_bytes.decrease(block.size);
                ++stats_.num_host_free;
                blocks_.erase(block.address);
                return true;
            });
        }
        if (buffers.empty()) return;
        const auto began = std::chrono::steady_clock::now();
        with_python([&](py::handle) {
            for (PyObject* const each : buffers) py::reinterpret_steal<py::object>(each).attr("close")();
        });
        const std::lock_guard lock(mutex_);
        stats_.host_free_time.increase(microseconds_since(began));
    }
    bool record_event(void* address, void* /*context*/, c10::Stream stream) override { return note_use(address, Devices::get().queue(stream)); }
    at::HostStats get_stats() override {
        const std::lock_guard lock(mutex_);
        return stats_;
    }
    void reset_accumulated_stats() override {
        const std::lock_guard lock(mutex_);
        each_stat(stats_, [](const char*, auto& stat) { stat.reset_accumulated(); });
        stats_.num_host_alloc = stats_.num_host_free = 0;
    }
    void reset_peak_stats() override {
        const std::lock_guard lock(mutex_);
        each_stat(stats_, [](const char*, auto& stat) { stat.reset_peak(); });
    }
    // As torch.cuda.host_memory_stats_as_nested_dict has it.
    py::dict named_stats() {
        const at::HostStats stats = get_stats();
        py::dict named;
        each_stat(stats, [&](const char* name, const auto& stat) { named[name] = numbers_of(stat); });
        named["num_host_alloc"] = stats.num_host_alloc;
        named["num_host_free"] = stats.num_host_free;
        return named;
    }
    c10::DeleterFnPtr raw_deleter() const override { return &end; }
    void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }

    std::mutex& mutex() { return mutex_; }   // as DeviceAllocator's
    bool has(const void* address) { return find(address) != nullptr || is_registered(address); }
    // Memory that the program made itself is pinned until it takes that back; `size` 0: it does.
    void note_registered(const void* address, size_t size) {
        at::globalContext().lazyInitDevice(kDevice);   // before, torch asks for no pinned memory
        const std::lock_guard lock(mutex_);
        if (size == 0)
            registered_.erase(static_cast<const char*>(address));
        else
            registered_[static_cast<const char*>(address)] = size;
    }
    // A copy that was submitted to the stream uses the bytes; false: they are none of this allocator.
    bool note_use(const void* address, Queue& queue) {
        Pinned* const block = find(address);
        if (!block) return false;
        void* const mark = calls->record(queue.native);
        const std::lock_guard lock(mutex_);
        if (mark) block->marks.push_back(mark);
        return true;
    }

  private:
    struct Pinned {
        PyObject* buffer;
        char* address;
        size_t size;
        std::vector<void*> marks;
        Known known;
    };
    // One that no copy uses any more; null: there is none.
    Pinned* take(size_t size) {
        const std::lock_guard lock(mutex_);
        for (auto at = free_.lower_bound(size); at != free_.end() && at->first == size; ++at) {
            Pinned* const block = at->second;
            if (!is_over(*block)) continue;
            free_.erase(at);
            note_active(*block);
            return block;
        }
        return nullptr;
    }
    // The lock is held.
    void note_active(const Pinned& block) {
        stats_.active_requests.increase(1);
        stats_.active_bytes.increase(block.size);
    }
    template <class Stats, class Visit>
    static void each_stat(Stats& stats, const Visit& visit) {
        visit("active_requests", stats.active_requests);
        visit("active_bytes", stats.active_bytes);
        visit("allocations", stats.allocations);
        visit("allocated_bytes", stats.allocated_bytes);
        visit("host_alloc_time", stats.host_alloc_time);
        visit("host_free_time", stats.host_free_time);
    }
    static py::dict numbers_of(const c10::CachingAllocator::Stat& stat) {
        return py::dict(py::arg("current") = stat.current, py::arg("peak") = stat.peak, py::arg("allocated") = stat.allocated, py::arg("freed") = stat.freed);
    }
    static py::dict numbers_of(const c10::CachingAllocator::DurationStat& stat) {
        const int64_t average = stat.count == 0 ? 0 : stat.total / stat.count;
        return py::dict(py::arg("total") = stat.total, py::arg("max") = stat.max, py::arg("min") = stat.min, py::arg("count") = stat.count, py::arg("avg") = average);
    }
    static int64_t microseconds_since(std::chrono::steady_clock::time_point began) {
        return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - began).count();
    }
    static c10::DataPtr pointer(Pinned& block) { return {block.address, block.address, &end, Device(c10::DeviceType::CPU)}; }
    static void end(void* address) {
        PinnedAllocator& self = get();
        const std::lock_guard lock(self.mutex_);
        Pinned& block = self.blocks_.at(static_cast<char*>(address));
        self.stats_.active_requests.decrease(1);
        self.stats_.active_bytes.decrease(block.size);
        self.free_.emplace(block.size, &block);
    }
    static bool is_over(Pinned& block) {
        std::erase_if(block.marks, [&](void* mark) {
            if (!calls->is_over(mark)) return false;
            block.known.add(calls->position(mark));
            calls->drop(mark);
            return true;
        });
        return block.marks.empty();
    }
    Pinned* find(const void* address) {
        const std::lock_guard lock(mutex_);
        const auto after = blocks_.upper_bound(const_cast<char*>(static_cast<const char*>(address)));
        if (after == blocks_.begin()) return nullptr;
        Pinned& block = std::prev(after)->second;
        return static_cast<const char*>(address) < block.address + block.size ? &block : nullptr;
    }
    bool is_registered(const void* address) {
        const std::lock_guard lock(mutex_);
        const auto after = registered_.upper_bound(static_cast<const char*>(address));
        return after != registered_.begin() && static_cast<const char*>(address) < std::prev(after)->first + std::prev(after)->second;
    }

    std::mutex mutex_;
    std::map<char*, Pinned> blocks_;                  // by address
    std::map<const char*, size_t> registered_;
    std::multimap<size_t, Pinned*> free_;
    at::HostStats stats_;
};

}  // namespace peerlane_torch

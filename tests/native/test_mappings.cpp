// Physical blocks mapped into reserved addresses, their rights, and allocations that move so that they can be shared.
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>

#include <thread>
#include <vector>

#include "check.h"
#include "copy/copy_engine.h"

using namespace peerlane;

namespace {

uint64_t address(const void* host) { return reinterpret_cast<uint64_t>(host); }

std::vector<char> noise(std::mt19937_64& random, uint64_t size) {
    std::vector<char> bytes(size);
    for (char& byte : bytes) byte = static_cast<char>(random() >> 11);
    return bytes;
}

std::vector<char> read(uint64_t from, uint64_t size) {
    std::vector<char> out(size);
    copy(address(out.data()), from, size);
    return out;
}

uint32_t device_of(uint64_t capacity) { return Heap::get().add_device({.capacity = capacity}, nullptr, 0); }

void blocks_side_by_side_are_one_range(std::mt19937_64& random, uint32_t device) {
    Heap& heap = Heap::get();
    const uint64_t blocks = 5, span = blocks * kGranule;
    const ReservationPtr reservation = heap.reserve((blocks + 1) * kGranule, 0, device);
    const uint64_t base = heap.address_of(*reservation);
    std::vector<Extent*> mapped;
    Block* first = heap.create_physical(device, kGranule, true);
    mapped.push_back(heap.map(*reservation, 0, first));
    for (uint64_t i = 1; i + 1 < blocks; ++i) {
        Block* block = heap.create_physical(device, kGranule, true);
        mapped.push_back(heap.map(*reservation, i * kGranule, block));
        drop(block);
    }
    mapped.push_back(heap.map(*reservation, (blocks - 1) * kGranule, first));   // one block twice
    const auto data = noise(random, span);
    copy(base + kGranule - 9, address(data.data()), 3 * kGranule);   // across three mappings
    CHECK(std::equal(data.begin(), data.begin() + 3 * kGranule, read(base + kGranule - 9, 3 * kGranule).begin()));
    copy(base + 5, address("twice"), 5);
    CHECK(memcmp(read(base + (blocks - 1) * kGranule + 5, 5).data(), "twice", 5) == 0);
    const auto beyond = refused([&] { copy(base + kGranule, base, span); });
    CHECK(beyond && beyond->why == Why::out_of_bounds && beyond->within.size == span - kGranule);
    CHECK(refuses(Why::overlap, [&] { heap.map(*reservation, kGranule, first); }));
    CHECK(refuses(Why::out_of_bounds, [&] { heap.map(*reservation, (blocks + 1) * kGranule, first); }));
    CHECK(refuses(Why::out_of_bounds, [&] { heap.map(*reservation, UINT64_MAX & ~(kGranule - 1), first); }));
    CHECK(refuses(Why::not_mapped, [&] { heap.unmap(*reservation, 64); }));
    CHECK(refuses(Why::not_mapped, [&] { heap.unmap(*reservation, blocks * kGranule); }));
    drop(first);

    // Unmapped while in use: bytes and addresses stay until the last pin goes.
    const Range range = heap.resolve("x", base, span);
    heap.unmap(*reservation, kGranule);
    CHECK(refuses(Why::not_mapped, [&] { heap.unmap(*reservation, kGranule); }));
    CHECK(refuses(Why::unknown_address, [&] { heap.resolve("x", base + kGranule, 1); }));
    heap.release(*reservation);
    CHECK(refuses(Why::unknown_address, [&] { heap.resolve("x", base, 1); }));
    CHECK(memcmp(range.host + 5, "twice", 5) == 0);
    heap.unpin(range);
    CHECK(refuses(Why::closed, [&] { heap.map(*reservation, 0, first); }));
    heap.release(*reservation);
}

void a_mapping_ends_at_its_limit(uint32_t device) {
    Heap& heap = Heap::get();
    const ReservationPtr reservation = heap.reserve(2 * kGranule, 0, device);
    const uint64_t base = heap.address_of(*reservation);
    Block* block = heap.create_physical(device, kGranule, true);
    heap.map(*reservation, 0, block, 3, {}, 1000);
    heap.map(*reservation, kGranule, block);
    drop(block);
    fill(base, 1, 1, 1000);
    CHECK(read(base + kGranule, 1001) == [] { std::vector<char> bytes(1001, 1); bytes[1000] = 0; return bytes; }());
    const auto beyond = refused([&] { fill(base + 999, 1, 1, 2); });
    CHECK(beyond && beyond->why == Why::out_of_bounds && beyond->within.size == 1000);
    CHECK(refuses(Why::out_of_bounds, [&] { fill(base, 1, 1, kGranule + 1); }));   // the next mapping does not begin at its end
    CHECK(refuses(Why::unknown_address, [&] { fill(base + 1000, 1, 1, 1); }));
    heap.set_access(*reservation, 0, 2 * kGranule, {device, Mapping::kRead});
    heap.unmap(*reservation, 0);
    CHECK(refuses(Why::unknown_address, [&] { fill(base, 1, 1, 1); }));
    heap.map(*reservation, 0, block);
    heap.release(*reservation);
}

void a_range_grows_in_place(uint32_t device) {
    Heap& heap = Heap::get();
    const ReservationPtr one = heap.reserve(kGranule, 0, device);
    CHECK(heap.grow(*one, 3 * kGranule) && one->span == 3 * kGranule && heap.grow(*one, 1));
    const ReservationPtr next = heap.reserve(kGranule, 0, device, heap.address_of(*one) + one->span);
    CHECK(heap.address_of(*next) == heap.address_of(*one) + one->span);   // the wanted address was free
    CHECK(!heap.grow(*one, 4 * kGranule) && one->span == 3 * kGranule);
    heap.release(*next);
    CHECK(heap.grow(*one, 4 * kGranule));
    const ReservationPtr aligned = heap.reserve(kGranule, uint64_t{1} << 30, device, heap.address_of(*one));
    CHECK(heap.address_of(*aligned) % (uint64_t{1} << 30) == 0);
    heap.release(*one);
    heap.release(*aligned);
    CHECK(refuses(Why::address_space, [&] { heap.reserve(UINT64_MAX, 0, device); }));
    CHECK(refuses(Why::address_space, [&] { heap.reserve(kGranule, uint64_t{1} << 31, device); }));
}

void rights_are_those_of_a_device_that_takes_part(uint32_t a, uint32_t b) {
    Heap& heap = Heap::get();
    const ReservationPtr reservation = heap.reserve(2 * kGranule, 0, a);
    const uint64_t at = heap.address_of(*reservation);
    for (uint64_t i = 0; i < 2; ++i) {
        Block* block = heap.create_physical(a, kGranule, true);
        heap.map(*reservation, i * kGranule, block, 0, {{b, Mapping::kRead}});
        drop(block);
    }
    char bytes[8] = {};
    const uint64_t host = address(bytes), on_b = heap.address_of(heap.allocate(b, 64, false));
    copy(on_b, at, 8);                                                             // b may read
    CHECK(refuses(Why::no_access, [&] { copy(at, on_b, 8); }));                    // b may not write
    const auto refusal = refused([&] { copy(host, at, 8); });                      // a owns it and may not write either
    CHECK(refusal && refusal->why == Why::no_access && refusal->device == a && refusal->address == at);
    CHECK(refuses(Why::no_access, [&] { fill(at, 1, 1, 8); }));
    heap.set_access(*reservation, 0, kGranule, {a, 3});
    fill(at, 1, 1, 8);
    CHECK(refuses(Why::no_access, [&] { fill(at + kGranule - 4, 1, 1, 8); }));     // across two mappings
    CHECK(heap.rights(*reservation, 77, a) == 3 && heap.rights(*reservation, kGranule, a) == 0 && heap.rights(*reservation, 5, b) == 1);
    CHECK(refuses(Why::not_mapped, [&] { heap.set_access(*reservation, 0, kGranule + 1, {a, 3}); }));
    CHECK(refuses(Why::not_mapped, [&] { heap.set_access(*reservation, 0, 3 * kGranule, {a, 3}); }));
    CHECK(heap.rights(*reservation, kGranule, a) == 0);                                  // no right has changed
    heap.set_access(*reservation, 0, 2 * kGranule, {a, 3});
    fill(at + kGranule - 4, 7, 1, 8);
    const Range dst = heap.resolve("dst", at, 8);
    heap.set_access(*reservation, 0, kGranule, {a, 0});
    heap.check_access({}, dst, b);                                                 // the stream's device decides
    CHECK(refuses(Why::no_access, [&] { heap.check_access(dst, {}, b); }));
    heap.unpin(dst);
    heap.release(*reservation);
}

// With pages of its own it stays where it is, else it moves to other ones.
void a_small_allocation_moves_out_of_its_slab(std::mt19937_64& random, uint32_t device, uint64_t size) {
    Heap& heap = Heap::get();
    Extent* const mine = heap.allocate(device, size, false);
    Extent* const neighbour = heap.allocate(device, size, false);
    const uint64_t at = heap.address_of(mine);
    const auto data = noise(random, size), others = noise(random, size);
    copy(at, address(data.data()), size);
    copy(heap.address_of(neighbour), address(others.data()), size);
    uint64_t within = 1;

    const Range other = heap.resolve("x", at, 1);
    CHECK(heap.pin(mine));
    CHECK(refuses(Why::in_use, [&] { heap.share(mine, within); }));   // a view holds a pointer to the bytes
    heap.unpin(other);
    Block* const block = heap.share(mine, within);
    heap.unpin(mine);
    CHECK(within == 0 && block->size == 8192 && heap.address_of(mine) == at && read(at, size) == data);
    CHECK(block != neighbour->block);
    void* const again = mmap(nullptr, block->size, PROT_READ, MAP_SHARED, block->fd, 0);
    copy(at + 10, address("seen"), 4);
    CHECK(memcmp(static_cast<char*>(again) + 10, "seen", 4) == 0);
    munmap(again, block->size);

    CHECK(heap.pin(mine));
    CHECK(heap.share(mine, within) == block);   // it does not move twice
    heap.unpin(mine);
    drop(block);
    drop(block);
    heap.retire(mine, mine->id.load());
    CHECK(refuses(Why::unknown_address, [&] { heap.resolve("x", at, 1); }));
    CHECK(read(heap.address_of(neighbour), size) == others);
    copy(heap.address_of(neighbour), address("here"), 4);
    heap.retire(neighbour, neighbour->id.load());
}

void what_was_never_written_takes_no_memory() {
    Heap& heap = Heap::get();
    const uint32_t device = heap.add_device({.capacity = uint64_t{1} << 40}, nullptr, 0);
    for (const uint64_t size : {uint64_t{5000}, uint64_t{8192}}) {
        Extent* const mine = heap.allocate(device, size, false);
        uint64_t within;
        CHECK(heap.pin(mine));
        Block* const block = heap.share(mine, within);
        heap.unpin(mine);
        struct stat file {};
        CHECK(fstat(block->fd, &file) == 0 && file.st_blocks == 0);
        CHECK(read(heap.address_of(mine), size) == std::vector<char>(size));
        drop(block);
        heap.retire(mine, mine->id.load());
    }
    heap.close_device(device);
}

// The host uses its address before the move, after it, and when another allocation has the slot.
void what_the_host_uses_stays_where_it_is() {
    Heap& heap = Heap::get();
    const uint32_t device = heap.add_device({.capacity = uint64_t{1} << 40, .host_access = true}, nullptr, 0);
    for (const uint64_t size : {uint64_t{10}, uint64_t{5000}, uint64_t{1} << 20, kGranule - 1}) {
        Extent* const neighbour = heap.allocate(device, size, false);
        Extent* const mine = heap.allocate(device, size, false);
        auto* const next = reinterpret_cast<char*>(heap.address_of(neighbour));
        auto* const bytes = reinterpret_cast<char*>(heap.address_of(mine));
        memcpy(bytes, "before", 6);
        memset(next, 'n', size);
        uint64_t within;
        CHECK(heap.pin(mine));
        Block* const block = heap.share(mine, within);
        heap.unpin(mine);
        CHECK(memcmp(bytes, "before", 6) == 0 && heap.host_of(mine, 0) == bytes);
        bytes[0] = 'B';
        CHECK(read(heap.address_of(mine), 6) == std::vector<char>({'B', 'e', 'f', 'o', 'r', 'e'}));
        void* const again = mmap(nullptr, block->size, PROT_READ, MAP_SHARED, block->fd, 0);
        CHECK(memcmp(again, "Before", 6) == 0);
        heap.retire(mine, mine->id.load());
        std::vector<Extent*> others;   // one of them has the slot
        while (others.size() < 9000 && (others.empty() || others.back()->offset != mine->offset || others.back() != mine))
            others.push_back(heap.allocate(device, size, false));
        CHECK(others.back() == mine || size == kGranule - 1);
        memset(reinterpret_cast<char*>(heap.address_of(others.back())), 'o', size);
        CHECK(memcmp(again, "Before", 6) == 0);   // the shared block keeps its bytes
        for (uint64_t i = 0; i < size; ++i) CHECK(next[i] == 'n');
        munmap(again, block->size);
        drop(block);
        for (Extent* extent : others) heap.retire(extent, extent->id.load());
        heap.retire(neighbour, neighbour->id.load());
    }
    heap.close_device(device);
}

// Other threads use the allocation while it moves; TSan and ASan see the most here.
void copies_meet_a_move(uint32_t device) {
    Heap& heap = Heap::get();
    for (int round = 0; round < 200; ++round) {
        Extent* const extent = heap.allocate(device, 4096, false);
        const uint64_t at = heap.address_of(extent);
        fill(at, 1, 1, 4096);
        std::atomic<bool> stop{false};
        std::thread user([&] {
            while (!stop) {
                char bytes[64] = {};
                copy(address(bytes), at + 128, 64);
                for (char byte : bytes) CHECK(byte == 1);
            }
        });
        CHECK(heap.pin(extent));
        uint64_t within;
        Block* block = nullptr;
        while (!block) {
            try {
                block = heap.share(extent, within);
            } catch (const Refusal& refusal) {
                CHECK(refusal.why == Why::in_use);
            }
        }
        heap.unpin(extent);
        stop = true;
        user.join();
        drop(block);
        heap.retire(extent, extent->id.load());
    }
}

void a_large_allocation_shares_the_block_it_has(uint32_t device) {
    Heap& heap = Heap::get();
    Extent* const extent = heap.allocate(device, 3 * kGranule - 5, false);
    uint64_t within;
    CHECK(heap.pin(extent));
    Block* const block = heap.share(extent, within);
    heap.unpin(extent);
    CHECK(block == extent->block && block->size == 3 * kGranule && within == 0);
    const uint64_t cached = heap.cached_bytes();
    heap.retire(extent, extent->id.load());
    CHECK(heap.cached_bytes() == cached);   // an importer may still write into it
    drop(block);
}

int notice;
void a_block_that_only_others_hold_is_reported_once(uint32_t device) {
    static uint64_t last;
    abandoned = [](uint64_t id) {
        ++notice;
        last = id;
    };
    Block* const block = Heap::get().create_physical(device, kGranule, true);
    const uint64_t id = block->id;
    hold_for_others(block);
    hold_for_others(block);
    hold(block);
    drop(block);
    CHECK(notice == 0);
    drop(block);
    CHECK(notice == 1 && last == id);
    drop_for_others(block);
    drop_for_others(block);
    CHECK(notice == 1);
}

}  // namespace

NATIVE_TEST(test_mappings) {
    auto random = seeded("test_mappings");
    Heap::get().configure({.window_bytes = kTestWindow});
    const uint32_t a = device_of(uint64_t{1} << 40), b = device_of(uint64_t{1} << 40);
    blocks_side_by_side_are_one_range(random, a);
    a_mapping_ends_at_its_limit(a);
    a_range_grows_in_place(a);
    rights_are_those_of_a_device_that_takes_part(a, b);
    for (const uint64_t size : {uint64_t{5000}, uint64_t{8192}}) a_small_allocation_moves_out_of_its_slab(random, a, size);
    what_was_never_written_takes_no_memory();
    copies_meet_a_move(a);
    what_the_host_uses_stays_where_it_is();
    a_large_allocation_shares_the_block_it_has(a);
    a_block_that_only_others_hold_is_reported_once(a);
    return 0;
}

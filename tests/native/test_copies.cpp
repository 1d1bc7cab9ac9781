#include "copy/copy_engine.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "check.h"
#include "copy/kernels.h"

using namespace peerlane;

namespace {

uint64_t address(const void* host) { return reinterpret_cast<uint64_t>(host); }

std::vector<char> noise(std::mt19937_64& random, uint64_t size) {
    std::vector<char> bytes(size);
    for (uint64_t i = 0; i < size; i += 8) {
        const uint64_t drawn = random();
        memcpy(&bytes[i], &drawn, std::min<uint64_t>(8, size - i));
    }
    return bytes;
}

uint32_t device_of(uint64_t capacity) { return Heap::get().add_device({.capacity = capacity}, nullptr, 0); }

uint64_t allocate(uint32_t device, uint64_t size) {
    return Heap::get().address_of(Heap::get().allocate(device, size, false));
}

std::vector<char> read(uint64_t from, uint64_t size) {
    std::vector<char> out(size);
    copy(address(out.data()), from, size);
    return out;
}

void moves_every_length_at_every_alignment(StreamCopy moved_by, std::mt19937_64& random) {
    const auto source = noise(random, 200000);
    std::vector<char> target(200000);
    const auto moves = [&](size_t to, size_t from, size_t n) {
        memset(target.data(), 0, to + n + 1);
        moved_by(target.data() + to, source.data() + from, n);
        store_fence();
        CHECK(memcmp(target.data() + to, source.data() + from, n) == 0);
        CHECK((to == 0 || target[to - 1] == 0) && target[to + n] == 0);
    };
    for (size_t to = 0; to < 64; ++to)
        for (size_t n = 0; n < 200; ++n) moves(to, n % 7, n);
    for (int i = 0; i < 200; ++i) moves(random() % 130, random() % 130, random() % (source.size() - 200));
}

void copies_of_every_size_arrive(std::mt19937_64& random, uint32_t device) {
    for (uint64_t size : {uint64_t{1}, uint64_t{4097}, kBrief, kBrief + 1, kChunk + 3, kTeamFrom - 1, 3 * kTeamFrom + 5,
                          kStreamFrom + 12345}) {
        const auto data = noise(random, size);
        const uint64_t a = allocate(device, size + 64), b = allocate(device, size + 64);
        const uint64_t at = random() % 64;
        copy(a + at, address(data.data()), size);
        copy(b + 1, a + at, size);
        CHECK(read(b + 1, size) == data);
    }
}

void overlaps_behave_as_memmove(std::mt19937_64& random, uint32_t device) {
    const uint64_t size = 3 * kTeamFrom;
    const auto data = noise(random, size);
    const uint64_t buffer = allocate(device, size);
    for (const auto& [to, from, n] : std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>{
             {1, 0, size - 1}, {0, 1, size - 1}, {kChunk + 7, 0, size - kChunk - 7}, {0, kChunk / 2, size - kChunk / 2},
             {100, 0, 1000}, {5, 5, size - 5}}) {
        auto expected = data;
        memmove(expected.data() + to, expected.data() + from, n);
        copy(buffer, address(data.data()), size);
        copy(buffer + to, buffer + from, n);
        CHECK(read(buffer, size) == expected);
    }
}

void rectangles_arrive(std::mt19937_64& random, uint32_t a, uint32_t b) {
    for (const auto& [width, height, dst_pitch, src_pitch] :
         std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>>{
             {1, 1, 1, 1}, {10, 7, 10, 10}, {100, 50, 128, 300}, {kChunk + 5, 3, kChunk + 64, kChunk + 5},
             {4000, 2000, 4096, 4001}, {1, 5000, 3, 2}}) {
        const auto data = noise(random, src_pitch * height);
        std::vector<char> expected(dst_pitch * height, 0);
        for (uint64_t row = 0; row < height; ++row)
            memcpy(&expected[row * dst_pitch], &data[row * src_pitch], width);
        for (uint32_t target : {a, b}) {
            const uint64_t src = allocate(a, data.size()), dst = allocate(target, expected.size());
            copy(src, address(data.data()), data.size());
            fill(dst, 0, 1, expected.size());
            copy_2d(dst, dst_pitch, src, src_pitch, width, height);
            CHECK(read(dst, expected.size()) == expected);
        }
    }
    const uint64_t small = allocate(a, 100);
    CHECK(refuses(Why::pitch_overflow, [&] { copy_2d(small, UINT64_MAX, small, UINT64_MAX, 2, 3); }));
    CHECK(refuses(Why::out_of_bounds, [&] { copy_2d(small, 40, small, 40, 21, 3); }));
    copy_2d(small, 40, small, 40, 20, 3);
    copy_2d(1, 1, 1, 1, 0, 5), copy_2d(1, 1, 1, 1, 5, 0);   // no bytes: no address is checked
}

void fills_repeat_their_pattern(uint32_t device) {
    for (const auto& [width, value] : std::vector<std::pair<unsigned, uint64_t>>{
             {1, 0xAB}, {2, 0xBEEF}, {4, 0xDEADBEEF}, {4, 0}, {2, 0x0101}, {1, 0x1FF}}) {
        for (uint64_t count : {uint64_t{1}, uint64_t{1000}, kTeamFrom + 3}) {
            const uint64_t to = allocate(device, count * width + 8);
            fill(to, 0x77, 1, count * width + 8);
            fill(to, value, width, count);
            const auto got = read(to, count * width + 8);
            for (uint64_t i = 0; i < count * width; ++i)
                CHECK(static_cast<uint8_t>(got[i]) == static_cast<uint8_t>(value >> (8 * (i % width))));
            CHECK(got[count * width] == 0x77);
        }
    }
    CHECK(refuses(Why::overflow, [&] { fill(16, 0, 4, UINT64_MAX / 2); }));
}

void without_a_route_bytes_are_staged_or_refused(std::mt19937_64& random, uint32_t a, uint32_t b) {
    Heap& heap = Heap::get();
    const auto data = noise(random, 3 * kChunk + 5);
    const uint64_t from = allocate(a, data.size()), to = allocate(b, data.size());
    copy(from, address(data.data()), data.size());
    copy(to, from, data.size());
    CHECK(read(to, data.size()) == data);
    const auto refusal = refused([&] { copy(to, from, 8, true); });
    CHECK(refusal && refusal->why == Why::no_route && refusal->device == b && refusal->other_device == a);
    heap.set_route(a, b, true);
    copy(to, from, 8, true), copy(from, to, 8, true);
    heap.set_route(a, b, false);

    const uint32_t picky = heap.add_device({.capacity = kGranule, .routes_peer_memory_only = true}, nullptr, 0);
    heap.set_route(a, picky, true);
    const uint64_t plain = heap.address_of(heap.allocate(picky, 64, false));
    const uint64_t peer = heap.address_of(heap.allocate(picky, 64, true));
    CHECK(refuses(Why::not_peer_memory, [&] { copy(from, plain, 64, true); }));
    copy(from, peer, 64, true);
    heap.close_device(picky);
}

void a_poll_stops_a_long_copy(uint32_t device) {
    const uint64_t size = uint64_t{512} << 20;
    const uint64_t from = allocate(device, size), to = allocate(device, size);
    int asked = 0;
    const Poll poll{[](void* context) { return ++*static_cast<int*>(context) == 2; }, &asked};
    bool stopped = false;
    for (int i = 0; i < 20 && !stopped; ++i)   // fast machines finish one copy before the second poll
        stopped = refuses(Why::interrupted, [&] { copy(to, from, size, false, poll); });
    CHECK(stopped && asked == 2);
    copy(to, from, kChunk);
}

}  // namespace

NATIVE_TEST(test_copies) {
    auto random = seeded("test_copies");
    Heap::get().configure({.window_bytes = kTestWindow});
    const uint32_t a = device_of(uint64_t{1} << 40), b = device_of(uint64_t{1} << 40);
    moves_every_length_at_every_alignment(stream_copy, random);
    for (StreamCopy of_an_older_processor : stream_copies())
        moves_every_length_at_every_alignment(of_an_older_processor, random);
    copies_of_every_size_arrive(random, a);
    overlaps_behave_as_memmove(random, a);
    rectangles_arrive(random, a, b);
    fills_repeat_their_pattern(a);
    without_a_route_bytes_are_staged_or_refused(random, a, b);
    a_poll_stops_a_long_copy(a);
    return 0;
}

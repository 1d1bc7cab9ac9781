// Reductions: every level of the processor gives the same bits; steps, turns, faults, routes, streams.
#include <cfenv>
#include <cmath>
#include <cstring>
#include <thread>

#include "copy/kernels.h"
#include "copy/reduction.h"
#include "streams.h"

using namespace peerlane;
using namespace streams;

namespace {

const Reduction& sums_of_words() { return reduction_of(Element::uint32, Combine::sum); }

uint64_t address(const void* host) { return reinterpret_cast<uint64_t>(host); }

std::vector<char> noise(std::mt19937_64& random, uint64_t size) {
    std::vector<char> bytes(size);
    for (char& byte : bytes) {
        const uint64_t drawn = random();
        // Some values are all ones or all zeros: infinities, NaNs, denormals, zeros.
        byte = static_cast<char>(drawn >> 60 == 0 ? 0 : drawn >> 60 == 1 ? 0xFF : drawn >> 60 == 2 ? 0x7F : drawn >> 11);
    }
    return bytes;
}

void levels_agree(std::mt19937_64& random) {
    const auto all = noise(random, 1 << 20);
    const auto some = [&](uint64_t size) {   // to draw each byte anew would take most of the time
        const auto at = all.begin() + static_cast<ptrdiff_t>(random() % (all.size() - size));
        return std::vector<char>(at, at + static_cast<ptrdiff_t>(size));
    };
    const std::vector<const Reductions*> levels = all_reductions();
    const Reductions& plain = *levels.back();
    for (unsigned element = 0; element < kElements; ++element)
        for (unsigned op = 0; op < kCombines; ++op)
            for (const uint64_t count : {0u, 1u, 2u, 7u, 8u, 15u, 16u, 17u, 31u, 33u, 63u, 64u, 65u, 127u, 1000u, 40001u}) {
                const unsigned width = plain[element][op].width;
                const uint64_t size = count * width, shift = random() % 9 * width;
                const auto a = some(size + shift + 64), b = some(size + shift + 64);
                auto expected = a;
                plain[element][op].kernel(expected.data() + shift, expected.data() + shift, b.data() + shift, count);
                CHECK(memcmp(expected.data(), a.data(), shift) == 0);
                CHECK(memcmp(expected.data() + shift + size, a.data() + shift + size, 64) == 0);
                for (const Reductions* level : levels) {
                    auto result = a;
                    (*level)[element][op].kernel(result.data() + shift, result.data() + shift, b.data() + shift, count);
                    CHECK(result == expected);
                    auto apart = a, second = b;
                    (*level)[element][op].kernel(apart.data() + shift, a.data() + shift, b.data() + shift, count);
                    CHECK(apart == expected);
                    (*level)[element][op].kernel(second.data() + shift, a.data() + shift, second.data() + shift, count);
                    CHECK(memcmp(second.data() + shift, expected.data() + shift, size) == 0);
                    CHECK((*level)[element][op].width == width);
                }
                auto itself = b, one = b;
                plain[element][op].kernel(one.data() + shift, one.data() + shift, std::vector<char>(b).data() + shift, count);
                for (const Reductions* level : levels) {
                    itself = b;
                    (*level)[element][op].kernel(itself.data() + shift, itself.data() + shift, itself.data() + shift, count);
                    CHECK(itself == one);
                }
            }
}

float computed_value_of_half(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double size = exponent == 31   ? (fraction ? NAN : INFINITY)
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(1024 + fraction, exponent - 25);
    return static_cast<float>(half & 0x8000 ? -size : size);
}

float value_of_half(unsigned half) {
    static const std::vector<float> values = [] {
        std::vector<float> floats(1 << 16);
        for (unsigned i = 0; i < floats.size(); ++i) floats[i] = computed_value_of_half(static_cast<uint16_t>(i));
        return floats;
    }();
    return values[half];
}

// The nearer of two neighbours, by distance.
void halves_are_rounded_to_the_nearest_even() {
    std::vector<uint16_t> every(1 << 16);
    for (unsigned i = 0; i < every.size(); ++i) every[i] = static_cast<uint16_t>(i);
    const std::vector<uint16_t> others{0x8000, 0x0001, 0x2C01, 0x3C01, 0x7BFF, 0x7C00, 0x0000, 0x03FF, 0x0400, 0x1400, 0x3C00,
                                       0x4BFF, 0xFBFF, 0xFC00, 0x7E00};
    for (int number = 0; number < scaled(6, static_cast<int>(others.size())); ++number) {
        const uint16_t other = others[static_cast<size_t>(number)];
        for (const Reductions* level : all_reductions()) {
            const std::vector<uint16_t> repeated(1 << 16, other);
            for (const Combine op : {Combine::sum, Combine::prod}) {
                auto result = every;
                (*level)[static_cast<unsigned>(Element::float16)][static_cast<unsigned>(op)].kernel(
                    reinterpret_cast<char*>(result.data()), reinterpret_cast<const char*>(every.data()),
                    reinterpret_cast<const char*>(repeated.data()), result.size());
                for (unsigned i = 0; i < every.size(); ++i) {
                    const float a = value_of_half(every[i]), b = value_of_half(other);
                    const float exact = op == Combine::sum ? a + b : a * b;
                    const uint16_t got = result[i];
                    if (std::isnan(exact)) {
                        CHECK((got & 0x7FFF) > 0x7C00 && (got & 0x200));
                        continue;
                    }
                    CHECK(std::signbit(exact) == (got >> 15 != 0));
                    const double size = std::fabs(exact);
                    const uint16_t number = got & 0x7FFF;
                    if (number == 0x7C00) {
                        CHECK(size >= 65520);
                        continue;
                    }
                    const double value = value_of_half(number), next = number == 0x7BFF ? 65536 : value_of_half(number + 1);
                    const double off = std::fabs(size - value), above = std::fabs(size - next);
                    const double below = number ? std::fabs(size - value_of_half(number - 1)) : INFINITY;
                    CHECK(off <= above && off <= below);
                    if (off == above || off == below) CHECK(number % 2 == 0);
                }
            }
        }
    }
}

void every_size_and_address(std::mt19937_64& random, uint32_t device, uint32_t elsewhere) {
    for (const uint64_t count : {uint64_t{1}, uint64_t{1000}, kChunk / 4 + 1, kTeamFrom / 4 - 1, 3 * kTeamFrom / 4 + 5})
        for (const uint32_t from : {device, elsewhere}) {
            const uint64_t size = count * 4, shift = random() % 1000 * 4;
            const Area to = area(device, size + shift + 4), source = area(from, size);
            uint32_t* const words = reinterpret_cast<uint32_t*>(to.host);
            uint32_t* const others = reinterpret_cast<uint32_t*>(source.host);
            for (uint64_t i = 0; i < count; ++i) others[i] = static_cast<uint32_t>(random());
            reduce(to.address + shift, source.address, count, sums_of_words());
            reduce(to.address + shift, to.address + shift, count, sums_of_words());
            for (uint64_t i = 0; i < count; ++i) CHECK(words[shift / 4 + i] == 2 * others[i]);
            CHECK(words[shift / 4 + count] == 0 && (shift == 0 || words[shift / 4 - 1] == 0));
            to.close(), source.close();
        }
}

void bad_reductions_are_refused(uint32_t device, uint32_t elsewhere) {
    const Area to = area(device, 4096), from = area(device, 4096), far = area(elsewhere, 64);
    const Reduction& words = sums_of_words();
    CHECK(refuses(Why::misaligned, [&] { reduce(to.address + 2, from.address, 1, words); }));
    CHECK(refuses(Why::misaligned, [&] { reduce(to.address, from.address + 1, 0, words); }));
    CHECK(refuses(Why::overflow, [&] { reduce(to.address, from.address, uint64_t{1} << 62, words); }));
    CHECK(refuses(Why::out_of_bounds, [&] { reduce(to.address, from.address, 1025, words); }));
    CHECK(refuses(Why::partly_overlapping, [&] { reduce(to.address, to.address + 4, 8, words); }));
    CHECK(refuses(Why::partly_overlapping, [&] { reduce(to.address + 28, to.address, 8, words); }));
    CHECK(refuses(Why::host_fault, [&] { reduce(0, from.address, 8, words); }));
    CHECK(refuses(Why::no_route, [&] { reduce(to.address, far.address, 8, words, true); }));
    reduce(to.address, to.address + 32, 8, words);
    reduce(0, 0, 0, words);
    to.close(), from.close(), far.close();
}

// Threads and streams that add to one place, also through another mapping of it: nothing is lost.
void reductions_take_turns(uint32_t device) {
    Heap& heap = Heap::get();
    const uint64_t size = 2 * kGranule, count = size / 4;
    Block* const block = heap.create_physical(device, size, false);
    const ReservationPtr one = heap.reserve(size, 0, device), two = heap.reserve(size, 0, device);
    heap.map(*one, 0, block), heap.map(*two, 0, block);
    const uint64_t addresses[] = {heap.address_of(*one), heap.address_of(*two)};
    const Area ones = area(device, size);
    for (uint64_t i = 0; i < count; ++i) reinterpret_cast<uint32_t*>(ones.host)[i] = 1;
    fill(addresses[0], 0, 1, size);
    CHECK(refuses(Why::partly_overlapping, [&] { reduce(addresses[0], addresses[1] + 4, 8, sums_of_words()); }));
    constexpr unsigned kThreads = 3, kRounds = 8;
    const auto both = {stream(device), stream(device)};
    for (unsigned i = 0; i < kRounds; ++i)
        for (const StreamPtr& each : both) streams::reduce(*each, addresses[i % 2], ones.address, count, sums_of_words());
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (unsigned i = 0; i < kRounds; ++i) reduce(addresses[(i + t) % 2], ones.address, count, sums_of_words());
        });
    for (std::thread& thread : threads) thread.join();
    for (const StreamPtr& each : both) finish(*each), close(*each);
    std::vector<uint32_t> sums(count);
    copy(address(sums.data()), addresses[0], size);
    for (uint32_t sum : sums) CHECK(sum == (kThreads + 2) * kRounds);
    reduce(addresses[0], addresses[1], count, sums_of_words());   // the same place, under two addresses
    copy(address(sums.data()), addresses[1], size);
    for (uint32_t sum : sums) CHECK(sum == 2 * (kThreads + 2) * kRounds);
    heap.release(*one), heap.release(*two);
    drop(block);
    ones.close();
}

// A reduction rounds to nearest whatever mode the thread has set, and restores that mode.
void rounding_is_the_standards(uint32_t device) {
    const Area to = area(device, 64), from = area(device, 64);
    auto* const a = reinterpret_cast<float*>(to.host);
    auto* const b = reinterpret_cast<float*>(from.host);
    CHECK(fesetround(FE_UPWARD) == 0);
    for (unsigned i = 0; i < 16; ++i) a[i] = 1, b[i] = 0x1p-30f;
    reduce(to.address, from.address, 16, reduction_of(Element::float32, Combine::sum));
    CHECK(fegetround() == FE_UPWARD);
    fesetround(FE_TONEAREST);
    for (unsigned i = 0; i < 16; ++i) CHECK(a[i] == 1);
    to.close(), from.close();
}

void streams_reduce_in_order(std::mt19937_64& random, uint32_t device, uint32_t elsewhere) {
    under_each_schedule(random, [&] {
        for (const uint64_t count : {uint64_t{16}, kBrief / 4, kTeamFrom}) {
            const StreamPtr one = stream(device);
            const Area to = area(device, count * 4), from = area(elsewhere, count * 4);
            fill(*one, from.address, 3, count * 4);
            for (int i = 0; i < 3; ++i) streams::reduce(*one, to.address, from.address, count, sums_of_words());
            streams::reduce(*one, to.address, to.address, count, sums_of_words());
            finish(*one);
            for (uint64_t i = 0; i < count; ++i) CHECK(reinterpret_cast<uint32_t*>(to.host)[i] == 6 * 0x03030303u);
            streams::reduce(*one, to.address, from.address, count, sums_of_words(), true);
            sync(*one);
            CHECK(failed_with(*one, Why::no_route));
            close(*one);
            to.close(), from.close();
        }
    });
}

}  // namespace

NATIVE_TEST(test_reductions) {
    auto random = seeded("test_reductions");
    open_heap();
    const uint32_t device = new_device(), elsewhere = new_device(false);
    levels_agree(random);
    halves_are_rounded_to_the_nearest_even();
    every_size_and_address(random, device, elsewhere);
    bad_reductions_are_refused(device, elsewhere);
    reductions_take_turns(device);
    rounding_is_the_standards(device);
    streams_reduce_in_order(random, device, elsewhere);
    return 0;
}

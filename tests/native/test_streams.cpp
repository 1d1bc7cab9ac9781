// Order: within a stream, across streams by events and notifies, and the bytes that result.
#include "log/reader.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t first_device, second_device;

// Operations of one stream, compared with the same steps on host memory.
void order_within_a_stream(std::mt19937_64& random) {
    const Area memory = area(first_device, 256 << 10);
    std::vector<char> model(memory.size), host(memory.size);
    const StreamPtr one = stream(first_device);
    for (int i = 0; i < scaled(800, 20000); ++i) {
        const uint64_t size = random() % 100 ? 8 + random() % 3000 : 70'000 + random() % 30'000;
        const uint64_t to = random() % (memory.size - size), from = random() % (memory.size - size);
        switch (random() % 5) {
            case 0: {
                const auto byte = static_cast<uint8_t>(random());
                fill(*one, memory.address + to, byte, size);
                memset(&model[to], byte, size);
                break;
            }
            case 1: {
                const uint64_t value = random(), at = to & ~uint64_t{7};
                write(*one, memory.address + at, value);
                memcpy(&model[at], &value, sizeof value);
                break;
            }
            case 2: {
                const uint64_t width = 1 + random() % 64, pitch = width + random() % 64, height = 1 + random() % 20;
                const uint64_t low = random() % 30'000, high = 131'072 + random() % 30'000;
                copy_2d(*one, memory.address + low, pitch, memory.address + high, pitch + 8, width, height);
                for (uint64_t row = 0; row < height; ++row)
                    memcpy(&model[low + row * pitch], &model[high + row * (pitch + 8)], width);
                break;
            }
            case 3: {
                const uint64_t half = memory.size / 2, a = random() % (half / 2 - 4096), b = half / 2 + random() % 4096;
                batch(*one, {{memory.address + a, memory.address + half + a, 4096},
                             {memory.address + b + 4096, memory.address + half + b, 555}});
                memcpy(&model[a], &model[half + a], 4096);
                memcpy(&model[b + 4096], &model[half + b], 555);
                break;
            }
            default:
                copy(*one, memory.address + to, memory.address + from, size);
                memmove(&model[to], &model[from], size);
        }
        if (random() % 400 == 0) finish(*one);
    }
    finish(*one);
    CHECK(memcmp(memory.host, model.data(), model.size()) == 0);
    close(*one);
    memory.close();
}

// Many streams, ordered by events only where they must be, compute what the same operations compute one after the
// other.
void order_across_streams(std::mt19937_64& random) {
    constexpr int kStreams = 6, kCells = 12;
    constexpr uint64_t kCell = 12'000;
    std::vector<StreamPtr> all;
    std::vector<Area> cells;
    for (int i = 0; i < kStreams; ++i) all.push_back(stream(i % 2 ? first_device : second_device));
    for (int i = 0; i < kCells; ++i) cells.push_back(area(i % 3 ? first_device : second_device, kCell));
    std::vector<std::vector<char>> model(kCells, std::vector<char>(kCell));
    struct Use {
        int stream = -1;
        Mark* mark = nullptr;
    };
    std::vector<Use> writer(kCells);
    std::vector<std::vector<Use>> readers(kCells);
    const auto forget = [](Use& use) {
        if (use.mark) use.mark->drop();
        use = {};
    };
    const auto after = [&](int on, const Use& use) {
        if (use.mark && use.stream != on) engine().wait(*all[on], *use.mark, 0);
    };
    for (int i = 0; i < scaled(300, 6000); ++i) {
        const int on = static_cast<int>(random() % kStreams), to = static_cast<int>(random() % kCells);
        int from = static_cast<int>(random() % kCells);
        if (from == to) from = (from + 1) % kCells;
        const bool fills = random() % 4 == 0;
        after(on, writer[to]);
        for (Use& use : readers[to]) {
            after(on, use);
            forget(use);
        }
        readers[to].clear();
        if (fills) {
            fill(*all[on], cells[to].address, static_cast<uint8_t>(i), kCell);
            memset(model[to].data(), static_cast<uint8_t>(i), kCell);
        } else {
            after(on, writer[from]);
            const uint64_t at = random() % 1000, size = 1 + random() % (kCell - 1000);
            copy(*all[on], cells[to].address + at, cells[from].address + 1000 - at, size);
            memcpy(&model[to][at], &model[from][1000 - at], size);
        }
        Mark* mark = engine().record(*all[on]);
        forget(writer[to]);
        mark->hold();
        writer[to] = {on, mark};
        if (fills)
            mark->drop();
        else
            readers[from].push_back({on, mark});
        if (random() % 100 == 0) CHECK(engine().synchronize(*mark, Deadline::in(kPatience), {}) == Outcome::reached);
    }
    for (const StreamPtr& each : all) finish(*each);
    for (int i = 0; i < kCells; ++i) {
        CHECK(memcmp(cells[i].host, model[i].data(), kCell) == 0);
        forget(writer[i]);
        for (Use& use : readers[i]) forget(use);
        cells[i].close();
    }
    for (const StreamPtr& each : all) close(*each);
}

// Everything is queued behind a wait that is satisfied last: no call may block, no operation may run too early.
void waits_before_their_notifies() {
    constexpr int kStreams = 32;
    const Area memory = area(first_device, 8 * (kStreams + 1));
    std::vector<StreamPtr> all;
    std::vector<Notify*> notifies;
    for (int i = 0; i < kStreams; ++i) {
        all.push_back(stream(first_device));
        notifies.push_back(Notify::local(NotifyKind::binary, first_device));
    }
    for (int i = 0; i < kStreams; ++i) {
        await(*all[i], notifies[i]);
        copy(*all[i], memory.address + 8 * (i + 1), memory.address + 8 * i, 8);
        if (i + 1 < kStreams) notify(*all[i], notifies[i + 1]);
    }
    CHECK(memory.word(kStreams) == 0 && !engine().query(*all.back()));
    const StreamPtr last = stream(first_device);
    write(*last, memory.address, 4711);
    notify(*last, notifies[0]);
    for (auto each = all.rbegin(); each != all.rend(); ++each) finish(**each);
    finish(*last);
    CHECK(memory.word(kStreams) == 4711);
    for (Notify* notify : notifies) notify->drop();
    for (const StreamPtr& each : all) close(*each);
    close(*last);
    memory.close();
}

// 64 MiB, by several threads; a deadline in the middle ends the wait and not the copy.
void chunks_and_deadlines() {
    constexpr uint64_t kSize = uint64_t{64} << 20;
    const Area from = area(first_device, kSize), to = area(first_device, kSize);
    for (uint64_t i = 0; i < kSize / 8; ++i) from.set(i, i * 0x9E3779B97F4A7C15);
    const StreamPtr one = stream(first_device), other = stream(first_device);
    Notify* gate = Notify::local(NotifyKind::binary, first_device);
    for (int round = 0; round < 4; ++round) {
        for (uint64_t i = 0; i < kSize; i += 4096) memset(to.host + i, 0, 8);
        if (round == 0) await(*one, gate);
        copy(*one, to.address, from.address, kSize);
        Mark* mark = engine().record(*one);
        const bool timed_out = engine().synchronize(*one, Deadline::in(1e-4 * round), {}) == Outcome::timed_out;
        if (round == 0) {
            CHECK(timed_out);
            engine().notify_recorded(*gate);
        }
        engine().query(*one);
        std::thread third([&] { CHECK(engine().synchronize(*mark, Deadline::in(kPatience), {}) == Outcome::reached); });
        finish(*one);
        third.join();
        mark->drop();
        CHECK(memcmp(from.host, to.host, kSize) == 0);
    }
    gate->drop();
    // Between devices without a route, through the host.
    const uint32_t far = new_device(false);
    const Area there = area(far, kSize);
    copy(*one, there.address, from.address, kSize);
    order(*one, *other);
    copy(*other, to.address, there.address, kSize);
    finish(*other);
    CHECK(memcmp(from.host, to.host, kSize) == 0);
    for (const StreamPtr& each : {one, other}) close(*each);
    for (const Area& each : {from, to, there}) each.close();
}

// Freed memory in use: the address ends at once, the bytes after the last use.
void free_in_use() {
    const uint64_t before = Heap::get().live_allocations(first_device);
    constexpr uint64_t kSize = 4 << 20;
    const Area from = area(first_device, kSize), to = area(first_device, kSize);
    memset(from.host, 7, kSize);
    const StreamPtr one = stream(first_device);
    Notify* gate = Notify::local(NotifyKind::binary, first_device);
    await(*one, gate);
    batch(*one, {{to.address, from.address, kSize / 2}, {to.address + kSize / 2, from.address + kSize / 2, 1000}});
    copy(*one, to.address + kSize / 2 + 1000, from.address, 5000);
    from.close();
    CHECK(refuses(Why::unknown_address, [&] { copy(*one, to.address, from.address, 8); }));
    const Area another = area(first_device, kSize);   // must not get the pages of `from`: queued copies read them
    memset(another.host, 9, kSize);
    engine().notify_recorded(*gate);
    finish(*one);
    CHECK(to.host[0] == 7 && to.host[kSize / 2 + 999] == 7 && to.host[kSize / 2 + 5999] == 7 && to.host[kSize / 2 + 6000] == 0);
    another.close();
    free_in_order(*one, to);
    finish(*one);
    CHECK(Heap::get().live_allocations(first_device) == before);
    gate->drop();
    close(*one);
}

// What this process's own log has for a reader; it ends.
std::vector<log::Head> logged(uint8_t by, uint64_t& dropped) {
    log::Reader reader(log::facts(by).path);
    reader.look();
    std::vector<log::Head> heads;
    while (const log::Record* const record = reader.next(true)) heads.push_back(record->head);
    dropped = reader.dropped();
    log::end(by);
    return heads;
}

// In a program of one thread a seed decides the order, as an observer sees it.
std::vector<std::pair<uint64_t, uint64_t>> run_seeded(uint64_t seed) {
    engine().configure(Schedule::seeded, {seed});
    CHECK(log::begin_in_process(log::kObserver, 1 << 20));
    std::vector<StreamPtr> all;
    const Area memory = area(first_device, uint64_t{12} << 20);
    for (int i = 0; i < 5; ++i) all.push_back(stream(first_device));
    const uint64_t base = all[0]->id;
    for (int i = 0; i < 200; ++i) {
        if (i % 40 == 7) copy(*all[i % 5], memory.address + (6 << 20), memory.address, 5 << 20);
        fill(*all[i % 5], memory.address, 1, 2000);
        if (i % 20 == 3) order(*all[i % 5], *all[(i + 2) % 5]);
        if (i % 30 == 3) engine().query(*all[i % 3]);
        if (i % 50 == 3) sync(*all[i % 4]);
    }
    for (const StreamPtr& each : all) close(*each);
    memory.close();
    std::vector<std::pair<uint64_t, uint64_t>> heads;
    uint64_t dropped = 0;
    for (const log::Head& head : logged(log::kObserver, dropped))
        if (head.kind == log::Kind::op_started) heads.emplace_back(head.stream - base, head.sequence);
    CHECK(dropped == 0);
    return heads;
}

void same_seed_same_order(std::mt19937_64& random) {
    const uint64_t seed = random();
    const auto first = run_seeded(seed), second = run_seeded(seed), other = run_seeded(seed + 1);
    CHECK(first.size() == second.size() && first.size() > 200);
    CHECK(first == second);
    CHECK(first != other);
    engine().configure(Schedule::eager, {});
}

// A trace has each operation in its order; what does not fit is counted, and the first ones stay.
void traces_keep_what_fits() {
    constexpr uint64_t kRoom = 1 << 20, kMore = kRoom / 24 + 1;   // no record is as short
    const Area memory = area(first_device, 8);
    const StreamPtr one = stream(first_device);
    CHECK(log::begin_in_process(log::kTrace, kRoom));
    const uint64_t before = one->submitted;
    for (uint64_t i = 0; i < kMore; ++i) write(*one, memory.address, i);
    finish(*one);
    uint64_t dropped = 0;
    std::vector<log::Head> heads = logged(log::kTrace, dropped);
    if (heads.back().kind == log::Kind::gap) heads.pop_back();   // it stands where there is room for it
    CHECK(dropped > 0 && heads.size() + dropped == kMore && heads.size() > kRoom / 100);
    for (size_t i = 0; i < heads.size(); ++i) CHECK(heads[i].kind == log::Kind::op_ended && heads[i].sequence == before + 1 + i);
    write(*one, memory.address, 0);
    finish(*one);
    CHECK(log::facts(log::kTrace).path.empty());
    close(*one);
    memory.close();
}

}  // namespace

NATIVE_TEST(test_streams) {
    auto random = seeded("test_streams");
    open_heap();
    first_device = new_device();
    second_device = new_device();
    for (int i = 0; i < scaled(1, 30); ++i)
        under_each_schedule(random, [&] {
            RUN(order_within_a_stream(random));
            RUN(order_across_streams(random));
            RUN(waits_before_their_notifies());
            RUN(chunks_and_deadlines());
            RUN(free_in_use());
            RUN(traces_keep_what_fits());
        });
    RUN(same_seed_same_order(random));
    CHECK(engine().waiting().empty());
    return 0;
}

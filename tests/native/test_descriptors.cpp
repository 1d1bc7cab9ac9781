// Copy lists in device memory: every field is checked when the launch starts.
#include "streams.h"

using namespace streams;

namespace {

uint32_t device, neighbour, island;
constexpr uint64_t kMost = 64, kRoom = sizeof(ListHeader) + kMost * sizeof(ListEntry);

struct List {
    ListHeader header;
    std::vector<ListEntry> entries;

    void write_to(const Area& table) {
        header.count = entries.size();
        put(table);
    }
    void put(const Area& table) const {
        memcpy(table.host, &header, sizeof header);
        memcpy(table.host + sizeof header, entries.data(), entries.size() * sizeof(ListEntry));
    }
};

void copies_what_it_lists(std::mt19937_64& random) {
    const Area table = area(device, kRoom), from = area(device, 1 << 20), to = area(neighbour, 1 << 20);
    for (uint64_t i = 0; i < from.size; ++i) from.host[i] = static_cast<char>(random());
    const StreamPtr one = stream(device);
    for (int round = 0; round < 40; ++round) {
        List list;
        std::vector<char> model(to.host, to.host + to.size);
        for (uint64_t i = 0; i < random() % (kMost + 1); ++i) {
            const uint64_t size = random() % 5 ? random() % 9000 : 0, a = i * 16384 + random() % 1000, b = random() % 900'000;
            list.entries.push_back({to.address + a, from.address + b, size});
            memcpy(&model[a], from.host + b, size);
        }
        list.write_to(table);
        const uint64_t used = random() % 2 ? kRoom : sizeof(ListHeader) + list.entries.size() * sizeof(ListEntry);
        launch(*one, table, used);
        finish(*one);
        CHECK(memcmp(model.data(), to.host, to.size) == 0);
    }
    close(*one);
    for (const Area& each : {table, from, to}) each.close();
}

// A launch reads its list when it starts, so it sees what copies queued before it wrote there.
void rewritten_while_it_is_queued() {
    constexpr uint64_t kLaunches = 50;
    const Area table = area(device, kRoom), next = area(device, kRoom * kLaunches), cells = area(device, 8 * (kLaunches + 1));
    cells.set(0, 4711);
    const StreamPtr one = stream(device);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    await(*one, gate);
    for (uint64_t i = 0; i < kLaunches; ++i) {
        copy(*one, table.address, next.address + i * kRoom, kRoom);
        launch(*one, table, kRoom);
    }
    for (uint64_t i = 0; i < kLaunches; ++i) {   // the sources of those copies are written last
        List list;
        list.entries.push_back({cells.address + 8 * (i + 1), cells.address + 8 * i, 8});
        Area part = next;
        part.host += i * kRoom;
        list.write_to(part);
    }
    engine().notify_recorded(*gate);
    finish(*one);
    CHECK(cells.word(kLaunches) == 4711);
    gate->drop();
    close(*one);
    for (const Area& each : {table, next, cells}) each.close();
}

// A launch pins its ranges when it starts; a table may be freed while launches of it are queued.
void freed_in_use() {
    const Area table = area(device, kRoom), from = area(device, 4 << 20), to = area(device, 4 << 20);
    const uint64_t before = Heap::get().live_allocations(device);
    memset(from.host, 3, from.size);
    List list;
    list.entries.push_back({to.address, from.address, from.size});
    list.write_to(table);
    const StreamPtr one = stream(device);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    await(*one, gate);
    launch(*one, table, kRoom);
    launch(*one, table, kRoom);
    table.close();
    engine().notify_recorded(*gate);
    finish(*one);
    CHECK(to.host[to.size - 1] == 3);
    // A range that is gone when the launch starts is refused, and nothing stays pinned.
    const Area again = area(device, kRoom);
    list.write_to(again);
    from.close();
    to.set(0, 0);
    launch(*one, again, kRoom);
    sync(*one);
    const FailurePtr failure = engine().take_failure(*one);
    CHECK(failure && failure->refusal.why == Why::unknown_address && failure->refusal.entry == 1);
    CHECK(to.word(0) == 0);
    again.close();
    to.close();
    CHECK(Heap::get().live_allocations(device) == before - 3);
    gate->drop();
    close(*one);
}

struct Damage {
    const char* name;
    std::function<void(List&)> apply;
    Why why;
    ListField field;
    uint64_t entry;
    uint32_t only_device = 0;
    bool direct = false;
};

void every_field_is_checked() {
    const Area table = area(device, kRoom), from = area(device, 4096), to = area(device, 4096), far = area(island, 4096);
    memset(from.host, 5, from.size);
    static char host[4096];
    const uint64_t pageable = reinterpret_cast<uint64_t>(host);
    const Area gone = area(device, uint64_t{4} << 20);
    gone.close();
    const Damage all[] = {
        {"magic", [](List& l) { l.header.magic ^= 1; }, Why::bad_descriptor, ListField::magic, 0},
        {"version", [](List& l) { l.header.version = 2; }, Why::bad_descriptor, ListField::version, 0},
        {"entry size", [](List& l) { l.header.entry_size = 64; }, Why::bad_descriptor, ListField::entry_size, 0},
        {"reserved", [](List& l) { l.header.reserved = 1; }, Why::bad_descriptor, ListField::reserved, 0},
        {"count", [](List& l) { l.header.count = kMost + 1; }, Why::bad_descriptor, ListField::count, 0},
        {"huge count", [](List& l) { l.header.count = UINT64_MAX; }, Why::bad_descriptor, ListField::count, 0},
        {"wrapping count", [](List& l) { l.header.count = uint64_t{1} << 59; }, Why::bad_descriptor, ListField::count, 0},
        {"entry reserved", [](List& l) { l.entries[2].reserved = 9; }, Why::bad_descriptor, ListField::reserved, 3},
        {"empty and reserved", [](List& l) { l.entries[1] = {0, 0, 0, 1}; }, Why::bad_descriptor, ListField::reserved, 2},
        {"host dst", [&](List& l) { l.entries[1].dst = pageable; }, Why::bad_descriptor, ListField::dst, 2},
        {"host src", [&](List& l) { l.entries[3].src = pageable; }, Why::bad_descriptor, ListField::src, 4},
        {"null", [](List& l) { l.entries[0].dst = 0; }, Why::bad_descriptor, ListField::dst, 1},
        {"freed", [&](List& l) { l.entries[2].src = gone.address; }, Why::unknown_address, {}, 3},
        {"beyond", [](List& l) { l.entries[3].size = 8192; }, Why::out_of_bounds, {}, 4},
        {"wraps", [](List& l) { l.entries[1].size = UINT64_MAX - 64; }, Why::overflow, {}, 2},
        {"wrong device", [&](List& l) { l.entries[2].src = far.address; }, Why::bad_descriptor, ListField::wrong_device, 3,
         device},
        {"no route", [&](List& l) { l.entries[1].src = far.address; }, Why::no_route, {}, 2, 0, true},
    };
    const StreamPtr one = stream(device, false);
    for (const Damage& damage : all) {
        List list;
        for (uint64_t i = 0; i < 4; ++i) list.entries.push_back({to.address + 1000 * i, from.address + 8 * i, 500});
        list.header.count = list.entries.size();
        damage.apply(list);
        list.put(table);
        launch(*one, table, kRoom, damage.only_device, damage.direct);
        sync(*one);
        const FailurePtr failure = engine().take_failure(*one);
        const bool right = failure && failure->refusal.why == damage.why && failure->refusal.entry == damage.entry &&
                           (damage.why != Why::bad_descriptor ||
                            failure->refusal.list.field == static_cast<int>(damage.field));
        if (!right)
            std::fprintf(stderr, "%s: %d, entry %d, field %d\n", damage.name, failure ? static_cast<int>(failure->refusal.why) : -1,
                         failure ? static_cast<int>(failure->refusal.entry) : -1, failure ? failure->refusal.list.field : -1);
        CHECK(right);
        for (uint64_t i = 0; i < to.size / 8; ++i) CHECK(to.word(i) == 0);   // not one byte
    }
    // No pin is left: all memory is given back.
    const uint64_t live = Heap::get().live_allocations(device);
    close(*one);
    for (const Area& each : {table, from, to, far}) each.close();
    CHECK(Heap::get().live_allocations(device) == live - 3);
}

// A table that cannot hold a header is refused, not read beyond its end.
void too_short() {
    const Area table = area(device, 4096);
    const StreamPtr one = stream(device, false);
    List list;
    list.header.count = 1;
    list.put(table);
    for (const uint64_t size : {1, 8, 31}) {
        launch(*one, table, size);
        sync(*one);
        CHECK(failed_with(*one, Why::bad_descriptor));
    }
    close(*one);
    table.close();
}

// The host rewrites a list while launches start: each launch reads it once, and runs one version or is refused.
void rewritten_while_it_is_read() {
    const Area table = area(device, kRoom), from = area(device, 4096), to = area(device, 4096);
    const StreamPtr one = stream(device, false);
    for (int i = 0; i < 200; ++i) {
        List list;
        for (uint64_t n = 0; n < static_cast<uint64_t>(i % 5); ++n)
            list.entries.push_back({to.address + 64 * n, from.address, 64});
        if (i % 3 == 0) list.header.version = 7;
        const Area staged = area(device, kRoom);
        list.header.count = i % 7 ? list.entries.size() : UINT64_MAX;
        list.put(staged);
        copy(*one, table.address, staged.address, kRoom);
        free_in_order(*one, staged);
        launch(*one, table, kRoom);
    }
    sync(*one);
    CHECK(failed_with(*one, Why::bad_descriptor));
    close(*one);
    for (const Area& each : {table, from, to}) each.close();
}

}  // namespace

NATIVE_TEST(test_descriptors) {
    auto random = seeded("test_descriptors");
    open_heap();
    device = new_device();
    neighbour = new_device();
    island = new_device(false);
    for (int i = 0; i < scaled(1, 20); ++i)
        under_each_schedule(random, [&] {
            RUN(copies_what_it_lists(random));
            RUN(rewritten_while_it_is_queued());
            RUN(freed_in_use());
            RUN(every_field_is_checked());
            RUN(too_short());
            RUN(rewritten_while_it_is_read());
        });
    return 0;
}

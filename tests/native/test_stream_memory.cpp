// Allocations that fail at each place, and memory that is given back.
#include <chrono>
#include <new>
#include <thread>

#include "copy/thread_team.h"
#include "streams.h"

namespace {

thread_local int64_t until_none = -1;   // allocations of this thread before one fails; negative: none does
std::atomic<int64_t> live_bytes{0};

void* obtain(std::size_t size) {
    if (until_none == 0) return nullptr;
    if (until_none > 0) --until_none;
    auto* at = static_cast<std::size_t*>(std::malloc(size + 16));
    if (!at) return nullptr;
    *at = size;
    live_bytes.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed);
    return at + 2;
}

void give(void* what) {
    if (!what) return;
    auto* at = static_cast<std::size_t*>(what) - 2;
    live_bytes.fetch_sub(static_cast<int64_t>(*at), std::memory_order_relaxed);
    std::free(at);
}

}  // namespace

void* operator new(std::size_t size) {
    void* block = obtain(size);
    if (!block) throw std::bad_alloc();
    return block;
}
void operator delete(void* what) noexcept { give(what); }
void operator delete(void* what, std::size_t) noexcept { give(what); }

using namespace streams;

namespace {

uint32_t device;

// One program whose n-th allocation fails, and all after it until the call throws: a call throws and has taken nothing,
// or it works.  Afterwards the streams work.
bool runs_without_memory(int64_t n) {
    const Area memory = area(device, uint64_t{4} << 20), table = area(device, 4096), gift = area(device, 4096);
    const ListHeader header{.count = 1};
    const ListEntry entry{memory.address + 512, memory.address + 256, 64};
    memcpy(table.host, &header, sizeof header);
    memcpy(table.host + sizeof header, &entry, sizeof entry);
    StreamPtr one = stream(device, false), other = stream(device, false);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    auto* queue = new CallbackQueue;
    uint64_t accepted = 0, refused = 0;
    bool is_delivered = false;
    const auto attempt = [&](const auto& work) {
        const uint64_t before = one->submitted.load() + other->submitted.load();
        try {
            work();
            ++accepted;
            return true;
        } catch (const std::bad_alloc&) {
            until_none = -1;
            ++refused;
            CHECK(one->submitted.load() + other->submitted.load() <= before + 1);   // `order` records first
            return false;
        } catch (const Refusal& refusal) {
            until_none = -1;
            CHECK(refusal.why == Why::system_memory);
            ++refused;
            return false;
        }
    };
    until_none = n;
    for (int i = 0; i < 70; ++i) attempt([&] { write(*one, memory.address, 1); });
    attempt([&] { await(*one, gate, 60'000'000'000); });
    for (int i = 0; i < 130; ++i) attempt([&] { copy(*one, memory.address + 8, memory.address, 8); });
    attempt([&] { batch(*one, {{memory.address + 64, memory.address, 8}, {memory.address + 4096, memory.address, 8}}); });
    attempt([&] { copy_2d(*one, memory.address + 128, 64, memory.address, 64, 8, 8); });
    attempt([&] { copy(*one, memory.address + (2 << 20), memory.address, 1 << 20); });
    attempt([&] { launch(*one, table, 4096); });
    attempt([&] { wait_value(*one, memory.address + (3 << 20), 0); });
    attempt([&] { order(*one, *other); });
    attempt([&] { write(*other, memory.address + 16, 2); });
    is_delivered = attempt([&] { free_in_order(*other, gift); });
    const bool called = attempt([&] { callback(*other, queue, 5); });
    attempt([&] { engine().notify_recorded(*gate); });
    attempt([&] { sync(*one); });
    attempt([&] { order(*one, *other); });
    const bool ran_out = refused != 0 || until_none == 0;
    until_none = -1;
    engine().notify_recorded(*gate);
    sync(*one);
    if (called) {
        CallbackQueue::Item item;
        engine().synchronize(*other, Deadline::in(0.0), {});
        while (!engine().query(*other)) {
            engine().synchronize(*other, Deadline::in(0.001), {});
            if (queue->take(item, 0) && engine().begin_callback(*item.stream, item.token))
                engine().finish_callback(*item.stream, item.token, false);
        }
    }
    sync(*other);
    for (const StreamPtr& each : {one, other}) {
        const FailurePtr failure = engine().take_failure(*each);
        CHECK(!failure || failure->refusal.why == Why::system_memory || failure->refusal.why == Why::cancelled);
        write(*each, memory.address, 77);
        finish(*each);
        CHECK(memory.word(0) == 77);
        close(*each);
        CHECK(each->submitted.load() == each->completed.load());
    }
    queue->drop();
    gate->drop();
    if (!is_delivered) gift.close();
    table.close();
    memory.close();
    return ran_out;
}

void without_memory() {
    const uint64_t live = Heap::get().live_allocations(device);
    int64_t n = 0;
    while (n < 400 && runs_without_memory(n)) ++n;
    std::printf("    %lld allocations, each refused once\n", static_cast<long long>(n));
    CHECK(n > 3 && n < 400);
    CHECK(Heap::get().live_allocations(device) == live);   // each pin was released exactly once
}

// A million operations behind a wait, then nothing: the memory goes back.
void a_million_operations() {
    const Area memory = area(device, 64);
    const StreamPtr one = stream(device);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    const int64_t before = live_bytes.load();
    await(*one, gate);
#ifdef __SANITIZE_THREAD__
    const int count = 300'000;
#else
    const int count = 1'000'000;
#endif
    for (int i = 0; i < count; ++i) copy(*one, memory.address + 8, memory.address, 8);
    const int64_t queued = live_bytes.load() - before;
    // 64 bytes for an operation, and 8 for the line that submitted it.
    CHECK(queued >= int64_t{count} * 72 - (int64_t{17} << 20) && queued < int64_t{count} * 80);
    engine().notify_recorded(*gate);
    finish(*one);
    const int64_t left = live_bytes.load() - before;
    std::printf("    %lld KiB queued, %lld KiB kept\n", static_cast<long long>(queued >> 10), static_cast<long long>(left >> 10));
    CHECK(left <= int64_t{17} << 20);   // kept for later operations
    // Cancelled operations give memory back as well; closed streams leave nothing.
    await(*one, gate);
    for (int i = 0; i < count / 10; ++i) copy(*one, memory.address + 8, memory.address, 8);
    engine().abort(*one, true);
    sync(*one);
    const int64_t kept = live_bytes.load();
    for (int i = 0; i < 20'000; ++i) {
        const StreamPtr brief = stream(device);
        write(*brief, memory.address, 1);
        order(*brief, *brief);
        close(*brief);
    }
    // A closed stream lives until its operations have run.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (live_bytes.load() - kept >= 1 << 20 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    CHECK(live_bytes.load() - kept < 1 << 20);
    gate->drop();
    memory.close();
}

// No memory for a thread: the caller copies alone, and a later copy has the team.
void a_team_without_memory() {
    ThreadTeam& team = ThreadTeam::get();
    std::atomic<int> runs{0};
    const std::function<void(bool)> work = [&runs](bool is_caller) { runs += is_caller; };
    until_none = 0;
    team.run(3, work);
    until_none = -1;
    CHECK(runs == 1);
    team.run(3, work);
    CHECK(runs == 2);
}

}  // namespace

int main() {
    auto random = seeded("test_stream_memory");
    RUN(a_team_without_memory());   // before the team has threads
    open_heap();
    device = new_device();
    under_each_schedule(random, [&] {
        RUN(without_memory());
        RUN(a_million_operations());
    });
    CHECK(engine().waiting().empty());
    return 0;
}

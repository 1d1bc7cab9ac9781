// Areas of late delivery: staged entries are delivered in order, once, and only to memory that is still lent.
#include <algorithm>
#include <cstring>
#include <thread>

#include "ledgers.h"
#include "ranks/late_delivery.h"
#include "streams.h"

using namespace streams;

namespace {

constexpr uint64_t kSize = 1 << 16;

uint32_t device;
std::shared_ptr<Ledger> ledger;

// Both ends of an area: the sender's entries, and the receiver's memory, which it lends.
struct Ends {
    const std::shared_ptr<LateArea> area = std::make_shared<LateArea>(SharedSignal::create(ledger, LateArea::kLines));
    const Memory whole = Memory::allocate(device, kSize, true);
    const LeasePtr lease = std::make_shared<Lease>(), loan = std::make_shared<Lease>();   // the sender's, and the receiver's own
    Memory part{whole, 0, kSize};
    std::shared_ptr<Undelivered> sender, receiver;
    uint64_t taken = 0;

    Ends() {
        lease->begin();
        loan->begin();
        Memory lent(whole, 0, kSize);
        lent.borrow(lease, false);
        part.borrow(loan, false);
        sender = std::make_shared<Undelivered>(area, copies(lent));
        receiver = std::make_shared<Undelivered>(area, copies(part));
        Undelivered::attend(receiver);
        memset(host(), 0, kSize);
    }
    static std::vector<Memory> copies(const Memory& of) {
        std::vector<Memory> all;
        all.emplace_back(of, 0, kSize);
        return all;
    }
    char* host() const { return whole.range().host; }
    char* bytes(uint64_t number) const { return area->base() + LateArea::kTable + number * 64; }
    uint8_t at(uint64_t where) const { return std::atomic_ref(reinterpret_cast<uint8_t*>(host())[where]).load(); }

    // Of `size` bytes of one value; not staged yet.
    uint64_t take(uint64_t kind, uint64_t source, uint64_t at, uint8_t value, uint64_t size = 1) {
        const uint64_t number = taken++;
        LateEntry& entry = area->entry(number % LateArea::kEntries);
        entry.sequence = number;
        entry.operation = kind | source << LateEntry::kSourceShift;
        entry.target = 0;
        entry.offset = at;
        entry.size = size;
        entry.bytes = static_cast<uint64_t>(bytes(number) - area->base());
        entry.before = 0;
        memset(bytes(number), value, size);
        entry.state = LateEntry::taken;
        return number % LateArea::kEntries;
    }
    void write(uint64_t source, uint64_t at, uint8_t value) { sender->stage(take(LateEntry::write, source, at, value)); }
    void notify(uint64_t source, uint64_t record) {
        const uint64_t entry = take(LateEntry::notify, source, 0, 0, 0);
        CHECK(area->record(entry, [&] { return record; }) == record);
    }
};

void a_wait_delivers_earlier_entries_of_its_source() {
    Ends ends;
    ends.write(1, 0, 1);
    ends.write(2, 1, 2);
    ends.write(1, 0, 3);   // the same byte again
    ends.notify(1, 1);
    ends.write(1, 2, 4);
    ends.receiver->arrive(0, 1, 1);
    CHECK(ends.at(0) == 3 && ends.at(1) == 0 && ends.at(2) == 0);
    ends.area->fence();
    ends.notify(3, 2);
    ends.receiver->arrive(0, 2, 2);
    CHECK(ends.at(1) == 2 && ends.at(2) == 4);
    for (uint64_t i = 0; i < ends.taken; ++i) CHECK(ends.area->entry(i).state == LateEntry::none);
}

void memory_taken_back_refuses_and_has_earlier_writes() {
    Ends ends;
    ends.write(1, 0, 1);
    const uint64_t late = ends.take(LateEntry::write, 1, 1, 2);
    ends.lease->end(Lease::taken_back);
    CHECK(refuses(Why::lease_ended, [&] { ends.sender->stage(late); }));
    Undelivered::deliver_to(ends.part);
    ends.loan->end(Lease::taken_back);
    CHECK(ends.at(0) == 1 && ends.at(1) == 0);
    CHECK(ends.area->entry(late).state == LateEntry::taken);
}

// What was staged has arrived when taking back is over, and nothing comes later.
void staging_and_taking_back_at_once() {
    for (int round = 0; round < scaled(30, 1000); ++round) {
        Ends ends;
        std::atomic<bool> begins{false};
        uint64_t delivered = 0;
        std::thread sender([&] {
            begins = true;
            while (delivered < 200) {
                const auto refusal = refused([&] { ends.write(1, delivered, 7); });
                if (refusal) break;
                ++delivered;
            }
        });
        while (!begins) std::this_thread::yield();
        ends.lease->end(Lease::taken_back);
        Undelivered::deliver_to(ends.part);
        ends.loan->end(Lease::taken_back);
        const uint64_t arrived = static_cast<uint64_t>(std::count(ends.host(), ends.host() + kSize, 7));
        sender.join();
        ends.receiver->deliver_all();
        CHECK(arrived == delivered && ends.at(delivered) == 0);
    }
}

// Both ends deliver, and each entry is delivered once: the sum shows it.
void both_ends_deliver_each_entry_once() {
    constexpr uint64_t kEach = 400, kSum = static_cast<uint64_t>(Element::uint8) * kCombines + static_cast<uint64_t>(Combine::sum);
    Ends ends;
    std::atomic<bool> is_over{false};
    std::thread receiver([&] {
        while (!is_over) ends.receiver->deliver_all();
    });
    for (uint64_t i = 0; i < kEach; ++i) {
        const uint64_t entry = ends.take(LateEntry::reduce | kSum << LateEntry::kReductionShift, 1, 0, 1);
        ends.area->entry(entry).before = static_cast<uint64_t>(ends.bytes(kEach + i) - ends.area->base());
        ends.sender->stage(entry);
        if (i % 3 == 0) ends.sender->deliver_source(1);
    }
    ends.sender->deliver_all();
    is_over = true;
    receiver.join();
    CHECK(ends.at(0) == static_cast<uint8_t>(kEach));
}

void any_entries_do_no_harm(std::mt19937_64& random) {
    Ends ends;
    const Area other = area(device, 4096);
    const uint64_t near[] = {0, 1, 8, kSize - 1, kSize, kSize + 1, ends.area->size() - 1, ends.area->size(), uint64_t{1} << 63, ~uint64_t{0}};
    const auto number = [&] { return random() % 4 == 0 ? random() : near[random() % std::size(near)]; };
    for (int round = 0; round < scaled(20, 500); ++round) {
        for (uint64_t i = 0; i < 64; ++i) {
            LateEntry& entry = ends.area->entry(i);
            entry.sequence = number();
            entry.operation = random() % 6 | random() % 60 << LateEntry::kReductionShift | random() % 3 << LateEntry::kSourceShift;
            entry.target = random() % 4 == 0 ? number() : 0;
            entry.offset = number();
            entry.size = number();
            entry.bytes = number();
            entry.before = number();
            entry.state = random() % 7;
        }
        ends.receiver->arrive(static_cast<uint32_t>(random() % 3), number(), number());
        ends.receiver->deliver_source(random() % 3);
        ends.receiver->deliver_all();
        Undelivered::deliver_to(ends.part);
        for (uint64_t i = 0; i < 512; ++i) CHECK(other.word(i) == 0);
    }
    other.close();
}

}  // namespace

NATIVE_TEST(test_late_delivery) {
    std::mt19937_64 random = seeded("test_late_delivery");
    open_heap();
    device = new_device();
    ledger = new_ledger();
    RUN(a_wait_delivers_earlier_entries_of_its_source());
    RUN(memory_taken_back_refuses_and_has_earlier_writes());
    RUN(staging_and_taking_back_at_once());
    RUN(both_ends_deliver_each_entry_once());
    RUN(any_entries_do_no_harm(random));
    return 0;
}

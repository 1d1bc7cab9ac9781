// Signals that processes share: who waits is woken by every record, and only by the dead is he given up.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "faults.h"
#include "process.h"
#include "shared_signal.h"
#include "streams.h"

using namespace streams;

namespace {

uint32_t device;
int node;   // its file

std::shared_ptr<Ledger> new_ledger() {
    const LedgerLayout layout{2, 4};
    node = memfd_create("ledger", MFD_CLOEXEC);
    CHECK(node >= 0 && ftruncate(node, static_cast<off_t>(layout.file_size())) == 0);
    const uint64_t owner = 1;
    CHECK(pwrite(node, &owner, 8, static_cast<off_t>(LedgerLayout::kHeader)) == 8);
    return std::make_shared<Ledger>(node, layout, 0);
}

// As another process does it, which has told nothing of itself.
void record_elsewhere(SharedSignal& event, uint64_t number) {
    SignalLine& line = event.record_line(number);
    if (line.word.exchange(number * SignalLine::kRecord | SignalLine::kWaiter) & SignalLine::kWaiter) event.ring();
}

// A ring is for the process, not for one of its waits.
void each_record_wakes_its_own(const std::shared_ptr<Ledger>& ledger) {
    constexpr uint64_t kWaits = 10;
    const auto event = SharedSignal::create(ledger);
    std::vector<StreamPtr> waiting;
    for (uint64_t number = 1; number <= kWaits; ++number) {
        waiting.push_back(stream(device));
        Notify* const record = Notify::record_of(event, number, device);
        await(*waiting.back(), record);
        record->drop();
    }
    const double span = seconds([&] {
        for (uint64_t number = 1; number <= kWaits; ++number) {
            record_elsewhere(*event, number);
            finish(*waiting[number - 1]);
        }
    });
    std::printf("    %.3f s\n", span);
    CHECK(span < kWaits / 2.0);   // looking at it once a second would take as many seconds
    for (const StreamPtr& on : waiting) close(*on);
}

}  // namespace

int main() {
    open_heap();
    device = new_device();
    auto random = seeded("test_shared_signals");
    const std::shared_ptr<Ledger> ledger = new_ledger();
    engine().use_bell(ledger);
    under_each_schedule(random, [&] {
        RUN(each_record_wakes_its_own(ledger));
    });
    return 0;
}

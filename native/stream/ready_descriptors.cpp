#include "stream/ready_descriptors.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "log/log.h"

namespace peerlane::ready_descriptors {

namespace {

struct Record {
    uint64_t stream, sequence;
};
struct Descriptors {
    std::mutex mutex;
    std::unordered_map<int, Record> records;
    std::atomic<size_t> count{0};   // relaxed: who waits for a descriptor got it by an order of the program's
};
Descriptors& all() {
    static auto& descriptors = *new Descriptors;
    return descriptors;
}

}  // namespace

void add(int fd, uint64_t stream, uint64_t sequence) {
    std::lock_guard lock(all().mutex);
    all().records.insert_or_assign(fd, Record{stream, sequence});
    all().count.store(all().records.size(), std::memory_order_relaxed);
}

void remove(int fd) noexcept {
    if (!are_any()) return;
    std::lock_guard lock(all().mutex);
    all().records.erase(fd);
    all().count.store(all().records.size(), std::memory_order_relaxed);
}

bool are_any() noexcept { return all().count.load(std::memory_order_relaxed) != 0; }

void note_seen(int fd) noexcept {
    if (!are_any() || !log::wanted()) return;
    Record record;
    {
        std::lock_guard lock(all().mutex);
        const auto at = all().records.find(fd);
        if (at == all().records.end()) return;
        record = at->second;
    }
    log::write({.kind = log::Kind::sync, .stream = record.stream, .sequence = record.sequence});
}

}  // namespace peerlane::ready_descriptors

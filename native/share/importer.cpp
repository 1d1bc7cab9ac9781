#include "share/importer.h"

#include <map>
#include <tuple>
#include <utility>

#include "memory/heap.h"
#include "share/importer_line.h"

namespace peerlane {

namespace {

using ExporterKey = std::tuple<uint64_t, uint32_t, int32_t, uint32_t>;   // node, slot, pid, low half of the start time

struct Registry {
    std::mutex mutex;
    std::map<ExporterKey, std::weak_ptr<Exporter>> all;
    static Registry& get() {
        static auto* registry = new Registry;
        return *registry;
    }
    std::shared_ptr<Exporter> find(const ExporterKey& key) {
        std::lock_guard lock(mutex);
        const auto exporter = all.find(key);
        return exporter == all.end() ? nullptr : exporter->second.lock();
    }
};

}  // namespace

Exporter::Exporter(std::shared_ptr<ExporterLine> line) : line_(std::move(line)) {}

std::shared_ptr<Exporter> Exporter::connect(int directory, const std::string& name, uint32_t slot, uint64_t node, int32_t pid,
                                            uint64_t start, Deadline deadline, Poll poll) {
    Heap::get().begin_use();
    const ExporterKey key{node, slot, pid, static_cast<uint32_t>(start)};
    Registry& registry = Registry::get();
    if (std::shared_ptr<Exporter> known = registry.find(key); known && !known->is_lost()) return known;
    Patience patience(deadline, poll, pid);
    std::shared_ptr<Exporter> exporter(new Exporter(ExporterLine::connect(directory, name, node, pid, start, patience)));
    std::shared_ptr<Exporter> other = registry.find(key);   // another thread was faster; not let go under the lock
    if (other && !other->is_lost()) return other;
    std::lock_guard lock(registry.mutex);
    std::erase_if(registry.all, [](const auto& entry) { return entry.second.expired(); });
    registry.all[key] = exporter;
    return exporter;
}

std::shared_ptr<Exporter> Exporter::known(uint32_t slot, uint64_t node, int32_t pid, uint64_t start) {
    return Registry::get().find({node, slot, pid, static_cast<uint32_t>(start)});
}

Exporter::~Exporter() {
    if (!Heap::get().is_forked()) line_->hang_up();
}

Offer Exporter::open(uint32_t index, uint64_t nonce, unsigned nonce_bits, Kind wanted, Deadline deadline, Poll poll) {
    Heap::get().check_usable();
    Patience patience(deadline, poll, pid());
    Request request{.nonce = nonce, .index = index, .nonce_bits = static_cast<uint16_t>(nonce_bits), .kind = wanted};
    return line_->open(request, patience);
}

std::optional<Offer> Exporter::open_early(uint32_t index, uint64_t nonce, Kind wanted) {
    Heap::get().check_usable();
    return line_->take_early({.nonce = nonce, .index = index, .kind = wanted});
}

void Exporter::let_go(uint32_t index, uint64_t nonce, TakenGrant taken) {
    if (!Heap::get().is_forked()) line_->let_go(index, nonce, taken);
}

int32_t Exporter::pid() const { return line_->process().pid; }
uint64_t Exporter::start() const { return line_->process().start; }
bool Exporter::is_dead() const { return Heap::get().is_forked() || line_->process().has_ended(); }
bool Exporter::is_lost() const { return Heap::get().is_forked() || line_->is_lost(); }

void Exporter::fork_prepare() {
    Registry::get().mutex.lock();
    ExporterLine::fork_prepare();
}
void Exporter::fork_parent() {
    ExporterLine::fork_parent();
    Registry::get().mutex.unlock();
}
bool Exporter::fork_child() {
    const bool opened = ExporterLine::fork_child();
    Registry::get().mutex.unlock();
    return opened;
}

}  // namespace peerlane

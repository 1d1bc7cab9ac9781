#include "share/broker.h"

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <unistd.h>

#include "memory/heap.h"
#include "share/broker_loop.h"

namespace peerlane {

struct Broker::State {
    enum class Phase : uint8_t { idle, serving, closing };

    std::mutex mutex;
    std::condition_variable settled;    // closing is over
    Phase phase = Phase::idle;
    int directory = -1;
    std::string name;
    ExportTable exports;
    std::unique_ptr<BrokerLoop> loop;

    // The entry of an export that can still be opened.
    ExportTable::Entry* current(uint32_t index, uint64_t nonce) {
        ExportTable::Entry* entry = exports.find(index, nonce);
        return entry && !entry->withdrawn ? entry : nullptr;
    }
};

Broker& Broker::get() {
    static auto* broker = new Broker;
    return *broker;
}

Broker::Broker() : state_(new State) {}

void Broker::open(int directory, const std::string& name, uint32_t, uint64_t node) {
    Heap::get().begin_use();
    std::unique_lock lock(state_->mutex);
    state_->settled.wait(lock, [&] { return state_->phase != State::Phase::closing; });
    if (state_->phase == State::Phase::serving) {
        if (state_->name != name) throw Refusal{.why = Why::closed, .role = "handle"};
        return;
    }
    auto loop = std::make_unique<BrokerLoop>(state_->mutex, state_->exports, node);
    loop->start(directory, name);
    state_->loop = std::move(loop);
    state_->directory = directory;
    state_->name = name;
    state_->phase = State::Phase::serving;
}

void Broker::close() {
    if (Heap::get().is_forked()) return;
    std::unique_lock lock(state_->mutex);
    if (state_->phase != State::Phase::serving) {
        state_->settled.wait(lock, [&] { return state_->phase != State::Phase::closing; });
        return;
    }
    state_->phase = State::Phase::closing;
    unlinkat(state_->directory, state_->name.c_str(), 0);
    lock.unlock();
    state_->loop->stop();
    lock.lock();
    state_->loop.reset();
    const auto all = state_->exports.take_all();
    state_->phase = State::Phase::idle;
    state_->settled.notify_all();
    lock.unlock();
    for (const ExportTable::Gone& gone : all) gone();
}

bool Broker::is_open() {
    if (Heap::get().is_forked()) return false;
    std::lock_guard lock(state_->mutex);
    return state_->phase == State::Phase::serving;
}

ExportKey Broker::offer(Export what) {
    Heap::get().check_usable();
    std::lock_guard lock(state_->mutex);
    if (state_->phase != State::Phase::serving) throw Refusal{.why = Why::closed, .role = "handle"};
    try {
        return state_->exports.add(std::move(what));
    } catch (const std::bad_alloc&) {
        throw Refusal{.why = Why::system_memory, .role = "handle", .error = ENOMEM};
    }
}

uint64_t Broker::start_of(int32_t pid) {
    {
        std::lock_guard lock(state_->mutex);
        const uint64_t known = state_->loop ? state_->loop->start_of(pid) : 0;
        if (known != 0) return known;
    }
    return start_time(pid);
}

bool Broker::allow(uint32_t index, uint64_t nonce, int32_t pid, uint64_t start) {
    std::lock_guard lock(state_->mutex);
    ExportTable::Entry* entry = state_->current(index, nonce);
    if (!entry) return false;
    for (auto& [listed, since] : entry->listed)
        if (listed == pid) {
            if (since != start) state_->loop->take_back_early(index);
            since = start;
            return true;
        }
    entry->listed.emplace_back(pid, start);
    state_->loop->grant_early(index, pid);
    return true;
}

bool Broker::disallow(uint32_t index, uint64_t nonce, int32_t pid) {
    std::lock_guard lock(state_->mutex);
    ExportTable::Entry* entry = state_->current(index, nonce);
    if (!entry || std::erase_if(entry->listed, [pid](const auto& listed) { return listed.first == pid; }) == 0) return false;
    state_->loop->take_back_early(index);
    return true;
}

std::vector<std::pair<int32_t, uint64_t>> Broker::allowed(uint32_t index, uint64_t nonce) {
    std::lock_guard lock(state_->mutex);
    const ExportTable::Entry* entry = state_->current(index, nonce);
    return entry ? entry->listed : ExportTable::Listed{};
}

void Broker::abandon(uint32_t index, uint64_t nonce) {
    end(index, nonce, false);
}

void Broker::withdraw(uint32_t index, uint64_t nonce) {
    end(index, nonce, true);
}

void Broker::end(uint32_t index, uint64_t nonce, bool withdrawn) {
    std::vector<ExportTable::Gone> gone;
    {
        std::lock_guard lock(state_->mutex);
        ExportTable::Entry* entry = state_->exports.find(index, nonce);
        if (!entry) return;
        state_->loop->count_early();
        state_->loop->take_back_early(index);
        (withdrawn ? entry->withdrawn : entry->abandoned) = true;
        gone = state_->exports.settle(index);
    }
    for (const ExportTable::Gone& each : gone) each();
}

uint64_t Broker::importers(uint32_t index, uint64_t nonce) {
    std::lock_guard lock(state_->mutex);
    const ExportTable::Entry* entry = state_->exports.find(index, nonce);
    if (!entry) return 0;
    state_->loop->count_early();
    return entry->importers;
}

Status Broker::refusal_of(uint32_t index, uint64_t nonce, unsigned bits) {
    std::lock_guard lock(state_->mutex);
    const Status status = state_->exports.status(index, nonce, bits);
    if (status == Status::ok) return Status::own_process;
    // All 64 bits come with the name of this process, which made it, then, longer ago than is remembered.
    return bits == 64 ? Status::stale : status;
}

void Broker::fork_prepare() { state_->mutex.lock(); }
void Broker::fork_parent() { state_->mutex.unlock(); }

// What the child had of its parent's state is left as it is: its locks are held, and letting go of an export would
// run code that believes to be in the parent.
bool Broker::fork_child() {
    const bool served = state_->loop != nullptr;
    if (served) state_->loop->close_descriptors();
    state_.release();
    state_.reset(new State);
    return served;
}

}  // namespace peerlane

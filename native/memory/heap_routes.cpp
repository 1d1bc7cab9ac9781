// Between which devices bytes go directly.
#include "memory/heap.h"

namespace peerlane {

bool Heap::route_open(uint32_t a, uint32_t b) const {
    const auto has = [this](uint32_t from, uint32_t to) {
        return device(from).routes[to / 64].load(std::memory_order_relaxed) >> (to % 64) & 1;
    };
    return has(a, b) || has(b, a);
}

bool Heap::is_mutual(uint32_t a, uint32_t b) {
    std::shared_ptr<Ledger> ledger;
    uint64_t one, other;
    {
        std::lock_guard lock(mutex_);   // another thread may be leaving the node
        if (device(a).ledger != device(b).ledger) return false;
        ledger = device(a).ledger;
        one = device(a).index;
        other = device(b).index;
    }
    if (!ledger) return false;
    const uint64_t forth = ledger->enabler(one, other);
    const uint64_t back = forth == LedgerLayout::kNone ? forth : ledger->enabler(other, one);
    if (back == LedgerLayout::kNone) return false;
    ledger->rely_on(forth);
    ledger->rely_on(back);
    return true;
}

bool Heap::may_go_direct(const Extent& a, const Extent& b, bool by_node, Why& why) {
    why = Why::no_route;
    if (!route_open(a.device, b.device) && !(by_node && is_mutual(a.device, b.device))) return false;
    why = Why::not_peer_memory;
    const auto fits = [this](const Extent& extent) {
        return extent.peer || !device(extent.device).settings.routes_peer_memory_only;
    };
    return fits(a) && fits(b);
}

void Heap::set_route(uint32_t from, uint32_t to, bool open) {
    check_usable();
    auto& word = device(from).routes[to / 64];
    const uint64_t bit = uint64_t{1} << (to % 64);
    open ? word.fetch_or(bit) : word.fetch_and(~bit);
}

}  // namespace peerlane

// A call of a collective as Python has it.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "memory/memory.h"
#include "ranks/collective.h"

struct RoundsHandle {
    std::shared_ptr<peerlane::Rounds> rounds;
    std::optional<peerlane::Collective> begun;   // by run_now(), which did not end it
};
// Make a call in this thread, if nothing is unusual.  0: it was not begun; 1: it is over; 2: it was begun, and this thread has the
// turn until it is queued.
int run_now(RoundsHandle& self, peerlane::Collective::Kind kind, const peerlane::Memory* dst, const peerlane::Memory* src, uint32_t root,
            int number);

// (kind, bytes, number of the reduction, root, whether parts differ)
inline nanobind::tuple called(uint64_t word) {
    const peerlane::Collective::Said said = peerlane::Collective::said(word);
    return nanobind::make_tuple(static_cast<int>(said.kind), said.size, said.operation, said.root, said.has_parts);
}

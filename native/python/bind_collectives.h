// A call of a collective as Python has it.
#pragma once
#include <nanobind/nanobind.h>

#include "ranks/collective.h"

// (kind, bytes, number of the reduction, root, whether parts differ)
inline nanobind::tuple called(uint64_t word) {
    const peerlane::Collective::Said said = peerlane::Collective::said(word);
    return nanobind::make_tuple(static_cast<int>(said.kind), said.size, said.operation, said.root, said.has_parts);
}

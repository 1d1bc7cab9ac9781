// The last operations that the event logs have of each stream, and the last records and waits of each notify: for the text of a
// deadlock, as their readers take the logs' records away.
#pragma once
#include <cstdint>
#include <vector>

#include "stream/operation.h"

namespace peerlane {

struct Past {
    uint64_t stream, sequence;   // stream 0: by the host
    uint32_t site;
    OpKind kind;
};

enum class PastOf : uint8_t { stream, notify };

// Of some thousand streams and notifies; where there are more, some are not known.
void note_past(PastOf what, uint64_t id, const Past& past) noexcept;
std::vector<Past> past_of(PastOf what, uint64_t id);   // oldest first

}  // namespace peerlane

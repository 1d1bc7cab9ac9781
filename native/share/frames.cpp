#include "share/frames.h"

namespace peerlane {

Refusal refuse_handle(Status status, const Asked& asked) {
    return {.why = Why::handle, .role = "handle", .address = asked.nonce, .size = asked.first,
            .base = static_cast<uint64_t>(asked.asker), .extent_size = asked.second,
            .id = static_cast<uint64_t>(asked.exporter), .fault_address = asked.listed_start,
            .error = static_cast<int>(status), .entry = asked.asker_start, .device = asked.index};
}

}  // namespace peerlane

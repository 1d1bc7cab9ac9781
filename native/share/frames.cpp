#include "share/frames.h"

namespace peerlane {

Refusal refuse_handle(Status status, const Asked& asked) {
    return {.why = Why::handle, .role = "handle", .handle = {.status = static_cast<int>(status), .asked = asked}};
}

}  // namespace peerlane

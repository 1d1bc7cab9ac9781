#include "share/frames.h"

namespace peerlane {

Refusal refuse_handle(Status status, const HandleParties& parties, const HandleNumbers& numbers) {
    return {.why = Why::handle, .role = "handle",
            .handle = {.status = static_cast<int>(status), .parties = parties, .numbers = numbers}};
}

}  // namespace peerlane

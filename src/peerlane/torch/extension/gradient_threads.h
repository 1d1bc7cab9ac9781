// The end of torch's threads for gradients.  Such a thread frees what an earlier backward had kept after the caller goes on, and takes the GIL for that.  Where
// Python has begun to end by then, that kills the process.
#pragma once
#include <thread>

#include <ATen/ATen.h>

#include "runtime.h"

namespace peerlane_torch {

// A thread takes its tasks in order: after one more, which needs nothing of Python, it is done with the others.
inline void finish_gradients() {
    const GilGivenAway gil;
    std::thread([] {
        try {
            for (DeviceIndex device = 0; device < Devices::get().count(); ++device) {
                bool is_used = false;
                Devices::get().each_queue(device, [&](Queue&) { is_used = true; });
                if (!is_used) continue;
                const at::Tensor one = at::ones({}, at::TensorOptions(Device(kDevice, device)).requires_grad(true));
                one.clone().backward();
            }
        } catch (const std::exception&) {   // a device has failed, or has no memory left
        }
    }).join();
}

}  // namespace peerlane_torch

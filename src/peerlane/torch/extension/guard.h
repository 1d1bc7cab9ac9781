// What torch asks of a device in general: its guard, streams and events.
#pragma once
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "allocator.h"

namespace peerlane_torch {

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return kDevice; }
    Device getDevice() const override { return {kDevice, current_device}; }
    Device exchangeDevice(Device device) const override {
        const Device before = getDevice();
        setDevice(device);
        return before;
    }
    void setDevice(Device device) const override {
        if (device.index() == current_device || device.index() < 0) return;
        Devices::get().check(device.index());
        current_device = device.index();
    }
    void uncheckedSetDevice(Device device) const noexcept override {
        if (device.index() >= 0) current_device = device.index();
    }
    c10::DeviceIndex deviceCount() const noexcept override {
        try {
            return Devices::get().count();
        } catch (...) {
            return 0;
        }
    }
    c10::DeviceCapability getDeviceCapability(Device) const override { return {}; }   // of all types

    c10::Stream getStream(Device device) const override { return current_queue(index_of(device)).as_stream(); }
    c10::Stream getDefaultStream(Device device) const override { return Devices::get().default_queue(index_of(device)).as_stream(); }
    c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return Devices::get().pooled_queue(index_of(device)).as_stream(); }
    c10::Stream getNewStream(Device device, int) const override { return Devices::get().pooled_queue(index_of(device)).as_stream(); }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        const c10::Stream before = getStream(stream.device());
        current_queues.at(stream.device_index()) = &Devices::get().queue(stream);
        return before;
    }
    void* getStreamNativeHandle(const c10::Stream stream) const override { return Devices::get().queue(stream).stream; }
    bool queryStream(const c10::Stream& stream) const override {
        Queue& queue = Devices::get().queue(stream);
        if (queue.is_settled() && !calls->is_checked()) return true;
        const Called called;
        return with_python([&](py::handle) { return py::handle(queue.stream).attr("is_done").cast<bool>(); });
    }
    void synchronizeStream(const c10::Stream& stream) const override {
        const Called called;
        Devices::get().queue(stream).synchronize();
    }
    void synchronizeDevice(const DeviceIndex device) const override {
        const Called called;
        Devices::get().each_queue(device, [](Queue& queue) { queue.synchronize(); });
    }

    // An event is an object of Python: peerlane's.
    void record(void** event, const c10::Stream& stream, const DeviceIndex device, const c10::EventFlag) const override {
        TORCH_CHECK(device == -1 || device == stream.device_index(), "an event of ", kDevice, ":", static_cast<int>(device), " cannot be recorded on a stream of ", stream.device());
        const Called called;
        Queue& queue = Devices::get().queue(stream);
        with_python([&](py::handle module) {
            if (*event) {
                module.attr("record")(py::handle(queue.stream), py::handle(static_cast<PyObject*>(*event)));
            } else {
                *event = module.attr("record")(py::handle(queue.stream)).release().ptr();
            }
        });
    }
    void block(void* event, const c10::Stream& stream) const override {
        if (!event) return;
        const Called called;
        Queue& queue = Devices::get().queue(stream);
        with_python([&](py::handle) { py::handle(queue.stream).attr("wait")(py::handle(static_cast<PyObject*>(event))); });
    }
    bool queryEvent(void* event) const override {
        const Called called;
        return !event || with_python([&](py::handle) { return py::handle(static_cast<PyObject*>(event)).attr("is_done").cast<bool>(); });
    }
    void synchronizeEvent(void* event) const override {
        const Called called;
        if (event) with_python([&](py::handle module) { module.attr("synchronize")(py::handle(static_cast<PyObject*>(event))); });
    }
    double elapsedTime(void* first, void* second, const DeviceIndex) const override {
        return with_python([&](py::handle module) {
            return module.attr("milliseconds")(py::handle(static_cast<PyObject*>(first)), py::handle(static_cast<PyObject*>(second))).cast<double>();
        });
    }
    void destroyEvent(void* event, const DeviceIndex) const noexcept override {
        if (!event || !Py_IsInitialized()) return;
        const py::gil_scoped_acquire gil;
        Py_DECREF(static_cast<PyObject*>(event));
    }
    void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override { allocator().recordStream(pointer, stream); }

  private:
    static DeviceIndex index_of(Device device) { return device.has_index() ? device.index() : current_device; }
};

}  // namespace peerlane_torch

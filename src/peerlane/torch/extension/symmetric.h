// Symmetric memory of torch.distributed: torch asks an allocator of the device's kind, and `peerlane.torch.symmetric_memory` answers.
#pragma once
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include "guard.h"

namespace peerlane_torch {

namespace symmetric = c10d::symmetric_memory;

template <class Body>
auto with_symmetric_memory(const Body& body) {
    return with_python([&](py::handle) { return body(py::module_::import("peerlane.torch.symmetric_memory")); });
}

// The memory of all ranks of a group, and the signals between them.
class Shared final : public symmetric::SymmetricMemory {
  public:
    // With the GIL.
    explicit Shared(py::object memory)
        : buffers_(pointers(memory.attr("buffers"))), pads_(pointers(memory.attr("pads"))), size_(memory.attr("nbytes").cast<size_t>()), rank_(memory.attr("rank").cast<int>()),
          device_(kDevice, memory.attr("device").cast<DeviceIndex>()), global_ranks_(memory.attr("global_ranks").cast<std::vector<int>>()), memory_(memory.release().ptr()) {}
    ~Shared() override {
        if (!Py_IsInitialized()) return;
        const py::gil_scoped_acquire gil;
        Py_DECREF(memory_);
    }

    std::vector<void*> get_buffer_ptrs() override { return buffers_; }
    std::vector<void*> get_signal_pad_ptrs() override { return pads_; }
    void** get_buffer_ptrs_dev() override { return on_device("buffers_on_device"); }
    void** get_signal_pad_ptrs_dev() override { return on_device("pads_on_device"); }
    size_t get_buffer_size() override { return size_; }
    size_t get_offset() override { return 0; }
    bool has_multicast_support() override { return false; }
    void* get_multicast_ptr() override { return nullptr; }
    void barrier(int channel, size_t milliseconds) override { call("barrier", channel, milliseconds); }
    void put_signal(int peer, int channel, size_t milliseconds) override { call("put_signal", peer, channel, milliseconds); }
    void wait_signal(int peer, int channel, size_t milliseconds) override { call("wait_signal", peer, channel, milliseconds); }
    int get_rank() override { return rank_; }
    int get_world_size() override { return static_cast<int>(buffers_.size()); }
    c10::Device get_device() override { return device_; }
    const std::vector<int>& get_rank_to_global_rank() override { return global_ranks_; }
    bool world_within_direct_access() override { return true; }

  private:
    static std::vector<void*> pointers(const py::object& addresses) {
        std::vector<void*> list;
        for (const auto each : addresses.cast<std::vector<uintptr_t>>()) list.push_back(reinterpret_cast<void*>(each));
        return list;
    }
    template <class... Arguments>
    py::object call(const char* name, Arguments... arguments) {
        return with_python([&](py::handle) { return py::object(py::handle(memory_).attr(name)(arguments...)); });
    }
    void** on_device(const char* name) {
        return with_python([&](py::handle) { return reinterpret_cast<void**>(py::handle(memory_).attr(name)().cast<uintptr_t>()); });
    }

    const std::vector<void*> buffers_, pads_;
    const size_t size_;
    const int rank_;
    const c10::Device device_;
    const std::vector<int> global_ranks_;
    PyObject* const memory_;
};

class SymmetricAllocator final : public symmetric::SymmetricMemoryAllocator {
  public:
    void* alloc(size_t size, int device, const std::optional<std::string>& group) override {
        return with_symmetric_memory([&](py::handle module) {
            const int index = device < 0 ? Guard().getDevice().index() : device;   // a device without a number is the current one
            return reinterpret_cast<void*>(module.attr("allocate")(size, index, symmetric::get_signal_pad_size(), group).template cast<uintptr_t>());
        });
    }
    void free(void* address) override {
        if (!Py_IsInitialized()) return;
        const py::gil_scoped_acquire gil;
        try {
            py::module_::import("peerlane.torch.symmetric_memory").attr("free")(reinterpret_cast<uintptr_t>(address));
        } catch (py::error_already_set& error) {
            error.discard_as_unraisable("the end of symmetric memory");
        }
    }
    size_t get_alloc_size(void* address) override {
        return with_symmetric_memory([&](py::handle module) { return module.attr("size_of")(reinterpret_cast<uintptr_t>(address)).template cast<size_t>(); });
    }
    bool has_allocation(void* address) override {
        return with_symmetric_memory([&](py::handle module) { return module.attr("has")(reinterpret_cast<uintptr_t>(address)).template cast<bool>(); });
    }
    // Null for other memory: torch's own operations ask so whether a tensor is symmetric.
    c10::intrusive_ptr<symmetric::SymmetricMemory> rendezvous(void* address, const std::optional<std::string>& group) override {
        return with_symmetric_memory([&](py::handle module) -> c10::intrusive_ptr<symmetric::SymmetricMemory> {
            py::object memory = module.attr("rendezvous")(reinterpret_cast<uintptr_t>(address), group);
            if (memory.is_none()) return nullptr;
            return c10::make_intrusive<Shared>(std::move(memory));
        });
    }
    bool has_multicast_support(int) override { return false; }
    c10::DeviceType supported_device_type() override { return kDevice; }
#ifdef PEERLANE_AS_CUDA
    std::string name() override { return "CUDA"; }
#else
    std::string name() override { return "peerlane"; }
#endif
};

inline void register_symmetric_memory() {
    const auto allocator = c10::make_intrusive<SymmetricAllocator>();
    symmetric::register_availability(allocator->name(), allocator);
    symmetric::register_allocator(kDevice, allocator);
}

}  // namespace peerlane_torch

// Devices and streams as torch sees them: the current ones of each thread, and the waits.
#pragma once
#include <array>
#include <atomic>
#include <mutex>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "device_calls.h"

namespace peerlane_torch {

namespace py = pybind11;
using c10::Device;
using c10::DeviceIndex;
// torch keeps PrivateUse1 for devices of others.  As `cuda` the device takes the name of one that this build of torch lacks.
#ifdef PEERLANE_AS_CUDA
#define PEERLANE_KEY CUDA
#define PEERLANE_AUTOGRAD_KEY AutogradCUDA
#else
#define PEERLANE_KEY PrivateUse1
#define PEERLANE_AUTOGRAD_KEY AutogradPrivateUse1
#endif
constexpr auto kDevice = c10::DeviceType::PEERLANE_KEY;
constexpr auto kKey = c10::DispatchKey::PEERLANE_KEY;

inline const peerlane::DeviceCalls* calls = nullptr;   // set when the module is loaded
inline PyObject* python = nullptr;                     // the module `peerlane.torch.device_objects`

// Run with the GIL; an error of Python passes through torch as its own.
template <class Body>
auto with_python(const Body& body) {
    const py::gil_scoped_acquire gil;
    try {
        return body(py::handle(python));
    } catch (py::error_already_set& error) {
        error.restore();
        python_error raised;
        raised.persist();
        throw raised;
    }
}

// Without the GIL, if this thread has it: another thread may need it before this one can go on.
class GilGivenAway {
  public:
    GilGivenAway() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
    ~GilGivenAway() {
        if (state_) PyEval_RestoreThread(state_);
    }
    GilGivenAway(const GilGivenAway&) = delete;

  private:
    PyThreadState* const state_;
};

// A stream.  They are made on demand, and never end.
struct Queue {
    DeviceIndex device;
    void* native;        // for `calls`
    PyObject* stream;    // peerlane's
    bool is_default;
    std::mutex running;  // held while an operation runs in the thread that called it
    Queue* next = nullptr;   // of those outside of the pool
    std::atomic<bool> is_ended{false};   // the node was left

    c10::Stream as_stream() {
        const auto id = is_default ? 0 : static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(this));
        return c10::Stream(c10::Stream::UNSAFE, {kDevice, device}, id);
    }
    // Whether all operations of the stream are over, and none has failed.
    bool is_settled() const { return !is_ended.load(std::memory_order_relaxed) && calls->is_settled(native); }
    // No thread runs an operation itself when this returns, and none begins one: the memory of the device ends.
    void end() {
        const std::lock_guard lock(running);
        is_ended.store(true, std::memory_order_relaxed);
    }
    void synchronize() {
        if (is_settled() && !calls->is_checked()) return;
        with_python([this](py::handle module) { module.attr("synchronize")(py::handle(stream)); });
    }
    // What is submitted must not run beside an operation that another thread runs itself.
    void submit(peerlane::Work* work) {
        if (!running.try_lock()) {
            const GilGivenAway gil;
            running.lock();
        }
        running.unlock();
        if (calls->submit(native, work)) return;
        with_python([](py::handle) {
            calls->raise_refused();
            throw py::error_already_set();
        });
    }
};

class Devices {
  public:
    static constexpr DeviceIndex kMost = 64;

    static Devices& get() {
        static auto* devices = new Devices;
        return *devices;
    }
    DeviceIndex count() {
        if (const DeviceIndex known = count_.load(std::memory_order_acquire); known >= 0) return known;
        const auto counted = with_python([](py::handle module) { return module.attr("count")().cast<int>(); });
        count_.store(static_cast<DeviceIndex>(std::min<int>(counted, kMost)), std::memory_order_release);
        return count_.load(std::memory_order_relaxed);
    }
    void check(DeviceIndex device) {
        TORCH_CHECK(device >= 0 && device < count(), kDevice, ":", static_cast<int>(device), " does not exist: there are ", static_cast<int>(count()),
                    " devices, ", kDevice, ":0 to ", kDevice, ":", count() - 1, ". For more set PEERLANE_NODE, or run the program with `peerlane run --devices N`.");
    }
    // In a forked child whose parent had used devices: what the parent has is not the child's.
    void refuse_forked() {
        is_forked_.store(true, std::memory_order_relaxed);   // the child has one thread
        for (DeviceIndex device = 0; device < kMost; ++device) {
            defaults_[device].store(nullptr, std::memory_order_relaxed);
            for (auto& entry : pools_[device]) entry.store(nullptr, std::memory_order_relaxed);
            owned_[device].store(nullptr, std::memory_order_relaxed);
        }
    }
    bool is_forked() const { return is_forked_.load(std::memory_order_relaxed); }
    void check_process() const {
        TORCH_CHECK(!is_forked(), "this process cannot use devices of ", kDevice, ": it was forked from a process that had used them. Start it by the method 'spawn', as "
                    "torch.multiprocessing.get_context('spawn') does (a DataLoader: multiprocessing_context='spawn'), or fork it before the program uses a device");
    }
    Queue& default_queue(DeviceIndex device) {
        if (Queue* const known = defaults_.at(device).load(std::memory_order_acquire)) return *known;
        check(device);
        return make(device, defaults_[device], true);
    }
    // Streams are used in turn, as torch uses those of a GPU.
    Queue& pooled_queue(DeviceIndex device) {
        check(device);
        std::atomic<Queue*>& entry = pools_[device][next_[device].fetch_add(1, std::memory_order_relaxed) % kPool];
        Queue* const known = entry.load(std::memory_order_acquire);
        return known ? *known : make(device, entry, false);
    }
    // A stream that torch hands out to nobody else.
    Queue& own_queue(DeviceIndex device) {
        check(device);
        std::atomic<Queue*> entry{nullptr};
        Queue& made = make(device, entry, false);
        made.next = owned_[device].load(std::memory_order_relaxed);
        while (!owned_[device].compare_exchange_weak(made.next, &made, std::memory_order_release, std::memory_order_relaxed)) {}
        return made;
    }
    Queue& queue(const c10::Stream& stream) {
        check_process();
        if (stream.id() == 0) return default_queue(stream.device_index());
        return *reinterpret_cast<Queue*>(static_cast<intptr_t>(stream.id()));
    }
    void end_queues() {
        const GilGivenAway gil;
        for (DeviceIndex device = 0; device < kMost; ++device) each_queue(device, [](Queue& queue) { queue.end(); });
    }
    template <class Visit>
    void each_queue(DeviceIndex device, const Visit& visit) {
        if (Queue* const queue = defaults_[device].load(std::memory_order_acquire)) visit(*queue);
        for (const auto& entry : pools_[device])
            if (Queue* const queue = entry.load(std::memory_order_acquire)) visit(*queue);
        for (Queue* queue = owned_[device].load(std::memory_order_acquire); queue; queue = queue->next) visit(*queue);
    }

  private:
    static constexpr size_t kPool = 32;

    Queue& make(DeviceIndex device, std::atomic<Queue*>& entry, bool is_default) {
        check_process();
        return *with_python([&](py::handle module) {
            if (Queue* const known = entry.load(std::memory_order_acquire)) return known;   // another thread was faster
            PyObject* const stream = module.attr("create_stream")(static_cast<int>(device), is_default).release().ptr();
            auto* const queue = new Queue{device, calls->hold_stream(stream), stream, is_default, {}};
            Queue* before = nullptr;
            return entry.compare_exchange_strong(before, queue) ? queue : before;
        });
    }

    std::atomic<bool> is_forked_{false};
    std::atomic<DeviceIndex> count_{-1};
    std::array<std::atomic<Queue*>, kMost> defaults_{};
    std::array<std::array<std::atomic<Queue*>, kPool>, kMost> pools_{};
    std::array<std::atomic<size_t>, kMost> next_{};
    std::array<std::atomic<Queue*>, kMost> owned_{};
};

inline thread_local DeviceIndex current_device = 0;
inline thread_local std::array<Queue*, Devices::kMost> current_queues{};

// While it lives, the device is this thread's current one.
class OnDevice {
  public:
    explicit OnDevice(DeviceIndex device) : before_(std::exchange(current_device, device)) {}
    ~OnDevice() { current_device = before_; }
    OnDevice(const OnDevice&) = delete;

  private:
    const DeviceIndex before_;
};

inline Queue& current_queue(DeviceIndex device) {
    if (static_cast<size_t>(device) >= current_queues.size()) [[unlikely]] Devices::get().check(device);
    Queue*& queue = current_queues[static_cast<size_t>(device)];
    if (!queue) [[unlikely]] queue = &Devices::get().default_queue(device);
    return *queue;
}

inline void refuse_forked() {
    Devices::get().refuse_forked();
    current_queues.fill(nullptr);
}

// Where device addresses lie, and their bytes for the host: nowhere before the process uses a device, and torch frees memory of the host before.
struct Window {
    uint64_t base, size;
    int64_t offset;
};
inline std::atomic<const Window*> window{nullptr};

// The host's address of a device address; of another one, that itself.
inline char* host_of(const void* address) {
    const Window* known = window.load(std::memory_order_acquire);
    if (!known && calls->guard_size() != 0) [[unlikely]] {
        const auto* const made = new Window{calls->guard_base(), calls->guard_size(), calls->host_offset()};
        if (window.compare_exchange_strong(known, made, std::memory_order_acq_rel, std::memory_order_acquire)) known = made;
        else delete made;
    }
    const auto at = reinterpret_cast<uintptr_t>(address);
    return reinterpret_cast<char*>(known && at - known->base < known->size ? at + static_cast<uint64_t>(known->offset) : at);
}

// Whether the host finds the bytes of some device there; pinned memory lies there, too.
inline bool is_device_memory(const void* host) {
    const Window* const known = window.load(std::memory_order_acquire);
    return known && reinterpret_cast<uintptr_t>(host) - (known->base + static_cast<uint64_t>(known->offset)) < known->size;
}

}  // namespace peerlane_torch

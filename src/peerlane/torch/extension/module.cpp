// The device `peerlane` of torch, compiled where it is used first.  The headers, from the ground up:
//
// * runtime.h: devices, streams, waits;  called.h: the program's line, for the checker;  allocator.h: memory, on devices and pinned;
// * guard.h: what torch asks of any device;  generators.h: random numbers;
// * layouts.h: tensors of several parts;  aliases.h: CPU tensors on device memory;  operations.h: how an operation runs;  copies.h: what has no CPU kernel;
// * attention.h;  recurrent_cells.h;  synchronized_norm.h;  reducer_timer.h;  profiler_times.h;  gradient_threads.h;  symmetric.h;  relay.h;  autocast.h;  hooks.h: what torch's libraries ask of the device;  as_cuda.h: those as the device `cuda`.
#include <unordered_set>

#include <torch/library.h>

#ifdef PEERLANE_AS_CUDA
#include "as_cuda.h"
#else
#include "autocast.h"
#include "hooks.h"
#endif
#include "attention.h"
#include "gradient_threads.h"
#include "profiler_times.h"
#include "recurrent_cells.h"
#include "reducer_timer.h"
#include "relay.h"
#include "symmetric.h"
#include "synchronized_norm.h"

namespace peerlane_torch {

C10_REGISTER_GUARD_IMPL(PEERLANE_KEY, Guard);

TORCH_LIBRARY_IMPL(_, PEERLANE_KEY, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>()); }

TORCH_LIBRARY_IMPL(_, PEERLANE_KEY_OF(Sparse), m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_layout<c10::DispatchKey::SparseCPU>>()); }
TORCH_LIBRARY_IMPL(_, PEERLANE_KEY_OF(SparseCsr), m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_layout<c10::DispatchKey::SparseCsrCPU>>()); }
TORCH_LIBRARY_IMPL(_, PEERLANE_KEY_OF(Quantized), m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_layout<c10::DispatchKey::QuantizedCPU>>()); }
TORCH_LIBRARY_IMPL(_, PEERLANE_KEY_OF(NestedTensor), m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_layout<c10::DispatchKey::NestedTensorCPU>>()); }

TORCH_LIBRARY_IMPL(aten, PEERLANE_KEY, m) {
    m.impl("empty.memory_format", &empty);
    m.impl("empty_strided", &empty_strided);
    m.impl("_efficientzerotensor", &zeros_without_memory);
    m.impl("as_strided", &as_strided);
    m.impl("_lazy_clone", &lazy_clone);
    m.impl("view", &view);
    m.impl("_reshape_alias", &reshape_alias);
    m.impl("resize_", &resize);
    m.impl("set_.source_Storage_storage_offset", &set_storage);
    m.impl("set_.source_Storage", &set_whole_storage);
    m.impl("set_.source_Tensor", &set_tensor);
    m.impl("set_", &set_nothing);
    m.impl("_copy_from", &copy_from);
    m.impl("_copy_from_and_resize", &copy_from_and_resize);
    m.impl("record_stream", &record_stream);
    m.impl("convolution_overrideable", &convolution);
    m.impl("convolution_backward_overrideable", &convolution_backward);
    m.impl("native_dropout", &native_dropout);
    m.impl("_scaled_dot_product_efficient_attention", &attention);
    m.impl("_scaled_dot_product_efficient_attention_backward", &attention_backward);
    m.impl("batch_norm_stats", &norm_stats);
    m.impl("batch_norm_gather_stats", &norm_gather_stats);
    m.impl("batch_norm_gather_stats_with_counts", &norm_gather_stats_with_counts);
    m.impl("batch_norm_elemt", &norm_elements);
    m.impl("batch_norm_elemt.out", &norm_elements_out);
    m.impl("batch_norm_backward_reduce", &norm_backward_reduce);
    m.impl("batch_norm_backward_elemt", &norm_backward_elements);
}

TORCH_LIBRARY_IMPL(aten, PEERLANE_KEY_OF(Sparse), m) { m.impl("record_stream", &record_stream); }
TORCH_LIBRARY_IMPL(aten, PEERLANE_KEY_OF(SparseCsr), m) { m.impl("record_stream", &record_stream); }
TORCH_LIBRARY_IMPL(aten, PEERLANE_KEY_OF(NestedTensor), m) { m.impl("record_stream", &record_stream); }
TORCH_LIBRARY_IMPL(aten, PEERLANE_KEY_OF(Quantized), m) {
    m.impl("record_stream", &record_stream);
    m.impl("_copy_from", &copy_quantized);
    m.impl("set_.source_Storage_storage_offset", &set_storage);
}

// The CPU kernel of a copy resolves these bits; torch's way to resolve them before is a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

// Where the processor has a kernel, torch's composite one, which would be called for a device without any, is not: its bits would be
// others, and it calls more operations.  What torch derives from others together with its gradient stays as it is.
void take_kernels_of_the_processor() {
    using c10::DispatchKey;
    static const std::tuple<DispatchKey, DispatchKey, c10::KernelFunction> kinds[] = {
        {DispatchKey::CPU, kKey, c10::KernelFunction::makeFromBoxedFunction<&run_boxed>()},
        {DispatchKey::SparseCPU, DispatchKey::PEERLANE_KEY_OF(Sparse), c10::KernelFunction::makeFromBoxedFunction<&run_layout<DispatchKey::SparseCPU>>()},
        {DispatchKey::SparseCsrCPU, DispatchKey::PEERLANE_KEY_OF(SparseCsr), c10::KernelFunction::makeFromBoxedFunction<&run_layout<DispatchKey::SparseCsrCPU>>()},
        {DispatchKey::QuantizedCPU, DispatchKey::PEERLANE_KEY_OF(Quantized), c10::KernelFunction::makeFromBoxedFunction<&run_layout<DispatchKey::QuantizedCPU>>()},
        {DispatchKey::NestedTensorCPU, DispatchKey::PEERLANE_KEY_OF(NestedTensor), c10::KernelFunction::makeFromBoxedFunction<&run_layout<DispatchKey::NestedTensorCPU>>()}};
    auto& kept = *new std::vector<c10::RegistrationHandleRAII>;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
        const auto op = dispatcher.findSchema(name);
        for (const auto& [of_processor, of_device, kernel] : kinds) {
            if (!op || !op->hasKernelForDispatchKey(of_processor) || op->hasKernelForDispatchKey(of_device)) continue;
            if (of_device == kKey && op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) continue;
            kept.push_back(dispatcher.registerImpl(name, of_device, kernel, std::nullopt, nullptr, "peerlane"));
        }
    }
}

// How each operation that the processor has runs here: its name, and "queued", "waits" or "view".
std::vector<std::pair<std::string, std::string>> modes() {
    std::vector<std::pair<std::string, std::string>> list;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
        const auto op = dispatcher.findSchema(name);
        if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
        const Plan& plan = Plan::of(*op);
        list.emplace_back(plan.name, plan.is_view ? "view" : plan.can_queue.load(std::memory_order_relaxed) ? "queued" : "waits");
    }
    return list;
}

// A process forks while no other thread has the lock of an allocator, which would never be free in the child.  No code of Python runs meanwhile: it
// could free a tensor.
static void lock_allocators() {
    allocator().mutex().lock();
    PinnedAllocator::get().mutex().lock();
}
static void unlock_allocators() {
    PinnedAllocator::get().mutex().unlock();
    allocator().mutex().unlock();
}

}  // namespace peerlane_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    using namespace peerlane_torch;
    m.def("start", [](const py::capsule& table, const py::module_& objects) {
        const auto* const given = static_cast<const peerlane::DeviceCalls*>(table.get_pointer());
        TORCH_CHECK(given->version == peerlane::DeviceCalls::kVersion, "the extension was compiled for version ", peerlane::DeviceCalls::kVersion,
                    " of peerlane's table of calls, and this peerlane has version ", given->version);
        calls = given;
        python = py::object(objects).release().ptr();
        c10::SetAllocator(kDevice, &allocator());
        at::setHostAllocator(kDevice, &PinnedAllocator::get());
        CpuAllocator::install();
        pthread_atfork(lock_allocators, unlock_allocators, unlock_allocators);
        register_hooks();
        register_attention();
        register_profiler_times();
        register_symmetric_memory();
        take_kernels_of_the_processor();
    });
    m.def("default_generator", [](int device) { return default_generator(static_cast<DeviceIndex>(device)); });
    m.def("modes", &modes);
    m.def("run_as", [](const std::string& operation, const py::function& call) {
        static auto& names = *new std::unordered_set<std::string>;   // the log keeps them
        const Called called(names.insert(operation).first->c_str());
        call();
    });
    m.def("finish_gradients", &finish_gradients);
    m.def("refuse_forked", &refuse_forked);
    m.def("end_queues", [] { Devices::get().end_queues(); });
    m.def("relay", [](int rank, int size, py::object call) -> c10::intrusive_ptr<c10d::Backend> { return c10::make_intrusive<Relay>(rank, size, std::move(call)); });
    m.def("sleep", [](int device, uint64_t nanoseconds) { sleep(current_queue(static_cast<DeviceIndex>(device)), nanoseconds); });
    // Of two events that were recorded and are over, by the numbers that torch gives them.
    m.def("elapsed_time", [](uintptr_t first, uintptr_t last) { return Guard().elapsedTime(reinterpret_cast<void*>(first), reinterpret_cast<void*>(last), -1); });
    // A stream that torch hands out to nobody else: torch's number of it.
    m.def("own_stream", [](int device) { return Devices::get().own_queue(static_cast<DeviceIndex>(device)).as_stream().id(); });
    // peerlane's stream behind one of torch, and whether nothing is queued there and no failure is kept.
    m.def("stream_of", [](int device, c10::StreamId id) {
        Queue& queue = Devices::get().queue(c10::Stream(c10::Stream::UNSAFE, {kDevice, static_cast<DeviceIndex>(device)}, id));
        return std::pair(py::reinterpret_borrow<py::object>(queue.stream), queue.is_settled());
    });
    // For tensors that other processes have: blocks that are kept, and memory of another process.
    m.def("hold", [](uintptr_t address) { return allocator().hold(reinterpret_cast<void*>(address)); });
    m.def("let_go", [](uintptr_t address) { allocator().let_go(reinterpret_cast<void*>(address)); });
    m.def("imported", [](uintptr_t address, size_t size, int device, py::object buffer) { return imported(address, size, static_cast<DeviceIndex>(device), std::move(buffer)); });
    m.def("resize_storage", [](const at::Tensor& of, size_t size) { resize_storage(of.storage(), size); });
    m.def("note_registered", [](uintptr_t address, size_t size) { PinnedAllocator::get().note_registered(reinterpret_cast<const void*>(address), size); });
    m.def("host_memory_stats", [] { return PinnedAllocator::get().named_stats(); });
    m.def("reset_peak_host_memory_stats", [] { PinnedAllocator::get().reset_peak_stats(); });
    m.def("reset_accumulated_host_memory_stats", [] { PinnedAllocator::get().reset_accumulated_stats(); });
    m.def("snapshot", [](int device) { return allocator().snapshot(static_cast<DeviceIndex>(device)); });
    m.def("set_memory_limit", [](int device, size_t bytes) {
        Devices::get().check(static_cast<DeviceIndex>(device));
        allocator().set_limit(static_cast<DeviceIndex>(device), bytes);
    });
}

// Copies between a device and the host and between devices, and tensors whose storage changes.
#pragma once
#include <chrono>
#include <thread>

#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/view_native.h>

#include "operations.h"

namespace peerlane_torch {

inline bool have_equal_bits(const at::Tensor& a, const at::Tensor& b) {
    return a.dtype() == b.dtype() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// On the source's stream, after what the target's stream has been given; what that is given later comes after the copy.
inline void copy_bytes_between(const at::Tensor& to, const at::Tensor& from) {
    Queue &source = current_queue(from.device().index()), &target = current_queue(to.device().index());
    for (const at::Tensor& each : {to, from}) check_memory("copy_", each);
    with_python([&](py::handle module) {
        module.attr("copy_between")(reinterpret_cast<uintptr_t>(to.data_ptr()), reinterpret_cast<uintptr_t>(from.data_ptr()),
                                    static_cast<uint64_t>(from.numel()) * from.itemsize(), py::handle(source.stream), py::handle(target.stream));
    });
}

inline void copy_between(const at::Tensor& to, const at::Tensor& source) {
    if (to.numel() == 0) return;
    at::Tensor from = source.expand_as(to);
    if (!have_equal_bits(from, to)) from = at::empty(from.sizes(), from.options().dtype(to.dtype())).copy_(from.is_conj() || from.is_neg() ? from.resolve_conj().resolve_neg() : from);
    const bool is_plain = !to.is_conj() && !to.is_neg();
    if (is_plain && from.strides().equals(to.strides()) && from.is_non_overlapping_and_dense()) return copy_bytes_between(to, from);
    from = from.contiguous();
    if (is_plain && to.is_contiguous()) return copy_bytes_between(to, from);
    const at::Tensor room = at::empty(to.sizes(), to.options());
    copy_bytes_between(room, from);
    to.copy_(room);
}

inline const Plan& plan_of_copies() {
    static const Plan& plan = Plan::of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
    return plan;
}

// aten::copy_ comes here if one of the two is on a device.
inline at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
    const Plan& plan = plan_of_copies();
    if (to.numel() == 0 || Probe::is_on()) return to;
    if (is_on_device(from) && is_on_device(to) && from.device() != to.device()) {
        const Called called(plan.word.c_str());
        copy_between(to, from);
        return to;
    }
    const at::Tensor& host = is_on_device(from) ? to : from;
    Queue& queue = current_queue(is_on_device(from) ? from.device().index() : to.device().index());
    Stack stack{to, from, false};
    const bool has_host = !is_on_device(host);
    const bool is_pinned = has_host && non_blocking && PinnedAllocator::get().has(host.data_ptr());
    Operation(plan, stack).copy(queue, has_host && !is_pinned);
    if (is_pinned) PinnedAllocator::get().note_use(host.data_ptr(), queue);
    return to;
}

// The processor's copy quantizes numbers, by the scales that the target has.
inline void quantize_into(const at::Tensor& to, const at::Tensor& from) {
    if (!is_on_device(to)) {
        to.copy_(from.cpu());
        return;
    }
    Stack stack{to, is_on_device(from) ? from.to(to.device()) : from, false};
    Operation(plan_of_copies(), stack).run();
}

inline at::Tensor copy_quantized(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
    if (to.is_quantized() && !from.is_quantized()) {
        quantize_into(to, from);
        return to;
    }
    TORCH_CHECK(from.is_quantized() && to.is_quantized() && from.qscheme() == to.qscheme() && from.scalar_type() == to.scalar_type(),
                "copy_: valid are a tensor of float32 to a quantized one, and two quantized tensors of one type and one scheme, not ", from.scalar_type(), " on ", from.device(),
                " to ", to.scalar_type(), " on ", to.device(), ". Quantize or dequantize on one of the two devices");
    copy_from(stored_numbers(from), stored_numbers(to), non_blocking);
    quantized_of(to)->set_quantizer_(quantizer_of(from, [&](const at::Tensor& each) { return each.to(to.device(), non_blocking); }));
    return to;
}

inline at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
    at::Tensor resized = to;
    resized.resize_(from.sizes());
    return copy_from(from, resized, false);
}

// Give a storage another size; its bytes are copied in stream order.
inline void resize_storage(const c10::Storage& storage, size_t size) {
    Queue& queue = current_queue(storage.device().index());
    const size_t kept = std::min(size, storage.nbytes());
    c10::Storage grown = storage_of(size, allocator().allocate(size, queue), &allocator());
    if (kept != 0) {
        const auto bytes_of = [&](const c10::Storage& each) {
            at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(each), c10::DispatchKeySet(kKey), caffe2::TypeMeta::Make<uint8_t>());
            bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(kept)});
            return bytes;
        };
        const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset);
        bytes_of(grown).copy_(bytes_of(storage));
    }
    storage.set_data_ptr_noswap(std::move(grown.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
    storage.set_nbytes(size);
}

// Keep the stream busy.
inline void sleep(Queue& queue, uint64_t nanoseconds) {
    struct Sleep final : peerlane::Work {
        std::chrono::nanoseconds time;
    };
    auto work = std::make_unique<Sleep>();
    work->name = "_sleep";
    work->size = nanoseconds;   // so that no thread takes it for brief
    work->time = std::chrono::nanoseconds(nanoseconds);
    work->run = [](peerlane::Work* self) noexcept {
        std::this_thread::sleep_for(static_cast<Sleep*>(self)->time);
        return true;
    };
    work->end = [](peerlane::Work* self) noexcept { delete static_cast<Sleep*>(self); };
    const Called called(work->name);
    queue.submit(work.release());
}

// Memory that another process has made, as a tensor of bytes; its end closes the buffer after what is queued on the device.
inline at::Tensor imported(uintptr_t address, size_t size, DeviceIndex device, py::object buffer) {
    struct Held {
        PyObject* buffer;
        DeviceIndex device;
    };
    const auto end = [](void* context) {
        const std::unique_ptr<Held> held(static_cast<Held*>(context));
        if (!Py_IsInitialized()) return;
        const py::gil_scoped_acquire gil;
        try {
            py::list streams;
            Devices::get().each_queue(held->device, [&](Queue& queue) {
                if (!queue.is_settled()) streams.append(py::handle(queue.stream));
            });
            py::handle(python).attr("close_later")(py::reinterpret_steal<py::object>(held->buffer), streams);
        } catch (py::error_already_set& error) {
            error.discard_as_unraisable("the end of a tensor of another process");
        }
    };
    c10::DataPtr pointer(reinterpret_cast<void*>(address), new Held{buffer.release().ptr(), device}, end, Device(kDevice, device));
    at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(storage_of(size, std::move(pointer), &allocator()), c10::DispatchKeySet(kKey), caffe2::TypeMeta::Make<uint8_t>());
    bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(size)});
    return bytes;
}

// torch.utils.deterministic.fill_uninitialized_memory: memory that nobody has written has one value.
inline bool fills_new_memory() {
    const at::Context& context = at::globalContext();
    return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory() && !Probe::is_on();
}

inline void make_room(const at::Tensor& self) {
    if (self.numel() == 0) return;
    const size_t size = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(), static_cast<size_t>(self.storage_offset()));
    if (size > self.storage().nbytes()) resize_storage(self.storage(), size);
}

inline const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef symbolic, std::optional<c10::MemoryFormat> format) {
    const auto sizes = C10_AS_INTARRAYREF_SLOW(symbolic);
    c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
    if (!self.sizes().equals(sizes)) impl->set_sizes_contiguous(sizes);
    if (format && *format != c10::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
    const auto before = static_cast<int64_t>(self.storage().nbytes());
    make_room(self);
    if (fills_new_memory()) [[unlikely]] at::native::fill_resize_deterministic_(self, before);
    return self;
}

inline at::Tensor& set_storage(at::Tensor& self, c10::Storage storage, c10::SymInt symbolic_offset, c10::SymIntArrayRef symbolic_sizes, c10::SymIntArrayRef symbolic_strides) {
    const int64_t offset = symbolic_offset.expect_int();
    const auto sizes = C10_AS_INTARRAYREF_SLOW(symbolic_sizes), strides = C10_AS_INTARRAYREF_SLOW(symbolic_strides);
    TORCH_CHECK(storage.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(), "\" to a storage on different device \"",
                storage.device(), "\".  This is no longer allowed; the devices must match.");
    TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
    c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(std::move(storage));
    if (strides.data()) impl->set_sizes_and_strides(sizes, strides, offset);
    else {
        impl->set_sizes_contiguous(sizes);
        impl->set_storage_offset(offset);
    }
    make_room(self);
    return self;
}
inline at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage storage) {
    const auto count = static_cast<int64_t>(storage.nbytes() / self.itemsize());
    return set_storage(self, std::move(storage), 0, c10::SymIntArrayRef(reinterpret_cast<const c10::SymInt*>(&count), 1), {});
}
inline at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
    if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
    return set_storage(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(), source.sym_strides());
}
inline at::Tensor& set_nothing(at::Tensor& self) {
    return set_storage(self, storage_of(0, allocator().allocate(0, current_queue(self.device().index())), &allocator()), 0, {c10::SymInt(0)}, {});
}

inline void record_stream(at::Tensor& self, c10::Stream stream) {
    each_part(self, [&](const at::Tensor& part) {
        if (is_on_device(part)) allocator().recordStream(part.storage().data_ptr(), stream);
    });
}

inline at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout, std::optional<Device> device,
                        std::optional<bool> pinned, std::optional<c10::MemoryFormat> format) {
    TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(c10::kStrided) == c10::kStrided, "a device '", kDevice, "' has strided tensors alone, not of layout ", *layout);
    TORCH_CHECK(!pinned.value_or(false), "only dense CPU tensors can be pinned");
    const Called called;
    const DeviceIndex before = current_device;
    Queue& queue = current_queue(device && device->has_index() ? device->index() : before);
    current_device = queue.device;
    at::Tensor made = at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &allocator(), c10::DispatchKeySet(kKey),
                                                c10::dtype_or_default(dtype), format);
    current_device = before;
    if (fills_new_memory()) [[unlikely]] at::native::fill_empty_deterministic_(made);
    return made;
}
inline at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                                std::optional<Device> device, std::optional<bool> pinned) {
    TORCH_CHECK(!pinned.value_or(false), "only dense CPU tensors can be pinned");
    const Called called;
    Queue& queue = current_queue(device && device->has_index() ? device->index() : current_device);
    at::Tensor made = empty_on(queue, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), c10::scalarTypeToTypeMeta(c10::dtype_or_default(dtype)));
    if (fills_new_memory()) [[unlikely]] at::native::fill_empty_deterministic_(made);
    return made;
}

// Zeros without memory, which torch's derivatives pass on: operations on them know that the result is zero, or ask for real ones.
inline at::Tensor zeros_without_memory(c10::SymIntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>, std::optional<Device> device, std::optional<bool>) {
    at::native::ZeroTensorAllocator nothing(Device(kDevice, device && device->has_index() ? device->index() : current_device));
    return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &nothing, c10::DispatchKeySet({kKey, c10::DispatchKey::ZeroTensor}), c10::dtype_or_default(dtype), std::nullopt);
}

// At once: a kernel that writes an alias of bytes that two tensors share would change both.
inline at::Tensor lazy_clone(const at::Tensor& self) { return self.clone(); }

// Views change no bytes.
inline at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef sizes) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes)); }
inline at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
    return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}
inline at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<c10::SymInt> offset) {
    return at::cpu::as_strided(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}

// torch calls convolutions by these names on a device that is none of its own.
inline Stack call(const char* name, Stack stack) {
    run_boxed(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), &stack);
    return stack;
}
inline at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                              c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
    return call("aten::convolution", {input, weight, bias, stride, padding, dilation, transposed, output_padding, groups})[0].toTensor();
}
inline std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                                                                           c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                                                                           c10::SymIntArrayRef output_padding, c10::SymInt groups, std::array<bool, 3> wanted) {
    const c10::SymInt channels = transposed ? weight.sym_size(1) * groups : weight.sym_size(0);
    const Stack results = call("aten::convolution_backward", {gradient, input, weight, std::vector<c10::SymInt>{channels}, stride, padding, dilation, transposed, output_padding, groups,
                                                              c10::List<bool>({wanted[0], wanted[1], wanted[2]})});
    return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

// The processor's kernel draws from the generator of the processor.
inline std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
    if (!train.value_or(true) || input.numel() == 0) return {input.clone(), at::ones_like(input, input.options().dtype(c10::kBool))};
    const at::Tensor mask = at::empty_like(input, input.options().dtype(c10::kBool)).bernoulli_(1 - p);
    return {input.mul(mask).mul_(p == 1 ? 0.0 : 1.0 / (1.0 - p)), mask};
}

}  // namespace peerlane_torch

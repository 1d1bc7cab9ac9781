// CPU tensors on the bytes of device tensors, and device tensors on the bytes that a CPU kernel made.
#pragma once
#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include "allocator.h"
#include "layouts.h"

namespace peerlane_torch {

// CPU kernels are called below everything that programs put above them: autograd, autocast, modes of Python.
struct KernelsOnly : c10::impl::ForceDispatchKeyGuard {
    KernelsOnly() : ForceDispatchKeyGuard(c10::DispatchKeySet(c10::DispatchKey::BackendSelect), above()) {}

  private:
    static c10::DispatchKeySet above() {
        static const c10::DispatchKeySet keys =
            c10::DispatchKeySet(c10::DispatchKeySet::FULL) -
            c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr, c10::DispatchKey::Quantized,
                                 c10::DispatchKey::NestedTensor, c10::DispatchKey::BackendSelect, c10::DispatchKey::Conjugate,
                                 c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
        return keys;
    }
};

// Where the memory lies that CPU kernels ask for in this thread: on a device, as long as this lives.
class Placement {
  public:
    struct Room {   // that is laid out for a result
        char* host;
        size_t size;
        bool is_taken = false;
    };
    // All of it, in the stream that the kernel is a part of, and in which nothing is queued.
    explicit Placement(Queue& queue) : queue_(&queue), before_(std::exchange(current(), this)) {}
    // Results alone: what else the kernel needs is memory of the host, as blocks that are free by now may have uses that are queued.
    explicit Placement(c10::ArrayRef<Room> rooms) : rooms_(rooms.begin(), rooms.end()), before_(std::exchange(current(), this)) {}
    ~Placement() { current() = before_; }
    Placement(const Placement&) = delete;

    static Placement*& current() {
        static thread_local Placement* placement = nullptr;
        return placement;
    }
    c10::DataPtr allocate(size_t size, c10::Allocator& otherwise) {
        if (size == 0) return otherwise.allocate(size);
        if (queue_) {
            c10::DataPtr on_device = allocator().allocate(size, *queue_);
            char* const host = host_of(on_device.get());
            on_device.release_context();
            return {host, host, &DeviceAllocator::end, Device(c10::DeviceType::CPU)};
        }
        for (Room& room : rooms_)
            if (room.size == size && !room.is_taken) {
                room.is_taken = true;
                return {room.host, room.host, [](void*) {}, Device(c10::DeviceType::CPU)};
            }
        return otherwise.allocate(size);
    }

    bool is_room(const void* host) const {
        return std::ranges::any_of(rooms_, [=](const Room& room) { return room.host == host; });
    }

  private:
    Queue* const queue_ = nullptr;
    c10::SmallVector<Room, 2> rooms_;
    Placement* const before_;
};

// Stands before torch's allocator of host memory, for threads with a placement.
class CpuAllocator final : public c10::Allocator {
  public:
    static void install() {
        end_before() = c10::GetCPUAllocator()->raw_deleter();
        static CpuAllocator allocator(c10::GetCPUAllocator());
        c10::SetCPUAllocator(&allocator, 255);
    }
    c10::DataPtr allocate(size_t size) override {
        Placement* const placement = Placement::current();
        return placement ? placement->allocate(size, *before_) : before_->allocate(size);
    }
    // Of memory without an owner: this thread may have had a placement when it was allocated.
    c10::DeleterFnPtr raw_deleter() const override { return &end; }
    bool is_simple_data_ptr(const c10::DataPtr& pointer) const override { return before_->is_simple_data_ptr(pointer); }
    void copy_data(void* to, const void* from, size_t size) const override { before_->copy_data(to, from, size); }

  private:
    explicit CpuAllocator(c10::Allocator* before) : before_(before) {}
    static c10::DeleterFnPtr& end_before() {
        static c10::DeleterFnPtr deleter;
        return deleter;
    }
    static void end(void* address) {
        if (const Placement* const placement = Placement::current(); placement && placement->is_room(address)) return;
        if (is_device_memory(address) && allocator().has(address)) DeviceAllocator::end(address);
        else end_before()(address);
    }
    c10::Allocator* const before_;
};

inline bool is_on_device(const at::Tensor& tensor) { return tensor.device().type() == kDevice; }

inline c10::Storage storage_of(size_t size, c10::DataPtr pointer, c10::Allocator* of) {
    return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size, std::move(pointer), of, true);
}

inline at::Tensor empty_on(Queue& queue, c10::IntArrayRef sizes, c10::IntArrayRef strides, caffe2::TypeMeta dtype) {
    const size_t size = at::detail::computeStorageNbytes(sizes, strides, dtype.itemsize());
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(storage_of(size, allocator().allocate(size, queue), &allocator()),
                                                               c10::DispatchKeySet(kKey), dtype);
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return made;
}

// The tensors of one operation.  Tensors that share a storage have aliases that share one.
class Aliases {
  public:
    enum class Kind { cpu, meta };
    explicit Aliases(Kind kind) : kind_(kind) {}

    at::Tensor of(const at::Tensor& tensor) {
        if (is_dense(tensor)) [[likely]] return of_part(tensor);
        const KernelsOnly below;
        const auto keep = [this](const at::Tensor& each) {
            of_host_.push_back(each.storage());
            return each;
        };
        return remade(tensor, kHostKeys, [&](const at::Tensor& part) { return is_on_device(part) ? of_part(part) : keep(part); }, keep);
    }

    // The tensor of the program on what a CPU kernel returned.
    at::Tensor back(const at::Tensor& result, Queue& queue) {
        if (!result.defined() || !result.device().is_cpu()) return result;
        if (is_dense(result)) [[likely]] return part_back(result, queue);
        const KernelsOnly below;
        const OnDevice current(queue.device);
        return remade(result, kDeviceKeys, [&](const at::Tensor& part) { return part_back(part, queue); },
                      [](const at::Tensor& sizes) { return is_placed(sizes.storage()) ? sizes.clone() : sizes; });
    }
    // After a kernel changed an alias: its tensor has the same structure, sizes and bytes.
    void follow(const at::Tensor& tensor, const at::Tensor& alias, Queue& queue) {
        each_part(alias, [&](const at::Tensor& part) { follow_bytes(part, queue); });
        const auto part_of = [&](const at::Tensor& part) { return part_back(part, queue); };
        if (tensor.is_sparse()) return set_coordinates(tensor, alias, part_of);
        if (is_compressed(tensor)) return set_compressed(tensor, alias, part_of);
        if (tensor.is_nested()) return;
        if (tensor.is_quantized()) quantized_of(tensor)->set_quantizer_(quantizer_of(alias, part_of));
        c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
        if (impl->sizes().equals(alias.sizes()) && impl->strides().equals(alias.strides()) && impl->storage_offset() == alias.storage_offset()) return;
        impl->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
    }

    // What is queued does not keep memory from being used again: that follows the order of streams.
    void let_go() { pairs_.clear(); }

  private:
    // Of a part: a tensor with bytes.
    at::Tensor of_part(const at::Tensor& tensor) { return tensor_on(storage_for(tensor.storage()), kind_ == Kind::cpu ? c10::DispatchKey::CPU : c10::DispatchKey::Meta, tensor); }
    at::Tensor part_back(const at::Tensor& result, Queue& queue) {
        const c10::Storage storage = result.storage();
        if (is_of_host(storage)) return result;
        for (const auto& [device, alias] : pairs_)
            if (alias.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) return tensor_on(device, kKey, result);
        c10::Storage moved = storage_of(storage.nbytes(), on_device(storage, queue), &allocator());
        pairs_.emplace_back(moved, storage);
        return tensor_on(std::move(moved), kKey, result);
    }
    void follow_bytes(const at::Tensor& alias, Queue& queue) {
        for (auto& [device, host] : pairs_) {
            if (host.unsafeGetStorageImpl() != alias.storage().unsafeGetStorageImpl() || host.data() == host_of(device.data())) continue;
            const size_t size = host.nbytes();
            device.set_data_ptr_noswap(on_device(host, queue));
            device.set_nbytes(size);
        }
    }
    bool is_of_host(const c10::Storage& storage) const {
        return std::ranges::any_of(of_host_, [&](const c10::Storage& each) { return each.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl(); });
    }
    // Whether the bytes of a storage of the host are a block of a device, which is its own.
    static bool is_placed(const c10::Storage& storage) { return storage.data_ptr().get_deleter() == &DeviceAllocator::end && storage.data_ptr().get_context(); }

    c10::Storage storage_for(const c10::Storage& storage) {
        for (const auto& [device, alias] : pairs_)
            if (device.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) return alias;
        const bool is_cpu = kind_ == Kind::cpu;
        char* const host = is_cpu && storage.data() ? host_of(storage.data()) : nullptr;
        const auto type = is_cpu ? c10::DeviceType::CPU : c10::DeviceType::Meta;
        c10::Storage alias = storage_of(storage.nbytes(), {host, Device(type)}, c10::GetAllocator(type));
        pairs_.emplace_back(storage, alias);
        return alias;
    }
    // The bytes of a storage of the host as device memory: those themselves where a placement has laid them on the device.
    static c10::DataPtr on_device(const c10::Storage& storage, Queue& queue) {
        c10::DataPtr& bytes = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
        if (is_placed(storage)) {
            char* const address = allocator().device_address(bytes.release_context());
            return {address, address, &DeviceAllocator::end, Device(kDevice, queue.device)};
        }
        c10::DataPtr copy = allocator().allocate(storage.nbytes(), queue);
        if (storage.nbytes()) std::memcpy(host_of(copy.get()), storage.data(), storage.nbytes());
        return copy;
    }

    const Kind kind_;
    c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 4> pairs_;
    std::vector<c10::Storage> of_host_;   // of sizes of nested tensors, which the processor has on every device, and of scales
};

}  // namespace peerlane_torch

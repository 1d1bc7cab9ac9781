// Tensors that are made of dense ones: sparse and nested ones, and quantized ones, which have a quantizer beside their bytes.
#pragma once
#include <ATen/ATen.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include "runtime.h"

namespace peerlane_torch {

// torch's keys of the tensors on one kind of device.
struct LayoutKeys {
    c10::DispatchKey dense, coordinates, compressed, quantized;
};
#define PEERLANE_KEY_OF(KIND) C10_CONCATENATE(KIND, PEERLANE_KEY)
constexpr LayoutKeys kHostKeys{c10::DispatchKey::CPU, c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::QuantizedCPU};
constexpr LayoutKeys kDeviceKeys{kKey, c10::DispatchKey::PEERLANE_KEY_OF(Sparse), c10::DispatchKey::PEERLANE_KEY_OF(SparseCsr), c10::DispatchKey::PEERLANE_KEY_OF(Quantized)};

inline at::Tensor tensor_on(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
    c10::TensorImpl* const impl = made.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    const c10::TensorImpl* const from = like.unsafeGetTensorImpl();
    if (from->is_conj()) impl->_set_conj(true);
    if (from->is_neg()) impl->_set_neg(true);
    if (from->is_wrapped_number()) impl->set_wrapped_number(true);
    return made;
}

inline bool is_dense(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Dense); }
inline bool is_compressed(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::SparseCsr); }
inline at::SparseTensorImpl* coordinates_of(const at::Tensor& tensor) { return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl()); }
inline at::SparseCsrTensorImpl* compressed_of(const at::Tensor& tensor) { return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl()); }
inline at::QTensorImpl* quantized_of(const at::Tensor& tensor) { return static_cast<at::QTensorImpl*>(tensor.unsafeGetTensorImpl()); }
// Null: it has one scale for all elements, which is no tensor.
inline const at::PerChannelAffineQuantizer* channels_of(const at::QuantizerPtr& quantizer) {
    return quantizer->qscheme() == at::kPerTensorAffine ? nullptr : static_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
}

// The bytes of a quantized tensor as numbers of the type that they are stored as; where two or more numbers share a byte, as the bytes of its storage.
inline at::Tensor stored_numbers(const at::Tensor& tensor) {
    const c10::ScalarType type = tensor.scalar_type();
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), c10::DispatchKeySet(tensor.device().type() == kDevice ? kKey : c10::DispatchKey::CPU),
                                                               c10::scalarTypeToTypeMeta(c10::toUnderlying(type)));
    c10::TensorImpl* const impl = made.unsafeGetTensorImpl();
    if (type == c10::kQUInt4x2 || type == c10::kQUInt2x4) impl->set_sizes_contiguous({static_cast<int64_t>(tensor.storage().nbytes())});
    else impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    return made;
}

// The tensors that have its bytes.  Scales may be those of the host.
template <class Visit>
void each_part(const at::Tensor& tensor, const Visit& visit) {
    if (is_dense(tensor)) [[likely]] {
        visit(tensor);
    } else if (tensor.is_sparse()) {
        visit(coordinates_of(tensor)->indices());
        visit(coordinates_of(tensor)->values());
    } else if (is_compressed(tensor)) {
        visit(compressed_of(tensor)->compressed_indices());
        visit(compressed_of(tensor)->plain_indices());
        visit(compressed_of(tensor)->values());
    } else if (tensor.is_nested()) {
        visit(at::native::get_nested_tensor_impl(tensor)->get_unsafe_storage_as_tensor());
    } else if (tensor.is_quantized()) {
        visit(stored_numbers(tensor));
        if (const auto* const channels = channels_of(quantized_of(tensor)->quantizer())) {
            visit(channels->scales());
            visit(channels->zero_points());
        }
    }
}

inline bool are_same_part(const at::Tensor& a, const at::Tensor& b) {
    return a.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == b.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() && a.sizes().equals(b.sizes()) &&
           a.strides().equals(b.strides()) && a.storage_offset() == b.storage_offset();
}

// Give a sparse tensor the sizes of another one, and what `map` makes of that one's parts.  A tensor whose structure must stay, as that of a
// detached one, may be given what it has.
template <class Map>
void set_coordinates(const at::Tensor& to, const at::Tensor& from, const Map& map) {
    at::SparseTensorImpl *const impl = coordinates_of(to), *const other = coordinates_of(from);
    const at::Tensor indices = map(other->indices()), values = map(other->values());
    const bool is_same = are_same_part(impl->indices(), indices) && are_same_part(impl->values(), values) && impl->sizes().equals(other->sizes());
    if (!is_same) {
        impl->raw_resize_(other->sparse_dim(), other->dense_dim(), other->sizes());
        impl->set_indices_and_values_unsafe(indices, values);
    }
    if (impl->coalesced() != other->coalesced()) impl->set_coalesced(other->coalesced());
}
template <class Map>
void set_compressed(const at::Tensor& to, const at::Tensor& from, const Map& map) {
    at::SparseCsrTensorImpl *const impl = compressed_of(to), *const other = compressed_of(from);
    const at::Tensor compressed = map(other->compressed_indices()), plain = map(other->plain_indices()), values = map(other->values());
    impl->set_member_tensors(compressed, plain, values, other->sizes());
}
template <class Map>
at::QuantizerPtr quantizer_of(const at::Tensor& tensor, const Map& map) {
    const at::QuantizerPtr quantizer = quantized_of(tensor)->quantizer();
    const auto* const channels = channels_of(quantizer);
    if (!channels) return quantizer;
    const at::Tensor scales = map(channels->scales()), zero_points = map(channels->zero_points());
    if (quantizer->qscheme() == at::kPerChannelAffineFloatQParams)
        return c10::make_intrusive<at::PerChannelAffineFloatQParamsQuantizer>(quantizer->scalar_type(), scales, zero_points, channels->axis());
    return c10::make_intrusive<at::PerChannelAffineQuantizer>(quantizer->scalar_type(), scales, zero_points, channels->axis());
}

// A tensor of the same layout, of what `map` makes of the parts; `keep` makes what it has of the sizes of nested tensors, which the host reads.
template <class Map, class Keep>
at::Tensor remade(const at::Tensor& tensor, const LayoutKeys& keys, const Map& map, const Keep& keep) {
    if (tensor.is_sparse()) {
        at::Tensor made = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(keys.coordinates), tensor.dtype());
        set_coordinates(made, tensor, map);
        return made;
    }
    if (is_compressed(tensor)) {
        at::Tensor made = at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(keys.compressed), map(compressed_of(tensor)->values()).device(),
                                                                           tensor.layout(), tensor.dtype());
        set_compressed(made, tensor, map);
        return made;
    }
    if (tensor.is_nested()) {
        const auto* const from = at::native::get_nested_tensor_impl(tensor);
        return at::detail::make_tensor<at::native::NestedTensorImpl>(map(from->get_unsafe_storage_as_tensor()), keep(from->get_nested_sizes()),
                                                                     keep(from->get_nested_strides()), keep(from->get_storage_offsets()));
    }
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_quantized(), "a device '", kDevice, "' has no tensors of layout ", tensor.layout(), ". Use a strided or a sparse layout");
    at::Tensor made = at::detail::make_tensor<at::QTensorImpl>(c10::Storage(map(stored_numbers(tensor)).storage()), c10::DispatchKeySet(keys.quantized), tensor.dtype(),
                                                               quantizer_of(tensor, map));
    made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    return made;
}

}  // namespace peerlane_torch

// DLPack capsules: what they lend is read, and given back once.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>

#include "python/bind.h"
#include "python/dlpack.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr const char* kFlawNames[] = {"", "version", "device", "opaque", "malformed", "too_large", "part_of_byte",
                                      "no_data", "strided", "copied"};

// With the GIL, which deleters written for Python need.
template <class Managed>
void give_back(void* managed) {
    auto* const lent = static_cast<Managed*>(managed);
    if (!lent->deleter) return;
    const nb::error_scope kept;   // this may run while an exception passes
    lent->deleter(lent);
}

class LentTensor {
  public:
    explicit LentTensor(dlpack::Managed* lent)
        : lent_(lent), give_back_(give_back<dlpack::Managed>), tensor_(&lent->tensor), extent_(dlpack::measure(*tensor_, 0)) {}
    explicit LentTensor(dlpack::ManagedVersioned* lent)
        : lent_(lent), give_back_(give_back<dlpack::ManagedVersioned>), version_(lent->version.major, lent->version.minor) {
        if (version_.first != dlpack::kMajor) return;
        tensor_ = &lent->tensor;
        extent_ = dlpack::measure(*tensor_, lent->flags);
        is_read_only_ = lent->flags & dlpack::kReadOnly;
    }
    ~LentTensor() {
        if (lent_) give_back_(lent_);
    }
    LentTensor(const LentTensor&) = delete;
    void disown() { lent_ = nullptr; }

    const char* flaw() const { return kFlawNames[static_cast<int>(extent_.flaw)]; }
    uint64_t address() const { return extent_.address; }
    uint64_t size() const { return extent_.size; }
    bool is_read_only() const { return is_read_only_; }
    std::pair<uint32_t, uint32_t> version() const { return version_; }
    std::pair<int32_t, int32_t> device() const { return {tensor().device.type, tensor().device.number}; }
    nb::tuple element() const { return nb::make_tuple(tensor().element.code, tensor().element.bits, tensor().element.lanes); }
    nb::tuple shape() const { return entries(tensor().shape); }
    nb::tuple strides() const { return entries(tensor().strides); }

  private:
    const dlpack::Tensor& tensor() const {
        if (!tensor_) throw nb::value_error("of another version");
        return *tensor_;
    }
    nb::tuple entries(const int64_t* list) const {
        nb::list values;
        if (list && dlpack::has_axes(tensor()))
            for (int32_t axis = 0; axis < tensor().axes; ++axis) values.append(list[axis]);
        return nb::tuple(values);
    }

    void* lent_;
    void (*give_back_)(void*);
    std::pair<uint32_t, uint32_t> version_{0, 0};
    const dlpack::Tensor* tensor_ = nullptr;   // null: of a version that cannot be read
    dlpack::Extent extent_{dlpack::Flaw::version};
    bool is_read_only_ = false;
};

// The name then says to whoever made the capsule that it is not theirs to give back.
template <class Managed>
nb::object take(nb::handle capsule, const char* name, const char* used) {
    auto taken = std::make_unique<LentTensor>(static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name)));
    if (PyCapsule_SetName(capsule.ptr(), used) != 0) {
        taken->disown();
        throw nb::python_error();
    }
    return nb::cast(std::move(taken));
}

}  // namespace

void bind_dlpack(nb::module_& m) {
    nb::class_<LentTensor>(m, "LentTensor", "What a DLPack capsule lends; given back when this object goes.")
        .def_prop_ro("flaw", &LentTensor::flaw, "Why it is no contiguous host memory; empty: it is.")
        .def_prop_ro("address", &LentTensor::address)
        .def_prop_ro("size", &LentTensor::size, "Bytes.")
        .def_prop_ro("is_read_only", &LentTensor::is_read_only)
        .def_prop_ro("version", &LentTensor::version, "(major, minor); (0, 0) of a capsule that has none.")
        .def_prop_ro("device", &LentTensor::device, "(type, number).")
        .def_prop_ro("element", &LentTensor::element, nb::for_getter(nb::sig("def element(self, /) -> tuple[int, int, int]")), "(code, bits, lanes).")
        .def_prop_ro("shape", &LentTensor::shape, nb::for_getter(nb::sig("def shape(self, /) -> tuple[int, ...]")))
        .def_prop_ro("strides", &LentTensor::strides, nb::for_getter(nb::sig("def strides(self, /) -> tuple[int, ...]")), "In elements.");
    m.def(
        "take_tensor",
        [](nb::handle capsule) -> nb::object {
            if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned"))
                return take<dlpack::ManagedVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned");
            if (PyCapsule_IsValid(capsule.ptr(), "dltensor"))
                return take<dlpack::Managed>(capsule, "dltensor", "used_dltensor");
            return nb::none();
        },
        "capsule"_a.none(), nb::sig("def take_tensor(capsule: object) -> LentTensor | None"),
        "Take what a DLPack capsule lends; None: it is no such capsule, or was taken before.");
}

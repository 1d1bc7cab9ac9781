// A group's collectives and messages as programs call them most: without a stream, with buffers, served without a Python frame.
#include <algorithm>
#include <array>
#include <string_view>

#include "python/bind_collectives.h"
#include "python/numpy_array.h"
#include "python/quick_method.h"

namespace nb = nanobind;
using namespace peerlane;

namespace {

using CallKind = GroupCall::Kind;

enum ValueIndex : uint8_t { kDst, kSrc, kRoot, kDtype, kOp, kValues };

struct GroupVerb {
    std::string_view name;
    CallKind kind;
    bool has_root, reduces;       // of messages the root is the peer
    uint8_t needed, positional;   // of dst, src and root
};
constexpr GroupVerb kGroupVerbs[] = {
    {"barrier", CallKind::barrier, false, false, 0, 0},     {"broadcast", CallKind::broadcast, true, false, 1, 2},
    {"all_gather", CallKind::all_gather, false, false, 1, 2}, {"all_to_all", CallKind::all_to_all, false, false, 2, 2},
    {"scatter", CallKind::scatter, true, false, 1, 3},      {"all_reduce", CallKind::all_reduce, false, true, 1, 2},
    {"reduce", CallKind::reduce, true, true, 1, 3},         {"reduce_scatter", CallKind::reduce_scatter, false, true, 2, 2},
    {"send", CallKind::send, true, false, 1, 2},            {"recv", CallKind::receive, true, false, 1, 2},
};
bool is_message(const GroupVerb& verb) { return verb.kind == CallKind::send || verb.kind == CallKind::receive; }

enum HeldObject : size_t { kOtherwise, kMaker, kFinish, kNumberOf, kCallName, kHeld };   // kMaker: Rounds or Mails
using GroupMethod = QuickMethod<GroupVerb, kHeld>;

struct Words {
    nb::handle buffer, dst, src, root, dtype, op, stream, algorithm, sum, peer;
};
const Words& words() {
    static const Words all{PyUnicode_InternFromString("buffer"), PyUnicode_InternFromString("dst"),    PyUnicode_InternFromString("src"),
                           PyUnicode_InternFromString("root"),   PyUnicode_InternFromString("dtype"),  PyUnicode_InternFromString("op"),
                           PyUnicode_InternFromString("stream"), PyUnicode_InternFromString("algorithm"), PyUnicode_InternFromString("sum"), PyUnicode_InternFromString("peer")};
    return all;
}

using Values = std::array<PyObject*, kValues>;   // null: not given

// False: the Python function says what is wrong, or serves what is not frequent.
bool sort_out(const GroupVerb& verb, const Arguments& arguments, Values& values) {
    if (arguments.positional > verb.positional) return false;
    const bool is_lone = verb.kind == CallKind::broadcast || is_message(verb);   // one buffer, in the place of dst
    for (size_t i = 0; i < arguments.positional; ++i) values[is_lone && i == 1 ? size_t{kRoot} : i] = arguments.values[i];
    const nb::handle first = verb.kind == CallKind::broadcast ? words().buffer : verb.kind == CallKind::send ? words().src : words().dst;
    const nb::handle root = is_message(verb) ? words().peer : words().root;
    for (size_t i = 0; i < arguments.named(); ++i) {
        const nb::handle name = arguments.name(i);
        PyObject* const value = arguments.value(i).ptr();
        size_t index = kValues;
        if (name.is(words().stream) || (name.is(words().algorithm) && verb.kind == CallKind::all_reduce)) {
            if (value != Py_None) return false;
            continue;
        }
        if (name.is(first) && verb.positional != 0) index = kDst;
        if (name.is(words().src) && !is_lone && verb.positional != 0) index = kSrc;
        if (name.is(root) && verb.has_root) index = kRoot;
        if (name.is(words().dtype) && verb.reduces) index = kDtype;
        if (name.is(words().op) && verb.reduces) index = kOp;
        if (index == kValues || values[index]) return false;
        values[index] = value;
    }
    return (verb.needed < 1 || values[kDst]) && (verb.needed < 2 || values[kSrc]) && (!is_message(verb) || values[kRoot]) && (!verb.reduces || values[kDtype]);
}

// The number of a reduction, or nothing.  Pairs of objects that cannot change are known from one call to the next.
std::optional<int> reduction_of(const GroupMethod& method, PyObject* dtype, PyObject* op) {
    struct Known {
        PyObject *dtype, *op;   // held
        int number;
    };
    static std::array<Known, 8> known{};   // under the GIL
    static size_t next = 0;
    for (const Known& each : known)
        if (each.dtype == dtype && each.op == op) return each.number;
    PyObject* const arguments[] = {method.held[kCallName], dtype, op};
    const nb::object answer = nb::steal(PyObject_Vectorcall(method.held[kNumberOf], arguments, 3, nullptr));
    if (!answer) {
        PyErr_Clear();
        return std::nullopt;
    }
    const int number = nb::cast<int>(answer);
    const bool is_fixed = PyUnicode_CheckExact(dtype) || (PyType_Check(dtype) && !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(dtype), Py_TPFLAGS_HEAPTYPE));
    if (!is_fixed || !PyUnicode_CheckExact(op)) return number;
    const Known last = std::exchange(known[next++ % known.size()], {Py_NewRef(dtype), Py_NewRef(op), number});
    Py_XDECREF(last.dtype);
    Py_XDECREF(last.op);
    return number;
}

// A buffer, or for the time of a call bytes, an array of NumPy or one of ctypes.
class CallBuffer {
  public:
    CallBuffer() = default;
    ~CallBuffer() {
        if (view_.obj) PyBuffer_Release(&view_);
    }
    CallBuffer(const CallBuffer&) = delete;

    // False: it is something else.
    bool take(nb::handle object) {
        memory_ = as<Memory>(object);
        if (memory_) {
            can_fault_ = CanFault::anywhere;
            return true;
        }
        const bool is_bytes = PyBytes_CheckExact(object.ptr()) || PyByteArray_CheckExact(object.ptr());
        const bool is_numpys = !is_bytes && is_array(object, numpy_array(), "numpy", "ndarray");
        if (is_numpys) {
            if (const auto array = numpy_reader().read(object.ptr(), numpy_array())) {
                can_fault_ = array->owns_bytes ? CanFault::no : CanFault::where_cut;
                memory_ = &array_.emplace(array->address, array->bytes, array->is_read_only, true);
                return true;
            }
        } else if (!is_bytes && !is_array(object, ctypes_array(), "_ctypes", "Array")) {
            return false;
        }
        if (PyObject_GetBuffer(object.ptr(), &view_, is_bytes ? PyBUF_SIMPLE : PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
            PyErr_Clear();
            return false;
        }
        // ctypes names the byte order of plain elements, and of none other.
        std::string_view format = view_.format ? view_.format : "B";
        if (!is_bytes && !is_numpys) format.remove_prefix(format.starts_with('<') ? 1 : format.size());
        if (format.size() != 1 || numpy::kPlain.find(format) == std::string_view::npos) return false;   // objects, or who knows what
        if (is_numpys) numpy_reader().compare(object.ptr(), numpy_array(), view_);
        can_fault_ = is_bytes ? CanFault::no : is_numpys ? CanFault::where_cut : CanFault::anywhere;
        memory_ = &array_.emplace(reinterpret_cast<uint64_t>(view_.buf), static_cast<uint64_t>(view_.len), view_.readonly != 0, true);
        return true;
    }
    const Memory* memory() const { return memory_; }           // null: none was given
    CanFault can_fault() const { return can_fault_; }          // as host memory

  private:
    static numpy::Reader& numpy_reader() {
        static numpy::Reader reader;
        return reader;
    }
    static PyTypeObject*& numpy_array() {
        static PyTypeObject* type = nullptr;   // held
        return type;
    }
    static PyTypeObject*& ctypes_array() {
        static PyTypeObject* type = nullptr;   // held
        return type;
    }
    // The type is known once somebody has imported its module.
    static bool is_array(nb::handle object, PyTypeObject*& type, const char* module, const char* name) {
        if (!type) {
            const nb::handle imported = PyDict_GetItemString(PyImport_GetModuleDict(), module);
            if (!imported) return false;
            const nb::object array = nb::getattr(imported, name, nb::none());
            if (!PyType_Check(array.ptr())) return false;   // another thread is importing it
            type = reinterpret_cast<PyTypeObject*>(array.inc_ref().ptr());
        }
        return PyType_IsSubtype(Py_TYPE(object.ptr()), type) != 0;
    }

    const Memory* memory_ = nullptr;
    std::optional<Memory> array_;
    Py_buffer view_{};
    CanFault can_fault_ = CanFault::no;
};

bool serve_message(const GroupMethod& method, const Values& values) {
    MailsHandle& mails = *nb::inst_ptr<MailsHandle>(method.held[kMaker]);
    const auto peer = number(values[kRoot]);
    CallBuffer buffer;
    if (!peer || *peer >= mails.of.size() || !buffer.take(values[kDst])) return false;
    const bool sends = method.verb->kind == CallKind::send;
    const int how = run_message(mails, static_cast<uint32_t>(*peer), sends, *buffer.memory(), buffer.can_fault());
    PyObject* const arguments[] = {method.held[kCallName], sends ? Py_True : Py_False, values[kRoot], values[kDst]};
    if (how == 2) mails.hand_over(static_cast<uint32_t>(*peer), sends, [&] { return PyObject_Vectorcall(method.held[kFinish], arguments, 4, nullptr); });
    return how != 0;
}

bool serve(const GroupMethod& method, const Arguments& arguments) {
    const GroupVerb& verb = *method.verb;
    Values values{};
    if (!sort_out(verb, arguments, values)) return false;
    if (is_message(verb)) return serve_message(method, values);
    RoundsHandle& rounds = *nb::inst_ptr<RoundsHandle>(method.held[kMaker]);
    const auto root = values[kRoot] ? number(values[kRoot]) : 0;
    if (!root || *root >= rounds.rounds->size) return false;
    int reduction = -1;
    if (verb.reduces) {
        const auto number = reduction_of(method, values[kDtype], values[kOp] ? values[kOp] : words().sum.ptr());
        if (!number) return false;
        reduction = *number;
    }
    nb::handle dst = values[kDst] ? values[kDst] : Py_None, src = values[kSrc] ? values[kSrc] : Py_None;
    const bool is_root = *root == rounds.rounds->rank;
    if (verb.kind == CallKind::broadcast && is_root) std::swap(dst, src);
    if (verb.kind == CallKind::scatter && !is_root) src = Py_None;
    if ((verb.kind == CallKind::all_reduce || verb.kind == CallKind::reduce) && src.is_none()) src = dst;
    if (verb.kind == CallKind::reduce && !is_root) dst = Py_None;
    CallBuffer into, from;
    if ((!dst.is_none() && !into.take(dst)) || (!src.is_none() && !from.take(src))) return false;
    const int how = run_now(rounds, verb.kind, into.memory(), from.memory(), static_cast<uint32_t>(*root), reduction,
                            std::max(into.can_fault(), from.can_fault()));
    PyObject* const queued[] = {method.held[kCallName], dst.ptr(), src.ptr()};
    if (how == 2) rounds.hand_over([&] { return PyObject_Vectorcall(method.held[kFinish], queued, 3, nullptr); });
    return how != 0;
}

PyObject* make_call(PyObject* self, PyObject* const* values, size_t flags, PyObject* named) {
    const auto* const method = reinterpret_cast<GroupMethod*>(self);
    const nb::object held = nb::borrow(self);   // the group may drop it meanwhile
    const Arguments arguments{values, static_cast<size_t>(PyVectorcall_NARGS(flags)), named};
    return served_or([&] { return serve(*method, arguments); }, method->otherwise(), arguments, flags);
}

PyObject* make_group_call(PyTypeObject* type, PyObject* positional, PyObject* named) {
    const char* name = nullptr;
    PyObject *maker = nullptr, *otherwise = nullptr, *finish = nullptr, *number_of = nullptr;
    static const char* keywords[] = {"maker", "name", "otherwise", "finish", "number_of", nullptr};
    if (!PyArg_ParseTupleAndKeywords(positional, named, "OsOOO", const_cast<char**>(keywords), &maker, &name, &otherwise, &finish, &number_of)) return nullptr;
    const bool has_rounds = as<RoundsHandle>(maker), has_mails = as<MailsHandle>(maker);
    for (const GroupVerb& verb : kGroupVerbs) {
        if (verb.name != name || !(is_message(verb) ? has_mails : has_rounds)) continue;
        const nb::object call_name = nb::steal(PyUnicode_FromFormat("Group.%s", name));
        if (!call_name) return nullptr;
        return reinterpret_cast<PyObject*>(GroupMethod::make(type, make_call, verb, {otherwise, maker, finish, number_of, call_name.ptr()}));
    }
    return PyErr_Format(PyExc_ValueError, "nothing of this name is made by that: %s", name);
}

}  // namespace

void bind_group_calls(nb::module_& m) {
    nb::list collectives, messages;
    for (const GroupVerb& verb : kGroupVerbs) (is_message(verb) ? messages : collectives).append(nb::str(verb.name.data(), verb.name.size()));
    m.attr("COLLECTIVE_VERBS") = nb::tuple(collectives);
    m.attr("MESSAGE_VERBS") = nb::tuple(messages);
    m.attr("GroupCall") = GroupMethod::type(
        "peerlane._core.GroupCall", "A collective of a group that native code makes where it can, and `otherwise` else.", make_group_call, nullptr);
}

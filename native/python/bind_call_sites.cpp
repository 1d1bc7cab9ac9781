// Where the program called: the innermost frame outside peerlane, and the numbers that operations keep of it.
#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>

#include "memory/code.h"
#include "memory/fault_guard.h"
#include "python/bind.h"
#include "python/frames.h"

namespace nb = nanobind;
using namespace nb::literals;

std::string_view module_of(const Frame& frame) {
    static PyObject* const key = PyUnicode_InternFromString("__name__");
    PyObject* const name = PyDict_GetItemWithError(frame.globals(), key);
    Py_ssize_t length = 0;
    const char* const text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &length) : nullptr;
    if (text) return {text, static_cast<size_t>(length)};
    PyErr_Clear();
    return {};
}

namespace {

constexpr std::string_view kPackage = "peerlane";
constexpr uint64_t kSites = 4096, kCandidates = 8;

struct CallSite {
    PyObject* code = nullptr;   // strong
    int offset = 0;             // of the instruction, in bytes
    uint64_t round = 0;         // how often this entry changed hands
};

// A program submits at few places.  With more than there is room for, the older ones are not known any more: a code
// object is not kept for ever because it submitted something once.  Each place may have one of several entries, so that two
// whose hashes are equal do not end each other.
std::array<CallSite, kSites>& table() {
    static auto& sites = *new std::array<CallSite, kSites>{};
    return sites;
}

// Libraries that programs call peerlane through, such as torch: their lines are not the program's.
std::vector<std::string>& passed_through = *new std::vector<std::string>;

bool is_in(std::string_view module, std::string_view package) {
    return module.starts_with(package) && (module.size() == package.size() || module[package.size()] == '.');
}
bool is_ours(std::string_view module) { return is_in(module, kPackage); }
bool is_passed_through(std::string_view module) {
    return std::ranges::any_of(passed_through, [=](const std::string& package) { return is_in(module, package); });
}

// To the innermost frame outside peerlane; none: everything on this thread's stack is ours, or started the thread.
void leave_ours(Frame& frame) {
    for (std::string_view module; frame; frame.go_back())
        if (module = module_of(frame); !is_ours(module) && module != "threading") return;
}

// What `read` returns of the innermost frame of the program.  If it has none, of the innermost one outside peerlane.
template <class Read>
auto at_program(const Read& read) {
    Frame frame;
    leave_ours(frame);
    if (!frame || !is_passed_through(module_of(frame))) return read(frame);
    for (std::string_view module; frame; frame.go_back())
        if (module = module_of(frame); !is_ours(module) && !is_passed_through(module) && module != "threading" && module != "contextlib") return read(frame);
    Frame library;
    leave_ours(library);
    return read(library);
}

uint64_t number_of(const Frame& frame) {
    if (!frame) return 0;
    nb::object code = nb::borrow(frame.code());
    const int offset = frame.offset();
    const uint64_t hash = (reinterpret_cast<uintptr_t>(code.ptr()) + static_cast<unsigned>(offset)) * 0x9e3779b97f4a7c15u;
    CallSite* const candidates = &table()[(hash >> 32) % (kSites / kCandidates) * kCandidates];
    CallSite* oldest = candidates;
    const auto number = [](const CallSite& site) { return site.round * kSites + static_cast<uint64_t>(&site - table().data()); };
    for (CallSite* site = candidates; site != candidates + kCandidates; ++site) {
        if (site->code == code.ptr() && site->offset == offset) return number(*site);
        if (site->round < oldest->round) oldest = site;
    }
    // The old one goes last: what its end runs may come here again.
    const nb::object old = nb::steal(std::exchange(oldest->code, code.release().ptr()));
    oldest->offset = offset;
    ++oldest->round;
    return number(*oldest);
}

constexpr uint64_t kInC = uint64_t{1} << 63;   // of a number: the rest is an address
PyObject* asks_for_c_callers = nullptr;      // kept for ever

// Of a call that was kept and runs now; 0: a call runs where it is made.
thread_local constinit uint64_t fixed_call_site = 0;

}  // namespace

bool is_ours_or_contexts(const Frame& frame) {
    const std::string_view module = module_of(frame);
    return is_ours(module) || module == "contextlib";
}

uint64_t call_site() {
    return fixed_call_site != 0 ? fixed_call_site : at_program(number_of);
}

static std::string& standard_library = *new std::string;   // its folder

static std::string_view file_of(PyObject* code) {
    Py_ssize_t length = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(reinterpret_cast<PyCodeObject*>(code)->co_filename, &length);
    if (!text) PyErr_Clear();
    return {text ? text : "", static_cast<size_t>(length)};
}

bool is_installed(PyObject* code) {
    const std::string_view file = file_of(code);
    return file.find("/site-packages/") != file.npos || file.find("/dist-packages/") != file.npos;
}

bool is_of_library(PyObject* code) {
    const std::string_view file = file_of(code);
    return file.starts_with(standard_library) || file.starts_with("<frozen ") || is_installed(code);
}

uint64_t call_site_of_program() {
    if (fixed_call_site != 0) return fixed_call_site;
    Frame frame;
    do leave_ours(frame); while (frame && is_installed(frame.code()) && (frame.go_back(), true));
    return frame ? number_of(frame) : call_site();
}

uint64_t call_site_of_c(uint64_t address) { return address | kInC; }

uint64_t call_site_above_c(uint64_t address) {
    const Frame newest;   // ours: it has called a function of C, which calls
    return newest && !is_ours(module_of(newest)) ? call_site() : call_site_of_c(address);
}

nb::object site_of(uint64_t number) {
    if (number & kInC) {
        if (!asks_for_c_callers) return nb::none();
        return nb::borrow(asks_for_c_callers)(number & ~kInC);
    }
    const CallSite& site = table()[number % kSites];
    if (number == 0 || !site.code || site.round != number / kSites) return nb::none();
    return nb::make_tuple(nb::borrow(site.code), site.offset);
}

void bind_call_sites(nb::module_& m) {
    standard_library = nb::cast<std::string>(nb::module_::import_("sysconfig").attr("get_path")("stdlib")) + "/";
    m.def("site", &site_of, "number"_a, nb::sig("def site(number: int) -> tuple[types.CodeType, int] | None"),
          "The place that has a number, if it is known still.");
    m.def(
        "ask_for_c_callers", [](nb::object ask) { Py_XSETREF(asks_for_c_callers, ask.release().ptr()); }, "ask"_a,
        "What returns the code object that stands for a place in C, and 0, by the place's address.");
    m.def("site_number", [] { return call_site(); }, "The number of the place that call_site() returns; see fix_site().");
    m.def("fix_site", [](uint64_t site) { return std::exchange(fixed_call_site, site); }, "number"_a,
          "Let what this thread submits be submitted at this place, 0: where it is called; return what was set before.");
    m.def(
        "call_site",
        [] {
            return at_program([](const Frame& frame) -> nb::object {
                if (!frame) return nb::none();
                return nb::make_tuple(nb::borrow(frame.code()), frame.offset());
            });
        },
        nb::sig("def call_site() -> tuple[types.CodeType, int] | None"),
        "Code and offset of the instruction that called, in the innermost frame of the program.");
    m.def(
        "pass_through", [](std::string package) { passed_through.push_back(std::move(package)); }, "package"_a,
        "Do not take lines of a library's package for the program's from now on.");
    m.def(
        "line_of", [](nb::handle code, int offset) { return PyCode_Addr2Line(reinterpret_cast<PyCodeObject*>(code.ptr()), offset); },
        "code"_a, "offset"_a, nb::sig("def line_of(code: types.CodeType, offset: int) -> int"),
        "The line of an instruction, -1 when it has none.");
    m.def(
        "is_readable",
        [](uint64_t address) {
            // Asking the system costs less than a signal, and says no more than that something is mapped.
            unsigned char resident;
            void* const page = reinterpret_cast<void*>(address & ~(static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) - 1));
            if (mincore(page, 1, &resident) != 0 && errno == ENOMEM) return false;
            peerlane::rearm_fault_handlers();
            peerlane::FaultGuard guard;
            return guarded(guard, [=] { (void)*reinterpret_cast<const volatile char*>(address); });
        },
        "address"_a, "Whether the host can read the byte there.");
    m.def("is_code", &peerlane::is_code, "address"_a, "Whether a function may be there.");
}

// The line at which a thread touches what an operation has yet to write: asked for by the handler of the fault.
#include <dlfcn.h>
#include <execinfo.h>
#include <ucontext.h>

#include <string_view>

#include "python/bind.h"
#include "stream/host_destinations.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr uint64_t kWord = 64;   // bytes: a program in C may wait for so few in a loop, which its code does not tell
constexpr int kMostFrames = 64;

PyObject* asks_for_c_sites = nullptr;   // kept for ever

uintptr_t instruction_of([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
    return static_cast<uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return static_cast<uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc);
#else
    return 0;
#endif
}

bool is_system(uintptr_t address) {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(address), &info) || !info.dli_fname) return true;
    std::string_view name = info.dli_fname;
    name.remove_prefix(name.rfind('/') + 1);
    for (const std::string_view each : {"libc.", "libc-", "libm.", "libm-", "libstdc++", "libgcc", "ld-", "libpeerlane"})
        if (name.starts_with(each)) return true;
    return false;
}

// Behind the program's innermost call, as a call returns there; 0: it is not known.
uintptr_t address_in_c(const void* context) {
    const uintptr_t at = instruction_of(context);
    if (at == 0) return 0;
    if (!is_system(at)) return at + 1;
    void* frames[kMostFrames];
    const int count = backtrace(frames, kMostFrames);
    bool is_behind = false;   // the frames before are the handler's
    for (int i = 0; i < count; ++i) {
        const auto address = reinterpret_cast<uintptr_t>(frames[i]);
        if (is_behind && !is_system(address)) return address;
        is_behind = is_behind || address == at;
    }
    return 0;
}

struct Touching {
    void* context;
    uint64_t size;
    bool is_write;
    uint32_t site;
};
thread_local Touching touching;

uint32_t site_in_c(const Touching& by) {
    if (!asks_for_c_sites || (by.size <= kWord && !by.is_write)) return 0;
    const uintptr_t address = address_in_c(by.context);
    if (address == 0) return 0;
    PyObject* const number = PyObject_CallFunction(asks_for_c_sites, "K", static_cast<unsigned long long>(address));
    const unsigned long site = number ? PyLong_AsUnsignedLong(number) : 0;
    Py_XDECREF(number);
    if (!PyErr_Occurred()) return static_cast<uint32_t>(site);
    PyErr_Clear();
    return 0;
}

uint32_t find_site(void* context, uint64_t size, bool is_write) {
    touching = {context, size, is_write, 0};
    with_gil_unless_exiting([] {
        const nb::error_scope raised;
        const uint32_t before = log::context.site;
        log::context.site = log_site_of_program();
        if (log::context.site == 0)
            touching.site = site_in_c(touching);
        else if (touching.is_write || !is_poll())
            touching.site = log::context.site;
        log::context.site = before;
    });
    return touching.site;
}

}  // namespace

void bind_touches(nb::module_& m) {
    site_of_touch.store(find_site, std::memory_order_release);
    m.def(
        "ask_for_c_sites",
        [](nb::object ask) {
            Py_XSETREF(asks_for_c_sites, ask.release().ptr());
            void* frame;
            (void)backtrace(&frame, 1);   // what it loads must not be loaded by the handler of a fault
        },
        "ask"_a, "What returns the number of a place in C, by its address: threads without frames of Python touch memory, too.");
}

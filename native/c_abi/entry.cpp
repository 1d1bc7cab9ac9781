#include "c_abi/entry.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "c_abi/python.h"

namespace peerlane::c_abi {

std::atomic<const Quick*> quick{nullptr};

namespace {

constexpr const char* kModule = "peerlane.c_abi.entries";

// Everything below is for who holds the GIL.

// Of a Python that has no peerlane: take that of this library, with what is installed beside it, behind all others.
PyObject* import_own(Python& python) {
    const std::string folder = site_packages();
    PyObject* const site = python.PyImport_ImportModule("site");
    PyObject* const add = site ? python.PyObject_GetAttrString(site, "addsitedir") : nullptr;
    PyObject* const added = add ? python.PyObject_CallFunction(add, "s", folder.c_str()) : nullptr;
    PyObject* const module = added ? python.PyImport_ImportModule(kModule) : nullptr;
    for (PyObject* each : {site, add, added})
        if (each) python.Py_DecRef(each);
    static bool is_reported = false;
    if (!module && !std::exchange(is_reported, true))
        std::fprintf(stderr, "peerlane: the Python of this process has no peerlane, nor can it import the one in %s: install peerlane for it\n", folder.c_str());
    return module;
}

PyObject* module_of_entries(Python& python) {
    static PyObject* entries = nullptr;
    if (entries) return entries;
    PyObject* imported = python.PyImport_ImportModule(kModule);   // other threads may be here meanwhile
    if (!imported) {
        python.PyErr_Clear();
        imported = import_own(python);
    }
    if (!imported || std::exchange(entries, imported)) return entries;
    see_forks();
    PyObject* const function = python.PyObject_GetAttrString(entries, "quick_calls");
    PyObject* const address = function ? python.PyObject_CallFunction(function, "i", python.is_own ? 1 : 0) : nullptr;
    if (!address) {
        python.PyErr_Print();
        return entries;
    }
    const auto* const table = reinterpret_cast<const Quick*>(python.PyLong_AsUnsignedLongLongMask(address));
    quick.store(table, std::memory_order_release);
    return entries;
}

PyObject* bind(Python& python, Entry& entry) {
    PyObject* const module = module_of_entries(python);
    PyObject* const maker = module ? python.PyObject_GetAttrString(module, "bind") : nullptr;
    PyObject* const callable = maker ? python.PyObject_CallFunction(maker, "sss", entry.dialect, entry.header, entry.name) : nullptr;
    if (!maker) python.PyErr_Print();
    else python.Py_DecRef(maker);
    if (!callable) {
        python.PyErr_Clear();   // `bind` has printed why
        return nullptr;
    }
    entry.callable.store(callable, std::memory_order_release);   // never dropped, as programs call it until they end
    return callable;
}

// A Python object that calls an entry within a frame that stands for the C caller.
PyObject* frame_of(Python& python, void* caller) {
    static auto& frames = *new std::unordered_map<void*, PyObject*>;   // destructors of the program still call
    PyObject*& frame = frames[caller];
    if (frame) return frame;
    PyObject* const module = module_of_entries(python);
    PyObject* const maker = module ? python.PyObject_GetAttrString(module, "frame") : nullptr;
    frame = maker ? python.PyObject_CallFunction(maker, "K", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(caller))) : nullptr;
    if (maker) python.Py_DecRef(maker);
    if (!frame) python.PyErr_Print();
    return frame;
}

PyObject* object_of(Python& python, const Word& word) {
    switch (word.kind) {
        case Word::Kind::signed_integer:
            return python.PyLong_FromLongLong(word.number);
        case Word::Kind::unsigned_integer:
            return python.PyLong_FromUnsignedLongLong(word.natural);
        default:
            return python.PyFloat_FromDouble(word.real);
    }
}

// A thread that still calls while another one ends the process stays in its call, as it would on hardware: a code
// for an ended library might make it end the process otherwise than the program has asked for.
std::atomic<bool> is_leaving{false};
thread_local bool is_leaver = false;
constexpr timespec kPatience{5, 0};   // for who waits for the thread in a destructor

void stay_if_leaving(Python& python) {
    static thread_local bool has_stayed = false;
    if (!is_leaving.load(std::memory_order_acquire) || is_leaver || has_stayed || !is_thread_of_c(python)) return;
    has_stayed = true;
    nanosleep(&kPatience, nullptr);
}

// Whether Python called: by ctypes, in a frame of the program.  Above a function of C that peerlane called for the program,
// as a callback or a kernel, the frames are peerlane's.
bool is_called_by_python(Python& python) {
    PyObject* const globals = python.PyEval_GetGlobals();
    PyObject* const name = globals ? python.PyDict_GetItemString(globals, "__name__") : nullptr;
    const char* const text = name ? python.PyUnicode_AsUTF8(name) : nullptr;
    if (name && !text) python.PyErr_Clear();
    return globals && !(text && std::string_view(text).starts_with("peerlane."));
}

// What the program's exit handlers and destructors call comes before this: it was registered before any of them.
void at_exit() {
    Python* const python_of_process = python();
    if (!python_of_process || !python_of_process->is_own || python_of_process->is_over()) return;
    is_leaver = true;
    is_leaving.store(true, std::memory_order_release);
    const Gil gil(*python_of_process);
    PyObject* const module = module_of_entries(*python_of_process);
    PyObject* const function = module ? python_of_process->PyObject_GetAttrString(module, "end") : nullptr;
    PyObject* const done = function ? python_of_process->PyObject_CallFunction(function, nullptr) : nullptr;
    if (!done) python_of_process->PyErr_Print();
}

bool is_asked = false;   // else exiting would start Python

__attribute__((constructor)) void on_load() {
    std::atexit([] {
        if (is_asked) at_exit();
    });
}

// While it lives the thread is not cancelled, as it may have the GIL, and a peer that closes its socket does not end the
// program: Python ignores SIGPIPE, and the program need not.  Threads that start meanwhile are peerlane's, and inherit this.
class Undisturbed {
public:
    Undisturbed() {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation_);
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &signals_);
    }
    ~Undisturbed() {
        if (!sigismember(&signals_, SIGPIPE)) {
            constexpr timespec kNow{};
            (void)sigtimedwait(&pipe_, nullptr, &kNow);
            pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
        }
        pthread_setcancelstate(cancellation_, nullptr);
    }
    Undisturbed(const Undisturbed&) = delete;

private:
    int cancellation_;
    sigset_t pipe_, signals_;
};

constexpr size_t kMost = 24;   // arguments of a function

PyObject* bound(Python& python, Entry& entry) {
    if (void* known = entry.callable.load(std::memory_order_acquire)) return static_cast<PyObject*>(known);
    const Unforked unforked(python);
    const Gil gil(python);
    return bind(python, entry);
}

bool ask_python(Python& python, Entry& entry, const Word* words, size_t count, void* caller, Word& result) {
    PyObject* const callable = bound(python, entry);
    if (!callable) return false;
    const Gil gil(python);
    PyObject* const frame = is_called_by_python(python) ? nullptr : frame_of(python, caller);
    PyObject* arguments[kMost + 2];   // one in front is for who is called
    size_t filled = 1;
    if (frame) arguments[filled++] = callable;
    const size_t first = filled;
    for (size_t i = 0; i < count; ++i) arguments[filled++] = object_of(python, words[i]);
    PyObject* const answer = python.PyObject_Vectorcall(frame ? frame : callable, arguments + 1, (filled - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    for (size_t i = first; i < filled; ++i) python.Py_DecRef(arguments[i]);
    if (!answer && python.PyErr_ExceptionMatches(*python.keyboard_interrupt)) {   // as if it came when C has returned
        python.PyErr_Clear();
        python.PyErr_SetInterrupt();
        return false;
    }
    if (!answer) {
        python.PyErr_Print();
        return false;
    }
    if (result.kind == Word::Kind::real) result.real = python.PyFloat_AsDouble(answer);
    else result.natural = python.PyLong_AsUnsignedLongLongMask(answer);
    python.Py_DecRef(answer);
    return true;
}

}  // namespace

bool ask(Entry& entry, const Word* words, size_t count, void* caller, Word& result) {
    const Undisturbed undisturbed;
    Python* const python_of_process = python();
    if (!python_of_process || count > kMost) return false;
    const auto answer_at_the_end = [&] {
        const auto& [succeeds, output, size] = entry.at_the_end;
        if (!succeeds) return false;
        if (void* const address = size ? reinterpret_cast<void*>(words[output].natural) : nullptr) std::memset(address, 0, size);
        result = Word(int64_t{0});
        return true;
    };
    if (python_of_process->is_over()) return answer_at_the_end();
    const Call call(*python_of_process);
    if (!call.is_allowed()) return answer_at_the_end();
    is_asked = true;
    stay_if_leaving(*python_of_process);
    const bool is_answered = ask_python(*python_of_process, entry, words, count, caller, result);
    stay_if_leaving(*python_of_process);
    return is_answered;
}

}  // namespace peerlane::c_abi

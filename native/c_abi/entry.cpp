#include "c_abi/entry.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
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
PyObject* import_from_here(Python& python) {
    const std::string folder = site_packages();
    PyObject* const site = python.PyImport_ImportModule("site");
    PyObject* const add = site ? python.PyObject_GetAttrString(site, "addsitedir") : nullptr;
    PyObject* const added = add ? python.PyObject_CallFunction(add, "s", folder.c_str()) : nullptr;
    PyObject* const made = added ? python.PyImport_ImportModule(kModule) : nullptr;
    for (PyObject* each : {site, add, added})
        if (each) python.Py_DecRef(each);
    static bool is_said = false;
    if (!made && !std::exchange(is_said, true))
        std::fprintf(stderr, "peerlane: the Python of this process has no peerlane, nor can it import the one in %s: install peerlane for it\n", folder.c_str());
    return made;
}

PyObject* module_of_entries(Python& python) {
    static PyObject* found = nullptr;
    if (found) return found;
    PyObject* made = python.PyImport_ImportModule(kModule);   // other threads may be here meanwhile
    if (!made) {
        python.PyErr_Clear();
        made = import_from_here(python);
    }
    if (!made || std::exchange(found, made)) return found;
    see_forks();
    PyObject* const function = python.PyObject_GetAttrString(found, "quick_calls");
    PyObject* const address = function ? python.PyObject_CallFunction(function, nullptr) : nullptr;
    if (!address) python.PyErr_Print();
    else quick.store(reinterpret_cast<const Quick*>(python.PyLong_AsUnsignedLongLongMask(address)), std::memory_order_release);
    return found;
}

PyObject* bind(Python& python, Entry& entry) {
    PyObject* const module = module_of_entries(python);
    PyObject* const maker = module ? python.PyObject_GetAttrString(module, "bind") : nullptr;
    PyObject* const made = maker ? python.PyObject_CallFunction(maker, "ss", entry.library, entry.name) : nullptr;
    if (!maker) python.PyErr_Print();
    else python.Py_DecRef(maker);
    if (!made) {
        python.PyErr_Clear();   // it has told why
        return nullptr;
    }
    entry.callable.store(made, std::memory_order_release);   // never dropped, as programs call it until they end
    return made;
}

// What calls an entry for a place in C: a frame of Python that stands for it.
PyObject* frame_of(Python& python, void* caller) {
    static auto& frames = *new std::unordered_map<void*, PyObject*>;   // destructors of the program still call
    PyObject*& found = frames[caller];
    if (found) return found;
    PyObject* const module = module_of_entries(python);
    PyObject* const maker = module ? python.PyObject_GetAttrString(module, "frame") : nullptr;
    found = maker ? python.PyObject_CallFunction(maker, "K", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(caller))) : nullptr;
    if (maker) python.Py_DecRef(maker);
    if (!found) python.PyErr_Print();
    return found;
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

// A thread that still calls while another one ends the process stays in its call, as it would on hardware: were it
// told that nothing is there any more, it might end the process otherwise than the program has asked for.
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
    Python* const found = python();
    if (!found || !found->is_started_here || found->is_over()) return;
    is_leaver = true;
    is_leaving.store(true, std::memory_order_release);
    const Gil gil(*found);
    PyObject* const module = module_of_entries(*found);
    PyObject* const function = module ? found->PyObject_GetAttrString(module, "end") : nullptr;
    PyObject* const done = function ? found->PyObject_CallFunction(function, nullptr) : nullptr;
    if (!done) found->PyErr_Print();
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
    size_t given = 1;
    if (frame) arguments[given++] = callable;
    const size_t first = given;
    for (size_t i = 0; i < count; ++i) arguments[given++] = object_of(python, words[i]);
    PyObject* const answer = python.PyObject_Vectorcall(frame ? frame : callable, arguments + 1, (given - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    for (size_t i = first; i < given; ++i) python.Py_DecRef(arguments[i]);
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
    Python* const found = python();
    if (!found || found->is_over() || count > kMost) return false;
    is_asked = true;
    stay_if_leaving(*found);
    const bool is_told = ask_python(*found, entry, words, count, caller, result);
    stay_if_leaving(*found);
    return is_told;
}

}  // namespace peerlane::c_abi

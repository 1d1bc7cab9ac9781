#include "c_abi/python.h"

#include "c_abi/entry.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace peerlane::c_abi {
namespace {

#define PEERLANE_TEXT_(x) #x
#define PEERLANE_TEXT(x) PEERLANE_TEXT_(x)
constexpr const char* kVersion = PEERLANE_TEXT(PY_MAJOR_VERSION) "." PEERLANE_TEXT(PY_MINOR_VERSION);

Python functions;

void warn(const std::string& text) { std::fprintf(stderr, "peerlane: %s\n", text.c_str()); }

std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// The program of the environment that this library is installed in: <root>/bin/python3.x of <root>/lib*/python3.x/*-packages.
std::string program() {
    if (const char* chosen = std::getenv("PEERLANE_PYTHON")) return chosen;
    const std::string root = folder_of(folder_of(folder_of(site_packages())));
    for (const std::string& folder : {root + "/bin", std::string("/usr/local/bin"), std::string("/usr/bin")}) {
        const std::string program = folder + "/python" + kVersion;
        if (exists(program)) return program;
    }
    return std::string("python") + kVersion;
}

// Where the interpreter of a program is installed: of a virtual environment, what its pyvenv.cfg says.
std::string home_of(const std::string& program) {
    const std::string folder = folder_of(program);
    std::ifstream config(folder_of(folder) + "/pyvenv.cfg");
    for (std::string line; std::getline(config, line);) {
        if (line.rfind("home", 0) != 0) continue;
        const size_t at = line.find_first_not_of(" =", 4);
        if (at != std::string::npos) return folder_of(line.substr(at));
    }
    char* const real = realpath(program.c_str(), nullptr);
    const std::string prefix = folder_of(folder_of(real ? real : program));
    std::free(real);
    return prefix;
}

bool open_library() {
    const std::string name = std::string("libpython") + kVersion + ".so";
    std::vector<std::string> candidates;
    if (const char* chosen = std::getenv("PEERLANE_LIBPYTHON")) {
        candidates = {chosen};
    } else {
        const std::string home = home_of(program());
        for (const char* const folder : {"/lib/", "/lib64/", "/lib/" PEERLANE_TEXT(PEERLANE_MULTIARCH) "/"})
            candidates.push_back(home + folder + name + ".1.0");
        candidates.push_back(name + ".1.0");
        candidates.push_back(name);
    }
    std::string looked;
    for (const std::string& each : candidates) {
        // Its symbols are global: modules of Python that are written in C have no other way to find them.
        if (each.find('/') != std::string::npos && !exists(each)) {
            looked += " " + each;
            continue;
        }
        if (dlopen(each.c_str(), RTLD_NOW | RTLD_GLOBAL)) return true;
        const char* const why = dlerror();
        looked += " " + each + " (" + (why ? why : "?") + ")";
    }
    warn("the calls of this program are answered by Python " + std::string(kVersion) + ", and its shared library was not found. Looked for:" + looked +
        ". Install it (Debian and Ubuntu: apt install libpython" + kVersion + "; Fedora: dnf install python" + kVersion +
        "-libs; pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared), or set PEERLANE_LIBPYTHON to its path");
    return false;
}

bool find_functions() {
    const auto find = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
#define PEERLANE_FIND(name)                                                              \
    if (!(functions.name = reinterpret_cast<decltype(functions.name)>(find(#name)))) {   \
        warn("the Python of this process has no " #name "; peerlane was built for " + std::string(kVersion)); \
        return false;                                                                    \
    }
    PEERLANE_PYTHON_FUNCTIONS(PEERLANE_FIND)
#undef PEERLANE_FIND
    functions.keyboard_interrupt = static_cast<PyObject* const*>(find("PyExc_KeyboardInterrupt"));
    void* over = find("Py_IsFinalizing");
    if (!over) over = find("_Py_IsFinalizing");
    if (!over || !functions.keyboard_interrupt) return false;
    functions.is_finalizing = reinterpret_cast<int (*)()>(over);
    const std::string version = functions.Py_GetVersion();
    if (version.rfind(std::string(kVersion) + ".", 0) == 0) return true;
    warn("this process runs Python " + version.substr(0, version.find(' ')) + ", and this library is of a peerlane for Python " + kVersion +
        ": install peerlane for the Python of this process, and take the library from there (peerlane c-abi --print-dir)");
    return false;
}

// OpenSSL, which Python hashes with, cleans up in an exit handler of its own, which comes before those that the program
// registered earlier: what they call would hash with what is gone, and so would threads that still run.
void keep_openssl() {
    constexpr const char* kCode = R"(
import contextlib
with contextlib.suppress(Exception):
    from ctypes import CDLL, c_uint64
    from importlib.util import find_spec
    place = find_spec("_hashlib").origin
    no_exit_handler = 0x80000
    CDLL(None if place == "built-in" else place).OPENSSL_init_crypto(c_uint64(no_exit_handler), None)
)";
    PyObject* const builtins = functions.PyImport_ImportModule("builtins");
    PyObject* const run = builtins ? functions.PyObject_GetAttrString(builtins, "exec") : nullptr;
    PyObject* const done = run ? functions.PyObject_CallFunction(run, "s{}", kCode) : nullptr;
    if (!done) functions.PyErr_Clear();
    for (PyObject* each : {builtins, run, done})
        if (each) functions.Py_DecRef(each);
}

// Without a look at the locale, which is the program's.
PyStatus prepare() {
    PyPreConfig config;
    functions.PyPreConfig_InitPythonConfig(&config);
    config.configure_locale = 0;
    config.coerce_c_locale = 0;
    config.coerce_c_locale_warn = 0;
    config.utf8_mode = 1;
    return functions.Py_PreInitialize(&config);
}

thread_local bool has_started_python = false;

bool start() {
    struct sigaction interrupt;
    sigaction(SIGINT, nullptr, &interrupt);
    PyStatus status = prepare();   // before texts are decoded
    PyConfig config;
    functions.PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0;   // signals are the program's
    config.parse_argv = 0;
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    char* const arguments[] = {self};
    if (!functions.PyStatus_Exception(status)) status = functions.PyConfig_SetBytesString(&config, &config.program_name, program().c_str());
    if (!functions.PyStatus_Exception(status)) status = functions.PyConfig_SetBytesArgv(&config, 1, arguments);
    // The hook of dialects leaves the program's libraries alone: a copy of CUDA's runtime that was replaced between two calls would fail in one of them.
    if (!functions.PyStatus_Exception(status)) status = functions.PyWideStringList_Append(&config.xoptions, L"peerlane_serves_c");
    if (!functions.PyStatus_Exception(status)) status = functions.Py_InitializeFromConfig(&config);
    functions.PyConfig_Clear(&config);
    if (functions.PyStatus_Exception(status)) {
        warn(std::string("Python did not start: ") + (status.err_msg ? status.err_msg : "?") + "; PEERLANE_PYTHON names its program, now " + program());
        return false;
    }
    functions.is_own = has_started_python = true;
    functions.PyGC_Disable();   // until a dialect is imported, which would begin dozens of collections that free nothing
    // This module takes SIGINT when it is first imported.
    if (PyObject* const module = functions.PyImport_ImportModule("signal")) functions.Py_DecRef(module);
    sigaction(SIGINT, &interrupt, nullptr);
    keep_openssl();   // before another thread can hash
    (void)functions.PyEval_SaveThread();
    return true;
}

// A fork of C in a process whose Python has threads: its locks are held by nobody in the child.
bool is_fork_of_python() { return functions.PyGILState_Check() != 0; }
thread_local PyGILState_STATE at_fork;
thread_local bool is_c_fork = false;
thread_local bool is_fork_seen = false;

void keep_state();

// Held while Python starts, and while it imports a library's dialect: a fork waits for it, as nobody would go on in the child.
// A thread may have it several times; a recursive mutex would know its owner by the number that a fork changes.
class Starting {
public:
    void lock() {
        if (depth_++ == 0) mutex_.lock();
    }
    void unlock() {
        if (--depth_ == 0) mutex_.unlock();
    }

private:
    std::mutex mutex_;
    static thread_local int depth_;
};
thread_local int Starting::depth_ = 0;
Starting starting;

void before_fork() {
    is_fork_seen = true;
    is_c_fork = !functions.is_over() && !is_fork_of_python();
    if (!is_c_fork) return;
    starting.lock();   // before the GIL, which who has it needs
    keep_state();   // in the child it is the only one, and must not end
    at_fork = functions.PyGILState_Ensure();
    functions.PyOS_BeforeFork();
}

void after_fork_in_parent() {
    if (!is_c_fork) return;
    starting.unlock();
    functions.PyOS_AfterFork_Parent();
    functions.PyGILState_Release(at_fork);
}

void after_fork_in_child() {
    if (!is_c_fork) return;
    starting.unlock();
    functions.PyOS_AfterFork_Child();
    functions.PyGILState_Release(at_fork);
}

bool make() {
    const bool is_loaded = dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr;
    if (!is_loaded && !open_library()) return false;
    if (!find_functions()) return false;
    return functions.Py_IsInitialized() || start();
}

// The state of a thread that C made, which ends with the thread.  The process's first thread keeps its own: what the
// program has registered to run at the exit runs after this, and calls again.
thread_local bool is_ending = false;   // what calls now gets a state for the call alone

thread_local bool are_waits_followed = false;

// While it lives, a wait under the GIL gives the GIL away.
class Waiting {
public:
    explicit Waiting(Python& python) {
        const Quick* const table = quick.load(std::memory_order_acquire);
        if (!table || python.PyGILState_Check()) return;
        if (!python.is_own && !std::exchange(are_waits_followed, true)) table->follow_waits();
        waiters_ = table->gil_waiters;
        waiters_->fetch_add(1, std::memory_order_acq_rel);
    }
    ~Waiting() {
        if (waiters_) waiters_->fetch_sub(1, std::memory_order_acq_rel);
    }
    Waiting(const Waiting&) = delete;

private:
    std::atomic<uint32_t>* waiters_ = nullptr;
};

// Whether the GIL can be had soon: another thread tries, as nobody joins it.  Who ends this thread may hold the GIL and wait for its
// end, as the destructor of a module's object does that joins a thread.
bool is_gil_to_be_had() {
    struct Try {
        std::mutex mutex;
        std::condition_variable changed;
        bool is_over = false;
    };
    constexpr std::chrono::milliseconds kSoon{250};
    const auto shared = std::make_shared<Try>();
    try {
        std::thread([shared] {
            const Call call(functions);
            if (!call.is_allowed()) return;
            const Waiting waiting(functions);
            functions.PyGILState_Release(functions.PyGILState_Ensure());
            const std::lock_guard lock(shared->mutex);
            shared->is_over = true;
            shared->changed.notify_one();
        }).detach();
    } catch (const std::system_error&) {
        return false;
    }
    std::unique_lock lock(shared->mutex);
    return shared->changed.wait_for(lock, kSoon, [&] { return shared->is_over; });
}

struct Kept {
    bool is_kept = false;
    ~Kept() {
        is_ending = true;
        if (!is_kept || gettid() == getpid() || functions.is_over()) return;
        const Call call(functions);
        if (!call.is_allowed() || !is_gil_to_be_had()) return;   // the state stays
        const Waiting waiting(functions);   // who joins this thread may have the GIL again
        (void)functions.PyGILState_Ensure();
        functions.PyGILState_Release(PyGILState_LOCKED);
        functions.PyGILState_Release(PyGILState_UNLOCKED);
    }
};
thread_local Kept kept;

void keep_state() {
    if (is_ending || functions.PyGILState_GetThisThreadState()) return;
    (void)functions.PyGILState_Ensure();
    (void)functions.PyEval_SaveThread();
    kept.is_kept = true;
}

enum class Started { not_yet, yes, no };
std::atomic<Started> started{Started::not_yet};

thread_local bool has_waited = false;

// Python started, and did not see the fork: the child's has the locks of threads that are not there.
void lose_python_in_child() {
    if (functions.is_own && !std::exchange(is_fork_seen, false)) started.store(Started::no, std::memory_order_release);
    if (has_waited) starting.unlock();
}

__attribute__((constructor)) void wait_at_forks() {
    const auto wait = [] {
        // Who has the lock may need the GIL.
        has_waited = started.load(std::memory_order_acquire) != Started::yes || !is_fork_of_python();
        if (has_waited) starting.lock();
    };
    const auto go_on = [] {
        is_fork_seen = false;
        if (has_waited) starting.unlock();
    };
    pthread_atfork(wait, go_on, lose_python_in_child);
}

}  // namespace

// <site-packages>, where this library is <site-packages>/peerlane/lib/libpeerlane_c.so.
std::string site_packages() {
    Dl_info info{};
    if (!dladdr(reinterpret_cast<void*>(&site_packages), &info) || !info.dli_fname) return "";
    std::string path = info.dli_fname;
    if (char* real = realpath(path.c_str(), nullptr)) {
        path = real;
        std::free(real);
    }
    return folder_of(folder_of(folder_of(path)));
}

Python* python() {
    if (started.load(std::memory_order_acquire) == Started::not_yet) {
        const std::lock_guard lock(starting);
        if (started.load(std::memory_order_relaxed) == Started::not_yet)
            started.store(make() ? Started::yes : Started::no, std::memory_order_release);
    }
    return started.load(std::memory_order_acquire) == Started::yes ? &functions : nullptr;
}

// In a Python that was there, who holds the GIL may wait for the lock.
Unforked::Unforked(Python& python) : is_on_(python.is_own) {
    if (is_on_) starting.lock();
}

Unforked::~Unforked() {
    if (is_on_) starting.unlock();
}

bool is_thread_of_c(Python& python) {
    return kept.is_kept || has_started_python || !python.PyGILState_GetThisThreadState();
}

void see_forks() { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

Call::Call(Python& python) {
    const Quick* const table = python.is_own ? nullptr : quick.load(std::memory_order_acquire);
    if (table) is_counted_ = is_allowed_ = table->begin_call();
}

Call::~Call() {
    if (is_counted_) quick.load(std::memory_order_acquire)->end_call();
}

Gil::Gil(Python& python) : python_(python) {
    const Waiting waiting(python);
    keep_state();
    state_ = python.PyGILState_Ensure();
}

}  // namespace peerlane::c_abi

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <pthread.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "python/bind.h"

namespace {

constexpr int kLongestEnd = 100;   // milliseconds
constexpr auto kLongestWait = std::chrono::seconds(1);
std::atomic<int> coming_back{0};
std::atomic<bool> exiting{false};
std::atomic<std::thread::id> finalizer{};
thread_local unsigned calls_of_c = 0;   // each in the one before

const int is_registered [[maybe_unused]] = pthread_atfork(nullptr, nullptr, [] { coming_back.store(calls_of_c != 0); });   // other threads are gone

bool is_late() { return exiting.load() && finalizer.load() != std::this_thread::get_id(); }

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

// A later exit handler may wait for this thread: then finalization does not begin, and it goes on.
void await_finalization() {
    for (int i = 0; i < kLongestEnd && !is_finalizing(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool ask_signals(void*) {
    nanobind::gil_scoped_acquire gil;
    return PyErr_CheckSignals() != 0;
}

}  // namespace

// Only the main thread runs Python's signal handlers; others would take the GIL for nothing.  The thread that forks is the
// main thread of the child, whatever it was before.
peerlane::Poll poll_of_thread() {
    static std::atomic<uint64_t> forks{1};
    static const int is_registered [[maybe_unused]] = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    thread_local uint64_t asked = 0;
    thread_local bool is_main = false;
    if (const uint64_t now = forks.load(std::memory_order_relaxed); asked != now) {
        is_main = syscall(SYS_gettid) == getpid();
        asked = now;
    }
    return is_main ? peerlane::Poll{ask_signals} : peerlane::Poll{};
}

GilReleased::GilReleased() : state_(PyEval_SaveThread()) {
    if (calls_of_c != 0) coming_back.fetch_sub(1);   // the exit does not wait for what may last
}

GilReleased::~GilReleased() {
    coming_back.fetch_add(1);
    if (is_late()) {
        coming_back.fetch_sub(1);
        await_finalization();
        while (is_finalizing()) pause();
        coming_back.fetch_add(1);
    }
    PyEval_RestoreThread(state_);
    if (calls_of_c == 0) coming_back.fetch_sub(1);
}

bool begin_call_of_c() noexcept {
    if (calls_of_c++ != 0) return true;
    coming_back.fetch_add(1);
    if (is_late()) {
        coming_back.fetch_sub(1);
        if (!PyGILState_Check()) await_finalization();
        if (is_finalizing()) {
            --calls_of_c;
            return false;
        }
        coming_back.fetch_add(1);
    }
    return true;
}

void end_call_of_c() noexcept {
    if (--calls_of_c == 0) coming_back.fetch_sub(1);
}

void with_gil_unless_exiting(const std::function<void()>& work) {
    coming_back.fetch_add(1);   // the exit waits for the end of this
    if (!exiting.load()) {
        const nanobind::gil_scoped_acquire gil;
        work();
    }
    coming_back.fetch_sub(1);
}

void interpreter_exits() {
    finalizer.store(std::this_thread::get_id());
    exiting.store(true);
    PyThreadState* state = PyEval_SaveThread();
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    const int own = calls_of_c != 0 ? 1 : 0;
    while (coming_back.load() > own && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    PyEval_RestoreThread(state);
}

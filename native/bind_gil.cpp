#include <atomic>
#include <chrono>
#include <thread>
#include <unistd.h>

#include "bind.h"

namespace {

constexpr auto kLongestWait = std::chrono::seconds(1);
std::atomic<int> coming_back{0};
std::atomic<bool> exiting{false};
std::atomic<std::thread::id> finalizer{};

}  // namespace

GilReleased::GilReleased() : state_(PyEval_SaveThread()) {}

GilReleased::~GilReleased() {
    coming_back.fetch_add(1);
    if (exiting.load() && finalizer.load() != std::this_thread::get_id()) {
        coming_back.fetch_sub(1);
        while (true) pause();
    }
    PyEval_RestoreThread(state_);
    coming_back.fetch_sub(1);
}

void interpreter_exits() {
    finalizer.store(std::this_thread::get_id());
    exiting.store(true);
    PyThreadState* state = PyEval_SaveThread();
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    while (coming_back.load() != 0 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    PyEval_RestoreThread(state);
}

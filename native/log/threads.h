// Threads of programs in C, whose order the log has from a library that is loaded before all others: native/c_abi/threads.cpp.
#pragma once
#include <cstdint>
#include <thread>
#include <utility>

#include "log/log.h"

namespace peerlane::log {

// The functions by which that library reaches the log, which may begin long after the first threads.
struct ThreadNotes {
    bool (*is_quiet)();                                 // peerlane starts the thread for itself
    bool (*post)(uint64_t key, uint64_t number);        // false: there is no log
    void (*take)(uint64_t key, uint64_t number);
    void (*forget)(uint64_t key, uint64_t number);
};

// Let that library write to the log, if it is there.
void follow_threads();

// A thread of peerlane's own, which orders nothing of the program's.
template <class Body>
std::thread own_thread(Body body) {
    const Quiet quiet;
    return std::thread(std::move(body));
}

}  // namespace peerlane::log

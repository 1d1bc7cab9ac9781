// What a process sends to others, and receives from them, by means that no verb of peerlane's logs: sockets, pipes, semaphores, shared
// mappings, and files.  Calls of the C library are hooked in the import tables of all modules but peerlane's own.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "log/log.h"

namespace peerlane::log {

// Hook the modules that are loaded, and those that they load later; then log the shared mappings that there are.  Also in a forked child.
void follow_outside();

struct Received {
    uint64_t key, flags, first_ns, last_ns;   // at any time between
};

// The outputs of the whole run, as devices and inodes: nobody answers what is written there.
void set_outputs(const std::vector<uint64_t>& files);

// Python changes a file, or looks at one; its own calls are not hooked for that.
void note_changed_file();
void note_looked_at(const char* path);

// peerlane itself writes a file of the program's, or has read it: its own calls are not hooked.
void note_file(int fd, bool writes);

// A descriptor of peerlane's becomes readable: another process may have it, by a message or by a fork.
void note_readable() noexcept;

// The log calls these, under its lock: what was received since the last event must be logged before the next one.
void take_received(const std::function<void(const Received&)>& log);
void note_logged() noexcept;
void forget_outside() noexcept;   // in a forked child

}  // namespace peerlane::log

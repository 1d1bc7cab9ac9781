// The exporting side of shareable handles: one native thread hands out descriptors over a Unix socket.
//
// The thread never takes the GIL and never calls Python.  One lock guards everything; nothing is called and nothing
// is waited for while it is held, so it may be taken with the GIL, inside the heap's lock, or without either.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "share/frames.h"

namespace peerlane {

constexpr uint32_t kMaxExports = 1 << 17;
constexpr uint32_t kMaxConnections = 1024;
constexpr uint32_t kMaxOpens = 1 << 20;   // of one connection
constexpr uint32_t kStaleKept = 4096;     // exports that are over and still known as such

// Handles of one thing: while a process has it by one of them, none ends because its owner uses it no more.  Under
// the broker's lock.
struct ExportGroup {
    uint64_t importers = 0, exports = 0;
};

struct Export {
    Grant grant;
    int fd = -1;                   // kept by the caller until `gone` was called
    bool everyone = false;         // any process of this user, listed or not
    std::function<void()> gone;    // by any thread, no lock held; must not take the GIL or call Broker::close()
    std::shared_ptr<ExportGroup> group{};
};

struct ExportKey {
    uint32_t index = 0;
    uint64_t nonce = 0;            // its lowest 28 bits are never 0
};

class Broker {
  public:
    static Broker& get();   // leaked: late threads may still need it
    Broker();

    // Serve `name` (mode 0600) in the directory `directory`; the descriptor must stay open until close().  What a dead
    // owner left there is unlinked.  Calling it again with the same name does nothing; with another name it throws
    // Refusal (Why::closed), as it does when the socket or the thread cannot be had (system_memory, descriptors).
    void open(int directory, const std::string& name, uint32_t slot, uint64_t node);
    // Leave the node: nobody can open any more, every `gone` is called.  Importers keep what they have.
    void close();
    bool is_open();

    ExportKey offer(Export what);   // throws Refusal: closed (not open), descriptors (all places taken), system_memory

    // All of these do nothing for a key that is no longer current: false, 0 or empty.

    // Who may open it.  `start` is the kernel's start time of the pid; 0: there was no such process when it was listed.
    // Listing a pid again replaces its start time.
    bool allow(uint32_t index, uint64_t nonce, int32_t pid, uint64_t start);
    bool disallow(uint32_t index, uint64_t nonce, int32_t pid);
    std::vector<std::pair<int32_t, uint64_t>> allowed(uint32_t index, uint64_t nonce);
    // The owner's last reference went.  Without importers the export is over and `gone` is called before this returns;
    // else it lives, and may be opened, until the last importer lets go or dies.
    void abandon(uint32_t index, uint64_t nonce);
    // No further opens, whoever has it.  `gone` is called now, or when the last importer lets go or dies.
    void withdraw(uint32_t index, uint64_t nonce);
    uint64_t importers(uint32_t index, uint64_t nonce);   // processes (connections) that have it

    // Why this process may not open an export of its own: own_process while it is current, else stale, or unknown.
    Status refusal_of(uint32_t index, uint64_t nonce, unsigned bits);

    // Around fork.  The child forgets everything, closes its descriptors and calls no `gone`.
    void fork_prepare();
    void fork_parent();
    bool fork_child();   // whether it served

  private:
    struct State;
    void end(uint32_t index, uint64_t nonce, bool withdrawn);

    std::unique_ptr<State> state_;
};

}  // namespace peerlane

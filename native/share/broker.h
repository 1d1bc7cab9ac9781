// The exporting side of shareable handles: one native thread hands out descriptors over a Unix socket.
//
// The thread never takes the GIL and never calls Python.  One lock guards all state.  No callback runs and no wait happens
// while it is held, so that it may be taken with the GIL, inside the heap's lock, or without either.
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
constexpr uint32_t kStaleKept = 4096;     // ended exports that are remembered, for a better refusal

// The handles of one object: while a process has opened one of them, none of them ends when the owner closes the object.
// Under the broker's lock.
struct ExportGroup {
    uint64_t importers = 0, exports = 0;
};

struct Export {
    Grant grant;
    int fd = -1;                   // the caller keeps it open until `gone` was called
    bool everyone = false;         // any process of this user, listed or not
    std::function<void()> gone;    // called by any thread without a lock; must not take the GIL or call Broker::close()
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

    // Serve a socket `name` (mode 0600) in the directory `directory`, whose descriptor must stay open until close().  The
    // socket of a dead owner is unlinked.  A second call with the same name does nothing.  Throws Refusal: closed for
    // another name; system_memory or descriptors if the socket or the thread cannot be made.
    void open(int directory, const std::string& name, uint32_t slot, uint64_t node);
    // Leave the node: no handle can be opened any more, and every `gone` is called.  Importers keep their memory.
    void close();
    bool is_open();

    ExportKey offer(Export what);   // throws Refusal: closed (not open), descriptors (all entries taken), system_memory

    // All of these do nothing for a key that is no longer current: false, 0 or empty.

    // The allow-list.  `start` is the kernel's start time of the pid; 0: there was no such process when it was listed.
    // Listing a pid again replaces its start time.
    bool allow(uint32_t index, uint64_t nonce, int32_t pid, uint64_t start);
    uint64_t start_of(int32_t pid);   // as start_time, without a look into /proc where a connection knows it
    bool disallow(uint32_t index, uint64_t nonce, int32_t pid);
    std::vector<std::pair<int32_t, uint64_t>> allowed(uint32_t index, uint64_t nonce);
    // The owner has closed the object.  Without importers the export ends, and `gone` is called before this returns;
    // else it may be opened until the last importer closes it or dies.
    void abandon(uint32_t index, uint64_t nonce);
    // Let no process open it any more.  `gone` is called now, or when the last importer closes it or dies.
    void withdraw(uint32_t index, uint64_t nonce);
    uint64_t importers(uint32_t index, uint64_t nonce);   // processes (connections) that have it

    // The refusal of an open by the exporter itself: own_process while the export is current, else stale or unknown.
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

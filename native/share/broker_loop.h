// The thread of the broker: accepts connections, answers frames, and notices who died.
#pragma once
#include <chrono>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <unordered_map>

#include "share/early_grants.h"
#include "share/export_table.h"
#include "share/process.h"

namespace peerlane {

class BrokerLoop {
  public:
    // All but the thread changes under `mutex` only, so that a fork finds every descriptor.
    BrokerLoop(std::mutex& mutex, ExportTable& exports, uint64_t node) : mutex_(mutex), exports_(exports), node_(node) {}
    ~BrokerLoop() { close_descriptors(); }
    BrokerLoop(const BrokerLoop&) = delete;

    void start(int directory, const std::string& name);   // with the lock; throws Refusal
    void stop();                                          // without it; ends the thread and every connection
    // Nothing but that: in a forked child the connections themselves are its parent's.
    void close_descriptors();

    // All of these with the lock.

    // The start time of a process that is connected and lives; else 0.
    uint64_t start_of(int32_t pid) const;
    // Write a grant into the page of a process that may open this export, where it has one.
    void grant_early(uint32_t index, int32_t pid);
    // Count those who took grants.  No call may look at who has an export before this one.
    void count_early();
    // Take back what was granted of this export, and count those who took it.
    void take_back_early(uint32_t index);

  private:
    using Lock = std::unique_lock<std::mutex>;
    using Gone = ExportTable::Gone;
    enum class Source : uint64_t { stop, listener, socket, process };
    enum class Next { more, later, drop };

    // A process needs one; those that it opens at a time in several threads are kept, too.
    static constexpr uint32_t kMaxOfProcess = 16;

    struct Connection {
        int socket = -1;
        Process process;
        uint32_t user = 0;
        uint64_t last_request = 0;                     // for cancel
        uint32_t last_index = 0;
        bool last_granted = false;
        bool is_named = false;                         // in the log
        bool is_known = false;                         // it was sent a descriptor
        uint32_t opens = 0;                            // in all
        std::unordered_map<uint32_t, uint32_t> held;   // how often, by entry; 0: a grant is in the page
        std::unique_ptr<EarlyGrants> early;            // from its second opening on

        bool is_polled() const { return process.pid != 0 && process.pidfd < 0; }
    };

    void listen(int directory, const std::string& name);
    void watch(int fd, Source source, uint64_t id);

    void run();
    void look_for_dead();
    bool accept_one();
    void refuse_connection(int socket, Answer answer);
    void enter(int socket);

    void serve(uint64_t id);
    Next answer_one(Connection& connection, std::vector<Gone>& gone);
    // False: the connection is to be dropped.  That lets go of all that was opened.
    bool open(Connection& connection, const Request& request, Answer& answer);
    Status judge(const Connection& connection, const Request& request, Answer& answer);
    int send_grant(Connection& connection, const Answer& answer, const Export& what);   // 0 or an errno
    void hold(Connection& connection, uint32_t index);
    void count_early(Connection& connection);
    // The page has no grant of the entry any more; `has_it`: the importer took one, and has not given it back.
    void settle_early(Connection& connection, uint32_t index, bool has_it);
    std::vector<Gone> undo(Connection& connection, const Request& request);   // let_go, cancel
    std::vector<Gone> release(Connection& connection, uint32_t index);
    void drop(uint64_t id);

    std::mutex& mutex_;
    ExportTable& exports_;
    const uint64_t node_;
    const int32_t pid_ = getpid();
    int listener_ = -1, epoll_ = -1, stop_ = -1;
    int reserve_ = -1;       // closed to refuse a connection when there is no other descriptor left
    uint64_t next_id_ = 1;
    uint32_t polled_ = 0;    // connections without a pidfd
    std::chrono::steady_clock::time_point next_look_;
    std::unordered_map<uint64_t, Connection> connections_;
    std::unordered_map<int32_t, std::vector<uint64_t>> of_process_;   // their ids, by pid
    std::thread thread_;
};

}  // namespace peerlane

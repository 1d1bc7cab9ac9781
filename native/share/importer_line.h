// The socket below an Exporter: one question at a time, and messages that want no answer.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "share/early_grants.h"
#include "share/importer.h"
#include "share/process.h"

namespace peerlane {

// How long a call may wait, and whom its errors name.
class Patience {
  public:
    Patience(Deadline deadline, Poll poll, int32_t exporter) : deadline_(deadline), poll_(poll), exporter_(exporter) {}
    // Milliseconds to wait now, at most 100.  Throws Refusal (wait_timeout, interrupted).
    int slice();
    HandleParties parties() const { return {.exporter = exporter_}; }

  private:
    Deadline deadline_;
    Poll poll_;
    int32_t exporter_;
    Clock::time_point next_poll_ = Clock::now() + std::chrono::milliseconds(100);
};

[[noreturn]] void refuse_lost(int32_t pid, int error);   // errno, 0: it ended

class ExporterLine : public std::enable_shared_from_this<ExporterLine> {
  public:
    // A connected line to the process `pid`; throws as Exporter::connect.
    static std::shared_ptr<ExporterLine> connect(int directory, const std::string& name, uint64_t node, int32_t pid,
                                                 uint64_t start, Patience& patience);
    ~ExporterLine();
    ExporterLine(const ExporterLine&) = delete;

    // What the exporter granted before it was asked.
    std::optional<Offer> take_early(const Request& request);
    Offer open(Request request, Patience& patience);
    void let_go(uint32_t index, uint64_t nonce, TakenGrant taken);
    // Ends the connection, also while a thread still sends on it.
    void hang_up();

    const Process& process() const { return process_; }
    bool is_lost();

    static void fork_prepare();
    static void fork_parent();
    static bool fork_child();

  private:
    using Lock = std::unique_lock<std::mutex>;
    struct Received;
    class Exchange;

    explicit ExporterLine(uint64_t node) : node_(node) {}
    void obtain_socket();
    void dial(int directory, const std::string& name, int32_t pid, Patience& patience);
    void identify(int32_t pid, uint64_t start, const Patience& patience);

    GrantPage* early_page();   // null: there is none
    Offer ask(const Request& request, Patience& patience);
    void send_request(const Request& request, Patience& patience);
    std::optional<Offer> receive(const Request& request, Patience& patience);
    Offer accept(const Request& request, const Answer& answer, Received& received, const Patience& patience);
    void wait_for(short events, Patience& patience);
    [[noreturn]] void lose(int error);

    void post(const Request& request);   // without the lock
    bool flush();                        // with it; true: nothing is left
    void flush_later();

    const uint64_t node_;
    int socket_ = -1;
    Process process_;
    std::mutex mutex_;
    std::condition_variable free_;
    bool asking_ = false;                // somebody waits for an answer
    bool lost_ = false;
    bool flushing_ = false;              // a thread sends what is unsent
    uint64_t next_id_ = 1;
    std::deque<Request> unsent_;         // messages for which the socket had no room
    std::unique_ptr<GrantPage> early_;   // null: the exporter has sent none; stays when it is there
};

}  // namespace peerlane

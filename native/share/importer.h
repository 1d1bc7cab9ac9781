// The importing side of shareable handles: a connection to each exporting process.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "copy/copy_engine.h"
#include "share/frames.h"
#include "stream/scheduler.h"

namespace peerlane {

struct Offer {
    Grant grant;         // checked: kind, size, seals and rights are those of the descriptor
    uint64_t nonce = 0;  // all of it, also when 28 bits were known
    int fd = -1;         // the receiver's to close
    TakenGrant taken;
};

// A connection to one exporting process, shared by all that was imported from it.  Its end, with the last reference,
// lets go of everything.  What waits asks `poll` every 100 ms and throws Refusal: wait_timeout (role "handle"),
// interrupted, peer_lost, descriptors, system_memory, forked.
class Exporter {
  public:
    // The connection that there is, or a new one.  `start`: start time of `pid`, of which the low 32 bits count; 0: not
    // known.  Throws as above and Why::handle (other_user, foreign_namespace).
    static std::shared_ptr<Exporter> connect(int directory, const std::string& name, uint32_t slot, uint64_t node, int32_t pid,
                                             uint64_t start, Deadline deadline, Poll poll);
    // The connection that there is, if any.
    static std::shared_ptr<Exporter> known(uint32_t slot, uint64_t node, int32_t pid, uint64_t start);
    ~Exporter();
    Exporter(const Exporter&) = delete;

    // `nonce_bits`: 28 or 64 of the nonce are known.  Throws as above and Why::handle.
    Offer open(uint32_t index, uint64_t nonce, unsigned nonce_bits, Kind wanted, Deadline deadline, Poll poll);
    // What the exporter granted before it was asked; nothing: ask it.  Waits for nothing.
    std::optional<Offer> open_early(uint32_t index, uint64_t nonce, Kind wanted);
    // Undoes one open; never blocks, never throws.  One too many does nothing.
    void let_go(uint32_t index, uint64_t nonce, TakenGrant taken = {});

    int32_t pid() const;
    uint64_t start() const;
    // The process has ended; not only its socket, which a forked child keeps open.
    bool is_dead() const;
    // Nothing can be opened through it any more: the process ended, left its node, or broke the rules.
    bool is_lost() const;

    // Around fork: the child closes every connection, and its calls throw (Why::forked).
    static void fork_prepare();
    static void fork_parent();
    static bool fork_child();   // whether there was any

  private:
    explicit Exporter(std::shared_ptr<class ExporterLine> line);

    const std::shared_ptr<class ExporterLine> line_;
};

// One open of a handle; its end is reported to the process that made the handle.
class Opening {
  public:
    Opening(std::shared_ptr<Exporter> exporter, uint32_t index, const Offer& offer)
        : exporter_(std::move(exporter)), index_(index), nonce_(offer.nonce), taken_(offer.taken) {}
    Opening(Opening&&) = default;
    ~Opening() { end(); }
    void end() {
        if (const auto exporter = std::exchange(exporter_, nullptr)) exporter->let_go(index_, nonce_, taken_);
    }
    const Exporter* exporter() const { return exporter_.get(); }

  private:
    std::shared_ptr<Exporter> exporter_;   // null: it has ended
    uint32_t index_;
    uint64_t nonce_;
    TakenGrant taken_;
};

}  // namespace peerlane

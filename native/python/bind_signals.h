#pragma once
#include "python/bind.h"
#include "ranks/completions.h"
#include "ranks/late_delivery.h"
#include "ranks/turns.h"
#include "share/importer.h"
#include "share/lease.h"
#include "share/shared_signal.h"
#include "stream/channel_lines.h"

struct MembersHandle {
    std::shared_ptr<peerlane::Members> members;
};
struct TurnsHandle {
    std::shared_ptr<peerlane::Turns> turns;
};
struct CompletionsHandle {
    std::shared_ptr<peerlane::Completions> queue;
};
struct ChannelLinesHandle {
    std::shared_ptr<peerlane::ChannelLines> lines;
};
struct LeaseHandle {
    peerlane::LeasePtr lease;
};
struct LateAreaHandle {
    std::shared_ptr<peerlane::LateArea> area;
};
struct UndeliveredHandle {
    std::shared_ptr<peerlane::LateArea> area;
    std::shared_ptr<peerlane::Undelivered> by;
};
using HeldNotify = Held<peerlane::Notify>;

// What Python holds of a signal; with the owner it ends for this process.
struct SignalHandle {
    std::shared_ptr<peerlane::SharedSignal> signal;
    bool owner;
    std::shared_ptr<peerlane::Opening> opening;   // null: made by this process, or let go of

    SignalHandle(std::shared_ptr<peerlane::SharedSignal> signal, bool owner, std::shared_ptr<peerlane::Opening> opening = nullptr)
        : signal(std::move(signal)), owner(owner), opening(std::move(opening)) {}
    ~SignalHandle() {
        if (owner && !peerlane::Heap::get().is_forked()) signal->abandon();
    }
    SignalHandle(const SignalHandle&) = delete;

    // This process offers it to nobody any more and has opened it once less; what is queued with it goes on.
    void let_go() {
        const auto ending = std::move(opening);   // another thread may call this as well, once the GIL is given away
        const GilReleased gil;
        signal->abandon();
        if (ending) ending->end();
    }
};

// Outside of any stream; throws Refusal when it is doubled.
void record_now(peerlane::Notify& notify);
// Consume a record that is there, or comes while this spins, without a stream, a lock or a system call.
bool consume_now(const HeldNotify& notify, uint64_t spin_ns);
// In stream order.
void submit_notify(const StreamHandle& stream, peerlane::Notify& notify);

// The signal of an offer, whose descriptor stays the caller's.
std::shared_ptr<peerlane::SharedSignal> open_signal(const peerlane::Offer& offer, const LedgerHandle& ledger, uint32_t bank);

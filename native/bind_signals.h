#pragma once
#include "bind.h"
#include "importer.h"
#include "shared_signal.h"

using HeldNotify = Held<peerlane::Notify>;

// What Python holds of a signal; with the owner it ends for this process.
struct SignalHandle {
    std::shared_ptr<peerlane::SharedSignal> signal;
    bool owner;

    SignalHandle(std::shared_ptr<peerlane::SharedSignal> signal, bool owner) : signal(std::move(signal)), owner(owner) {}
    ~SignalHandle() {
        if (owner && !peerlane::Heap::get().is_forked()) signal->abandon();
    }
    SignalHandle(const SignalHandle&) = delete;
};

// This process offers it to nobody any more and has opened it no longer; what is queued with it goes on.  With the GIL.
inline void let_go_of(peerlane::SharedSignal& signal) {
    {
        const GilReleased gil;
        signal.abandon();
    }
    signal.keep(nullptr);
}

// The signal of an offer, whose descriptor stays the caller's.
std::shared_ptr<peerlane::SharedSignal> open_signal(const peerlane::Offer& offer, const LedgerHandle& ledger);

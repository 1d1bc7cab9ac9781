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

// The signal of an offer, whose descriptor stays the caller's.
std::shared_ptr<peerlane::SharedSignal> open_signal(const peerlane::Offer& offer, const LedgerHandle& ledger);

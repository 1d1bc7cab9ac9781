// A call of a collective as Python has it.
#pragma once
#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "memory/memory.h"
#include "ranks/collective.h"
#include "ranks/mail.h"

struct RoundsHandle {
    std::shared_ptr<peerlane::Rounds> rounds;
    std::optional<peerlane::Collective> begun;   // by run_now(), which did not end it
};
// Make a call in this thread, if nothing is unusual.  0: it was not begun; 1: it is over; 2: it was begun, and this thread has the
// turn until it is queued.
int run_now(RoundsHandle& self, peerlane::Collective::Kind kind, const peerlane::Memory* dst, const peerlane::Memory* src, uint32_t root,
            int number);

// (kind, bytes, number of the reduction, root, whether parts differ)
inline nanobind::tuple called(uint64_t word) {
    const peerlane::Collective::Said said = peerlane::Collective::said(word);
    return nanobind::make_tuple(static_cast<int>(said.kind), said.size, said.operation, said.root, said.has_parts);
}

// The messages of a rank, by peer.
struct MailsHandle {
    struct One {
        std::shared_ptr<peerlane::Mail> mail;   // null: not made yet
        std::optional<peerlane::Message> begun_out, begun_in;

        std::optional<peerlane::Message>& begun(bool sends) { return sends ? begun_out : begun_in; }
    };
    std::vector<One> of;
    std::atomic<bool> is_plain{false};          // nothing is queued
};
// As run_now() of a collective.
int run_message(MailsHandle& self, uint32_t peer, bool sends, const peerlane::Memory& memory);

// What an event log says of operations: the bytes that they touch, by block, and the notifies that they record or wait for.
#pragma once
#include <vector>

#include "log/log.h"
#include "stream/operation.h"

namespace peerlane {

struct Mark;
struct Stream;

// Of memory that is pinned.  Throws std::bad_alloc.
void add_span(log::Spans& spans, const char* host, uint64_t size, bool written);
void add_spans(log::Spans& spans, const std::vector<Piece>& pieces);
// Rows of `width` bytes, `pitch` apart.
void add_rows(log::Spans& spans, const char* host, uint64_t pitch, uint64_t width, uint64_t height, bool written);

// A notify line's bank and index: the same in all processes that have it.
struct LineAddress {
    uint64_t bank, line;   // bank 0: of this process alone
};
LineAddress line_address(const Notify& notify);

// An operation that is submitted, while it holds what it names; with the number that the checker's later events of it have.  `runs_now`: a notify,
// or a wait for one, that is one event for the checker, and not two, if it is over at once.
[[gnu::cold]] Logged log_submitted(const Stream& stream, const Op& op, uint64_t sequence, bool runs_now) noexcept;
// The checker's event of an operation that does not run at once after all.
Logged log_access(const Stream& stream, const Op& op, uint64_t sequence) noexcept;
// It starts, if it is no notify; `pieces`: the copies of a descriptor.
[[gnu::cold]] void log_started(const Stream& stream, uint64_t sequence, const Op& op, const std::vector<Piece>* pieces = nullptr) noexcept;
// It has moved `bytes` since `start_ns`.
[[gnu::cold]] void log_ended(const Stream& stream, uint64_t sequence, const Op& op, uint64_t bytes, uint64_t start_ns) noexcept;
// Logs for observers an operation of stream 0, which was complete on return.
void log_seen_now(OpKind kind, const log::Spans& spans) noexcept;
// The record, or the wait, that stream's operation `sequence` has just made; record `number` is in a notify's own count.
[[gnu::cold]] void log_notified(log::Writing& writing, const Stream& stream, uint64_t sequence, const Op& op, uint64_t number) noexcept;
// The host has made it, without a stream.
[[gnu::cold]] void log_recorded(log::Writing& writing, const Notify& notify, uint64_t number) noexcept;
[[gnu::cold]] void log_waited(const Stream& stream, uint64_t sequence, const Op& op, uint64_t number) noexcept;
// It is over, and only now it is known which bytes it touched.
void log_pieces(const Stream& stream, uint64_t sequence, const Op& op, const std::vector<Piece>* pieces) noexcept;
// The program aborted the stream's operations up to `last`.
void log_aborted(const Stream& stream, uint64_t last) noexcept;
// `has_failed`: else it never began.
void log_cancelled(const Stream& stream, uint64_t sequence, const Op& op, bool has_failed) noexcept;
// From now on the program may know of it by what is not seen: its descriptor is readable, or a word that the host polls is written.
void log_evident(uint64_t stream, uint64_t sequence) noexcept;
// The wait `sequence` fails soon: nothing can run.
void log_in_vain(const Stream& stream, uint64_t sequence) noexcept;

}  // namespace peerlane

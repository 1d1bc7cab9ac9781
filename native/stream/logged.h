// What an event log says of operations: the bytes that they touch, by block, and the notifies that they record or wait for.
#pragma once
#include <vector>

#include "log/log.h"
#include "stream/operation.h"

namespace peerlane {

struct Stream;

// Of memory that is pinned.  Throws std::bad_alloc.
void add_span(log::Spans& spans, const char* host, uint64_t size, bool written);
void add_spans(log::Spans& spans, const std::vector<Piece>& pieces);
// Rows of `width` bytes, `pitch` apart.
void add_rows(log::Spans& spans, const char* host, uint64_t pitch, uint64_t width, uint64_t height, bool written);

// A line's bank and place: the same in all processes that have it.
struct LinePlace {
    uint64_t bank, line;   // bank 0: of this process alone
};
LinePlace place_of(const Notify& notify);

// An operation that is submitted, while it holds what it names; what it is told of the log from then on.
Logged log_submitted(const Stream& stream, const Op& op, uint64_t sequence) noexcept;
// A notify that is logged as another stream's, which is submitted already.
Logged log_as_another(const Stream& stream, uint64_t sequence) noexcept;
// The record, or the wait, that stream's operation `sequence` has just made; record `number` is in a notify's own count.
void log_notified(log::Writing& writing, const Stream& stream, uint64_t sequence, const Op& op, uint64_t number) noexcept;
void log_waited(const Stream& stream, uint64_t sequence, const Op& op, uint64_t number) noexcept;
// It is over, and only now it is known which bytes it touched.
void log_pieces(const Stream& stream, uint64_t sequence, const Op& op, const std::vector<Piece>* pieces) noexcept;
void log_cancelled(const Stream& stream, uint64_t sequence, const Op& op) noexcept;
// The wait `sequence` fails soon: nothing can run.
void log_in_vain(const Stream& stream, uint64_t sequence) noexcept;

}  // namespace peerlane

// What event logs have of channels to other machines.
//
// A bank of notifies and the places of memories have names that are unique among machines, so each side tells what it does by
// itself.  Only the number of a record is the target's alone: the frame says which operation of the sender's log makes it.
#include <algorithm>

#include "net/far.h"
#include "stream/logged.h"

namespace peerlane::net {

uint64_t bank_of(uint64_t process, uint64_t number) {
    uint64_t mixed = process ^ number * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 33) * 0xff51afd7ed558ccdu;
    return (mixed ^ mixed >> 33) | 1;   // not 0, which means a notify of one process
}

std::vector<log::Span> FarChannel::peer_spans_of(uint32_t memory, uint64_t at, uint64_t size) const {
    std::vector<log::Span> spans;
    if (memory >= peer_spans_.size()) return spans;   // the peer has no log
    for (const log::Span& span : peer_spans_[memory]) {
        if (size == 0) break;
        if (at >= span.size) {
            at -= span.size;
            continue;
        }
        const uint64_t part = std::min(size, span.size - at);
        spans.push_back({span.block, span.offset + at, part});
        at = 0;
        size -= part;
    }
    return spans;
}

void FarOp::describe(log::Event& event, log::Spans& spans) {
    if (verb == Verb::notify) {
        logged_stream = event.stream;
        logged_sequence = event.sequence;
        event.kind = log::Kind::notify;
        event.op = static_cast<uint8_t>(OpKind::notify);
        event.a = channel->peer_bank();
        event.b = notify - 1;
        event.d = log::context.channel;
        return;
    }
    const bool reads = verb == Verb::read;
    const auto touch = [&](char* mine, uint64_t remote, uint64_t bytes) {
        for (const log::Span& span : channel->peer_spans_of(memory, remote, bytes)) spans.add(span.block, span.offset, span.size, !reads);
        add_span(spans, mine, bytes, reads);
    };
    event.op = static_cast<uint8_t>(verb == Verb::reduce ? OpKind::reduce : blocks.empty() ? OpKind::copy : OpKind::batch);
    for (const Block& block : blocks) touch(block.local, block.remote, block.size);
    if (blocks.empty()) touch(local, at, size);
}

}  // namespace peerlane::net

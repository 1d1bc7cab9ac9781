// What the bindings of copies have in common: operands from Python's memory, and Ctrl-C.
#pragma once
#include "python/bind.h"

inline peerlane::Operand readable(const peerlane::Memory& memory) {
    return {"src", memory.last_address(), memory.size(), memory.pin()};
}
inline peerlane::Operand writable(const peerlane::Memory& memory) {
    return {"dst", memory.last_address(), memory.size(), memory.pin_writable()};
}

// The span of a pitched rectangle, which must lie in the operand.
inline uint64_t checked_span(const peerlane::Operand& operand, uint64_t pitch, uint64_t width, uint64_t height) {
    const uint64_t span = peerlane::pitched_span(operand.role, pitch, width, height);
    if (span > operand.size)
        throw peerlane::Refusal{.why = peerlane::Why::out_of_bounds, .role = operand.role, .address = operand.address,
                                .size = span, .within = {.base = operand.address, .size = operand.size},
                                .device = operand.range().device};
    return span;
}

// What `submit` keeps alive: the ends that are foreign memory.
nanobind::object kept(nanobind::handle dst, nanobind::handle src);
// Give an operation its ends; throws Refusal if the stream's device may not reach them.
void hold(const peerlane::Stream& stream, peerlane::Op& op, const peerlane::Range& dst, const peerlane::Range& src);
// On success the operation owns its pins and keeps `keep` alive; else nothing has happened.
void submit(const StreamHandle& stream, peerlane::Op& op, nanobind::handle keep);
// The same, of a copy whose pins the operands have.
void submit_move(const StreamHandle& stream, peerlane::Op op, peerlane::Operand& dst, peerlane::Operand& src, nanobind::handle keep);
// All of `src`, which is as long; without a stream it is complete on return.
void move_memory(const StreamHandle* stream, const peerlane::Memory& dst, const peerlane::Memory& src,
                 nanobind::handle dst_object, nanobind::handle src_object);
// Of no bytes: refuses as `submit` does.
void submit_nothing(const StreamHandle& stream);
// Complete on return.  `table`: where its list lies, if it has one.
void run_now(peerlane::Batch& batch, const peerlane::Operand* table);

// Run what gives the GIL away and may be interrupted: then the signal handler's exception is what Python sees.
template <class Work>
auto interruptible(const Work& work) {
    try {
        const GilReleased gil;
        return work(poll_of_thread());
    } catch (const peerlane::Refusal& refusal) {
        if (refusal.why == peerlane::Why::interrupted) throw nanobind::python_error();
        throw;
    }
}

// By the number that Python knows it by; throws std::out_of_range.
inline const peerlane::Reduction& reduction_numbered(unsigned number) {
    return peerlane::reductions().at(number / peerlane::kCombines)[number % peerlane::kCombines];
}

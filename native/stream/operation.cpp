#include "stream/operation.h"

#include "stream/notify.h"

namespace peerlane {

namespace {
constexpr uint64_t kMostSpares = 4096;   // 16 MiB
}

const char* name_of(OpKind kind) {
    constexpr const char* kNames[] = {"copy", "copy_2d", "write_value", "fill", "reduce", "free", "batch", "descriptor",
                                      "record", "wait", "notify", "wait_notify", "callback", "wait_value", "far", "collective", "file"};
    static_assert(std::size(kNames) == static_cast<size_t>(OpKind::file) + 1);
    return kNames[static_cast<int>(kind)];
}

// HIP's hipStreamWaitValue takes the first four, acl's value_wait `since` and the three behind `geq`.
bool ValueWait::is_satisfied(uint64_t word, unsigned width) const {
    const uint64_t present = word & mask;
    switch (compare) {
        case Compare::geq:
            return present >= value;
        case Compare::eq:
            return present == value;
        case Compare::mask_and:
            return (present & value) != 0;
        case Compare::since:
            return static_cast<int64_t>((present - value) << (64 - 8 * width)) >= 0;
        default:
            return (~(present | (value & mask)) & mask) != 0;
    }
}

Task plan_move(const Op& op, bool staged) {
    if (op.kind == OpKind::reduce) return plan_reduce(op.dst, op.src, op.size, *op.reduction, staged);
    return plan_copy(op.dst, op.src, op.size, staged);
}

Ends ends_of(const Op& op) {
    const auto address = [](const char* host, const Extent* extent) {
        const auto at = reinterpret_cast<uintptr_t>(host);
        if (!extent) return static_cast<uint64_t>(at);
        const Heap& heap = Heap::get();
        return heap.address_of(extent) + (at - reinterpret_cast<uintptr_t>(heap.host_of(extent, 0)));
    };
    const auto id = [](const Extent* extent) { return extent ? extent->id.load(std::memory_order_relaxed) : 0; };
    const bool names_notify = op.kind == OpKind::notify || op.kind == OpKind::wait_notify || op.kind == OpKind::stepwise;
    if (names_notify) return {.notify = op.notify ? op.notify->id : 0};
    const bool names_memory = op.kind <= OpKind::reduce || op.kind == OpKind::descriptor || op.kind == OpKind::wait_value;
    if (!names_memory) return {};
    Ends ends{.dst = address(op.dst, op.dst_extent), .dst_id = id(op.dst_extent), .size = op.size};
    if (op.kind == OpKind::copy || op.kind == OpKind::copy_2d || op.kind == OpKind::reduce) {
        ends.src = address(op.src, op.src_extent);
        ends.src_id = id(op.src_extent);
    }
    if (op.kind == OpKind::copy_2d) {
        const auto& shape = static_cast<const Rectangle&>(*op.extra);
        ends.size = shape.width;
        ends.rows = shape.height;
    }
    return ends;
}

OpQueue::Chunk* OpQueue::spare_ = nullptr;
uint64_t OpQueue::spares_ = 0;

OpQueue::Chunk* OpQueue::take() {
    if (!spare_) return new Chunk;
    Chunk* chunk = spare_;
    spare_ = chunk->next;
    chunk->next = nullptr;
    --spares_;
    return chunk;
}

void OpQueue::give(Chunk* chunk) {
    if (spares_ == kMostSpares) {
        delete chunk;
        return;
    }
    chunk->next = spare_;
    spare_ = chunk;
    ++spares_;
}

OpQueue::~OpQueue() {
    while (head_) {
        Chunk* next = head_->next;
        delete head_;
        head_ = next;
    }
}

Op& OpQueue::push(const Op& op, uint64_t site) {
    const uint64_t at = (first_ + count_) % kPerChunk;
    if (!head_) {
        head_ = tail_ = take();
        first_ = 0;
    } else if (count_ != 0 && at == 0) {
        Chunk* fresh = take();
        tail_->next = fresh;
        tail_ = fresh;
    }
    tail_->sites[at] = site;
    Op& slot = tail_->ops[at];
    slot = op;
    ++count_;
    return slot;
}

void OpQueue::pop(uint64_t n) {
    first_ += n;
    count_ -= n;
    if (first_ != kPerChunk && count_ != 0) return;
    Chunk* done = head_;
    head_ = done->next;
    first_ = 0;
    if (!head_) tail_ = nullptr;
    give(done);
}

}  // namespace peerlane

// Operations, and the queue of a stream.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "copy/task.h"

namespace peerlane::log {
class Spans;
}

namespace peerlane {

enum class OpKind : uint8_t {
    copy, copy_2d, write_value, fill, reduce, free, batch, descriptor, record, wait, notify, wait_notify, callback, wait_value, far,
    stepwise, file
};

const char* name_of(OpKind kind);

// Whether the event log has an operation.
enum class Logged : uint8_t { no, submitted, when_it_runs, as_another };

// The data of an operation beyond its 64 bytes.
struct Extra {
    virtual ~Extra() = default;
};

struct Rectangle : Extra {
    uint64_t dst_pitch, src_pitch, width, height;
};

enum class Compare : uint8_t { geq, eq, mask_and, nor, since };

// A wait until a word of memory satisfies a comparison.
struct ValueWait : Extra {
    uint64_t value, mask, timeout_ns;   // 0: for ever
    Compare compare;

    bool is_satisfied(uint64_t word, unsigned width) const;
};

// A list of copies, and the ranges that it holds pinned: each once for neighbouring entries of one allocation.
struct Batch : Extra {
    std::vector<Piece> pieces;
    std::vector<Range> pins;
    uint32_t actor = kHost;   // the stream's device
    ~Batch() override {
        for (const Range& range : pins) Heap::get().unpin(range);
    }
};

// Copies between memory and files: each of its pieces has one end.
struct FileBatch : Batch {
    std::shared_ptr<FileCopies> copies;
};

struct Notify;

// An operation that goes on, step by step, until it is over or must wait for another process.
struct Stepwise : Extra {
    enum class Step : uint8_t { over, waits, goes_on, failed };

    // Until it is over, fails or must wait, but not much longer than it takes to move kChunk bytes.  Without the scheduler's lock.
    virtual Step advance(Refusal& why) = 0;
    virtual bool has_come() { return true; }   // what it waits for
    virtual bool is_brief() const { return true; }
    struct Touched {
        const char* host;
        uint64_t size;
    };
    virtual Touched written() const { return {}; }   // pinned
    virtual Touched read() const { return {}; }
    virtual void add_spans(log::Spans& spans) const;   // for the event log: those two
    // Bytes that are known only when it begins; it has one step.
    virtual bool has_late_spans() const { return false; }
    virtual void add_late_spans(log::Spans&) const {}
    // Bytes that the program may not touch before it knows that the operation is over, if they are the host's.
    struct TouchedRows {
        const char* host;
        uint64_t pitch, width, height;
        bool is_written;
    };
    virtual std::vector<TouchedRows> watched() const { return {}; }
    virtual bool may_wait() const { return true; }   // for another process, or for the host
    bool leaves_core = false;                  // while it waits, as threads of peers have use for it
    bool touches_host = false;                 // memory that is not the library's own, and may fault
    Notify* awaited = nullptr;                 // while it waits: the line, whose records it looks past
};

// A function in C of the program, and the words that it is called with.
struct HostCall {
    uint64_t code = 0;
    std::array<uint64_t, 3> words{};
    bool has_many = false;                     // else only the first is passed

    // An exception that leaves it ends the program.
    void operator()() const noexcept {
        if (has_many) {
            reinterpret_cast<void (*)(uint64_t, uint64_t, uint64_t)>(code)(words[0], words[1], words[2]);
        } else {
            reinterpret_cast<void (*)(uint64_t)>(code)(words[0]);
        }
    }
};

struct Mark;
struct Op;
struct Stream;
class CallbackQueue;

// One cache line: a million of them may be queued.
struct Op {
    OpKind kind = OpKind::copy;
    bool direct = false;            // refuse instead of staging
    uint8_t width = 1;              // fill, values: bytes of an element; wait_notify: 0 consumes nothing
    Logged logged = Logged::no;
    uint32_t phase = 0;             // of the stream's group
    union {
        char* dst = nullptr;
        Notify* notify;             // held; stepwise: the line that it waits for, its own
        CallbackQueue* callbacks;   // held
    };
    Extent* dst_extent = nullptr;   // pinned
    union {
        const char* src = nullptr;
        const HostCall* call;       // callback: owned; null: a function of Python's
        uint64_t timeout_ns;        // wait, wait_notify, stepwise: 0 is for ever
        Op* next;                   // notify: the next in the list of operations that will record the line
    };
    Extent* src_extent = nullptr;   // pinned
    union {
        uint64_t size = 0;          // bytes; rectangles: of the destination's span; wait: how many operations belong to it
        Stream* recorder;           // notify: the stream that has it queued
    };
    union {
        uint64_t value = 0;         // fill, write_value; free: the allocation's id; callback: its token
        Extra* extra;               // owned
        const Reduction* reduction; // reduce: never freed
        Mark* mark;                 // held
        Op* previous;               // notify: as next
    };
    void* keep = nullptr;           // a Python object; released by a later Python call

    bool owns_extra() const {
        return kind == OpKind::copy_2d || is_batch() || kind == OpKind::wait_value || kind == OpKind::far || kind == OpKind::stepwise;
    }
    bool is_batch() const { return kind == OpKind::batch || kind == OpKind::descriptor || kind == OpKind::file; }
    bool moves_bytes() const { return kind <= OpKind::reduce || is_batch(); }
    Range dst_range() const { return range(dst, dst_extent, size); }
    Range src_range() const { return range(src, src_extent, src_size()); }
    // A rectangle's two spans may differ.  Unpinning the source by the destination's would release other pins.
    uint64_t src_size() const {
        if (kind != OpKind::copy_2d) return size;
        const auto& shape = static_cast<const Rectangle&>(*extra);
        return pitched_span("src", shape.src_pitch, shape.width, shape.height);
    }

  private:
    static Range range(const char* host, Extent* extent, uint64_t size) {
        if (!extent) return {.host = const_cast<char*>(host)};
        if (!extent->mapping) return {const_cast<char*>(host), extent, 0, extent->device};
        const uint64_t offset = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(host)) -
                                Heap::get().space().shadow_base();
        return {const_cast<char*>(host), extent, offset + size, extent->device};
    }
};

static_assert(sizeof(Op) == 64);

// A copy or a reduction.
Task plan_move(const Op& op, bool staged);

// The operands of a failed operation, for its text: the program's addresses and the allocations; or a notify.
struct Ends {
    uint64_t dst = 0, dst_id = 0, src = 0, src_id = 0, size = 0;
    uint64_t rows = 0;                  // of `size` bytes each; 0: it is not a rectangle
    uint64_t notify = 0;                // the id of the notify that it records or waits for
};
// To be called while the operation holds its pins.
Ends ends_of(const Op& op);

// A first-in, first-out queue; operations do not move until they are popped.  The scheduler's lock guards it, but not the
// operations themselves.  Each has the number of the line that submitted it, 0 if that was not noted.
class OpQueue {
  public:
    OpQueue() = default;
    ~OpQueue();
    OpQueue(const OpQueue&) = delete;
    OpQueue& operator=(const OpQueue&) = delete;

    bool empty() const { return count_ == 0; }
    uint64_t size() const { return count_; }
    Op& front() { return head_->ops[first_]; }
    const Op& front() const { return head_->ops[first_]; }
    // Operations that are contiguous in memory from the front on, at least one.
    uint64_t contiguous() const { return std::min<uint64_t>(count_, kPerChunk - first_); }
    uint64_t site(uint64_t i) const { return head_->sites[first_ + i]; }   // one of the contiguous()
    Op& push(const Op& op, uint64_t site);    // throws std::bad_alloc
    void pop(uint64_t n);      // at most contiguous()

    template <class Visit>
    void each(const Visit& visit) const {
        const Chunk* chunk = head_;
        uint64_t at = first_;
        for (uint64_t i = 0; i < count_; ++i, ++at) {
            if (at == kPerChunk) {
                chunk = chunk->next;
                at = 0;
            }
            visit(i, chunk->ops[at]);
        }
    }

    // From operation `first` on, as long as the visit says so.
    template <class Visit>
    void each_from(uint64_t first, const Visit& visit) const {
        const Chunk* chunk = head_;
        uint64_t at = first_ + first;
        for (; at >= kPerChunk && first < count_; at -= kPerChunk) chunk = chunk->next;
        for (uint64_t i = first; i < count_; ++i, ++at) {
            if (at == kPerChunk) {
                chunk = chunk->next;
                at = 0;
            }
            if (!visit(i, chunk->ops[at])) return;
        }
    }

  private:
    static constexpr uint64_t kPerChunk = 56;
    struct Chunk {
        Chunk* next = nullptr;
        uint64_t sites[kPerChunk];
        Op ops[kPerChunk];
    };
    static Chunk* spare_;          // under the scheduler's lock too
    static uint64_t spares_;

    static Chunk* take();
    static void give(Chunk* chunk);

    Chunk* head_ = nullptr;
    Chunk* tail_ = nullptr;
    uint64_t first_ = 0, count_ = 0;
};

}  // namespace peerlane

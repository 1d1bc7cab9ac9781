// Data movement cut into steps: what copies, fills and batches are made of, synchronous or queued.
#pragma once
#include <cstdint>
#include <vector>

#include "copy/file_copies.h"
#include "copy/reduce_kernels.h"
#include "memory/fault_guard.h"
#include "memory/heap.h"

namespace peerlane {

constexpr uint64_t kChunk = uint64_t{1} << 20;       // granularity of deadlines and cancellation
constexpr uint64_t kStreamFrom = uint64_t{16} << 20;  // from here on the caches are bypassed
constexpr uint64_t kTeamFrom = uint64_t{4} << 20;     // from here on more threads pay for their wake-up

// One operand as an error text needs it.
struct Side {
    const char* role = "";
    uint64_t address = 0, size = 0;
    const char* host = nullptr;
    bool pageable = false;
    uint32_t device = kHost;
};

// One entry of a batch, resolved; an end in a file is null.
struct Piece {
    char* dst;
    const char* src;
    uint64_t size;
    bool staged;
};

// Steps 0 to `steps` - 1; each touches at most about kChunk bytes.  A step runs under a fault guard, owns nothing
// and may be run by any thread: by several at a time if `parallel`, else in order.
struct Task {
    enum class Kind : uint8_t { none, bytes, rows, long_rows, fill, pieces, files, reduce };

    Kind kind = Kind::none;
    bool parallel = false;
    bool streams = false;     // past the caches: who ran a step calls store_fence() before the bytes are published
    bool backwards = false;   // the destination overlaps the source from above
    bool staged = false;      // through the calling thread's own buffer
    uint32_t pattern = 0;
    uint64_t steps = 0;
    char* dst = nullptr;
    const char* src = nullptr;
    uint64_t size = 0;        // bytes; of a row, if there are rows
    uint64_t height = 1, dst_pitch = 0, src_pitch = 0;
    uint64_t per_step = 1;    // rows, pieces
    const std::vector<Piece>* pieces = nullptr;
    FileCopies* files = nullptr;
    const Reduction* reduction = nullptr;

    void step(uint64_t i) const;
    void run() const {   // all steps
        for (uint64_t i = 0; i < steps; ++i) step(i);
    }

  private:
    void move(char* to, const char* from, uint64_t n) const;
    void step_rows(uint64_t i) const;
    void step_pieces(uint64_t i) const;
    void step_reduction(uint64_t i) const;
};

// Make the calling thread able to run a staged task; throws std::bad_alloc.
void prepare_staging();

bool looks_staged(const Range& dst, const Range& src, bool direct);   // of two devices, or of mappings
// True when the bytes must go through the host; refuses when that is not wanted (`direct`).
inline bool needs_staging(const Range& dst, const Range& src, bool direct) {
    if (!dst.extent || !src.extent) return false;
    const bool are_apart = dst.extent->device != src.extent->device || dst.extent->mapping || src.extent->mapping;
    return are_apart && looks_staged(dst, src, direct);
}

Task plan_copy(char* dst, const char* src, uint64_t size, bool staged);
Task plan_copy_2d(char* dst, uint64_t dst_pitch, const char* src, uint64_t src_pitch, uint64_t width, uint64_t height,
                  bool staged);
Task plan_fill(char* dst, uint64_t value, unsigned width, uint64_t size);
Task plan_reduce(char* dst, const char* src, uint64_t size, const Reduction& reduction, bool staged);
// Cuts pieces that are longer than a step.  Pieces must not overlap one another.
Task plan_pieces(std::vector<Piece>& pieces);
// `pieces`: the files' memory, for the text of a fault.
Task plan_files(FileCopies& files, const std::vector<Piece>& pieces);

// The bytes from the first to the last of a pitched rectangle; throws Refusal when that wraps.
uint64_t pitched_span(const char* role, uint64_t pitch, uint64_t width, uint64_t height);

// An operand known by its host pointer only, as error texts want it; it must be pinned.
Side side_at(const char* role, const char* host, uint64_t size);

// Refuses a long range of host memory with no page at an end, before a byte is touched: who passes a pointer as a size would
// otherwise have everything between overwritten, up to the first page that faults.
void check_ends(const Side* sides, unsigned count);

// What to say of a fault while `sides` were touched, or a task's pieces.
Refusal explain_fault(const Fault& fault, const Side* sides, unsigned count);
Refusal explain_fault(const Fault& fault, const Task& task, const Side* sides, unsigned count);

}  // namespace peerlane

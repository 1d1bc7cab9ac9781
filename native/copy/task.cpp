#include "copy/task.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "copy/kernels.h"
#include "copy/reduction.h"

namespace peerlane {

namespace {

// Destructors of the program may copy when the objects of their thread have ended: the pointer stays.
thread_local char* staging = nullptr;

struct Ending {
    ~Ending() { delete[] std::exchange(staging, nullptr); }
};

bool overlaps(const char* a, const char* b, uint64_t size) {
    return static_cast<uint64_t>(a - b) < size || static_cast<uint64_t>(b - a) < size;
}

uint64_t chunks(uint64_t size) { return (size + kChunk - 1) / kChunk; }
uint64_t chunk_size(uint64_t i, uint64_t size) { return std::min(kChunk, size - i * kChunk); }

// User space of x86-64 and aarch64: beyond it a touch faults without telling where.
bool is_canonical(uint64_t address) { return address >> 47 == 0; }

// A bus error: the page is mapped, and its file has none to give.
int error_of(const Fault& fault) { return fault.signal == SIGBUS ? EIO : fault.is_denied ? EACCES : 0; }

}  // namespace

void prepare_staging() {
    static thread_local const Ending ending;
    if (!staging) staging = new char[kChunk];
}

namespace {

bool is_staged(const Extent& dst, const Extent& src, bool direct) {
    if (dst.device == src.device || dst.device == kHost || src.device == kHost) return false;
    Why why;
    if (Heap::get().may_go_direct(dst, src, direct, why)) return false;
    if (direct) throw Refusal{.why = why, .role = "dst", .device = dst.device, .other_device = src.device};
    return true;
}

}  // namespace

bool looks_staged(const Range& dst, const Range& src, bool direct) {
    if (!dst.extent->mapping && !src.extent->mapping) [[likely]] return is_staged(*dst.extent, *src.extent, direct);
    bool staged = false;   // blocks of several devices may lie side by side
    Heap::get().each_extent(dst, [&](const Extent* to) {
        Heap::get().each_extent(src, [&](const Extent* from) { staged |= is_staged(*to, *from, direct); });
    });
    return staged;
}

void Task::move(char* to, const char* from, uint64_t n) const {
    if (staged) {
        memcpy(staging, from, n);
        memcpy(to, staging, n);
    } else if (streams) {
        stream_copy(to, from, n);
    } else if (parallel) {
        memcpy(to, from, n);
    } else {
        memmove(to, from, n);
    }
}

void Task::step(uint64_t i) const {
    switch (kind) {
        case Kind::bytes: {
            const uint64_t at = backwards ? steps - 1 - i : i;
            move(dst + at * kChunk, src + at * kChunk, chunk_size(at, size));
            return;
        }
        case Kind::fill:
            fill_pattern(dst + i * kChunk, pattern, chunk_size(i, size));
            return;
        case Kind::pieces:
            step_pieces(i);
            return;
        case Kind::files:
            files->step(i);
            return;
        case Kind::reduce:
            step_reduction(i);
            return;
        case Kind::rows:
        case Kind::long_rows:
            step_rows(i);
            return;
        case Kind::none:
            return;
    }
}

void Task::step_rows(uint64_t i) const {
    if (kind == Kind::long_rows) {
        const uint64_t n = backwards ? steps - 1 - i : i;
        const uint64_t row = n / per_step, at = n % per_step;
        move(dst + row * dst_pitch + at * kChunk, src + row * src_pitch + at * kChunk, chunk_size(at, size));
        return;
    }
    for (uint64_t n = i * per_step; n < std::min((i + 1) * per_step, height); ++n) {
        const uint64_t row = backwards ? height - 1 - n : n;
        move(dst + row * dst_pitch, src + row * src_pitch, size);
    }
}

void Task::step_pieces(uint64_t i) const {
    const Piece* const all = pieces->data();
    const uint64_t end = std::min<uint64_t>((i + 1) * per_step, pieces->size());
    for (uint64_t n = i * per_step; n < end; ++n) {
        const Piece& piece = all[n];
        if (n + 1 < end) __builtin_prefetch(all[n + 1].src);
        if (piece.staged) {
            memcpy(staging, piece.src, piece.size);
            memcpy(piece.dst, staging, piece.size);
        } else {
            memmove(piece.dst, piece.src, piece.size);
        }
    }
}

// Steps end where chunks of host addresses do: so those into the same bytes meet in few locks, and neighbours in none.
void Task::step_reduction(uint64_t i) const {
    const uint64_t before = reinterpret_cast<uintptr_t>(dst) % kChunk;
    const uint64_t begin = i == 0 ? 0 : i * kChunk - before, end = std::min((i + 1) * kChunk - before, size);
    const char* from = src + begin;
    if (staged) from = static_cast<const char*>(memcpy(staging, from, end - begin));
    reduce_alone(*reduction, dst + begin, from, end - begin);
}

Task plan_reduce(char* dst, const char* src, uint64_t size, const Reduction& reduction, bool staged) {
    Task task;
    task.kind = size ? Task::Kind::reduce : Task::Kind::none;
    task.dst = dst;
    task.src = src;
    task.size = size;
    task.steps = chunks(reinterpret_cast<uintptr_t>(dst) % kChunk + size);
    task.staged = staged;
    task.parallel = size >= kTeamFrom;
    task.reduction = &reduction;
    return task;
}

Task plan_copy(char* dst, const char* src, uint64_t size, bool staged) {
    Task task;
    const bool disjoint = !overlaps(dst, src, size);
    task.kind = size ? Task::Kind::bytes : Task::Kind::none;
    task.dst = dst;
    task.src = src;
    task.size = size;
    task.steps = chunks(size);
    task.staged = staged;
    task.backwards = !disjoint && dst > src;
    task.parallel = disjoint && size >= kTeamFrom;
    task.streams = disjoint && !staged && size >= kStreamFrom && has_stream_copy();
    return task;
}

Task plan_copy_2d(char* dst, uint64_t dst_pitch, const char* src, uint64_t src_pitch, uint64_t width, uint64_t height,
                  bool staged) {
    if (width == 0 || height == 0) return {};
    if (width == dst_pitch && width == src_pitch) return plan_copy(dst, src, width * height, staged);
    const uint64_t span = (height - 1) * std::max(dst_pitch, src_pitch) + width;
    Task task = plan_copy(dst, src, span, staged);
    task.size = width;
    task.height = height;
    task.dst_pitch = dst_pitch;
    task.src_pitch = src_pitch;
    task.streams &= width >= kChunk;
    if (width > kChunk) {
        task.kind = Task::Kind::long_rows;
        task.per_step = chunks(width);
        task.steps = height * task.per_step;
    } else {
        // A row costs at least the misses of its two ends, however narrow it is.
        task.kind = Task::Kind::rows;
        task.per_step = kChunk / std::max<uint64_t>(width, 256);
        task.steps = (height + task.per_step - 1) / task.per_step;
    }
    return task;
}

Task plan_fill(char* dst, uint64_t value, unsigned width, uint64_t size) {
    Task task;
    task.kind = size ? Task::Kind::fill : Task::Kind::none;
    task.dst = dst;
    task.size = size;
    task.steps = chunks(size);
    task.parallel = size >= kTeamFrom;
    task.pattern = static_cast<uint32_t>(value);
    if (width == 1) task.pattern = (task.pattern & 0xFF) * 0x01010101u;
    if (width == 2) task.pattern = (task.pattern & 0xFFFF) * 0x00010001u;
    return task;
}

Task plan_pieces(std::vector<Piece>& pieces) {
    uint64_t total = 0, longest = 0;
    for (const Piece& piece : pieces) {
        total += piece.size;
        longest = std::max(longest, piece.size);
    }
    if (longest > kChunk) {
        std::vector<Piece> cut;
        for (const Piece& piece : pieces) {
            const bool whole = overlaps(piece.dst, piece.src, piece.size);   // memmove needs all of it
            if (whole && !piece.staged) {
                cut.push_back(piece);
                continue;
            }
            for (uint64_t at = 0; at < piece.size; at += kChunk)
                cut.push_back({piece.dst + at, piece.src + at, std::min(kChunk, piece.size - at), piece.staged});
        }
        pieces.swap(cut);
    }
    Task task;
    if (total == 0) return task;
    task.kind = Task::Kind::pieces;
    task.pieces = &pieces;
    task.size = total;
    const uint64_t average = std::max<uint64_t>(total / pieces.size(), 256);
    task.per_step = std::max<uint64_t>(kChunk / average, 1);
    task.steps = (pieces.size() + task.per_step - 1) / task.per_step;
    task.parallel = total >= kTeamFrom;
    for (const Piece& piece : pieces) task.staged |= piece.staged;
    return task;
}

Task plan_files(FileCopies& files, const std::vector<Piece>& pieces) {
    Task task;
    task.kind = files.steps() ? Task::Kind::files : Task::Kind::none;
    task.files = &files;
    task.pieces = &pieces;
    task.size = files.size();
    task.steps = files.steps();
    task.parallel = files.is_for_many();
    return task;
}

uint64_t pitched_span(const char* role, uint64_t pitch, uint64_t width, uint64_t height) {
    uint64_t span;
    if (__builtin_mul_overflow(pitch, height - 1, &span) || __builtin_add_overflow(span, width, &span))
        throw Refusal{.why = Why::pitch_overflow, .role = role, .pitch = {.rows = height, .bytes = pitch}};
    return span;
}

void check_ends(const Side* sides, unsigned count) {
    static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    for (const Side* side = sides; side != sides + count; ++side) {
        if (!side->pageable || side->size < kChunk) continue;
        for (const uint64_t end : {side->address, side->address + side->size - 1}) {
            unsigned char resident;
            if (mincore(reinterpret_cast<void*>(end & ~(page - 1)), 1, &resident) != 0 && errno == ENOMEM)
                throw Refusal{.why = Why::host_fault, .role = side->role, .address = side->address, .size = side->size,
                              .fault_address = end};
        }
    }
}

Refusal explain_fault(const Fault& fault, const Side* sides, unsigned count) {
    const uintptr_t address = fault.address;
    const Side* culprit = nullptr;
    for (const Side* side = sides; side != sides + count; ++side)
        if (address - reinterpret_cast<uintptr_t>(side->host) < side->size) culprit = side;
    for (const Side* side = sides; side != sides + count; ++side)
        if (!culprit && side->pageable && !is_canonical(side->address + side->size - 1)) culprit = side;
    if (!culprit) culprit = sides;
    return {.why = culprit->pageable ? Why::host_fault : Why::device_fault, .role = culprit->role,
            .address = culprit->address, .size = culprit->size,
            .fault_address = culprit->pageable ? address : 0, .error = culprit->pageable ? error_of(fault) : 0,
            .device = culprit->device};
}

Side side_at(const char* role, const char* host, uint64_t size) {
    const Heap& heap = Heap::get();
    const auto at = reinterpret_cast<uint64_t>(host);
    Side side{role, at, size, host, true, kHost};
    const uint64_t offset = at - heap.space().shadow_base();
    if (!heap.space().is_open() || offset >= heap.space().window()) return side;
    side.pageable = false;
    uint64_t within;
    if (const Extent* extent = heap.extent_of_host(offset, within)) {
        side.address = heap.address_of(extent) + within;
        side.device = extent->device;
    }
    return side;
}

Refusal explain_fault(const Fault& fault, const Task& task, const Side* sides, unsigned count) {
    if (!task.pieces) return explain_fault(fault, sides, count);
    const uintptr_t address = fault.address;
    const Piece* culprit = &task.pieces->front();
    for (const Piece& piece : *task.pieces)
        if (address - reinterpret_cast<uintptr_t>(piece.dst) < piece.size ||
            address - reinterpret_cast<uintptr_t>(piece.src) < piece.size)
            culprit = &piece;
    const Side culprit_sides[] = {side_at("dst", culprit->dst, culprit->size), side_at("src", culprit->src, culprit->size)};
    return explain_fault(fault, culprit_sides, 2);
}

}  // namespace peerlane

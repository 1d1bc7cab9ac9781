#include "ranks/group_call.h"

namespace peerlane {

namespace {

constexpr unsigned kKindBits = 4, kOperationBits = 6, kRootBits = 10, kSizeBits = 43;
constexpr unsigned kRootAt = kKindBits + kOperationBits, kHasPartsAt = kRootAt + kRootBits;

uint64_t hash_of(const std::vector<uint64_t>& sizes) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint64_t each : sizes) hash = (hash ^ each) * 0x100000001b3 ^ hash >> 29;
    return hash;
}

}  // namespace

bool GroupCall::take_size(uint32_t rank, uint64_t ranks) {
    const uint64_t into = dst_size, from = src_size;
    const bool is_apart = dst.host >= src.host + from || src.host >= dst.host + into;
    switch (kind) {
        case Kind::barrier:
            return true;
        case Kind::broadcast:
            size = rank == root ? from : into;
            return true;
        case Kind::all_gather:
            size = from;
            return into == from * ranks && (is_apart || src.host == dst.host + rank * from);
        case Kind::reduce_scatter:
            size = into;
            return from == into * ranks && (is_apart || dst.host == src.host + rank * into);
        case Kind::all_to_all:
            size = from / ranks;
            return into == from && from % ranks == 0 && is_apart;
        case Kind::scatter:
            size = into;
            return rank != root || (from == into * ranks && (is_apart || dst.host == src.host + rank * into));
        default:
            size = from;
            return (kind == Kind::reduce && rank != root) || (into == from && (is_apart || dst.host == src.host));
    }
}

bool GroupCall::has_whole_elements() const {
    if (!reduction) return true;
    const uint64_t addresses = reinterpret_cast<uintptr_t>(dst.host) | reinterpret_cast<uintptr_t>(src.host);
    return (size | addresses) % reduction->width == 0;   // a power of two
}

uint64_t GroupCall::word() const {
    const uint64_t bytes = sizes.empty() ? size : is_by_pairs() ? 0 : hash_of(sizes);
    uint64_t word = static_cast<uint64_t>(kind);
    word |= uint64_t{operation} << kKindBits;
    word |= uint64_t{root} << kRootAt;
    word |= uint64_t{!sizes.empty()} << kHasPartsAt;
    return word | bytes << (64 - kSizeBits);
}

GroupCall::Summary GroupCall::summary(uint64_t word) {
    const bool has_parts = word >> kHasPartsAt & 1;
    return {.kind = static_cast<Kind>(word & ((1 << kKindBits) - 1)),
            .operation = static_cast<unsigned>(word >> kKindBits & ((1 << kOperationBits) - 1)),
            .root = static_cast<uint32_t>(word >> kRootAt & ((1 << kRootBits) - 1)),
            .size = has_parts ? 0 : word >> (64 - kSizeBits),
            .has_parts = has_parts};
}

bool GroupCall::ends_alone(uint64_t word, uint32_t rank) {
    const Summary call = summary(word);
    if (call.kind == Kind::reduce) return call.root != rank;
    return (call.kind == Kind::broadcast || call.kind == Kind::scatter) && call.root == rank;
}

}  // namespace peerlane

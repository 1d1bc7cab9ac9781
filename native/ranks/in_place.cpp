#include "ranks/in_place.h"

#include <algorithm>
#include <cstring>

#include "copy/thread_team.h"

namespace peerlane {

namespace {

constexpr uint64_t kThreadsFrom = uint64_t{8} << 20;   // bytes of a part: for fewer the wake-up of a thread takes as long as the copy
constexpr unsigned kMostThreads = 4;                   // memory is not faster for more

// In the line of the first round of a long call.
struct Announcement {
    uint64_t src_file, src_offset;   // where the bytes for the peer begin
    union {
        uint64_t dst_file = 0;       // where the result begins
        uint64_t source_size;        // of an all-to-all by pairs: the bytes for the peer
    };
    uint64_t dst_offset;
    int32_t src_fd, dst_fd;
    uint64_t longest : 63;           // of an all-to-all by pairs: bytes of this rank's longest part
    uint64_t is_read : 1;            // the peer is to read there, not in a slot
};
static_assert(sizeof(Announcement) <= Rounds::kInLine);

bool gives(const GroupCall& call, uint32_t rank) { return !call.is_from_root() || call.root == rank; }

// Whether a system call that reads host memory takes less time than two copies through a slot.
bool is_read_by_calls(const GroupCall& call, Rounds& rounds, uint64_t longest) {
    if (call.reduces() || !SlotPace::serves(longest)) return false;   // a reduction reads in short pieces
    const unsigned threads = InPlace::threads_of_a_reader(call, rounds.size, longest);
    if (call.kind == GroupCall::Kind::broadcast) return rounds.pace.avoids_slots(longest, longest > rounds.long_slot, threads);
    const bool has_short_pieces = call.has_source_parts() && rounds.size > 4;   // in a slot, and each piece is a round
    return longest >= uint64_t{has_short_pieces ? 512u : 4096u} << 10 || rounds.pace.avoids_slots(longest, false, threads);
}

}  // namespace

bool InPlace::is_worthwhile(const GroupCall& call, uint32_t ranks, uint64_t longest) {
    if (call.is_by_pairs()) return true;   // ranks that do not agree on sizes must find out
    // From here on a copy to a slot costs more than a round of confirmations.
    if (ranks > 2) return longest >= uint64_t{call.reduces() ? 128u : 16u} << 10;
    return longest >= uint64_t{call.reduces() ? 32u : call.kind == GroupCall::Kind::broadcast ? 8u : 2u} << 10;
}

unsigned InPlace::threads_of_a_reader(const GroupCall& call, uint32_t ranks, uint64_t longest) {
    if (longest < kThreadsFrom) return 1;
    const unsigned readers = call.is_from_root() ? ranks - 1 : ranks;
    return std::clamp(ThreadTeam::cores() / readers, 1u, kMostThreads);
}

void InPlace::prepare(const GroupCall& call, Rounds& rounds, uint64_t longest) {
    is_on_ = true;
    std::vector<Rounds::Peer>& peers = rounds.peers();
    for (Rounds::Peer& each : peers) each.in_place = false;
    src_ = MemoryAddress::of(call.src, call.src_size);
    const auto may_read = [this](const Rounds::Peer& each) { return each.access.may_reach(src_); };
    if (!src_.is_file() && (!is_read_by_calls(call, rounds, longest) || !std::all_of(peers.begin(), peers.end(), may_read))) src_ = {};
    if (call.kind == GroupCall::Kind::all_reduce) dst_ = MemoryAddress::of(call.dst, call.dst_size);
    if (!dst_.is_file()) dst_ = {};
    const MemoryAddress& address = src_ ? src_ : dst_;
    is_read_ = address && std::all_of(peers.begin(), peers.end(), [&](const Rounds::Peer& each) { return each.access.reaches(address); });
    is_announced_ = gives(call, rounds.rank) && address;
}

void InPlace::announce(const GroupCall& call, const Rounds& rounds, const Rounds::Round& round, uint64_t word, uint64_t longest) const {
    for (const Rounds::Peer& peer : rounds.peers()) {
        const MemoryAddress src = src_.behind(call.source_offset(peer.rank));
        Announcement announcement{.src_file = src.file, .src_offset = src.offset, .dst_file = dst_.file, .dst_offset = dst_.offset,
                                  .src_fd = src.fd, .dst_fd = dst_.fd, .longest = longest, .is_read = is_read_};
        if (call.is_by_pairs()) announcement.source_size = call.source_part_size(peer.rank);
        rounds.announce(peer, round, word, reinterpret_cast<const char*>(&announcement), sizeof announcement);
    }
}

bool InPlace::note(const GroupCall& call, const Rounds& rounds, Rounds::Peer& peer, const Rounds::Round& round, uint64_t& longest, Refusal& why) {
    Announcement announcement;
    memcpy(&announcement, rounds.in_line(peer, round), sizeof announcement);
    const bool by_pairs = call.is_by_pairs();
    const uint64_t of_peer = call.part_size(peer.rank), mine = by_pairs ? of_peer : call.part_size(rounds.rank);
    if (by_pairs) longest = std::max<uint64_t>(longest, announcement.longest);
    const MemoryAddress src{announcement.src_file, announcement.src_offset, announcement.src_fd};
    const MemoryAddress dst = by_pairs ? MemoryAddress{} : MemoryAddress{announcement.dst_file, announcement.dst_offset, announcement.dst_fd};
    if (by_pairs && announcement.source_size != of_peer) {
        const GroupCall gives{.kind = GroupCall::Kind::give_part, .size = announcement.source_size}, takes{.kind = GroupCall::Kind::take_part, .size = of_peer};
        why = {.why = Why::calls_differ,
               .calls = {.number = call.number, .own = takes.word(), .theirs = gives.word(), .rank = rounds.rank, .peer = peer.rank}};
        return false;
    }
    is_announced_ |= src || dst;
    peer.in_place = announcement.is_read;
    peer.src = peer.memory.at(src, call.has_source_parts() ? mine : of_peer);
    peer.dst = peer.memory.at(dst, mine);
    peer.confirmation = peer.memory.confirmation(src, peer.src);
    if (!peer.in_place || ((!src || peer.src) && (!dst || peer.dst))) return true;
    why = {.why = Why::system_memory, .size = longest};
    return false;
}

void InPlace::touch_source(const GroupCall& call, const Rounds& rounds) const {
    if (src_.is_file() || !call.can_fault) return;
    if (!call.has_source_parts()) return look_at_pages(call.src.host, call.src_size);
    for (const Rounds::Peer& peer : rounds.peers()) look_at_pages(call.src.host + call.source_offset(peer.rank), call.source_part_size(peer.rank));
}

bool InPlace::serves_all(const GroupCall& call, const Rounds& rounds) const {
    if (call.kind == GroupCall::Kind::reduce) return false;
    const bool has_result = call.kind == GroupCall::Kind::all_reduce;
    if (gives(call, rounds.rank) && (!is_source_read() || (has_result && !is_result_read()))) return false;
    const std::vector<Rounds::Peer>& peers = rounds.peers();
    return std::all_of(peers.begin(), peers.end(), [&](const Rounds::Peer& peer) {
        return !gives(call, peer.rank) || (peer.in_place && peer.src && (!has_result || peer.dst));
    });
}

void InPlace::confirm(const Rounds& rounds, const Rounds::Round& round, uint64_t word) const {
    for (const Rounds::Peer& peer : rounds.peers()) rounds.announce(peer, round, word, reinterpret_cast<const char*>(&peer.confirmation), sizeof peer.confirmation);
}

void InPlace::note_confirmation(const Rounds& rounds, Rounds::Peer& peer, const Rounds::Round& round) {
    peer.access.bits |= static_cast<uint8_t>(*rounds.in_line(peer, round));
}

}  // namespace peerlane

#include "ranks/collective.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "copy/kernels.h"
#include "copy/task.h"
#include "memory/fault_guard.h"
#include "stream/stream.h"

namespace peerlane {

namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kFoldedAtOnce = 8 << 10;               // stays in the first cache
constexpr uint64_t kBroadcastPiece = uint64_t{512} << 10; // so short that the root and its readers work at the same time
constexpr uint64_t kPieceInPlace = uint64_t{4} << 20;     // so short that the thread has time for other work
constexpr uint64_t kBeyondCaches = uint64_t{24} << 20;
constexpr unsigned kKindBits = 4, kOperationBits = 6, kRootBits = 10, kSizeBits = 43;

// Of more bytes each rank combines a share: of fewer, a second round takes longer.  All ranks must decide alike, so nothing of
// one process alone may count here, such as its processors.
uint64_t longest_one_shot(const Rounds& rounds) { return rounds.size == 2 ? uint64_t{16} << 10 : uint64_t{32} << 10; }

// From here on a copy to a slot costs more than another round, in which each says where its bytes lie.
uint64_t shortest_in_place(const Rounds& rounds, bool folds, bool broadcasts) {
    if (rounds.size > 2) return uint64_t{folds ? 128u : 16u} << 10;
    return uint64_t{folds ? 32u : broadcasts ? 8u : 2u} << 10;
}

// In the line of a round of a long call.
struct Told {
    uint64_t src_file, src_offset;   // where the bytes for the peer begin
    union {
        uint64_t dst_file = 0;       // where the result begins
        uint64_t given;              // by pairs: how many bytes are for the peer
    };
    uint64_t dst_offset;
    int32_t src_fd, dst_fd;
    uint64_t longest : 56;   // by pairs: bytes that this rank gives any other one
    uint64_t in_place : 1;   // the peer is to read there, not in a slot
    uint64_t found : 7;      // in the last round: see PeerMemory::found()
};
static_assert(sizeof(Told) <= Rounds::kInLine);

uint64_t hash_of(const std::vector<uint64_t>& sizes) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint64_t each : sizes) hash = (hash ^ each) * 0x100000001b3 ^ hash >> 29;
    return hash;
}

}  // namespace

uint64_t Collective::Call::word() const {
    const uint64_t bytes = sizes.empty() ? size : given.empty() ? hash_of(sizes) : 0;
    uint64_t word = static_cast<uint64_t>(kind);
    word |= uint64_t{operation} << kKindBits;
    word |= uint64_t{root} << (kKindBits + kOperationBits);
    word |= uint64_t{!sizes.empty()} << (kKindBits + kOperationBits + kRootBits);
    return word | bytes << (64 - kSizeBits);
}

Collective::Said Collective::said(uint64_t word) {
    const bool has_parts = word >> (kKindBits + kOperationBits + kRootBits) & 1;
    return {.kind = static_cast<Kind>(word & ((1 << kKindBits) - 1)),
            .operation = static_cast<unsigned>(word >> kKindBits & ((1 << kOperationBits) - 1)),
            .root = static_cast<uint32_t>(word >> (kKindBits + kOperationBits) & ((1 << kRootBits) - 1)),
            .size = has_parts ? 0 : word >> (64 - kSizeBits),
            .has_parts = has_parts};
}

bool Collective::ends_alone(uint64_t word, uint32_t rank) {
    const Said call = said(word);
    if (call.kind == Kind::reduce) return call.root != rank;
    return (call.kind == Kind::broadcast || call.kind == Kind::scatter) && call.root == rank;
}

Collective::Collective(std::shared_ptr<Rounds> rounds, Call&& call) : rounds_(std::move(rounds)), call_(std::move(call)) {
    longest_ = call_.size;
    for (const uint64_t each : is_by_pairs() ? call_.given : call_.sizes) longest_ = std::max(longest_, each);
    word_ = call_.word();
    touches_host = call_.dst.is_foreign() || call_.src.is_foreign();
    is_two_shot_ = (call_.kind == Kind::all_reduce || (call_.kind == Kind::reduce && rounds_->size > 2)) &&
                   longest_ > longest_one_shot(*rounds_);
    is_split_ = call_.kind == Kind::reduce_scatter || call_.kind == Kind::all_to_all || call_.kind == Kind::scatter;
    piece_size_ = rounds_->long_slot;
    if (call_.kind == Kind::broadcast) piece_size_ = std::min(piece_size_, kBroadcastPiece);
    if (is_split_) {
        const uint64_t in_short = Rounds::kShortSlot / rounds_->size / kLine * kLine;
        piece_size_ = longest_ <= in_short && !is_by_pairs() ? in_short : piece_size_ / rounds_->size / kLine * kLine;
    }
    set_pieces(longest_);
    is_long_ = is_by_pairs() || longest_ >= shortest_in_place(*rounds_, folds(), call_.kind == Kind::broadcast);
}

Collective::Collective(Collective&& other) noexcept = default;

Collective::~Collective() {
    if (!rounds_) return;   // moved from
    if (stage_ != Stage::over) rounds_->farewell->say();
    Heap::get().unpin(call_.src);
    Heap::get().unpin(call_.dst);
}

void Collective::set_pieces(uint64_t longest) { pieces_ = longest == 0 ? 1 : (longest - 1) / piece_size_ + 1; }

Collective::Stretch Collective::piece_of(uint64_t whole) const {
    const uint64_t first = std::min(piece_ * piece_size_, whole);
    return {first, std::min(piece_size_, whole - first)};
}

Collective::Stretch Collective::share_of(uint32_t of) const {
    const uint64_t whole = piece_of(call_.size).size, lines = (whole + kLine - 1) / kLine;
    const uint64_t each = (lines + rounds_->size - 1) / rounds_->size * kLine;
    const uint64_t first = std::min(of * each, whole);
    return {first, std::min(each, whole - first)};
}

bool Collective::folds() const {
    return call_.kind == Kind::all_reduce || call_.kind == Kind::reduce || call_.kind == Kind::reduce_scatter;
}

bool Collective::takes_of(uint32_t peer) const {
    if (comes_from_root()) return is_last_ ? rounds_->rank == call_.root : peer == call_.root;
    if (is_last_) return true;
    if (call_.kind == Kind::reduce && (!is_two_shot_ || is_second_shot_)) return rounds_->rank == call_.root;
    return true;
}

Collective::Bytes Collective::given_to(uint32_t peer) const {
    const uint32_t rank = rounds_->rank;
    char* const src = call_.src.host;
    if (is_split_) {
        if (call_.kind == Kind::scatter && rank != call_.root) return {};
        const Stretch piece = piece_of(given_size(peer));
        return {src + given_at(peer) + piece.first, piece.size};
    }
    if (call_.kind == Kind::barrier || (call_.kind == Kind::broadcast && rank != call_.root)) return {};
    const Stretch piece = piece_of(part_size(rank));
    if (is_two_shot_) {
        const Stretch share = share_of(peer);
        return {src + piece.first + share.first, share.size};
    }
    if (call_.kind == Kind::reduce && rank == call_.root && peer != rank) return {};
    return {src + piece.first, piece.size};
}

Collective::Stretch Collective::shared_part(uint32_t of) const {
    const Stretch share = share_of(of);
    return {piece_of(call_.size).first + share.first, share.size};
}

Collective::Stretch Collective::taken_part(uint32_t peer) const {
    if (is_two_shot_) return shared_part(is_second_shot_ ? peer : rounds_->rank);
    return piece_of(part_size(takes_parts() ? peer : rounds_->rank));
}

Collective::Bytes Collective::taken_of(uint32_t peer) const {
    if (call_.kind == Kind::barrier) return {};
    const Stretch part = taken_part(peer);
    return {call_.dst.host + (takes_parts() ? part_at(peer) : 0) + part.first, part.size};
}

uint64_t Collective::place_of(uint32_t rank) const {
    if (is_split_) return rank * piece_size_;
    return is_two_shot_ ? share_of(rank).first : 0;
}

const char* Collective::source_of(uint32_t peer) {
    const Rounds::Peer& from = rounds_->peer(peer);
    const Stretch part = is_two_shot_ ? shared_part(rounds_->rank) : taken_part(peer);
    if (is_long_ && from.in_place && from.src.mapped) return from.src.mapped + part.first;
    if (!is_long_ && !is_two_shot_ && part.size <= Rounds::kInLine) return rounds_->in_line(from, round_);
    return rounds_->in_slot(from, first_shot_) + place_of(rounds_->rank);
}

const char* Collective::result_of(uint32_t peer) {
    const Rounds::Peer& from = rounds_->peer(peer);
    if (is_long_ && from.in_place && from.dst.mapped) return from.dst.mapped + shared_part(peer).first;
    return rounds_->in_slot(from, round_);
}

// Whether a call of the system that reads host memory takes less time than two copies through a slot.
bool Collective::is_read_by_calls() const {
    const bool is_pair = rounds_->size == 2;
    if (folds()) return false;                      // in short pieces
    if (call_.kind == Kind::broadcast)              // several readers of one page hinder each other; a long one overlaps its copies
        return is_pair && longest_ >= uint64_t{32} << 10 && longest_ <= uint64_t{8} << 20;
    return longest_ >= uint64_t{is_pair ? 16u : 128u} << 10;
}

void Collective::begin_round() {
    const uint64_t longest = is_split_ ? piece_size_ * rounds_->size : piece_of(longest_).size;
    round_ = rounds_->next(!is_last_ && (is_two_shot_ || longest > Rounds::kShortSlot));
    if (!is_second_shot_) first_shot_ = round_;
    if (!is_long_ || is_last_ || piece_ != 0 || is_second_shot_) return;
    std::vector<Rounds::Peer>& peers = rounds_->peers();
    for (Rounds::Peer& each : peers) each.in_place = false;
    src_ = MemoryPlace::of(call_.src, call_.src_size);
    const auto may_read = [this](const Rounds::Peer& each) { return each.reads_here.may_be(src_); };
    if (!src_.is_file() && (!is_read_by_calls() || !std::all_of(peers.begin(), peers.end(), may_read))) src_ = {};
    if (call_.kind == Kind::all_reduce) dst_ = MemoryPlace::of(call_.dst, call_.dst_size);
    if (!dst_.is_file()) dst_ = {};
    const MemoryPlace& place = src_ ? src_ : dst_;
    in_place_ = place && std::all_of(peers.begin(), peers.end(), [&](const Rounds::Peer& each) { return each.reads_here.at(place); });
    is_read_ = gives() && place;
}

// Of a two-shot collective, after the first shot of all.
void Collective::combine() {
    const uint32_t rank = rounds_->rank;
    const bool has_result = call_.kind == Kind::all_reduce || rank == call_.root;
    char* const slot = rounds_->slot(round_);
    const Bytes to = has_result ? taken_of(rank) : Bytes{};
    if (in_place_ && dst_) return fold(to.at, given_to(rank));
    fold(slot, given_to(rank));
    if (has_result) memcpy(to.at, slot, to.size);
}

void Collective::give() {
    if (is_last_) return;
    if (is_second_shot_) return combine();
    const uint32_t rank = rounds_->rank;
    char* const slot = rounds_->slot(round_);
    if (in_place_ && src_) {
        if (src_.is_file() || piece_ != 0) return;   // others read it there
        if (!is_split_) return look_at_pages(call_.src.host, call_.src_size);
        for (const Rounds::Peer& peer : rounds_->peers()) look_at_pages(call_.src.host + given_at(peer.rank), given_size(peer.rank));
    } else if (!is_split_ && !is_two_shot_) {
        const Bytes given = given_to(rounds_->peers().front().rank);
        if (given.size != 0) memcpy(slot, given.at, given.size);
        moved_ += given.size;
    } else {
        for (const Rounds::Peer& peer : rounds_->peers()) {
            const Bytes given = given_to(peer.rank);
            if (given.size != 0) memcpy(slot + place_of(peer.rank), given.at, given.size);
            moved_ += given.size;
        }
    }
}

// What this rank gives itself.
void Collective::keep() {
    const uint32_t rank = rounds_->rank;
    if (!takes_parts() && !(call_.kind == Kind::scatter && rank == call_.root)) return;
    const Bytes own = given_to(rank), to = taken_of(rank);
    if (own.at != to.at && own.size != 0) memcpy(to.at, own.at, own.size);
}

void Collective::tell() {
    const char* const slot = rounds_->slot(round_);
    for (Rounds::Peer& peer : rounds_->peers()) {
        if (!is_long_) {
            const uint64_t size = is_two_shot_ ? 0 : given_to(peer.rank).size;
            rounds_->tell(peer, round_, word_, slot + place_of(peer.rank), size <= Rounds::kInLine ? size : 0);
            continue;
        }
        const MemoryPlace src = src_.behind(is_split_ ? given_at(peer.rank) : 0);
        Told told{.src_file = src.file, .src_offset = src.offset, .dst_file = dst_.file, .dst_offset = dst_.offset,
                  .src_fd = src.fd, .dst_fd = dst_.fd, .longest = longest_, .in_place = in_place_};
        if (is_by_pairs()) told.given = given_size(peer.rank);
        if (is_last_) told = {.found = peer.found};
        rounds_->tell(peer, round_, word_, reinterpret_cast<const char*>(&told), sizeof told);
    }
}

bool Collective::note(Rounds::Peer& peer, Refusal& why) {
    Told told;
    memcpy(&told, rounds_->in_line(peer, round_), sizeof told);
    if (is_last_) {
        peer.reads_here.found |= static_cast<uint8_t>(told.found);
        return true;
    }
    const uint64_t of_peer = part_size(peer.rank), mine = is_by_pairs() ? of_peer : part_size(rounds_->rank);
    if (is_by_pairs()) longest_ = std::max<uint64_t>(longest_, told.longest);
    const MemoryPlace src{told.src_file, told.src_offset, told.src_fd};
    const MemoryPlace dst = is_by_pairs() ? MemoryPlace{} : MemoryPlace{told.dst_file, told.dst_offset, told.dst_fd};
    if (is_by_pairs() && told.given != of_peer) {
        const Call gives{.kind = Kind::give_part, .size = told.given}, takes{.kind = Kind::take_part, .size = of_peer};
        why = {.why = Why::calls_differ,
               .calls = {.number = call_.number, .own = takes.word(), .theirs = gives.word(), .rank = rounds_->rank, .peer = peer.rank}};
        return false;
    }
    is_read_ |= src || dst;
    peer.in_place = told.in_place != 0;
    peer.src = peer.memory.at(src, is_split_ ? mine : of_peer);
    peer.dst = peer.memory.at(dst, mine);
    peer.found = peer.memory.found(src, peer.src);
    if (!peer.in_place || ((!src || peer.src) && (!dst || peer.dst))) return true;
    why = {.why = Why::system_memory, .size = longest_};
    return false;
}

bool Collective::take(Rounds::Peer& peer, Refusal& why) {
    const Bytes taken = taken_of(peer.rank);
    if (taken.size == 0) return true;
    moved_ += taken.size;
    if (is_long_ && peer.in_place && peer.src.address != 0) return read(peer, taken, peer.src.behind(taken_part(peer.rank).first), why);
    const char* const from = is_second_shot_ ? result_of(peer.rank) : source_of(peer.rank);
    const uint64_t written = longest_ * rounds_->size * (takes_parts() ? rounds_->size : 1);   // by all ranks
    // Beyond the caches nobody would find the bytes there.
    const bool past_caches = is_long_ && peer.in_place && written >= kBeyondCaches;
    return touch(why, [=] { copy_bytes(taken.at, from, taken.size, past_caches); });
}

bool Collective::read(const Rounds::Peer& peer, const Bytes& to, const PeerMemory::Bytes& from, Refusal& why) {
    const int error = peer.memory.read(to.at, from.address, to.size);
    if (error == 0) return true;
    waits_for_loss_ = error == ESRCH || peer.incoming[0]->is_let_go();
    if (waits_for_loss_ || !touch(why, [=] { memset(to.at, 0, to.size); })) return false;
    why = {.why = Why::system_memory, .size = to.size, .error = error};
    return false;
}

// In the order of ranks, block by block.
void Collective::fold(char* to, const Bytes& own) {
    const uint32_t rank = rounds_->rank, size = rounds_->size;
    alignas(kLine) char aside[kFoldedAtOnce];
    // The first combination would overwrite what the third or a later one reads.
    const bool is_aside = to == own.at && rank >= 2;
    std::vector<const char*>& sources = rounds_->sources;
    for (uint32_t each = 0; each < size; ++each) sources[each] = each == rank ? own.at : source_of(each);
    for (uint64_t at = 0; at < own.size; at += kFoldedAtOnce) {
        const uint64_t n = std::min(kFoldedAtOnce, own.size - at), count = n / call_.reduction->width;
        char* const result = is_aside ? aside : to + at;
        call_.reduction->kernel(result, sources[0] + at, sources[1] + at, count);
        for (uint32_t each = 2; each < size; ++each) call_.reduction->kernel(result, result, sources[each] + at, count);
        if (is_aside) memcpy(to + at, aside, n);
    }
    moved_ += own.size * size;
}

// The same at all ranks: each has been told by all that give.
bool Collective::is_all_in_place() const {
    const bool has_result = call_.kind == Kind::all_reduce;
    if (call_.kind == Kind::reduce) return false;
    if (gives() && (!in_place_ || !src_ || (has_result && !dst_))) return false;
    const std::vector<Rounds::Peer>& peers = rounds_->peers();
    return std::all_of(peers.begin(), peers.end(), [&](const Rounds::Peer& peer) {
        return (comes_from_root() && peer.rank != call_.root) || (peer.in_place && peer.src && (!has_result || peer.dst));
    });
}

Rounds::Peer* Collective::who_gave_up() {
    std::atomic_thread_fence(std::memory_order_acquire);   // who gives up says so before it writes its memory again
    std::vector<Rounds::Peer>& peers = rounds_->peers();
    const auto found = std::find_if(peers.begin(), peers.end(), [](const Rounds::Peer& each) { return each.in_place && each.incoming[0]->is_let_go(); });
    return found == peers.end() ? nullptr : &*found;
}

// Who waits for it says that it is lost.
Stepwise::Step Collective::wait_for_loss(Rounds::Peer& peer) {
    waits_for_loss_ = true;
    awaited = peer.incoming[(round_.number + 1) % Rounds::kDepth];
    return Step::waits;
}

bool Collective::end_round() {
    if (is_last_) return false;
    if (is_two_shot_ && !is_second_shot_) {
        is_second_shot_ = true;
        return true;
    }
    is_second_shot_ = false;
    if (++piece_ < pieces_) return true;
    // All know alike whether anybody could have read another one's memory; to a root's reduction only the root listens.
    is_last_ = is_long_ && (is_read_ || call_.kind == Kind::reduce);
    return is_last_;
}

template <class Work>
bool Collective::touch(Refusal& why, const Work& work) {
    if (longest_ == 0) {
        work();
        return true;
    }
    FaultGuard guard;
    if (guarded(guard, work)) [[likely]] return true;
    const Side sides[] = {side_at("dst", call_.dst.host, call_.dst_size), side_at("src", call_.src.host, call_.src_size)};
    why = explain_fault(guard, sides, 2);
    return false;
}

// Who calls last finds that the calls differ, and says so; but not a rank that did not wait for the others.
bool Collective::has_passed(const Rounds::Peer& peer, Refusal& why) const {
    const std::optional<uint64_t> theirs = rounds_->called_by(peer, round_);
    if (!theirs || *theirs == word_ || !ends_alone(*theirs, peer.rank)) return false;
    why = {.why = Why::calls_differ,
           .calls = {.number = call_.number, .own = word_, .theirs = *theirs, .rank = rounds_->rank, .peer = peer.rank}};
    return true;
}

Stepwise::Step Collective::advance(Refusal& why) {
    moved_ = 0;
    try {
        Heap::get().check_leases(call_.dst, call_.src);   // they may have ended since it was submitted
    } catch (const Refusal& refusal) {
        why = refusal;
        return Step::failed;
    }
    std::vector<Rounds::Peer>& peers = rounds_->peers();
    while (stage_ != Stage::over) {
        if (stage_ == Stage::begin) {
            if (is_last_)   // in which this rank says that it has read
                if (Rounds::Peer* const peer = who_gave_up()) return wait_for_loss(*peer);
            begin_round();
            stage_ = Stage::give;
        }
        if (stage_ == Stage::give) {
            awaited = rounds_->in_the_way(round_);
            waits_for_room_ = awaited != nullptr;
            if (waits_for_room_) return Step::waits;
            if (!touch(why, [this] { give(); })) return Step::failed;
            tell();
            taken_ = 0;
            stage_ = Stage::take;
        }
        const bool listens = is_long_ && (is_last_ || !has_heard_);   // to what all say, before it takes bytes
        for (; taken_ < peers.size(); ++taken_) {
            Rounds::Peer& peer = peers[taken_];
            if (!takes_of(peer.rank)) continue;
            if (!rounds_->has_come(peer, round_, word_)) {
                awaited = peer.incoming[round_.number % Rounds::kDepth];
                return has_passed(peer, why) ? Step::failed : Step::waits;
            }
            if (listens && !note(peer, why)) return Step::failed;
            if (listens) continue;
            if (!folds() || is_second_shot_)
                if (!take(peer, why)) return waits_for_loss_ ? wait_for_loss(peer) : Step::failed;
        }
        if (listens && !is_last_) {
            has_heard_ = true;
            if (is_all_in_place()) {   // no slot bounds the pieces
                piece_size_ = std::max(piece_size_, kPieceInPlace);
            }
            set_pieces(longest_);
            taken_ = 0;
            continue;
        }
        if (!is_last_ && !touch(why, [this] { keep(); })) return Step::failed;
        if (folds() && !is_two_shot_ && !is_last_ && takes_of(rounds_->rank)) {
            const Bytes to = taken_of(rounds_->rank);
            if (!touch(why, [&] { fold(to.at, given_to(rounds_->rank)); })) return Step::failed;
        }
        stage_ = end_round() ? Stage::begin : Stage::over;
        if (moved_ >= kChunk && stage_ != Stage::over) return Step::goes_on;
    }
    return Step::over;
}

bool Collective::has_come() {
    if (waits_for_loss_) return false;
    if (waits_for_room_) return awaited->signal().recorded() >= round_.needed;   // this one, though another may be in the way too
    return rounds_->has_come(rounds_->peers()[taken_], round_, word_);
}

}  // namespace peerlane

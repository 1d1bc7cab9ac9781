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

constexpr uint64_t kFoldedAtOnce = 8 << 10;               // stays in the first cache
constexpr uint64_t kBroadcastPiece = uint64_t{512} << 10; // so short that the root and its readers work at the same time
constexpr uint64_t kPieceInPlace = uint64_t{4} << 20;     // so short that the thread has time for other work
constexpr uint64_t kBeyondCaches = uint64_t{24} << 20;

}  // namespace

Collective::Collective(std::shared_ptr<Rounds> rounds, GroupCall&& call)
    : rounds_(std::move(rounds)), call_(std::move(call)), word_(call_.word()), longest_(call_.longest_part()),
      schedule_(&schedule_of(call_, rounds_->size)) {
    touches_host = call_.dst.is_foreign() || call_.src.is_foreign();
    leaves_core = touches_host && call_.is_from_root() && call_.root == rounds_->rank && InPlace::threads_of_a_reader(call_, rounds_->size, longest_) > 1;
    piece_size_ = rounds_->long_slot;
    if (call_.kind == GroupCall::Kind::broadcast) piece_size_ = std::min(piece_size_, kBroadcastPiece);
    if (call_.has_source_parts()) {   // a slot has room for a piece of each rank
        const uint64_t in_short = Rounds::kShortSlot / rounds_->size / kLine * kLine;
        piece_size_ = longest_ <= in_short && !call_.is_by_pairs() ? in_short : piece_size_ / rounds_->size / kLine * kLine;
    }
    count_pieces();
}

Collective::Collective(Collective&& other) noexcept = default;

Collective::~Collective() {
    if (!rounds_) return;   // moved from
    if (stage_ != Stage::over) rounds_->farewell->send();
    Heap::get().unpin(call_.src);
    Heap::get().unpin(call_.dst);
}

void Collective::count_pieces() { pieces_ = longest_ == 0 ? 1 : (longest_ - 1) / piece_size_ + 1; }

// The offset of the bytes for a rank in the giver's slot.
uint64_t Collective::slot_offset(uint32_t to, const Span& span) const {
    if (call_.has_source_parts()) return to * piece_size_;
    return schedule_->gives_all_the_same(call_) ? 0 : span.first - number_ * piece_size_;
}

const char* Collective::source_of(Rounds::Peer& peer, const Span& span) const {
    if (in_place_.is_on() && peer.in_place && peer.src.mapped) return peer.src.mapped + span.first;
    if (!in_place_.is_on() && span.size <= Rounds::kInLine) return rounds_->in_line(peer, first_round_);
    return rounds_->in_slot(peer, first_round_) + slot_offset(rounds_->rank, span);
}

const char* Collective::result_of(Rounds::Peer& peer, const Span& span) const {
    if (in_place_.is_on() && peer.in_place && peer.dst.mapped) return peer.dst.mapped + span.first;
    return rounds_->in_slot(peer, round_);
}

void Collective::begin_round() {
    const uint64_t longest = call_.has_source_parts() ? piece_size_ * rounds_->size : piece().of(longest_).size;
    round_ = rounds_->next(schedule_->rounds() > 1 || longest > Rounds::kShortSlot);
    if (schedule_round_ != 0) return;
    first_round_ = round_;
    if (number_ == 0 && InPlace::is_worthwhile(call_, rounds_->size, longest_)) in_place_.prepare(call_, *rounds_, longest_);
}

void Collective::give() {
    if (schedule_round_ != 0) {
        const uint32_t rank = rounds_->rank;
        const Span share = first_moves(rank, rank), own = moves(rank, rank);
        char* const slot = rounds_->slot(round_);
        if (in_place_.is_result_read()) return fold(result(rank, share), share);
        fold(slot, share);
        if (own.size != 0) memcpy(result(rank, own), slot, own.size);
    } else if (in_place_.is_source_read()) {
        if (number_ == 0) show_source();
    } else if (longest_ != 0) {
        fill_slot();
    }
}

// Before peers read the source: a fault there must hit this rank, and not them.
void Collective::show_source() {
    const bool is_brief = call_.can_fault && longest_ <= kPieceInPlace && schedule_->gives_all_the_same(call_) && call_.src.is_foreign();
    // A copy of all bytes looks at each page, too.
    is_own_kept_ = is_brief && keep_own({call_, rounds_->rank, rounds_->size, 0, longest_});
    if (!is_own_kept_) in_place_.touch_source(call_, *rounds_);
}

void Collective::copy_by_slot(SlotPace::Copy copy, char* to, const char* from, uint64_t size) {
    const bool counts = SlotPace::serves(longest_) && size != 0;
    const uint64_t began = counts ? now_ns() : 0;
    memcpy(to, from, size);
    if (counts) rounds_->pace.note(copy, longest_, size, now_ns() - began);
}

void Collective::fill_slot() {
    char* const slot = rounds_->slot(round_);
    const bool is_same = schedule_->gives_all_the_same(call_);
    for (const Rounds::Peer& peer : rounds_->peers()) {
        const Span span = moves(rounds_->rank, peer.rank);
        if (span.size == 0) continue;
        copy_by_slot(SlotPace::fill, slot + slot_offset(peer.rank, span), source(peer.rank, span), span.size);
        moved_ += span.size;
        if (is_same) return;
    }
}

void Collective::announce() {
    if (listens()) return in_place_.announce(call_, *rounds_, round_, word_, longest_);
    const char* const slot = rounds_->slot(round_);
    const bool has_bytes = longest_ != 0 && !in_place_.is_on() && schedule_round_ == 0;
    for (const Rounds::Peer& peer : rounds_->peers()) {
        const Span span = has_bytes ? moves(rounds_->rank, peer.rank) : Span{};
        const bool is_in_line = span.size <= Rounds::kInLine;
        rounds_->announce(peer, round_, word_, is_in_line && span.size != 0 ? slot + slot_offset(peer.rank, span) : slot, is_in_line ? span.size : 0);
    }
}

bool Collective::take(Rounds::Peer& peer, Refusal& why) {
    const Span span = moves(peer.rank, rounds_->rank);
    if (span.size == 0) return true;
    moved_ += span.size;
    char* const to = result(peer.rank, span);
    if (schedule_round_ == 0 && in_place_.is_on() && peer.in_place && peer.src.address != 0) return read(peer, to, peer.src.address + span.first, span.size, why);
    const char* const from = schedule_round_ == 0 ? source_of(peer, span) : result_of(peer, span);
    const uint64_t written = longest_ * rounds_->size * (call_.has_result_parts() ? rounds_->size : 1);   // by all ranks
    // The caches cannot hold so much: the ranks would not read these bytes from a cache.
    const bool past_caches = in_place_.is_on() && peer.in_place && written >= kBeyondCaches;
    if (schedule_round_ == 0 && !(in_place_.is_on() && peer.in_place)) return touch(why, [=, this] { copy_by_slot(SlotPace::read, to, from, span.size); });
    return touch(why, [=] { copy_bytes(to, from, span.size, past_caches); });
}

bool Collective::read(const Rounds::Peer& peer, char* to, uint64_t address, uint64_t size, Refusal& why) {
    const int error = peer.memory.read(to, address, size, InPlace::threads_of_a_reader(call_, rounds_->size, longest_));
    if (error == 0) return true;
    awaits_ = error == ESRCH || peer.incoming[0]->is_let_go() ? Awaits::loss : Awaits::peer;
    if (awaits_ == Awaits::loss || !touch(why, [=] { memset(to, 0, size); })) return false;
    why = {.why = Why::system_memory, .size = size, .error = error};
    return false;
}

// After the bytes of all peers have arrived.
void Collective::end_bytes() {
    if (!schedule_->combines() && !is_own_kept_) keep_own(piece());
    if (!schedule_->combines() || schedule_->rounds() != 1) return;   // combined when its slot for the result is free
    const uint32_t rank = rounds_->rank;
    const Span span = moves(rank, rank);
    if (span.size != 0) fold(result(rank, span), span);
}

// False: the bytes are where they belong, or this rank keeps none.
bool Collective::keep_own(const CallPiece& piece) {
    const uint32_t rank = rounds_->rank;
    const Span span = schedule_->moves(piece, 0, rank, rank);
    if (span.size == 0 || !call_.dst.host || !call_.src.host) return false;   // a root of a broadcast has no destination
    const char* const from = source(rank, span);
    char* const to = result(rank, span);
    if (from != to) memcpy(to, from, span.size);
    return from != to;
}

// Combine a span of all ranks' bytes, in the order of ranks, block by block.
void Collective::fold(char* to, const Span& span) {
    const uint32_t rank = rounds_->rank, size = rounds_->size;
    const char* const own = source(rank, span);
    alignas(kLine) char aside[kFoldedAtOnce];
    // The first combination would overwrite what the third or a later one reads.
    const bool is_aside = to == own && rank >= 2;
    std::vector<const char*>& sources = rounds_->sources;
    for (uint32_t each = 0; each < size; ++each) sources[each] = each == rank ? own : source_of(rounds_->peer(each), span);
    for (uint64_t at = 0; at < span.size; at += kFoldedAtOnce) {
        const uint64_t n = std::min(kFoldedAtOnce, span.size - at), count = n / call_.reduction->width;
        char* const block = is_aside ? aside : to + at;
        call_.reduction->kernel(block, sources[0] + at, sources[1] + at, count);
        for (uint32_t each = 2; each < size; ++each) call_.reduction->kernel(block, block, sources[each] + at, count);
        if (is_aside) memcpy(to + at, aside, n);
    }
    moved_ += span.size * size;
}

Collective::Stage Collective::after_round() {
    if (++schedule_round_ < schedule_->rounds()) return Stage::begin;
    schedule_round_ = 0;
    if (++number_ < pieces_) return Stage::begin;
    return in_place_.ends_with_confirmations(call_) ? Stage::leave : Stage::over;
}

// A rank that gives up sends its farewell before its program writes the memory again.  So bytes that were read there after the
// farewell may be wrong.
Rounds::Peer* Collective::who_gave_up() {
    std::atomic_thread_fence(std::memory_order_acquire);
    std::vector<Rounds::Peer>& peers = rounds_->peers();
    const auto peer = std::find_if(peers.begin(), peers.end(), [](const Rounds::Peer& each) { return each.in_place && each.incoming[0]->is_let_go(); });
    return peer == peers.end() ? nullptr : &*peer;
}

// Whether this rank may write the round's line and slot; else it waits for a rank that may still read their earlier content.
bool Collective::passes_room(Stage next) {
    awaited = rounds_->blocking_line(round_);
    awaits_ = awaited ? Awaits::room : Awaits::peer;
    if (!awaited) stage_ = next;
    return !awaited;
}

Stepwise::Step Collective::wait_for(Rounds::Peer& peer) {
    awaits_ = Awaits::peer;
    awaited = peer.incoming[round_.number % Rounds::kDepth];
    return Step::waits;
}

// Wait for a record that will not come: the wait reports the loss.
Stepwise::Step Collective::wait_for_loss(Rounds::Peer& peer) {
    awaits_ = Awaits::loss;
    awaited = peer.incoming[(round_.number + 1) % Rounds::kDepth];
    return Step::waits;
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

// Whether a peer has made another call in this round, and need not wait for the others to end it.  If it must wait, the last rank
// to call reports the difference.
bool Collective::differs(const Rounds::Peer& peer, Refusal& why) const {
    const std::optional<uint64_t> theirs = rounds_->announced_word(peer, round_);
    if (!theirs || *theirs == word_ || !GroupCall::ends_alone(*theirs, peer.rank)) return false;
    why = difference(peer, call_.number, word_, *theirs);
    return true;
}

// The same in a barrier by a tree, where the peer that this rank waits for may have made its other call in a round, and this rank
// an other call before.
bool Collective::differs_in_barrier(const Rounds::Peer& peer, Refusal& why) const {
    const std::optional<uint64_t> number = Rounds::barrier_call(peer, tree_.number());
    if (number && *number < call_.number) {
        const uint64_t own = rounds_->word_of(*number);
        if (own != 0) why = difference(peer, *number, own, word_);
        return own != 0;
    }
    const std::optional<uint64_t> theirs = tree_.word_instead(*rounds_, peer, call_.number);
    if (!theirs || !GroupCall::ends_alone(*theirs, peer.rank)) return false;
    why = difference(peer, call_.number, word_, *theirs);
    return true;
}

Refusal Collective::difference(const Rounds::Peer& peer, uint64_t number, uint64_t own, uint64_t theirs) const {
    return {.why = Why::calls_differ, .calls = {.number = number, .own = own, .theirs = theirs, .rank = rounds_->rank, .peer = peer.rank}};
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
    while (true) switch (stage_) {
        case Stage::call:
            rounds_->note_call(call_.number, word_);
            stage_ = Stage::begin;
            if (call_.kind != GroupCall::Kind::barrier || !BarrierTree::serves(rounds_->size)) break;
            tree_.begin(*rounds_);
            stage_ = Stage::meet;
            [[fallthrough]];
        case Stage::meet:
            if (Rounds::Peer* const peer = tree_.advance(*rounds_, call_.number)) {
                if (differs_in_barrier(*peer, why)) return Step::failed;
                awaits_ = Awaits::barrier;
                awaited_peer_ = peer;
                awaited = peer->incoming[Rounds::kBarrierLine];
                return Step::waits;
            }
            stage_ = Stage::over;
            break;
        case Stage::begin:
            begin_round();
            stage_ = Stage::give;
            [[fallthrough]];
        case Stage::give:
            if (!passes_room(Stage::give)) return Step::waits;
            if (!touch(why, [this] { give(); })) return Step::failed;
            announce();
            served_ = 0;
            stage_ = listens() ? Stage::listen : Stage::take;
            break;
        case Stage::listen:   // to all, before any byte is taken
            for (; served_ < peers.size(); ++served_) {
                Rounds::Peer& peer = peers[served_];
                if (!schedule_->awaits(piece(), schedule_round_, peer.rank)) continue;
                if (!rounds_->has_announced(peer, round_, word_)) return differs(peer, why) ? Step::failed : wait_for(peer);
                if (!in_place_.note(call_, *rounds_, peer, round_, longest_, why)) return Step::failed;
            }
            if (in_place_.serves_all(call_, *rounds_)) piece_size_ = std::max(piece_size_, kPieceInPlace);   // no slot bounds it
            count_pieces();
            served_ = 0;
            stage_ = Stage::take;
            [[fallthrough]];
        case Stage::take:
            for (; served_ < peers.size(); ++served_) {
                Rounds::Peer& peer = peers[served_];
                if (!schedule_->awaits(piece(), schedule_round_, peer.rank)) continue;
                if (!rounds_->has_announced(peer, round_, word_)) return differs(peer, why) ? Step::failed : wait_for(peer);
                if (longest_ == 0 || (schedule_round_ == 0 && schedule_->combines())) continue;
                if (!take(peer, why)) return awaits_ == Awaits::loss ? wait_for_loss(peer) : Step::failed;
            }
            if (schedule_round_ == 0 && longest_ != 0 && !touch(why, [this] { end_bytes(); })) return Step::failed;
            stage_ = after_round();
            if (moved_ >= kChunk && stage_ != Stage::over) return Step::goes_on;
            break;
        case Stage::leave:
            if (Rounds::Peer* const peer = who_gave_up()) return wait_for_loss(*peer);
            round_ = rounds_->next(false);
            stage_ = Stage::confirm;
            [[fallthrough]];
        case Stage::confirm:
            if (!passes_room(Stage::await_confirmations)) return Step::waits;
            in_place_.confirm(*rounds_, round_, word_);
            served_ = 0;
            [[fallthrough]];
        case Stage::await_confirmations:
            for (; served_ < peers.size() && awaits_confirmations(); ++served_) {
                Rounds::Peer& peer = peers[served_];
                if (!rounds_->has_announced(peer, round_, word_)) return differs(peer, why) ? Step::failed : wait_for(peer);
                InPlace::note_confirmation(*rounds_, peer, round_);
            }
            stage_ = Stage::over;
            [[fallthrough]];
        case Stage::over:
            return Step::over;
    }
}

bool Collective::has_come() {
    switch (awaits_) {
        case Awaits::room: return awaited->signal().recorded() >= round_.needed;   // another peer may still block, too
        case Awaits::loss: return false;
        case Awaits::barrier: return tree_.has_come(*awaited_peer_, call_.number);
        case Awaits::peer: break;
    }
    return rounds_->has_announced(rounds_->peers()[served_], round_, word_);
}

}  // namespace peerlane

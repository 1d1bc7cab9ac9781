#include "ranks/mail.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "copy/copy_engine.h"
#include "copy/kernels.h"
#include "memory/fault_guard.h"
#include "ranks/group_call.h"
#include "ranks/calling_thread.h"

namespace peerlane {

namespace {

constexpr uint64_t kShortestInPlace = uint64_t{2} << 10, kShortestByCall = uint64_t{8} << 10;   // of fewer bytes a slot is faster
constexpr unsigned kLooksForReceiver = 50;   // they take less time than a copy
constexpr uint64_t kLongestCached = uint64_t{16} << 20;

// The word of a piece: the bytes of the message, and whether the peer is to read them in place.
constexpr uint64_t kInPlace = uint64_t{1} << 63;
constexpr unsigned kExpectedBits = 44;
// The word that a receiver leaves before it waits: the low bits of the piece's number, and the bytes that it expects.
uint64_t expectation(uint64_t number, uint64_t size) { return number << kExpectedBits | size; }

uint64_t word_of(bool sends, uint64_t size) {
    const GroupCall call{.kind = sends ? GroupCall::Kind::send : GroupCall::Kind::receive, .size = size};
    return call.word();
}

}  // namespace

bool Mail::Direction::may_send(uint64_t before, uint64_t count) const {
    const uint64_t depth = sent.depth(), last = before + count;
    return count <= depth && (last <= depth || taken.has(last - depth));
}

bool Mail::Direction::may_receive(uint64_t before, uint64_t count) const {
    if (count <= sent.depth() && sent.has(before + count)) return true;
    return sent.has(before + 1) && (sent.word(before + 1) & kInPlace) != 0;
}

Message::Message(std::shared_ptr<Mail> mail, bool sends, Range memory, uint64_t size)
    : mail_(std::move(mail)), direction_(mail_->direction(sends).get()), sends_(sends), memory_(memory), size_(size) {
    touches_host = memory_.is_foreign();
}

Message::~Message() {
    if (!mail_) return;   // moved from
    if (stage_ != Stage::over) mail_->farewell->send();
    Heap::get().unpin(memory_);
}

bool Message::differs(uint64_t theirs, Refusal& why) const {
    if (theirs == size_) return false;
    why = {.why = Why::calls_differ,
           .calls = {.number = message_, .own = word_of(sends_, size_), .theirs = word_of(!sends_, theirs), .rank = mail_->rank, .peer = mail_->peer}};
    return true;
}

template <class Work>
bool Message::touch(const Work& work, Refusal& why) {
    FaultGuard guard;
    if (guarded(guard, work)) [[likely]] return true;
    const Side side = side_at(sends_ ? "src" : "dst", memory_.host, size_);
    why = explain_fault(guard, &side, 1);
    return false;
}

bool Message::move(char* to, const char* from, uint64_t n, Refusal& why) {
    if (n == 0) return true;
    const bool past_caches = in_place_ && size_ >= kLongestCached;   // the bytes would not stay in any cache
    return touch([=] { copy_bytes(to, from, n, past_caches); }, why);
}

bool Message::read(char* to, uint64_t address, uint64_t n, Refusal& why) {
    const int error = mail_->memory.read(to, address, n);
    if (error == 0) return true;
    waits_for_loss_ = error == ESRCH || direction_->sent.of(number_).is_let_go();   // the wait reports it
    if (waits_for_loss_ || !touch([=] { memset(to, 0, n); }, why)) return false;
    why = {.why = Why::system_memory, .size = n, .error = error};
    return false;
}

Stepwise::Step Message::wait_for(const SequenceLines& lines, uint64_t number) {
    awaited_lines_ = &lines;
    awaited_number_ = number;
    awaited = &lines.of(number);
    return Step::waits;
}

bool Message::has_come() { return !waits_for_loss_ && awaited_lines_->has(awaited_number_); }

// Whether the receiver waits already.
bool Message::is_awaited() const { return direction_->taken.word(number_) >> kExpectedBits == expectation(number_, 0) >> kExpectedBits; }

char* Message::slot_of_piece() const { return direction_->slots.host + number_ % direction_->sent.depth() * direction_->slot; }

// The slot is free.
bool Message::send_piece(Refusal& why) {
    const uint64_t n = std::min(size_ - moved_, direction_->slot);
    const char* from = memory_.host + moved_;
    char bytes[Mail::kInLine];
    if (moved_ == 0 && is_awaited() && differs(direction_->taken.word(number_) & ((uint64_t{1} << kExpectedBits) - 1), why)) return false;
    if (size_ <= Mail::kInLine) {
        if (!move(bytes, from, n, why)) return false;
        direction_->sent.record(number_, size_, bytes, n);
    } else if (moved_ == 0 && size_ >= kShortestInPlace) {
        MemoryAddress address = MemoryAddress::of(memory_, size_);
        static_assert(sizeof address <= Mail::kInLine);
        if (!address.is_file() && (size_ < kShortestByCall || !mail_->access.may_reach(address))) address = {};
        in_place_ = address && mail_->access.reaches(address);
        if (in_place_ && size_ <= direction_->longest()) {   // a sender whose message has room in slots must not wait for a late receiver
            for (unsigned looks = 0; looks < kLooksForReceiver && !mail_->must_yield && !is_awaited(); ++looks) relax();
            in_place_ = is_awaited();
        }
        if (in_place_ && !address.is_file() && !touch([=, this] { look_at_pages(from, size_); }, why)) return false;
        if (!in_place_ && !move(slot_of_piece(), from, n, why)) return false;
        direction_->sent.record(number_, size_ | (in_place_ ? kInPlace : 0), reinterpret_cast<const char*>(&address), sizeof address);
    } else {
        if (!move(slot_of_piece(), from, n, why)) return false;
        direction_->sent.record(number_, size_, nullptr, 0);
    }
    moved_ += in_place_ ? size_ : n;
    return true;
}

// The piece was announced.
bool Message::receive_piece(Refusal& why) {
    const uint64_t word = direction_->sent.word(number_);
    uint8_t confirmation = 0;
    if (moved_ == 0) {
        if (differs(word & ~kInPlace, why)) return false;
        if (size_ >= kShortestInPlace) {
            MemoryAddress address;
            memcpy(&address, direction_->sent.bytes(number_), sizeof address);
            source_ = mail_->memory.at(address, size_);
            confirmation = mail_->memory.confirmation(address, source_);
            in_place_ = word & kInPlace;
            if (in_place_ && !source_) {
                why = {.why = Why::system_memory, .size = size_};
                return false;
            }
        }
    }
    const uint64_t n = std::min(size_ - moved_, in_place_ ? kChunk : direction_->slot);
    if (size_ <= Mail::kInLine) {
        char bytes[Mail::kInLine];
        memcpy(bytes, direction_->sent.bytes(number_), n);
        if (!move(memory_.host, bytes, n, why)) return false;
    } else if (in_place_ && source_.address != 0) {
        if (!read(memory_.host + moved_, source_.address + moved_, n, why)) return false;
    } else {
        const char* const from = in_place_ ? source_.mapped + moved_ : slot_of_piece();
        if (!move(memory_.host + moved_, from, n, why)) return false;
    }
    moved_ += n;
    if (in_place_ && moved_ == size_) {
        std::atomic_thread_fence(std::memory_order_acquire);   // a rank says farewell before its memory can change
        waits_for_loss_ = direction_->sent.of(number_).is_let_go();
        if (waits_for_loss_) return false;
    }
    if (!in_place_ || moved_ == size_) direction_->taken.record(number_, direction_->taken.word(number_), reinterpret_cast<const char*>(&confirmation), 1);
    return true;
}

Stepwise::Step Message::advance(Refusal& why) {
    try {
        Heap::get().check_leases(sends_ ? Range{} : memory_, sends_ ? memory_ : Range{});   // they may have ended since it was submitted
    } catch (const Refusal& refusal) {
        why = refusal;
        return Step::failed;
    }
    const uint64_t depth = direction_->sent.depth();
    for (uint64_t before = moved_; stage_ != Stage::over;) {
        if (stage_ == Stage::begin) {
            if (moved_ == 0) message_ = ++direction_->messages;
            number_ = ++direction_->pieces;
            stage_ = Stage::piece;
            if (!sends_ && moved_ == 0) direction_->taken.of(number_).signal().time_ns.store(expectation(number_, size_), std::memory_order_release);
        }
        if (stage_ == Stage::until_taken) {
            if (!direction_->taken.has(number_)) return wait_for(direction_->taken, number_);
            stage_ = Stage::over;
            break;
        }
        if (sends_) {
            if (number_ > depth && !direction_->taken.has(number_ - depth)) return wait_for(direction_->taken, number_ - depth);
            if (number_ > depth) mail_->access.bits |= static_cast<uint8_t>(direction_->taken.bytes(number_)[0]);
            if (!send_piece(why)) return Step::failed;
        } else {
            if (!direction_->sent.has(number_)) return wait_for(direction_->sent, number_);
            if (!receive_piece(why)) return waits_for_loss_ ? wait_for(direction_->sent, number_ + 1) : Step::failed;
        }
        const Stage more = in_place_ ? Stage::piece : Stage::begin, end = sends_ && in_place_ ? Stage::until_taken : Stage::over;
        stage_ = moved_ < size_ ? more : end;
        if (moved_ - before >= kChunk && stage_ != Stage::over) return Step::goes_on;
    }
    return Step::over;
}

}  // namespace peerlane

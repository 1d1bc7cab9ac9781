// Reads the records of a log, whoever wrote them.
//
// The file is another process's: each number is checked before it is used, and bytes are copied out before they are checked.  A
// log that is wrong throws BadLog; nothing is read beyond it.  One that is being written can be read at the same time.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "log/event.h"
#include "log/room.h"
#include "log/short_form.h"

namespace peerlane::log {

struct BadLog : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A record, valid until the reader's next call.
struct Record {
    Head head;
    uint64_t words[4];       // a, b, c, d; those that it lacks are 0
    const Span* spans;       // head.spans of them
    const Rows* rows;        // as many, with kRows; else null
    uint64_t at;             // its position: grows with each record

    uint64_t a() const { return words[0]; }
    uint64_t b() const { return words[1]; }
    uint64_t c() const { return words[2]; }
    uint64_t d() const { return words[3]; }
};

class Reader {
  public:
    // With `may_give_back` the file must be writable: give_back() frees what was read, and look() ends the growth of records.
    explicit Reader(const std::string& path, bool may_give_back = false)
        : fd_(open(path.c_str(), (may_give_back ? O_RDWR : O_RDONLY) | O_CLOEXEC)), may_write_(may_give_back) {
        if (fd_ < 0) throw BadLog(path + ": " + strerror(errno));
        try {
            static_assert(sizeof(Header) <= kHeaderBytes && offsetof(Header, head) == 32);
            Prologue first{};
            if (!read_at(&first, 0, sizeof first)) throw BadLog(path + ": shorter than a log's header");
            if (first.magic != kMagic) throw BadLog(path + ": not a log of this version");
            capacity_ = first.capacity;
            if (capacity_ == 0 || capacity_ % kUnit != 0 || capacity_ > kMostCapacity)
                throw BadLog(path + ": no log has a ring of " + std::to_string(capacity_) + " bytes");
            pid_ = first.pid;
            rank_ = first.rank;
            start_ns_ = first.start_ns;
            if (!read_at(&origin_, offsetof(Header, machine), sizeof origin_)) throw BadLog(path + ": the header ends too early");
            if (!refresh()) throw BadLog(path + ": the header ends too early");
            if (may_give_back) room_ = Room(path.substr(0, path.rfind('/') + 1), false);
            at_ = tail_ = first_ = counts_.tail;
            freed_ = at_ / kPage * kPage;
            check_counts();
        } catch (...) {
            close(fd_);
            throw;
        }
    }
    // The log is this process's own, and does not shrink: it is read where it lies.
    void map() {
        void* const at = mmap(nullptr, kHeaderBytes + capacity_, PROT_READ, MAP_SHARED, fd_, 0);
        if (at != MAP_FAILED) own_ = static_cast<const char*>(at);
    }
    Reader(Reader&& other) noexcept : Reader() { swap(other); }
    Reader& operator=(Reader&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Reader() {
        if (own_) munmap(const_cast<char*>(own_), kHeaderBytes + capacity_);
        if (fd_ >= 0) close(fd_);
    }

    int32_t pid() const { return pid_; }
    int32_t rank() const { return rank_; }
    uint64_t start_ns() const { return start_ns_ + shift_ns_; }
    // Its machine, and the clock of its times: each process of one boot has the same.
    uint64_t machine() const { return origin_.machine; }
    uint64_t clock() const { return origin_.clock; }
    uint64_t since_epoch_ns() const { return origin_.since_epoch_ns; }
    // All times are this much later than the log says, or earlier: its clock is another machine's.
    void shift(int64_t nanoseconds) { shift_ns_ = static_cast<uint64_t>(nanoseconds); }
    uint64_t capacity() const { return capacity_; }

    // Look at the header again: what was written meanwhile can be read then.
    void look() {
        if (!refresh()) throw BadLog("the log's header is gone");
        check_counts();
        if (!may_write_) return;
        // What the writer adds to the newest record just now is there at the next look.
        final_ = std::exchange(closed_, counts_.head);
        if (counts_.open != closed_ && final_ != closed_) write_header(closed_, offsetof(Header, closed));
    }
    // As of the last look.
    bool has_ended() const { return counts_.ended != 0; }
    uint64_t dropped() const { return counts_.dropped; }
    uint64_t written() const { return counts_.head - first_; }   // bytes, since the reader began
    uint64_t read() const { return at_ - first_; }
    uint64_t kept() const { return at_ - tail_; }            // bytes that were read and not given back

    // The next record that was there at the last look; null: there is none.  The newest one may still grow while its process
    // lives, until a reader that may write has looked twice; with `also_open` it is read, and grows unseen.
    const Record* next(bool also_open) { return next_before(also_open ? counts_.head : std::max(counts_.open, final_)); }

    // Free what was read: the writer may use its room again.
    void give_back() {
        if (at_ == tail_) return;
        free_to(at_ / kPage * kPage);
        tail_ = at_;
        write_header(tail_, offsetof(Header, tail));
    }
    // All was read of a process that writes no more: its file needs no room, and this no file.
    void release(bool may_give_back) {
        if (may_give_back) {
            uint64_t reserved = 0;
            if (read_at(&reserved, offsetof(Header, reserved), sizeof reserved) && reserved >= at_ && reserved - at_ <= capacity_) free_to(reserved);
            room_ = Room();
        }
        close(std::exchange(fd_, -1));
        std::vector<char>().swap(buffer_);
        std::vector<Span>().swap(spans_);
        std::vector<Rows>().swap(rows_);
        have_ = 0;
    }
    bool is_released() const { return fd_ < 0; }

  private:
    static constexpr uint64_t kMostCapacity = uint64_t{1} << 40, kAhead = uint64_t{1} << 20, kPage = 4096;

    struct Prologue {
        uint64_t magic, capacity;
        int32_t pid, rank;
        uint64_t start_ns;
    };
    struct Origin {
        uint64_t machine, clock, since_epoch_ns;
    };
    struct Counts {
        uint64_t head, open, tail, dropped;
        uint32_t ended;
    };

    const Record* next_before(uint64_t end) {
        while (at_ < end) {
            const uint64_t in_ring = at_ % capacity_;
            const uint64_t most = std::min(capacity_ - in_ring, end - at_);   // no record goes around the ring's end
            Head head;
            if (most < kUnit) throw bad("a record begins in the last bytes");
            const char* bytes = peek(in_ring, std::min<uint64_t>(most, sizeof head), most);
            uint32_t units;
            Kind kind;
            memcpy(&units, bytes + offsetof(Head, units), sizeof units);
            memcpy(&kind, bytes + offsetof(Head, kind), sizeof kind);
            const uint64_t length = uint64_t{units & ~kShort} * kUnit;
            if (length == 0 || length > most) throw bad("a record of " + std::to_string(length) + " bytes");
            if (kind == Kind::pad) {
                at_ += length;
                continue;
            }
            bytes = peek(in_ring, length, most);
            if (units & kShort) return decode_short(bytes, length);
            if (length < sizeof head) throw bad("a record is shorter than its head");
            memcpy(&head, bytes, sizeof head);
            return decode(head, bytes, length);
        }
        return nullptr;
    }

    void write_header(uint64_t value, uint64_t at) {
        if (pwrite(fd_, &value, sizeof value, static_cast<off_t>(at)) != sizeof value) throw BadLog(std::string("the log's header: ") + strerror(errno));
    }

    void free_to(uint64_t to) {
        if (to <= freed_) return;
        free_pages(fd_, kHeaderBytes, capacity_, freed_, to);
        room_.give(to - freed_);
        freed_ = to;
    }

    Reader() = default;
    void swap(Reader& other) {
        std::swap(fd_, other.fd_);
        std::swap(own_, other.own_);
        std::swap(pid_, other.pid_);
        std::swap(rank_, other.rank_);
        std::swap(start_ns_, other.start_ns_);
        std::swap(origin_, other.origin_);
        std::swap(shift_ns_, other.shift_ns_);
        std::swap(capacity_, other.capacity_);
        std::swap(counts_, other.counts_);
        std::swap(first_, other.first_);
        std::swap(tail_, other.tail_);
        std::swap(at_, other.at_);
        std::swap(freed_, other.freed_);
        std::swap(closed_, other.closed_);
        std::swap(final_, other.final_);
        std::swap(may_write_, other.may_write_);
        std::swap(room_, other.room_);
        buffer_.swap(other.buffer_);
        std::swap(have_from_, other.have_from_);
        std::swap(have_, other.have_);
        spans_.swap(other.spans_);
        rows_.swap(other.rows_);
        std::swap(record_, other.record_);
    }

    bool read_at(void* to, uint64_t at, uint64_t size) const {
        if (own_) {
            memcpy(to, own_ + at, size);
            return true;
        }
        auto* bytes = static_cast<char*>(to);
        while (size != 0) {
            const ssize_t got = pread(fd_, bytes, size, static_cast<off_t>(at));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return false;
            bytes += got;
            at += static_cast<uint64_t>(got);
            size -= static_cast<uint64_t>(got);
        }
        return true;
    }

    bool refresh() {
        // `open` first: it is behind `head`, which only grows.
        Counts now{};
        uint64_t open = 0;
        if (!read_at(&open, offsetof(Header, open), sizeof open)) return false;
        if (!read_at(&now.head, offsetof(Header, head), sizeof now.head)) return false;
        if (!read_at(&now.tail, offsetof(Header, tail), sizeof now.tail)) return false;
        if (!read_at(&now.dropped, offsetof(Header, dropped), sizeof now.dropped)) return false;
        if (!read_at(&now.ended, offsetof(Header, ended), sizeof now.ended)) return false;
        now.open = open;
        counts_ = now;
        return true;
    }
    void check_counts() {
        if (counts_.open > counts_.head || at_ > counts_.head || counts_.head - tail_ > capacity_ || counts_.head % kUnit != 0 ||
            counts_.open % kUnit != 0 || tail_ % kUnit != 0)
            throw BadLog("the log's header counts what cannot be: " + std::to_string(counts_.head) + ", " + std::to_string(counts_.open) + ", " +
                         std::to_string(tail_));
        have_ = 0;   // the last record that was read ahead may have grown
    }

    // `length` bytes of the ring from `in_ring` on, of `most` that may be read.
    const char* peek(uint64_t in_ring, uint64_t length, uint64_t most) {
        if (have_ != 0 && in_ring >= have_from_ && in_ring + length <= have_from_ + have_) return buffer_.data() + (in_ring - have_from_);
        const uint64_t wanted = std::max(length, std::min(most, kAhead));
        if (buffer_.size() < wanted) buffer_.resize(wanted);
        have_ = 0;
        if (!read_at(buffer_.data(), kHeaderBytes + in_ring, wanted)) throw bad("the file ends");
        have_from_ = in_ring;
        have_ = wanted;
        return buffer_.data();
    }

    const Record* decode_short(const char* bytes, uint64_t length) {
        const uint64_t count = std::min<uint64_t>(length / kUnit, kMostShortWords);
        uint64_t words[kMostShortWords];
        memcpy(words, bytes, count * kUnit);
        memset(record_.words, 0, sizeof record_.words);
        if (spans_.size() < kMostShortSpans) spans_.resize(kMostShortSpans);
        if (!unpack(words, count, start_ns_, record_.head, record_.words, spans_.data())) throw bad("a short record of " + std::to_string(length) + " bytes");
        check_kind(record_.head.kind);
        record_.head.time_ns += shift_ns_;
        record_.spans = spans_.data();
        record_.rows = nullptr;
        record_.at = at_;
        at_ += length;
        return &record_;
    }

    void check_kind(Kind kind) const {
        if (static_cast<size_t>(kind) >= sizeof kKindNames / sizeof *kKindNames) throw bad("kind " + std::to_string(static_cast<int>(kind)));
    }

    const Record* decode(const Head& head, const char* bytes, uint64_t length) {
        check_kind(head.kind);
        const bool with_rows = (head.flags & kRows) != 0;
        const uint64_t words = head.words, spans = head.spans;   // neither product can wrap
        const uint64_t needed = sizeof head + words * sizeof(uint64_t) + spans * (sizeof(Span) + (with_rows ? sizeof(Rows) : 0));
        if (words > 4 || needed > length) throw bad("a record of " + std::to_string(length) + " bytes with " + std::to_string(spans) + " spans");
        record_.head = head;
        record_.head.time_ns += shift_ns_;   // it may wrap: who wrote it may say any time
        memset(record_.words, 0, sizeof record_.words);
        const char* from = bytes + sizeof head;
        memcpy(record_.words, from, words * sizeof(uint64_t));
        from += words * sizeof(uint64_t);
        if (spans_.size() < spans) spans_.resize(spans);
        if (spans != 0) memcpy(spans_.data(), from, spans * sizeof(Span));
        record_.spans = spans_.data();
        record_.rows = nullptr;
        if (with_rows) {
            if (rows_.size() < spans) rows_.resize(spans);
            if (spans != 0) memcpy(rows_.data(), from + spans * sizeof(Span), spans * sizeof(Rows));
            record_.rows = rows_.data();
        }
        record_.at = at_;
        at_ += length;
        return &record_;
    }

    BadLog bad(const std::string& what) const { return BadLog("the log is wrong at " + std::to_string(at_) + ": " + what); }

    int fd_ = -1;
    const char* own_ = nullptr;
    int32_t pid_ = 0, rank_ = -1;
    uint64_t start_ns_ = 0, capacity_ = 0, shift_ns_ = 0;
    Origin origin_{};
    Counts counts_{};
    uint64_t first_ = 0, tail_ = 0, at_ = 0, freed_ = 0;
    uint64_t closed_ = 0, final_ = 0;   // up to where growth was ended for the writer at this look, and at the one before
    bool may_write_ = false;
    Room room_;
    std::vector<char> buffer_;
    uint64_t have_from_ = 0, have_ = 0;
    std::vector<Span> spans_;
    std::vector<Rows> rows_;
    Record record_{};
};

}  // namespace peerlane::log

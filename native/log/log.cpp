#include "log/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <system_error>
#include <utility>

#include "log/outside.h"
#include "log/room.h"
#include "log/short_form.h"
#include "ranks/faults.h"

namespace peerlane::log {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kFullNs = 100'000'000;   // between two tries on a full file system
constexpr uint32_t kMostMerged = 4;   // spans of a record that may grow

uint64_t clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::atomic<uint64_t> own_clock{0};

uint64_t since_epoch_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec) - clock_ns();
}

[[gnu::tls_model("initial-exec")]] thread_local constinit uint32_t thread_number = 0, locks = 0;

// Of the logs, and known to the thread.
struct Held {
    Held() { ++locks; }
    ~Held() { --locks; }
    Held(const Held&) = delete;
};

uint32_t logging_thread() {
    if (context.thread != 0) [[unlikely]] return context.thread;
    if (thread_number == 0) [[unlikely]] thread_number = static_cast<uint32_t>(syscall(SYS_gettid));
    return thread_number;
}

constexpr size_t kMostOfCommand = 4096;   // of another process's

std::string arguments(const std::string& process, size_t most = SIZE_MAX) {
    std::string json = "[";
    if (FILE* const file = std::fopen(("/proc/" + process + "/cmdline").c_str(), "re")) {
        std::string one;
        size_t count = 0;
        for (int c; (c = std::fgetc(file)) != EOF && count < most; ++count) {
            if (c != 0) {
                one += static_cast<char>(c);
                continue;
            }
            if (json.size() > 1) json += ", ";
            json += quoted(one);
            one.clear();
        }
        std::fclose(file);
    }
    return json + "]";
}

// The log of one reader; all of it under the logs' lock.
class Log {
  public:
    explicit Log(uint8_t by) : by_(by) {}

    // Without a directory: in a file without a name.
    bool begin(const std::string& directory, uint64_t capacity, int32_t rank, uint64_t total) {
        if (is_on()) return false;
        directory_ = directory;
        capacity_ = (std::max(capacity, kRoom) + kRoom - 1) / kRoom * kRoom;
        rank_ = rank;
        total_ = total;
        open_files();
        readers.fetch_or(by_, std::memory_order_relaxed);
        return true;
    }

    void end() {
        if (!is_on() || !header_) return stop();
        Event last{.kind = Kind::ended, .site = 0};
        write(last);
        header_->open.store(head_, std::memory_order_release);
        const uint64_t used = (head_ + kPage - 1) / kPage * kPage;
        if (used < reserved_) {
            free_pages(file_, kHeaderBytes, capacity_, used, reserved_);
            header_->reserved.store(used, std::memory_order_relaxed);
            room_.give(reserved_ - used);
        }
        header_->ended.store(1, std::memory_order_release);
        stop();
        close_files();
    }

    void write(const Event& event) {
        if (!is_on() || (!header_ && !open_again())) return;
        if (by_ == kChecker) {
            take_received([&](const Received& one) {
                const uint64_t now = clock_ns();
                append({.kind = Kind::outside, .a = one.key, .b = kReceived | one.flags, .c = now - std::min(now, one.last_ns), .d = now - one.first_ns, .site = 0});
            });
            if (event.kind != Kind::outside) note_logged();
        }
        append(event);
    }

    void append(const Event& event) {
        const uint64_t words[] = {event.a, event.b, event.c, event.d};
        const uint32_t spans = event.spans ? event.spans->size() : 0;
        const Span* const where = spans != 0 ? event.spans->data() : nullptr;
        const Rows* const rows = spans != 0 ? event.spans->rows() : nullptr;
        Head head{.units = 0, .kind = event.kind, .flags = static_cast<uint8_t>(event.flags | (rows ? kRows : 0)), .op = event.op,
                  .words = static_cast<uint8_t>(event.d ? 4 : event.c ? 3 : event.b ? 2 : event.a ? 1 : 0), .spans = spans, .site = event.site,
                  .thread = logging_thread(), .repeats = 1, .time_ns = clock_ns(), .stream = event.stream, .sequence = event.sequence};
        if (may_grow_ && event.kind == Kind::access && grow(head, event.a, where)) return;
        if ((event.kind == Kind::host_access || seen_.site != 0) && is_seen_again(head, event, where)) return;
        may_grow_ = false;
        std::array<uint64_t, kMostShortWords> packed;
        const uint64_t bytes = sizeof head + head.words * sizeof(uint64_t) + uint64_t{spans} * (sizeof(Span) + (rows ? sizeof(Rows) : 0));
        const uint32_t count = pack(head, words, where, header_->start_ns, packed);
        const uint64_t length = count != 0 ? count * kUnit : (bytes + kUnit - 1) / kUnit * kUnit;
        if (length / kUnit >= kShort || (missing_ != 0 && !write_gap()) || !make_room(length, head.time_ns)) [[unlikely]] {
            drop();
            return;
        }
        char* const at = ring_ + ring_offset_;
        if (count != 0) {
            memcpy(at, packed.data(), length);
        } else {
            head.units = static_cast<uint32_t>(length / kUnit);
            memcpy(at, &head, sizeof head);
            char* const behind = at + sizeof head;
            memcpy(behind, words, head.words * sizeof(uint64_t));
            if (spans != 0) memcpy(behind + head.words * sizeof(uint64_t), where, spans * sizeof(Span));
            if (rows) memcpy(behind + head.words * sizeof(uint64_t) + spans * sizeof(Span), rows, spans * sizeof(Rows));
        }
        may_grow_ = count != 0 && event.kind == Kind::access && spans != 0 && spans <= kMostMerged;
        if (may_grow_) {
            open_ = {reinterpret_cast<uint64_t*>(at), count, head, event.a, {}};
            std::copy_n(where, spans, open_.spans.begin());
        }
        const uint64_t begin = head_;
        go_on(length);
        header_->head.store(head_, std::memory_order_release);
        header_->open.store(may_grow_ ? begin : head_, std::memory_order_release);
    }

    void drop() {
        if (!header_) return;
        if (missing_++ == 0) missing_since_ = clock_ns();
        header_->dropped.fetch_add(1, std::memory_order_relaxed);
        settle();
    }

    // No record grows any more.
    void settle() {
        may_grow_ = false;
        if (header_) header_->open.store(head_, std::memory_order_release);
    }

    void write_name(const std::string& line) {
        if (!is_on() || (!header_ && !open_again())) return;
        name(line);
    }

    Facts facts() {
        if (!is_on() || (!header_ && !open_again())) return {};
        return {path_, head_, header_->dropped.load(std::memory_order_relaxed), capacity_, header_->start_ns};
    }

    // In a forked child: what its parent has mapped is the parent's.
    void forget() {
        thread_number = 0;
        if (!is_on()) return;
        if (by_ == kChecker) forget_outside();
        close_files();
        number.fetch_add(1, std::memory_order_relaxed);
    }

  private:
    bool is_on() const { return is_read(by_); }
    void stop() { readers.fetch_and(static_cast<uint8_t>(~by_), std::memory_order_relaxed); }

    void name(const std::string& line) {
        const std::string whole = line + "\n";
        // What does not fit on the disk is missing: the events have numbers without names then.
        for (size_t at = 0; at < whole.size();) {
            const ssize_t done = ::write(names_, whole.data() + at, whole.size() - at);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return;
            at += static_cast<size_t>(done);
        }
    }

    void make_files(uint64_t now) {
        if (directory_.empty()) {
            file_ = memfd_create("peerlane-log", MFD_CLOEXEC);
            path_ = "/proc/self/fd/" + std::to_string(file_);
            return;
        }
        const std::string stem = directory_ + "/" + std::to_string(getpid()) + "-" + std::to_string(now);
        path_ = stem + ".names";
        names_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
        if (names_ < 0) return;
        path_ = stem + ".log";
        file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }

    void open_files() {
        const uint64_t now = clock_ns();
        const auto fail = [&](const char* what) {
            const int error = errno;
            close_files();
            throw std::system_error(error, std::generic_category(), std::string(what) + " " + path_);
        };
        seen_ = {};
        make_files(now);
        if (file_ < 0) fail("make");
        mapped_ = kHeaderBytes + capacity_;
        if (ftruncate(file_, static_cast<off_t>(mapped_)) != 0 || !reserve(0, kHeaderBytes)) fail("make room in");
        void* const at = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
        if (at == MAP_FAILED) fail("map");
        header_ = new (at) Header{.magic = 0, .capacity = capacity_, .pid = getpid(), .rank = rank_, .start_ns = now,
                                  .machine = machine.load(std::memory_order_relaxed), .clock = own_clock.load(std::memory_order_relaxed),
                                  .since_epoch_ns = since_epoch_ns()};
        ring_ = static_cast<char*>(at) + kHeaderBytes;
        head_ = ring_offset_ = reserved_ = missing_ = 0;
        may_grow_ = false;
        std::atomic_ref(header_->magic).store(kMagic, std::memory_order_release);
        if (names_ < 0) return;
        room_ = Room(directory_, true);
        number.fetch_add(1, std::memory_order_relaxed);
        name("{\"process\": {\"pid\": " + std::to_string(getpid()) + ", \"rank\": " + std::to_string(rank_) + ", \"argv\": " + arguments("self") + "}}");
    }

    void close_files() {
        if (header_) munmap(header_, mapped_);
        header_ = nullptr;
        if (file_ >= 0) close(file_);
        if (names_ >= 0) close(names_);
        file_ = names_ = -1;
    }

    bool open_again() {   // after a fork
        try {
            open_files();
            return true;
        } catch (const std::exception&) {   // the child has no log; who reads the directory sees that
            stop();
            return false;
        }
    }

    bool reserve(uint64_t at, uint64_t size) {
        if (fallocate(file_, 0, static_cast<off_t>(at), static_cast<off_t>(size)) == 0) return true;
        if (errno != EOPNOTSUPP) return false;
        return posix_fallocate(file_, static_cast<off_t>(at), static_cast<off_t>(size)) == 0;
    }

    // Room for a record at `head_`, which goes to the ring's beginning if the rest of it is too short.
    bool make_room(uint64_t length, uint64_t now) {
        const uint64_t left = capacity_ - ring_offset_, pad = length > left ? left : 0, end = head_ + pad + length;
        if (end > reserved_) [[unlikely]] {
            // A page whose old records are not read yet may be given back later: it is no room.
            const uint64_t tail = std::min(header_->tail.load(std::memory_order_acquire), head_);
            const uint64_t limit = (tail + capacity_) / kPage * kPage;
            if (end > limit) return false;
            while (reserved_ < end) {
                // A process that writes little takes little.
                const uint64_t wanted = reserved_ < kRoom ? std::max(kFirstRoom, 2 * reserved_) : (reserved_ / kRoom + 1) * kRoom;
                const uint64_t next = std::min(wanted, limit), at = reserved_ % capacity_;
                if ((now < full_until_ && tail == full_tail_) || !room_.take(next - reserved_, total_)) return false;
                if (!reserve(kHeaderBytes + at, next - reserved_)) {
                    const int error = errno;
                    room_.give(next - reserved_);
                    // To be refused takes as long as a thousand events; the reader may have given pages back meanwhile.
                    full_until_ = clock_ns() + kFullNs;
                    full_tail_ = tail;
                    warn_full(error);
                    return false;
                }
#ifdef MADV_POPULATE_WRITE
                madvise(ring_ + at, next - reserved_, MADV_POPULATE_WRITE);   // cheaper than a fault a page
#endif
                reserved_ = next;
                header_->reserved.store(next, std::memory_order_relaxed);
            }
        }
        if (pad != 0) {
            const Head head{.units = static_cast<uint32_t>(pad / kUnit), .kind = Kind::pad};
            memcpy(ring_ + ring_offset_, &head, std::min<uint64_t>(pad, sizeof head));
            go_on(pad);
        }
        return true;
    }

    // Once in a process; nobody waits for a stderr that takes nothing.
    void warn_full(int error) {
        if (std::exchange(has_warned_, true)) return;
        const std::string text = "peerlane: no room for the event log " + path_ + " (" + std::strerror(error) + "): events are missing\n";
        pollfd to{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
        if (poll(&to, 1, 0) == 1) (void)!::write(STDERR_FILENO, text.data(), text.size());
    }

    void go_on(uint64_t length) {
        head_ += length;
        ring_offset_ += length;
        if (ring_offset_ == capacity_) ring_offset_ = 0;
    }

    bool write_gap() {
        const uint64_t missing = std::exchange(missing_, 0);
        const uint64_t before = header_->dropped.load(std::memory_order_relaxed);
        write({.kind = Kind::gap, .a = missing, .b = missing_since_, .site = 0});
        if (header_->dropped.load(std::memory_order_relaxed) == before) return true;
        header_->dropped.store(before, std::memory_order_relaxed);   // the gap is not an event that was dropped
        missing_ = missing;
        return false;
    }

    // A loop that polls as fast as it can sees the same most of the time.
    bool is_seen_again(const Head& head, const Event& event, const Span* where) {
        if (head.kind != Kind::host_access || head.flags != kPolled || event.b == 0 || head.spans != 1) {
            seen_ = {};
            return false;
        }
        const Seen now{head.site, head.thread, event.a, event.b, where->block, where->offset};
        return std::exchange(seen_, now) == now;
    }

    // Merge an access into the record before, in whose room it stays.
    bool grow(const Head& head, uint64_t a, const Span* more) {
        Head& last = open_.head;
        if (head.spans != last.spans || (head.flags & kRows) != 0 || head.site != last.site || head.thread != last.thread || head.stream != last.stream ||
            head.op != last.op || (last.flags & ~kMerged) != head.flags || open_.a != a || (head.stream != 0 && head.sequence != last.sequence + 1))
            return false;
        std::array<Span, kMostMerged> grown = open_.spans;
        for (uint32_t i = 0; i < last.spans; ++i) {
            if (more[i].block != grown[i].block || more[i].offset != grown[i].offset + grown[i].size) return false;
            grown[i].size += more[i].size;
        }
        if (header_->closed.load(std::memory_order_relaxed) == head_) return false;
        Head merged = last;
        merged.flags |= kMerged;
        merged.sequence = head.sequence;
        ++merged.repeats;
        const uint64_t words[] = {a};
        std::array<uint64_t, kMostShortWords> packed;
        if (last.words > 1 || pack(merged, words, grown.data(), header_->start_ns, packed) != open_.count) return false;
        for (uint32_t i = 0; i < open_.count; ++i) std::atomic_ref(open_.at[i]).store(packed[i], std::memory_order_relaxed);
        last = merged;
        open_.spans = grown;
        return true;
    }

    const uint8_t by_;
    std::string directory_, path_;
    uint64_t capacity_ = 0, total_ = 0, mapped_ = 0;
    Room room_;
    int32_t rank_ = -1;
    int file_ = -1, names_ = -1;
    Header* header_ = nullptr;
    char* ring_ = nullptr;
    struct Open {                 // the last record, in its short form
        uint64_t* at = nullptr;
        uint32_t count = 0;
        Head head{};
        uint64_t a = 0;
        std::array<Span, kMostMerged> spans{};
    };
    Open open_;
    struct Seen {                 // by the look that is the last record
        uint32_t site = 0, thread = 0;
        uint64_t value = 0, size = 0, block = 0, offset = 0;

        bool operator==(const Seen&) const = default;
    };
    Seen seen_;
    bool may_grow_ = false, has_warned_ = false;
    uint64_t full_until_ = 0, full_tail_ = 0;
    uint64_t head_ = 0, reserved_ = 0;
    uint64_t ring_offset_ = 0;    // head_ % capacity_, and cheaper
    uint64_t missing_ = 0, missing_since_ = 0;
};

class Logs {
  public:
    static Logs& get() {
        static auto* const logs = new Logs;
        return *logs;
    }

    Log& of(uint8_t by) { return by == kChecker ? checker_ : by == kObserver ? observer_ : trace_; }

    std::mutex mutex;

  private:
    Logs() {
        pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                       [] {
                           for (const uint8_t by : {kChecker, kObserver, kTrace}) get().of(by).forget();
                           get().mutex.unlock();
                       });
        std::atexit([] {
            if (const auto hook = before_exit.load(std::memory_order_acquire)) hook();
            peerlane::log::end();
        });
    }

    Log checker_{kChecker}, observer_{kObserver}, trace_{kTrace};
};

}  // namespace

void Spans::add(const Span& span) {
    if (many_.empty() && count_ < kFew) {
        few_[count_++] = span;
        return;
    }
    if (many_.empty()) many_.assign(few_, few_ + count_);
    many_.push_back(span);
}

void Spans::add(uint64_t block, uint64_t offset, uint64_t size, bool written) {
    if (written) block |= Span::kWritten;
    if (last_[written] != kNone) {
        Span& last = (many_.empty() ? few_ : many_.data())[last_[written]];
        if (last.block == block && last.offset + last.size == offset) {
            last.size += size;
            return;
        }
    }
    last_[written] = this->size();
    add({block, offset, size});
}

void Spans::add(const Span& span, const Rows& rows) {
    add(span);
    rows_.push_back(rows);
}

void write(const Event& event, uint8_t by) noexcept {
    if (by == kChecker && event.kind != Kind::outside && event.kind != Kind::evident) note_event();   // these are no calls of the program's
    const Held held;
    std::lock_guard lock(Logs::get().mutex);
    Logs::get().of(by).write(event);
}

uint32_t this_thread() noexcept { return logging_thread(); }

bool is_writing() noexcept { return locks != 0; }

void drop(uint8_t by) noexcept {
    const Held held;
    std::lock_guard lock(Logs::get().mutex);
    Logs::get().of(by).drop();
}

Writing::Writing(bool for_checker) {
    if (for_checker) note_event();
    ++locks;
    lock_ = std::unique_lock(Logs::get().mutex);
}

Writing::~Writing() {
    lock_.unlock();
    --locks;
}

void Writing::write(const Event& event, uint8_t by) noexcept { Logs::get().of(by).write(event); }

void set_origin(uint64_t own_machine, uint64_t clock) {
    machine.store(own_machine, std::memory_order_relaxed);
    own_clock.store(clock, std::memory_order_relaxed);
}

void see_forks() { Logs::get(); }

bool begin(const std::string& directory, uint64_t capacity, int32_t rank, uint64_t total) {
    const Held held;
    std::lock_guard lock(Logs::get().mutex);
    return Logs::get().of(kChecker).begin(directory, capacity, rank, total);
}

bool begin_in_process(uint8_t by, uint64_t capacity) {
    std::lock_guard lock(Logs::get().mutex);
    return Logs::get().of(by).begin("", capacity, -1, UINT64_MAX);
}

void end(uint8_t by) noexcept {
    const Held held;
    std::lock_guard lock(Logs::get().mutex);
    Logs::get().of(by).end();
}

Facts facts(uint8_t by) {
    const Held held;
    std::lock_guard lock(Logs::get().mutex);
    return Logs::get().of(by).facts();
}

void write_name(const std::string& line) noexcept {
    const Held held;
    std::lock_guard lock(Logs::get().mutex);
    Logs::get().of(kChecker).write_name(line);
}

void settle() noexcept {
    const Held held;
    std::lock_guard lock(Logs::get().mutex);
    Logs::get().of(kChecker).settle();
}

void name_sharer(int32_t pid) noexcept {
    if (!is_read(kChecker)) return;
    write({.kind = Kind::shared_with, .a = static_cast<uint64_t>(pid), .site = 0});
    try {
        const std::string number = std::to_string(pid);
        write_name("{\"sharer\": " + number + ", \"argv\": " + arguments(number, kMostOfCommand) + "}");
    } catch (const std::bad_alloc&) {
        drop();
    }
}

std::string quoted(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += c;
        } else if (byte < 0x20) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", byte);
            quoted += code;
        } else {
            quoted += c;
        }
    }
    return quoted + '"';
}

}  // namespace peerlane::log

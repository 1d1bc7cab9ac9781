#include "copy/file_copies.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "copy/task.h"
#include "log/outside.h"

namespace peerlane {

namespace {
constexpr uint64_t kMostParts = 128;         // of a step: a call of the system for each costs as much as some KiB
constexpr uint64_t kApart = uint64_t{16} << 10;
constexpr int kFirstKept = 3;                // not a standard stream's number, should that be free
}

FileCopies::~FileCopies() {
    for (const int fd : kept_) close(fd);
}

void FileCopies::add(const FilePiece& piece, char* host) {
    for (uint64_t at = 0; at != piece.size;) {
        if (steps_.empty() || steps_.back().count == kMostParts || steps_.back().size == kChunk) steps_.push_back({parts_.size(), 0, 0});
        Step& step = steps_.back();
        const uint64_t part = std::min(piece.size - at, kChunk - step.size);
        memory_.push_back({host + at, part});
        parts_.push_back({piece.offset + at, pieces_, at, piece.fd});
        ++step.count;
        step.size += part;
        at += part;
    }
    size_ += piece.size;
    ++pieces_;
}

void FileCopies::keep_files() {
    std::unordered_map<int, int> own;
    int before = -1, now = -1;   // of the part before
    for (Part& part : parts_) {
        if (part.fd != before) {
            before = part.fd;
            const auto [known, is_new] = own.try_emplace(part.fd, part.fd);
            if (is_new) {
                kept_.reserve(kept_.size() + 1);
                const int kept = fcntl(part.fd, F_DUPFD_CLOEXEC, kFirstKept);
                // Without room for descriptors the program's own have to do: the vendor uses these always.
                if (kept >= 0) kept_.push_back(known->second = kept);
            }
            now = known->second;
        }
        part.fd = now;
    }
}

FileCopies::Run FileCopies::run_of(uint64_t first, uint64_t end) const {
    Run run{first + 1, memory_[first].iov_len};
    while (run.end < end && parts_[run.end].fd == parts_[first].fd && parts_[run.end].offset == parts_[first].offset + run.size)
        run.size += memory_[run.end++].iov_len;
    return run;
}

ssize_t FileCopies::move(uint64_t first, uint64_t count, int flags) const {
    const int fd = parts_[first].fd;
    const auto offset = static_cast<off_t>(parts_[first].offset);
    if (!reads_ && log::is_logging()) log::note_file(fd, true);
    ssize_t moved;
    do {
        moved = (reads_ ? preadv2 : pwritev2)(fd, &memory_[first], static_cast<int>(count), offset, flags);
    } while (moved < 0 && errno == EINTR);
    if (reads_ && log::is_logging()) {
        const int error = errno;
        log::note_file(fd, false);
        errno = error;
    }
    return moved;
}

// The system refuses memory that the checker protects, or that is none: a touch by this thread lets it in, or faults.
ssize_t FileCopies::move_apart(const Part& part, char* host, uint64_t done, uint64_t size) const {
    alignas(4096) char apart[kApart];
    const uint64_t most = std::min(size, kApart);
    const auto offset = static_cast<off_t>(part.offset + done);
    if (reads_) {
        const ssize_t moved = pread(part.fd, apart, most, offset);
        if (moved > 0) memcpy(host, apart, static_cast<size_t>(moved));
        return moved;
    }
    memcpy(apart, host, most);
    return pwrite(part.fd, apart, most, offset);
}

// A part of which `done` bytes are copied.
void FileCopies::finish(uint64_t at, uint64_t done) {
    const Part& part = parts_[at];
    char* const host = static_cast<char*>(memory_[at].iov_base);
    const uint64_t size = memory_[at].iov_len;
    while (done < size) {
        const auto offset = static_cast<off_t>(part.offset + done);
        ssize_t moved = reads_ ? pread(part.fd, host + done, size - done, offset) : pwrite(part.fd, host + done, size - done, offset);
        if (moved < 0 && errno == EFAULT) moved = move_apart(part, host + done, done, size - done);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) {
            fail(moved < 0 ? errno : 0, part, done);
            return;
        }
        done += static_cast<uint64_t>(moved);
    }
}

void FileCopies::fail(int error, const Part& part, uint64_t done) {
    if (is_claimed_.exchange(true, std::memory_order_relaxed)) return;
    failure_ = {error, part.piece, part.before + done};
    has_failed_.store(true, std::memory_order_release);
}

void FileCopies::step(uint64_t i) {
    const uint64_t end = steps_[i].first + steps_[i].count;
    for (uint64_t at = steps_[i].first; at < end;) {
        const Run run = run_of(at, end);
        const ssize_t moved = move(at, run.end - at, 0);
        uint64_t left = static_cast<uint64_t>(std::max<ssize_t>(moved, 0));
        for (; at < run.end && left >= memory_[at].iov_len; ++at) left -= memory_[at].iov_len;
        if (at < run.end) finish(at++, left);
    }
}

// After a call that moved only some of its bytes errno is 0.
bool FileCopies::run_all(int flags) {
    for (uint64_t at = 0; at < parts_.size();) {
        const Run run = run_of(at, std::min(parts_.size(), at + kMostParts));
        errno = 0;
        if (move(at, run.end - at, flags) != static_cast<ssize_t>(run.size)) return false;
        at = run.end;
    }
    return true;
}

FileCopies::AtOnce FileCopies::run_at_once() {
    if (run_all(RWF_NOWAIT)) return AtOnce::done;
    return errno == EOPNOTSUPP ? AtOnce::is_unknown : AtOnce::would_wait;
}

bool FileCopies::is_cached() const {
    int before = -1;
    return std::none_of(parts_.begin(), parts_.end(), [&](const Part& part) {
        return std::exchange(before, part.fd) != part.fd && (fcntl(part.fd, F_GETFL) & (O_DIRECT | O_DSYNC)) != 0;
    });
}

}  // namespace peerlane

// The bytes that all logs of a folder hold: a number in a file there, which their writers and their reader share.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace peerlane::log {

class Room {
  public:
    Room() = default;
    // Without a file that can be mapped, each log has its own bound only.
    explicit Room(const std::string& folder, bool make) {
        const int fd = open((folder + "/room").c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
        if (fd < 0) return;
        // All writers make it as large, and what is new in it is 0.
        if (posix_fallocate(fd, 0, sizeof *held_) == 0) {
            void* const at = mmap(nullptr, sizeof *held_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (at != MAP_FAILED) held_ = static_cast<std::atomic<uint64_t>*>(at);
        }
        close(fd);
    }
    Room(Room&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
    Room& operator=(Room&& other) noexcept {
        std::swap(held_, other.held_);
        return *this;
    }
    ~Room() {
        if (held_) munmap(held_, sizeof *held_);
    }

    // False: all logs together would hold more than `most`.
    bool take(uint64_t bytes, uint64_t most) {
        if (!held_) return true;
        uint64_t held = held_->load(std::memory_order_relaxed);
        do {
            if (held > most || bytes > most - held) return false;
        } while (!held_->compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
        return true;
    }
    void give(uint64_t bytes) {
        if (!held_) return;
        uint64_t held = held_->load(std::memory_order_relaxed);
        while (!held_->compare_exchange_weak(held, held - std::min(held, bytes), std::memory_order_relaxed)) {
        }
    }

  private:
    std::atomic<uint64_t>* held_ = nullptr;
};

// Free pages of a file in the ring [`ring`, `ring` + `capacity`), of the bytes `from` to `to` since its beginning.
inline void free_pages(int fd, uint64_t ring, uint64_t capacity, uint64_t from, uint64_t to) {
    while (from < to) {
        const uint64_t at = from % capacity, part = std::min(capacity - at, to - from);
        // A file system that cannot do it keeps the pages.
        (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(ring + at), static_cast<off_t>(part));
        from += part;
    }
}

}  // namespace peerlane::log

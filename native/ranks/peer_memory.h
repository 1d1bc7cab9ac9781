// Memory of another process of this machine, read where it lies.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "memory/heap.h"

namespace peerlane {

// Where bytes lie, for processes of the same user: in a file that their owner has open, or in its own memory.
struct MemoryPlace {
    uint64_t file = 0;     // its inode; 0: in its own memory
    uint64_t offset = 0;   // or the address there; 0: nowhere that others could read
    int32_t fd = -1;       // the owner's

    // Of pinned memory.
    static MemoryPlace of(const Range& range, uint64_t size);

    bool is_file() const { return file != 0; }
    explicit operator bool() const { return file != 0 || offset != 0; }
    MemoryPlace behind(uint64_t n) const { return *this ? MemoryPlace{file, offset + n, fd} : MemoryPlace{}; }
};

// What a peer has found of how it can read this process.
struct ReadHere {
    static constexpr uint8_t kFiles = 1, kMemory = 2, kNotMemory = 4;
    uint8_t found = 0;

    bool at(const MemoryPlace& place) const { return found & (place.is_file() ? kFiles : kMemory); }
    bool may_be(const MemoryPlace& place) const { return place.is_file() || !(found & kNotMemory); }
};

// What one process says of its memory is not trusted: only where it is true are there bytes.
class PeerMemory {
  public:
    // Mapped here, or at an address in the other process; neither: they cannot be read here.
    struct Bytes {
        const char* mapped = nullptr;
        uint64_t address = 0;

        explicit operator bool() const { return mapped || address != 0; }
        Bytes behind(uint64_t n) const { return {mapped ? mapped + n : nullptr, address != 0 ? address + n : 0}; }
    };

    explicit PeerMemory(pid_t owner = 0) : owner_(owner) {}
    ~PeerMemory() { forget(); }
    PeerMemory(PeerMemory&& other) noexcept : owner_(other.owner_), files_(std::move(other.files_)), reads_memory_(other.reads_memory_) {}
    PeerMemory(const PeerMemory&) = delete;

    // The bytes from there on, at least so many.
    Bytes at(const MemoryPlace& place, uint64_t size);
    // What to tell the owner of a place where `bytes` were found.
    uint8_t found(const MemoryPlace& place, const Bytes& bytes) const;
    // Copy bytes that have an address; 0, or an errno: ESRCH, it has ended.
    int read(char* to, uint64_t address, uint64_t n) const;
    void forget();

  private:
    static constexpr size_t kMost = 16;   // files at a time
    struct File {
        uint64_t inode, size;
        char* bytes;
    };
    const File* open(const MemoryPlace& place);

    const pid_t owner_;
    std::vector<File> files_;            // the one that was used last is in front
    std::optional<bool> reads_memory_;   // whether the system lets this process do so; none: it is not known yet
};

}  // namespace peerlane

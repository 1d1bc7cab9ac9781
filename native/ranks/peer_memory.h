// Memory of another process of this machine, read in place.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "memory/heap.h"

namespace peerlane {

// The address of bytes for other processes of the same user: in a file that their owner has open, or in its own memory.
struct MemoryAddress {
    uint64_t file = 0;     // the inode; 0: it is no file
    uint64_t offset = 0;   // in the file, or the address in the owner; 0: others cannot read it
    int32_t fd = -1;       // in the owner

    // Of pinned memory.
    static MemoryAddress of(const Range& range, uint64_t size);

    bool is_file() const { return file != 0; }
    explicit operator bool() const { return file != 0 || offset != 0; }
    MemoryAddress behind(uint64_t n) const { return *this ? MemoryAddress{file, offset + n, fd} : MemoryAddress{}; }
};

// How a peer can read this process, as far as it has tried.
struct ReadAccess {
    static constexpr uint8_t kFiles = 1, kMemory = 2, kNotMemory = 4;
    uint8_t bits = 0;

    bool reaches(const MemoryAddress& address) const { return bits & (address.is_file() ? kFiles : kMemory); }
    bool may_reach(const MemoryAddress& address) const { return address.is_file() || !(bits & kNotMemory); }
};

// What another process says of its memory is not trusted: bytes are returned only after they were checked to exist.
class PeerMemory {
  public:
    // Mapped in this process, or at an address of the other one; neither: this process cannot read them.
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

    // At least `size` bytes from an address on.
    Bytes at(const MemoryAddress& address, uint64_t size);
    // The ReadAccess bits to confirm to the owner of `address`, where at() has returned `bytes`.
    uint8_t confirmation(const MemoryAddress& address, const Bytes& bytes) const;
    // Copy bytes that have an address; 0, or an errno: ESRCH if the owner has ended.  `threads`: how many copy at most.
    int read(char* to, uint64_t address, uint64_t n, unsigned threads = 1) const;
    void forget();

  private:
    static constexpr size_t kMost = 16;   // files at a time
    struct File {
        uint64_t inode, size;
        char* bytes;
    };
    const File* open(const MemoryAddress& address);
    int read_alone(char* to, uint64_t address, uint64_t n) const;

    const pid_t owner_;
    std::vector<File> files_;            // the one that was used last is in front
    std::optional<bool> reads_memory_;   // whether process_vm_readv is permitted; none: it was not tried yet
};

}  // namespace peerlane

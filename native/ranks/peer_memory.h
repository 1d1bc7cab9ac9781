// Memory of a device of another process, read where it lies.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "memory/heap.h"

namespace peerlane {

// Where bytes lie, for processes of the same user: in a file that their owner has open.
struct FilePlace {
    uint64_t file = 0;   // its inode; 0: they lie nowhere that others could read
    uint64_t offset = 0;
    int32_t fd = -1;     // the owner's

    // Of pinned memory.
    static FilePlace of(const Range& range, uint64_t size);
};

// Files of one process, mapped for reading.  What the process says is not trusted: only where it is true are there bytes.
class PeerMemory {
  public:
    explicit PeerMemory(pid_t owner = 0) : owner_(owner) {}
    ~PeerMemory() { forget(); }
    PeerMemory(PeerMemory&& other) noexcept : owner_(other.owner_), files_(std::move(other.files_)) {}
    PeerMemory(const PeerMemory&) = delete;

    // The bytes from there on, at least so many; null: they cannot be read here.
    const char* at(const FilePlace& place, uint64_t size);
    void forget();

  private:
    static constexpr size_t kMost = 16;   // files at a time
    struct File {
        uint64_t inode, size;
        char* bytes;
    };
    const File* open(const FilePlace& place);

    const pid_t owner_;
    std::vector<File> files_;   // the one that was used last is in front
};

}  // namespace peerlane

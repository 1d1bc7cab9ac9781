#include "ranks/peer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "copy/thread_team.h"

namespace peerlane {

namespace {
constexpr uint64_t kPart = uint64_t{256} << 10;   // that a thread takes at a time
}  // namespace

MemoryAddress MemoryAddress::of(const Range& range, uint64_t size) {
    if (!range.extent) return {0, reinterpret_cast<uintptr_t>(range.host)};
    const FileSpot spot = Heap::get().file_spot_of(range.host);
    struct stat file {};
    if (!spot.block || spot.left < size || fstat(spot.block->fd, &file) != 0) return {};
    spot.block->is_read_elsewhere = true;
    return {file.st_ino, spot.offset, spot.block->fd};
}

void PeerMemory::forget() {
    if (!Heap::get().is_forked())   // a child does not have them: what lies there is something else
        for (const File& each : files_) munmap(each.bytes, each.size);
    files_.clear();
}

const PeerMemory::File* PeerMemory::open(const MemoryAddress& address) {
    const int fd = open_descriptor_of(owner_, address.fd, O_RDONLY);
    if (fd < 0) return nullptr;
    struct stat file {};
    const bool is_it = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_ino == address.file && file.st_size > 0;
    // A file that shrinks would take pages away.
    const bool keeps = is_it && (fcntl(fd, F_GET_SEALS) & kFileSeals) == kFileSeals;
    void* const bytes = keeps ? mmap(nullptr, static_cast<size_t>(file.st_size), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED) return nullptr;
    madvise(bytes, static_cast<size_t>(file.st_size), MADV_DONTFORK);
    if (files_.size() == kMost) {
        munmap(files_.back().bytes, files_.back().size);
        files_.pop_back();
    }
    files_.insert(files_.begin(), {address.file, static_cast<uint64_t>(file.st_size), static_cast<char*>(bytes)});
    return &files_.front();
}

int PeerMemory::read(char* to, uint64_t address, uint64_t n, unsigned threads) const {
    if (threads == 1) return read_alone(to, address, n);
    std::atomic<uint64_t> next{0};
    std::atomic<int> failed{0};
    ThreadTeam::get().run(threads - 1, [&](bool) {
        for (uint64_t at; failed.load(std::memory_order_relaxed) == 0 && (at = next.fetch_add(kPart, std::memory_order_relaxed)) < n;)
            if (const int error = read_alone(to + at, address + at, std::min(kPart, n - at))) failed.store(error, std::memory_order_relaxed);
    });
    return failed.load(std::memory_order_relaxed);
}

int PeerMemory::read_alone(char* to, uint64_t address, uint64_t n) const {
    while (n != 0) {
        const iovec local{to, n}, there{reinterpret_cast<void*>(address), n};
        const ssize_t done = process_vm_readv(owner_, &local, 1, &there, 1, 0);
        if (done <= 0) return done == 0 ? EFAULT : errno;
        to += done;
        address += static_cast<uint64_t>(done);
        n -= static_cast<uint64_t>(done);
    }
    return 0;
}

uint8_t PeerMemory::confirmation(const MemoryAddress& address, const Bytes& bytes) const {
    if (address.is_file()) return bytes ? ReadAccess::kFiles : 0;
    return !address || !reads_memory_ ? 0 : *reads_memory_ ? ReadAccess::kMemory : ReadAccess::kNotMemory;
}

PeerMemory::Bytes PeerMemory::at(const MemoryAddress& address, uint64_t size) {
    if (!address.is_file()) {
        char byte = 0;
        if (address && size != 0 && !reads_memory_)
            if (const int error = read(&byte, address.offset, 1); error != EFAULT) reads_memory_ = error == 0;
        return {.address = reads_memory_.value_or(false) ? address.offset : 0};
    }
    const auto entry = std::find_if(files_.begin(), files_.end(), [&](const File& each) { return each.inode == address.file; });
    const File* file = nullptr;
    if (entry == files_.end()) {
        file = open(address);
    } else {
        std::rotate(files_.begin(), entry, entry + 1);
        file = &files_.front();
    }
    if (!file || address.offset > file->size || size > file->size - address.offset) return {};
    return {.mapped = file->bytes + address.offset};
}

}  // namespace peerlane

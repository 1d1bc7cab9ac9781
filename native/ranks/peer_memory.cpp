#include "ranks/peer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace peerlane {

FilePlace FilePlace::of(const Range& range, uint64_t size) {
    if (!range.extent) return {};
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

const PeerMemory::File* PeerMemory::open(const FilePlace& place) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", static_cast<int>(owner_), place.fd);
    int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == EMFILE && raise_descriptor_limit()) fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return nullptr;
    struct stat file {};
    const bool is_it = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_ino == place.file && file.st_size > 0;
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
    files_.insert(files_.begin(), {place.file, static_cast<uint64_t>(file.st_size), static_cast<char*>(bytes)});
    return &files_.front();
}

const char* PeerMemory::at(const FilePlace& place, uint64_t size) {
    if (place.file == 0) return nullptr;
    const auto found = std::find_if(files_.begin(), files_.end(), [&](const File& each) { return each.inode == place.file; });
    const File* file = nullptr;
    if (found == files_.end()) {
        file = open(place);
    } else {
        std::rotate(files_.begin(), found, found + 1);
        file = &files_.front();
    }
    if (!file || place.offset > file->size || size > file->size - place.offset) return nullptr;
    return file->bytes + place.offset;
}

}  // namespace peerlane

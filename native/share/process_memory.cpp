#include "share/process_memory.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "memory/mapping_query.h"

namespace peerlane {

namespace {

constexpr size_t kMostBytesRead = 1024;   // IOV_MAX

int open_mappings(pid_t pid) { return open(("/proc/" + std::to_string(pid) + "/maps").c_str(), O_RDONLY | O_CLOEXEC); }

bool is_before(const ProcessMemory::Range& one, const ProcessMemory::Range& other) { return one.address < other.address; }

}  // namespace

ProcessMemory::ProcessMemory(pid_t pid) : pid_(pid), mappings_(open_mappings(pid)) {}

ProcessMemory::~ProcessMemory() {
    if (mappings_ >= 0) close(mappings_);
}

int ProcessMemory::check(std::vector<Range> ranges, bool writes) const {
    std::erase_if(ranges, [](const Range& each) { return each.size == 0; });
    if (std::any_of(ranges.begin(), ranges.end(), [](const Range& each) { return each.size > UINT64_MAX - each.address; })) return EFAULT;
    if (!std::is_sorted(ranges.begin(), ranges.end(), is_before)) std::sort(ranges.begin(), ranges.end(), is_before);
    const int error = mappings_ < 0 ? ENOTTY : by_mappings(ranges, writes);
    return error == 0 || error == EFAULT || error == ESRCH ? error : by_pages(ranges);   // the system cannot be asked
}

// A mapping with rights is memory: the system adds a page that is missing at its first use.  Only of a file's mapping
// can pages be missing, and then all up to its end: those behind the end of the file.  So its last byte is read.
int ProcessMemory::by_mappings(const std::vector<Range>& ranges, bool writes) const {
    MappingQuery mapping{};
    std::vector<uint64_t> last;   // of each mapping of a file, the last byte that was asked for
    for (const auto& [address, size] : ranges) {
        const uint64_t end = address + size;
        for (uint64_t at = address; at < end; at = std::min(end, mapping.end)) {
            if (at < mapping.start || at >= mapping.end) {
                mapping = {.size = sizeof(mapping), .flags = writes ? MappingQuery::kWritable : MappingQuery::kReadable, .address = at};
                if (ioctl(mappings_, kQueryMapping, &mapping) != 0) return errno == ENOENT ? EFAULT : errno;
                if (at < mapping.start || at >= mapping.end) return EFAULT;
                if (mapping.inode != 0) last.push_back(at);
            }
            if (mapping.inode != 0) last.back() = std::max(last.back(), std::min(end, mapping.end) - 1);
        }
    }
    return read_bytes(last);
}

int ProcessMemory::by_pages(const std::vector<Range>& ranges) const {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<uint64_t> addresses;
    for (const auto& [address, size] : ranges) {
        const uint64_t first = address / page, pages = (address + size - 1) / page - first + 1;
        for (uint64_t i = 0; i < pages; ++i) {
            addresses.push_back(std::max(address, (first + i) * page));
            if (addresses.size() < kMostBytesRead) continue;
            if (const int error = read_bytes(addresses)) return error;
            addresses.clear();
        }
    }
    return read_bytes(addresses);
}

int ProcessMemory::read_bytes(const std::vector<uint64_t>& addresses) const {
    std::array<char, kMostBytesRead> read;
    std::array<iovec, kMostBytesRead> bytes;
    for (size_t at = 0; at < addresses.size(); at += kMostBytesRead) {
        const size_t count = std::min(addresses.size() - at, kMostBytesRead);
        for (size_t i = 0; i < count; ++i) bytes[i] = {reinterpret_cast<void*>(addresses[at + i]), 1};
        const iovec local{read.data(), count};
        const ssize_t done = process_vm_readv(pid_, &local, 1, bytes.data(), count, 0);
        if (done < 0) return errno;
        if (static_cast<size_t>(done) != count) return EFAULT;
    }
    return 0;
}

}  // namespace peerlane

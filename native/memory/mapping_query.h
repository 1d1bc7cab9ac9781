// Linux 6.11's query of one mapping of a process, which the headers of older systems lack.
#pragma once
#include <sys/ioctl.h>

#include <cstdint>

namespace peerlane {

// The argument of PROCMAP_QUERY.
struct MappingQuery {
    uint64_t size, flags, address;                            // asked
    uint64_t start, end, rights, page_size, offset, inode;    // answered
    uint32_t major, minor, name_size, build_id_size;
    uint64_t name, build_id;

    static constexpr uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kOrNext = 16;   // flags and rights
};
static_assert(sizeof(MappingQuery) == 104);
constexpr unsigned long kQueryMapping = _IOWR('f', 17, MappingQuery);

}  // namespace peerlane

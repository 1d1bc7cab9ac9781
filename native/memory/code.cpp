#include "memory/code.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include <fcntl.h>
#include <link.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "memory/mapping_query.h"

namespace peerlane {

namespace {

// The program's objects come first, so a look-up of its functions takes some dozens of nanoseconds.
bool is_in_object(uint64_t address) {
    return dl_iterate_phdr(
               [](dl_phdr_info* object, size_t, void* wanted) {
                   const uint64_t at = *static_cast<uint64_t*>(wanted) - object->dlpi_addr;
                   for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
                       const ElfW(Phdr)& segment = object->dlpi_phdr[i];
                       if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && at - segment.p_vaddr < segment.p_memsz)
                           return 1;
                   }
                   return 0;
               },
               &address) != 0;
}

bool is_in_list(uint64_t low, uint64_t high) {
    std::FILE* const list = std::fopen("/proc/self/maps", "re");
    if (!list) return false;
    bool is_executable = false;
    uint64_t first, last;
    char rights[5];
    while (!is_executable && std::fscanf(list, "%" SCNx64 "-%" SCNx64 " %4s%*[^\n]", &first, &last, rights) == 3)
        is_executable = first < high && low < last && rights[2] == 'x';
    std::fclose(list);
    return is_executable;
}

}  // namespace

bool is_any_executable(uint64_t low, uint64_t high) noexcept {
    const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    MappingQuery query{.size = sizeof query, .flags = MappingQuery::kExecutable | MappingQuery::kOrNext, .address = low};
    const int done = ioctl(file, kQueryMapping, &query);
    const int why = errno;
    close(file);
    return done == 0 ? query.start < high : why != ENOENT && is_in_list(low, high);
}

// Code that no object has is made at run time, by ctypes and compilers.
bool is_code(uint64_t address) noexcept { return address != 0 && (is_in_object(address) || is_any_executable(address, address + 1)); }

}  // namespace peerlane

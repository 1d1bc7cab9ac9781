// Which addresses of a process are memory, this one's or another's, asked before a copy so that the copy is all or nothing.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace peerlane {

// Many threads may check at once.
class ProcessMemory {
  public:
    struct Range {
        uint64_t address = 0, size = 0;
    };
    explicit ProcessMemory(pid_t pid);   // of the process that has this number now, whatever process has it later
    ~ProcessMemory();
    ProcessMemory(const ProcessMemory&) = delete;
    ProcessMemory& operator=(const ProcessMemory&) = delete;

    // Returns 0 if all bytes are memory that may be read or, with `writes`, written; EFAULT if some are not; else the
    // number of the system's error.  It changes no memory.
    int check(std::vector<Range> ranges, bool writes) const;

  private:
    int by_mappings(const std::vector<Range>& ranges, bool writes) const;
    int by_pages(const std::vector<Range>& ranges) const;
    int read_bytes(const std::vector<uint64_t>& addresses) const;

    const pid_t pid_;
    const int mappings_;   // the descriptor of the list of mappings, or -1
};

}  // namespace peerlane

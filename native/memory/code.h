// Which addresses hold code, so that a wrong pointer gets a code instead of ending the program.
#pragma once

#include <cstdint>

namespace peerlane {

// Asked anew each time: what was unmapped since, by dlclose or munmap, is no code any more.
bool is_code(uint64_t address) noexcept;
// Whether the process may run any byte of [low, high): some microseconds, and 0.2 ms before Linux 6.11.
bool is_any_executable(uint64_t low, uint64_t high) noexcept;

}  // namespace peerlane

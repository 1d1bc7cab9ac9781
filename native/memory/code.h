// Whether an address is one of a function, so that a wrong pointer gets a code instead of ending the program.
#pragma once

#include <cstdint>

namespace peerlane {

// Asked anew each time: what was unmapped since, by dlclose or munmap, is no code any more.
bool is_code(uint64_t address) noexcept;

}  // namespace peerlane

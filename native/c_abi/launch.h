// The launch that the code of a vendor's compiler prepares before it calls the launch of a kernel: it is only remembered.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peerlane::c_abi {

struct Size {   // dim3
    uint32_t x, y, z;
};

struct Launch {
    Size grid, block;
    size_t shared;
    void* stream;
};

inline thread_local Launch next_launch{{1, 1, 1}, {1, 1, 1}, 0, nullptr};

// False if an address is null.
inline bool take_launch(Size* grid, Size* block, size_t* shared, void** stream) {
    if (!grid || !block || !shared || !stream) return false;
    *grid = next_launch.grid;
    *block = next_launch.block;
    *shared = next_launch.shared;
    *stream = next_launch.stream;
    return true;
}

}  // namespace peerlane::c_abi

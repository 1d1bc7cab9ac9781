// What programs of nvcc and clang call for their kernels.  Virtual devices run none, so it is only remembered what was asked: nothing
// here starts Python, as most of it comes before main.
#include <cstddef>
#include <cstdint>

#define PEERLANE_C extern "C" __attribute__((visibility("default")))

namespace {

struct Size {   // dim3
    uint32_t x, y, z;
};

struct Configuration {
    Size grid, block;
    size_t shared;
    void* stream;
};

thread_local Configuration configuration{{1, 1, 1}, {1, 1, 1}, 0, nullptr};   // of the launch that comes next

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;

}  // namespace

PEERLANE_C void** __cudaRegisterFatBinary(void* data) {
    static void* handle;   // its address means nothing to the program
    handle = data;
    return &handle;
}
PEERLANE_C void __cudaRegisterFatBinaryEnd(void**) {}
PEERLANE_C void __cudaUnregisterFatBinary(void**) {}
PEERLANE_C void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
PEERLANE_C void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
PEERLANE_C void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
PEERLANE_C char __cudaInitModule(void**) { return 1; }

PEERLANE_C unsigned __cudaPushCallConfiguration(Size grid, Size block, size_t shared, void* stream) {
    configuration = {grid, block, shared, stream};
    return kSuccess;
}

PEERLANE_C int __cudaPopCallConfiguration(Size* grid, Size* block, size_t* shared, void** stream) {
    if (!grid || !block || !shared || !stream) return kInvalidValue;
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *stream = configuration.stream;
    return kSuccess;
}

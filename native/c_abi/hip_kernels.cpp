// What programs of hipcc call for their kernels.  Virtual devices run none, so it is only remembered what was asked:
// nothing here starts Python, as most of it comes before main.  And what only puts its arguments into a struct.
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

struct Channel {   // hipChannelFormatDesc
    int x, y, z, w, kind;
};

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;

}  // namespace

PEERLANE_C void** __hipRegisterFatBinary(const void* data) {
    static const void* handle;   // its address means nothing to the program
    handle = data;
    return const_cast<void**>(&handle);
}
PEERLANE_C void __hipUnregisterFatBinary(void**) {}
PEERLANE_C void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*) {}
PEERLANE_C void __hipRegisterVar(void**, void*, char*, char*, int, size_t, int, int) {}
PEERLANE_C void __hipRegisterManagedVar(void*, void**, void*, const char*, size_t, unsigned) {}
PEERLANE_C void __hipRegisterSurface(void**, void*, char*, char*, int, int) {}
PEERLANE_C void __hipRegisterTexture(void**, void*, char*, char*, int, int, int) {}

PEERLANE_C int __hipPushCallConfiguration(Size grid, Size block, size_t shared, void* stream) {
    configuration = {grid, block, shared, stream};
    return kSuccess;
}

PEERLANE_C int hipConfigureCall(Size grid, Size block, size_t shared, void* stream) {
    return __hipPushCallConfiguration(grid, block, shared, stream);
}
PEERLANE_C int hipSetupArgument(const void* argument, size_t, size_t) { return argument ? kSuccess : kInvalidValue; }

PEERLANE_C int __hipPopCallConfiguration(Size* grid, Size* block, size_t* shared, void** stream) {
    if (!grid || !block || !shared || !stream) return kInvalidValue;
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *stream = configuration.stream;
    return kSuccess;
}

PEERLANE_C Channel hipCreateChannelDesc(int x, int y, int z, int w, int kind) { return {x, y, z, w, kind}; }

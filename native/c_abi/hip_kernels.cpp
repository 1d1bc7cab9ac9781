// What programs of hipcc call for their kernels.  Virtual devices run none, so it is only remembered what was asked:
// nothing here starts Python, as most of it comes before main.  And what only puts its arguments into a struct.
#include "c_abi/launch.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define PEERLANE_C extern "C" __attribute__((visibility("default")))

using peerlane::c_abi::next_launch;
using peerlane::c_abi::Size;
using peerlane::c_abi::take_launch;

namespace {

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
    next_launch = {grid, block, shared, stream};
    return kSuccess;
}

PEERLANE_C int hipConfigureCall(Size grid, Size block, size_t shared, void* stream) {
    return __hipPushCallConfiguration(grid, block, shared, stream);
}
PEERLANE_C int hipSetupArgument(const void* argument, size_t, size_t) { return argument ? kSuccess : kInvalidValue; }

PEERLANE_C int __hipPopCallConfiguration(Size* grid, Size* block, size_t* shared, void** stream) {
    return take_launch(grid, block, shared, stream) ? kSuccess : kInvalidValue;
}

// Conversions of half floats, which hipcc's programs call if their compiler's library has none.
PEERLANE_C __attribute__((weak)) float __gnu_h2f_ieee(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, mantissa = half & 0x3ffu;
    uint32_t bits;
    if (exponent == 0) {   // 0, or below the smallest normal number: mantissa times 2 to the power of -24
        const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 0x1f) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    }
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

PEERLANE_C __attribute__((weak)) uint16_t __gnu_f2h_ieee(float number) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u | static_cast<uint16_t>(magnitude >> 13 & 0x3ffu);
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;   // it rounds to infinity
    if (magnitude < 0x38800000u)                           // below the smallest normal number
        return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(std::fabs(number), 24)));
    return sign | static_cast<uint16_t>((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

// What profilers and debuggers ask for: nothing is traced by these, and no header is embedded.
PEERLANE_C void hipRegisterTracerCallback(int (*)(int, uint32_t, void*)) {}
PEERLANE_C void __hipGetPCH(const char** header, unsigned* size) {
    if (header) *header = nullptr;
    if (size) *size = 0;
}
PEERLANE_C const char* amd_dbgapi_get_build_name() { return "peerlane"; }
PEERLANE_C const char* amd_dbgapi_get_git_hash() { return ""; }
PEERLANE_C size_t amd_dbgapi_get_build_id() { return 0; }

// The commands of the vendor's streams, by the numbers that OpenCL's headers give them.
PEERLANE_C const char* hipGetCmdName(unsigned command) {
    switch (command) {
        case 0: return "InternalMarker";
        case 0x11F0: return "KernelExecution";
        case 0x11F1: return "Task";
        case 0x11F2: return "NativeKernel";
        case 0x11F3: return "CopyDeviceToHost";
        case 0x11F4: return "CopyHostToDevice";
        case 0x11F5: return "CopyDeviceToDevice";
        case 0x11F6: return "ReadImage";
        case 0x11F7: return "WriteImage";
        case 0x11F8: return "CopyImage";
        case 0x11F9: return "CopyImageToBuffer";
        case 0x11FA: return "CopyBufferToImage";
        case 0x11FB: return "MapBuffer";
        case 0x11FC: return "MapImage";
        case 0x11FD: return "UnmapMemObject";
        case 0x11FE: return "Marker";
        case 0x11FF: return "AcquireGLObjects";
        case 0x1200: return "ReleaseGLObjects";
        case 0x1201: return "CopyDeviceToHost2D";
        case 0x1202: return "CopyHostToDevice2D";
        case 0x1203: return "CopyDeviceToDevice2D";
        case 0x1204: return "User";
        case 0x1205: return "Barrier";
        case 0x1206: return "MigrateMemObjects";
        case 0x1207: return "FillBuffer";
        case 0x1208: return "FillImage";
        case 0x1209: return "SvmFree";
        case 0x120A: return "SvmMemcpy";
        case 0x120B: return "SvmMemFill";
        case 0x120C: return "SvmMap";
        case 0x120D: return "SvmUnmap";
        default: return "Unknown command kind";
    }
}

PEERLANE_C Channel hipCreateChannelDesc(int x, int y, int z, int w, int kind) { return {x, y, z, w, kind}; }

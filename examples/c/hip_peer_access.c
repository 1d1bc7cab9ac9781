// Each call of HIP's page on peer-to-peer access, between two devices; every byte is verified.
//
//     gcc hip_peer_access.c -L$(peerlane c-abi --print-dir) -lamdhip64 -o hip_peer_access
//     peerlane run ./hip_peer_access [DEVICE DEVICE [MIB]]
#include <stdio.h>
#include <stdlib.h>

#include "hip_declarations.h"
#include "pattern.h"

static void check(hipError_t error, const char* call) {
    if (error == hipSuccess) return;
    fprintf(stderr, "%s returned %d: %s\n", call, (int)error, hipGetErrorString(error));
    exit(1);
}
#define CHECK(call) check(call, #call)

static void enable(int device, int peer) {
    int reachable = 0;
    CHECK(hipDeviceCanAccessPeer(&reachable, device, peer));
    if (!reachable) {
        fprintf(stderr, "device %d cannot access device %d\n", device, peer);
        exit(1);
    }
    CHECK(hipSetDevice(device));
    const hipError_t error = hipDeviceEnablePeerAccess(peer, 0);
    if (error != hipErrorPeerAccessAlreadyEnabled) check(error, "hipDeviceEnablePeerAccess");
}

static void disable(int device, int peer) {
    CHECK(hipSetDevice(device));
    CHECK(hipDeviceDisablePeerAccess(peer));
}

static void* allocate(int device, size_t size) {
    void *memory = NULL, *base = NULL;
    size_t range_size = 0;
    CHECK(hipSetDevice(device));
    CHECK(hipMalloc(&memory, size));
    CHECK(hipMemGetAddressRange(&base, &range_size, (char*)memory + size / 2));
    if (base != memory || range_size != size) {
        fprintf(stderr, "the allocation of %zu bytes at %p is reported as %zu at %p\n", size, memory, range_size, base);
        exit(1);
    }
    return memory;
}

static void round_trip(void* on_first, int first, void* on_second, int second, size_t size) {
    unsigned char* const sent = pattern(size);
    unsigned char* const came = calloc(size, 1);
    if (!came) abort();
    hipStream_t stream = NULL;
    CHECK(hipSetDevice(first));
    CHECK(hipStreamCreate(&stream));
    CHECK(hipMemcpy(on_first, sent, size, hipMemcpyHostToDevice));
    CHECK(hipMemcpyPeer(on_second, second, on_first, first, size));   // the host does not wait
    CHECK(hipMemset(on_first, 0, size));   // follows it, as the copy is in the order of both devices
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpyPeerAsync(on_first, first, on_second, second, size, stream));
    CHECK(hipStreamSynchronize(stream));
    CHECK(hipMemcpy(came, on_first, size, hipMemcpyDeviceToHost));
    CHECK(hipStreamDestroy(stream));
    check_equal(sent, came, size);
}

int main(int count, char** words) {
    const int first = count > 2 ? atoi(words[1]) : 0;
    const int second = count > 2 ? atoi(words[2]) : 1;
    const size_t mib = count > 3 ? strtoul(words[3], NULL, 10) : 8;
    enable(first, second);
    enable(second, first);
    void* const on_first = allocate(first, mib << 20);
    void* const on_second = allocate(second, mib << 20);
    round_trip(on_first, first, on_second, second, mib << 20);
    printf("%zu MiB from device %d to %d and back, every byte verified\n", mib, first, second);
    CHECK(hipFree(on_second));
    CHECK(hipFree(on_first));
    disable(second, first);
    disable(first, second);
    return 0;
}

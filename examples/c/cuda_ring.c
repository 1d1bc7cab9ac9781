// Bytes go from the host around all devices and back: a stream on each device, and an event between each two of them.
//
//     gcc cuda_ring.c -L$(peerlane c-abi --print-dir) -lcudart -o cuda_ring
//     peerlane run --devices 4 ./cuda_ring [MIB]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_declarations.h"
#include "pattern.h"

enum { kMost = 64 };

static void check(cudaError_t error, const char* call) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s returned %d: %s\n", call, (int)error, cudaGetErrorString(error));
    exit(1);
}
#define CHECK(call) check(call, #call)

static void enable(int device, int peer) {
    int reachable = 0;
    CHECK(cudaDeviceCanAccessPeer(&reachable, device, peer));
    if (!reachable) return;   // the copy goes through the host
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) check(error, "cudaDeviceEnablePeerAccess");
}

int main(int argc, char** argv) {
    const size_t size = (size_t)(argc > 1 ? atoi(argv[1]) : 4) << 20;
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    if (count > kMost) count = kMost;
    void *memory[kMost], *host = NULL;
    cudaStream_t streams[kMost];
    cudaEvent_t arrived[kMost];
    for (int device = 0; device < count; ++device) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc(&memory[device], size));
        CHECK(cudaStreamCreate(&streams[device]));
        CHECK(cudaEventCreate(&arrived[device]));
        if (device) enable(device, device - 1);
    }
    CHECK(cudaMallocHost(&host, size));
    unsigned char* const sent = pattern(size);
    memcpy(host, sent, size);

    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpyAsync(memory[0], host, size, cudaMemcpyHostToDevice, streams[0]));
    CHECK(cudaEventRecord(arrived[0], streams[0]));
    for (int device = 1; device < count; ++device) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamWaitEvent(streams[device], arrived[device - 1], 0));
        CHECK(cudaMemcpyPeerAsync(memory[device], device, memory[device - 1], device - 1, size, streams[device]));
        CHECK(cudaEventRecord(arrived[device], streams[device]));
    }
    const cudaStream_t last = streams[count - 1];
    CHECK(cudaMemcpyAsync(host, memory[count - 1], size, cudaMemcpyDeviceToHost, last));
    CHECK(cudaStreamSynchronize(last));
    if (memcmp(host, sent, size)) {
        fprintf(stderr, "the bytes that came back differ\n");
        return 1;
    }
    printf("%zu bytes went around %d devices, every byte verified\n", size, count);

    for (int device = 0; device < count; ++device) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaEventDestroy(arrived[device]));
        CHECK(cudaStreamDestroy(streams[device]));
        CHECK(cudaFree(memory[device]));
    }
    CHECK(cudaFreeHost(host));
    free(sent);
    return 0;
}

// A custom operator, as its two parts see it: the host's prepares and launches, the kernel on the AI CPU submits.
#pragma once
#include "hcomm.h"

struct Link {
    uint64_t channel;
    void* remote;   // the peer's HcclBuffer
};

// What stays in device memory from call to call; the kernel reads it there.
struct Resources {
    uint32_t threads, links;
    uint64_t thread[8], host_thread;   // the first thread leads; the host's is the last, as the kernel knows it
    void* local;                       // this rank's HcclBuffer
    uint64_t bytes;
    Link link[8];
};

struct Call {
    char tag[32], comm[128];
    const void* input;
    void* output;
    uint64_t bytes;
    uint32_t rank, ranks, go;   // the notify of the leading thread by which the host lets it go
    bool sends;
    const Resources* resources;
};

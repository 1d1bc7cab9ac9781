// A stream waits for an event of a stream that waits for a word, which nothing writes: the waits before it are short.
#include <stddef.h>
#include <stdio.h>

typedef void* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(CUcontext*, int), cuCtxSetCurrent(CUcontext), cuCtxSynchronize(void);
int cuStreamCreate(CUstream*, unsigned), cuStreamSynchronize(CUstream), cuStreamWaitEvent(CUstream, CUevent, unsigned);
int cuEventCreate(CUevent*, unsigned), cuEventRecord(CUevent, CUstream);
int cuMemAlloc_v2(CUdeviceptr*, size_t), cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
int cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);

static int failed;
#define CHECK(call) failed |= (call)

int main(void) {
    CUcontext context;
    CUstream one, other;
    CUevent event;
    CUdeviceptr word;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&one, 1));
    CHECK(cuStreamCreate(&other, 1));
    CHECK(cuEventCreate(&event, 2));
    CHECK(cuMemAlloc_v2(&word, 64));
    CHECK(cuMemsetD8_v2(word, 0, 64));
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < 3; ++i) {
        CHECK(cuEventRecord(event, one));
        CHECK(cuStreamWaitEvent(other, event, 0));
        CHECK(cuStreamSynchronize(other));
    }
    CHECK(cuStreamWaitValue32_v2(one, word, 1, 1));
    CHECK(cuEventRecord(event, one));
    CHECK(cuStreamWaitEvent(other, event, 0));   // the wait
    printf("%d %d\n", failed, cuStreamSynchronize(other));
    return 0;
}

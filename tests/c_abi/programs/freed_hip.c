// Memory of a pool that is freed in the order of another stream than uses it: "freed_hip racy" or "freed_hip right".
#include <stddef.h>
#include <string.h>

#include "hip.h"
#define LAST_ERROR() hipGetErrorString(hipGetLastError())
#include "check.h"

enum { SIZE = 4 << 20 };

static void* filled(hipStream_t by, hipStream_t with) {
    void* memory;
    OK(hipMallocAsync(&memory, SIZE, by));
    OK(hipStreamSynchronize(by));
    OK(hipMemsetAsync(memory, 1, SIZE, with));
    return memory;
}

int main(int count, char** words) {
    hipStream_t one, other;
    hipEvent_t event;
    void* memory;
    OK(hipSetDevice(0));
    OK(hipStreamCreate(&one));
    OK(hipStreamCreate(&other));
    OK(hipEventCreate(&event));
    if (count > 1 && !strcmp(words[1], "racy")) {
        OK(hipFreeAsync(filled(one, other), one));   // other stream
    } else {
        memory = filled(one, other);
        OK(hipEventRecord(event, other));
        OK(hipStreamWaitEvent(one, event, 0));
        OK(hipFreeAsync(memory, one));
        OK(hipFreeAsync(filled(one, other), other));
        OK(hipMalloc(&memory, SIZE));
        OK(hipMemsetAsync(memory, 1, SIZE, other));
        OK(hipFree(memory));   // it waits for the device
    }
    OK(hipDeviceSynchronize());
    puts("done");
    return 0;
}

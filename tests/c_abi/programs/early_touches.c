// Memory of the host that an asynchronous copy has yet to write, or to read, is touched; `waits`: after it.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "check.h"

enum { kSize = 256 << 10 };

static void* device;
static aclrtStream stream;
static int waits;

static void wait_perhaps(void) {
    if (waits) OK(aclrtSynchronizeStream(stream));
}

static int sum_of(const unsigned char* bytes) {
    int sum = 0;
    for (int i = 0; i < kSize; ++i) sum += bytes[i];
    return sum;
}

static void read_of_pinned_memory(void) {
    unsigned char* out;
    OK(aclrtMallocHost((void**)&out, kSize));
    OK(aclrtMemcpyAsync(out, kSize, device, kSize, 2, stream));
    wait_perhaps();
    if (sum_of(out) < 0) abort();
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtFreeHost(out));
}

static void write_of_registered_memory(void) {
    unsigned char* out = aligned_alloc(4096, kSize);
    void* mapped;
    OK(aclrtHostRegister(out, kSize, 0, &mapped));
    OK(aclrtMemcpyAsync(out, kSize, device, kSize, 2, stream));
    wait_perhaps();
    memset(out, 1, kSize);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtHostUnregister(out));
    free(out);
}

static void write_of_a_source(void) {
    unsigned char* in;
    OK(aclrtMallocHost((void**)&in, kSize));
    memset(in, 1, kSize);
    OK(aclrtMemcpyAsync(device, kSize, in, kSize, 1, stream));
    wait_perhaps();
    memset(in, 2, kSize);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtFreeHost(in));
}

int main(int count, char** words) {
    (void)words;
    waits = count > 1;
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&device, kSize, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMemset(device, kSize, 3, kSize));
    read_of_pinned_memory();
    write_of_registered_memory();
    write_of_a_source();
    OK(aclrtDestroyStream(stream));
    return 0;
}

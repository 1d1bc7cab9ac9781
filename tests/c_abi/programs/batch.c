// Copies in batches: the data, and which copy failed.
#include <string.h>

#include "acl.h"
#include "check.h"

enum { COUNT = 3, BYTES = 256, HOST = 0, DEVICE = 1 };

int main(void) {
    void *device[COUNT], *host[COUNT], *ordinary[COUNT];
    size_t sizes[COUNT], rooms[COUNT], none[COUNT] = {0}, at = 5, first = 0;
    aclrtMemcpyBatchAttr in = {.dstLoc = {0, DEVICE}, .srcLoc = {0, HOST}}, out = {.dstLoc = {0, HOST}, .srcLoc = {0, DEVICE}};
    aclrtStream stream;
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    for (int i = 0; i < COUNT; ++i) {
        OK(aclrtMalloc(&device[i], BYTES, 0));
        OK(aclrtMallocHost(&host[i], BYTES));
        ordinary[i] = malloc(BYTES);
        memset(host[i], i + 1, BYTES);
        sizes[i] = rooms[i] = BYTES;
    }
    OK(aclrtMemcpyBatchAsync(device, rooms, host, sizes, COUNT, &in, &first, 1, &at, stream));
    IS(at == SIZE_MAX);
    OK(aclrtMemcpyBatchAsync(ordinary, rooms, device, sizes, COUNT, &out, &first, 1, &at, stream));
    for (int i = 0; i < COUNT; ++i) IS(*(char*)ordinary[i] == i + 1 && ((char*)ordinary[i])[BYTES - 1] == i + 1);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpyBatch(NULL, NULL, NULL, none, COUNT, NULL, NULL, 0, &at));   // nothing to copy
    IS(aclrtMemcpyBatch(device, rooms, host, sizes, 0, &in, &first, 1, &at) == 100000);
    IS(aclrtMemcpyBatch(device, rooms, host, sizes, COUNT, &out, &first, 1, &at) == 107000 && at == 0);
    sizes[1] = 0;
    IS(aclrtMemcpyBatch(device, rooms, host, sizes, COUNT, &in, &first, 1, &at) == 107000 && at == 1);
    sizes[1] = BYTES;
    IS(aclrtMemcpyBatch(device, none, host, sizes, COUNT, &in, &first, 1, &at) == 100000 && at == SIZE_MAX);
    void* mixed[COUNT] = {host[0], host[1], device[2]};
    IS(aclrtMemcpyBatchV2(device, rooms, mixed, sizes, COUNT, &in, &first, 1) == 107000);
    IS(strstr(aclGetRecentErrMsg(), "aclrtMemcpyBatchV2 returned 107000") != NULL);
    puts("done");
    return 0;
}

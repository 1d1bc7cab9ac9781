// Gather blocks on a device with one copy descriptor that the device itself rewrites between launches.
//
// A program that replays fixed launches (a graph) cannot pass new addresses to them.  Here every step is the same two
// calls.  A copy within the device puts the next prepared descriptor over the one that is launched.  The launch reads the
// descriptor when it starts.  The host waits once, at the end.
//
//     gcc acl_copy_with_desc.c -L$(peerlane c-abi --print-dir) -lascendcl -o acl_copy_with_desc
//     peerlane run ./acl_copy_with_desc [DEVICE [STEPS [BYTES]]]
#include <stdio.h>
#include <stdlib.h>

#include "acl_declarations.h"
#include "check.h"

enum { kAlignment = 64 };   // of a descriptor's address

static unsigned char byte_of(size_t block, size_t i) { return (unsigned char)((block * 40503u + i) * 2654435761u >> 13); }

static size_t* shuffled(size_t count) {
    size_t* const order = malloc(count * sizeof *order);
    if (!order) abort();
    for (size_t i = 0; i < count; ++i) order[i] = i;
    for (size_t i = count; i > 1; --i) {
        const size_t other = (size_t)rand() % i, last = order[i - 1];
        order[i - 1] = order[other];
        order[other] = last;
    }
    return order;
}

int main(int count, char** words) {
    const int32_t device = count > 1 ? atoi(words[1]) : 0;
    const size_t steps = count > 2 ? strtoul(words[2], NULL, 10) : 64;
    const size_t size = count > 3 ? strtoul(words[3], NULL, 10) : 4096;
    const size_t bytes = steps * size;
    const aclrtMemcpyKind kind = ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;
    aclrtStream stream = NULL;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(device));
    CHECK(aclrtCreateStream(&stream));

    unsigned char* const blocks = malloc(bytes);
    if (!blocks) abort();
    for (size_t i = 0; i < bytes; ++i) blocks[i] = byte_of(i / size, i % size);
    void *source = NULL, *target = NULL;
    CHECK(aclrtMalloc(&source, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&target, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(source, bytes, blocks, bytes, ACL_MEMCPY_HOST_TO_DEVICE));

    size_t distance = 0;   // from one descriptor to the next
    CHECK(aclrtGetMemcpyDescSize(kind, &distance));
    distance = (distance + kAlignment - 1) / kAlignment * kAlignment;
    void* table = NULL;
    CHECK(aclrtMalloc(&table, (steps + 1) * distance, ACL_MEM_MALLOC_HUGE_FIRST));
    size_t* const order = shuffled(steps);
    for (size_t step = 0; step < steps; ++step) {
        char* const desc = (char*)table + step * distance;
        char* const from = (char*)source + order[step] * size;
        char* const to = (char*)target + step * size;
        CHECK(aclrtSetMemcpyDesc(desc, kind, from, to, size, NULL));
    }

    char* const launched = (char*)table + steps * distance;
    for (size_t step = 0; step < steps; ++step) {
        char* const desc = (char*)table + step * distance;
        CHECK(aclrtMemcpyAsync(launched, distance, desc, distance, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
        CHECK(aclrtMemcpyAsyncWithDesc(launched, kind, stream));
    }
    CHECK(aclrtSynchronizeStream(stream));

    CHECK(aclrtMemcpy(blocks, bytes, target, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; ++i) wrong += blocks[i] != byte_of(order[i / size], i % size);
    if (wrong) {
        fprintf(stderr, "%zu of %zu bytes differ\n", wrong, bytes);
        return 1;
    }
    printf("%zu blocks of %zu bytes gathered through one descriptor, every byte verified\n", steps, size);

    free(blocks);
    free(order);
    CHECK(aclrtFree(table));
    CHECK(aclrtFree(target));
    CHECK(aclrtFree(source));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(device));
    CHECK(aclFinalize());
    return 0;
}

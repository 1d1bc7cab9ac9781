// Share physical memory of a device between two processes, A and B, and verify every byte.
//
// Process A allocates, maps, fills and exports.  It lists process B, which imports, reads and writes back.
//
//     gcc acl_shareable_handle.c -L$(peerlane c-abi --print-dir) -lascendcl -o acl_shareable_handle
//     peerlane run ./acl_shareable_handle [DEVICE [MIB]]
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl_declarations.h"
#include "check.h"

enum { kSeconds = 60 };   // a process that takes longer is ended by SIGALRM

typedef struct {
    uint64_t shareable, size;
} Offer;

static void send_all(int other, const void* data, size_t size) {
    if (send(other, data, size, MSG_NOSIGNAL) == (ssize_t)size) return;
    fprintf(stderr, "the other process ended early\n");
    exit(1);
}

static void hear(int other, void* data, size_t size) {
    if (recv(other, data, size, MSG_WAITALL) == (ssize_t)size) return;
    fprintf(stderr, "the other process ended early\n");
    exit(1);
}

static void* mapped(aclrtDrvMemHandle handle, size_t size) {
    void* address = NULL;
    CHECK(aclrtReserveMemAddress(&address, size, 0, NULL, 1));
    CHECK(aclrtMapMem(address, size, 0, handle, 0));
    return address;
}

static void unmap(void* address) {
    CHECK(aclrtUnmapMem(address));
    CHECK(aclrtReleaseMemAddress(address));
}

static unsigned char byte_of(size_t i, size_t seed) { return (unsigned char)((i + seed * 40503u) * 2654435761u >> 13); }

static void fill(void* address, size_t size, size_t seed) {
    unsigned char* const bytes = malloc(size);
    if (!bytes) abort();
    for (size_t i = 0; i < size; ++i) bytes[i] = byte_of(i, seed);
    CHECK(aclrtMemcpy(address, size, bytes, size, ACL_MEMCPY_HOST_TO_DEVICE));
    free(bytes);
}

static void verify(const void* address, size_t size, size_t seed) {
    unsigned char* const bytes = calloc(size, 1);
    if (!bytes) abort();
    CHECK(aclrtMemcpy(bytes, size, address, size, ACL_MEMCPY_DEVICE_TO_HOST));
    size_t wrong = 0;
    for (size_t i = 0; i < size; ++i) wrong += bytes[i] != byte_of(i, seed);
    free(bytes);
    if (wrong == 0) return;
    fprintf(stderr, "%zu of %zu bytes differ\n", wrong, size);
    exit(1);
}

static size_t process_a(int other, int32_t device, size_t least) {
    aclrtPhysicalMemProp prop = {
        .handleType = ACL_MEM_HANDLE_TYPE_NONE,
        .allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED,
        .memAttr = ACL_HBM_MEM_HUGE,
        .location = {.id = (uint32_t)device, .type = ACL_MEM_LOCATION_TYPE_DEVICE},
    };
    size_t granularity = 0;
    aclrtDrvMemHandle handle = NULL;
    Offer offer = {0, 0};
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(device));
    CHECK(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED, &granularity));
    offer.size = (least + granularity - 1) / granularity * granularity;
    CHECK(aclrtMallocPhysical(&handle, offer.size, &prop, 0));
    void* const address = mapped(handle, offer.size);
    fill(address, offer.size, 1);
    CHECK(aclrtMemExportToShareableHandle(handle, ACL_MEM_HANDLE_TYPE_NONE, 0, &offer.shareable));

    int32_t pid = 0;
    char written = 0;
    hear(other, &pid, sizeof pid);
    CHECK(aclrtMemSetPidToShareableHandle(offer.shareable, &pid, 1));
    send_all(other, &offer, sizeof offer);
    hear(other, &written, sizeof written);
    verify(address, offer.size, 2);

    unmap(address);
    CHECK(aclrtFreePhysical(handle));
    CHECK(aclrtResetDevice(device));
    CHECK(aclFinalize());
    return offer.size;
}

static void process_b(int other, int32_t device) {
    int32_t pid = 0;   // in a container it is not that of getpid()
    Offer offer;
    aclrtDrvMemHandle handle = NULL;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(device));
    CHECK(aclrtDeviceGetBareTgid(&pid));
    send_all(other, &pid, sizeof pid);
    hear(other, &offer, sizeof offer);
    CHECK(aclrtMemImportFromShareableHandle(offer.shareable, device, &handle));
    void* const address = mapped(handle, offer.size);
    verify(address, offer.size, 1);
    fill(address, offer.size, 2);

    unmap(address);
    CHECK(aclrtFreePhysical(handle));
    CHECK(aclrtResetDevice(device));
    CHECK(aclFinalize());
    send_all(other, "w", 1);
}

int main(int count, char** words) {
    const int32_t device = count > 1 ? atoi(words[1]) : 0;
    const size_t mib = count > 2 ? strtoul(words[2], NULL, 10) : 8;
    int ends[2];
    // A child cannot use what its parent has of the devices, so the fork comes before the first call.
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
    const pid_t child = fork();
    if (child < 0) abort();
    alarm(kSeconds);
    close(ends[child != 0]);
    if (child == 0) {
        process_b(ends[1], device);
        return 0;
    }
    const size_t size = process_a(ends[0], device, mib << 20);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "process B failed\n");
        return 1;
    }
    printf("%zu MiB of device %d shared by two processes, every byte verified in both\n", size >> 20, device);
    return 0;
}

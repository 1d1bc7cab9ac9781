// Memory by a handle of a fabric, as transfer engines share it: the child maps it and writes, the parent reads.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl.h"
#include "check.h"

enum { SIZE = 2 << 20, FABRIC = 2, DISABLE_PIDS = 1, READ_WRITE = 3, DEVICE = 1 };

static void allow(void* at, size_t devices) {
    aclrtMemAccessDesc access[8];
    memset(access, 0, sizeof access);
    for (size_t i = 0; i < devices; ++i) {
        access[i].flags = READ_WRITE;
        access[i].location = (aclrtMemLocation){.id = (uint32_t)i, .type = DEVICE};
    }
    OK(aclrtMemSetAccess(at, SIZE, access, devices));
}

static void write_there(int from) {
    uint8_t received[128];
    aclrtDrvMemHandle handle;
    void* at;
    IS(read(from, received, sizeof received) == sizeof received);
    OK(aclrtSetDevice(0));
    OK(aclrtMemImportFromShareableHandleV2(received, FABRIC, 0, &handle));
    OK(aclrtReserveMemAddress(&at, SIZE, 0, NULL, 1));
    OK(aclrtMapMem(at, SIZE, 0, handle, 0));
    OK(aclrtMemset(at, SIZE, 7, SIZE));
    OK(aclrtUnmapMem(at));
    OK(aclrtFreePhysical(handle));
    OK(aclrtReleaseMemAddress(at));
    exit(0);
}

int main(void) {
    int ends[2], status = -1;
    IS(pipe(ends) == 0);
    const pid_t child = fork();
    if (!child) write_there(ends[0]);
    const aclrtPhysicalMemProp wanted = {.memAttr = 13, .location = {.id = 0, .type = DEVICE}};
    aclrtPhysicalMemProp properties;
    aclrtDrvMemHandle handle, again, last;
    uint8_t received[128], data[64];
    uint64_t flags = 0;
    void *at, *base;
    size_t size = 0;
    OK(aclrtSetDevice(0));
    OK(aclrtMallocPhysical(&handle, SIZE, &wanted, 0));
    OK(aclrtMemGetAllocationPropertiesFromHandle(handle, &properties));
    IS(properties.memAttr == 4 && properties.location.type == DEVICE && properties.location.id == 0);
    OK(aclrtReserveMemAddress(&at, SIZE, 0, NULL, 1));
    OK(aclrtMemMapNoAccess(at, SIZE, 0, handle, 0));
    IS(aclrtMemset(at, SIZE, 1, SIZE) == 207006);
    allow(at, 2);
    OK(aclrtMemGetAccess(at, &(aclrtMemLocation){.id = 1, .type = DEVICE}, &flags));
    IS(flags == READ_WRITE);
    OK(aclrtMemGetAddressRange((char*)at + 4096, &base, &size));
    IS(base == at && size == SIZE);
    OK(aclrtMemRetainAllocationHandle(at, &again));
    IS(again == handle);
    OK(aclrtMemExportToShareableHandleV2(handle, DISABLE_PIDS, FABRIC, received));
    OK(aclrtFreePhysical(handle));
    OK(aclrtFreePhysical(again));
    OK(aclrtMemRetainAllocationHandle(at, &last));   // the mapping still has the memory
    IS(write(ends[1], received, sizeof received) == sizeof received);
    IS(waitpid(child, &status, 0) == child && status == 0);
    OK(aclrtMemcpy(data, sizeof data, (char*)at + SIZE - 64, sizeof data, 2));
    IS(data[0] == 7 && data[63] == 7);
    OK(aclrtUnmapMem(at));
    OK(aclrtFreePhysical(last));
    OK(aclrtReleaseMemAddress(at));
    puts("done");
    return 0;
}

// What AMD's library was measured or read to do, where a program of C relied on it (facts/hip 3.11, 3.12): "hip_deviations CASE".
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip.h"
#define LAST_ERROR() hipGetErrorString(hipGetLastError())
#include "check.h"

enum { GRANULE = 2 << 20, PINNED = 1, FILE_DESCRIPTOR = 1, DEVICE = 1, HOST = 2, READ_WRITE = 3, TO_HOST = 2 };
enum { INVALID_VALUE = 1 };

// As the vendor's header has them.
typedef struct {
    int type, handles;
    hipMemLocation location;
    void* win32;
    unsigned char flags[8];
} Allocation;
typedef struct {
    hipMemLocation location;
    int flags;
} Access;
typedef struct {
    int type, handles;
    hipMemLocation location;
    void* security;
    size_t most;
    unsigned char rest[56];
} Pool;

static void registers_again(void) {
    void* const memory = mmap(NULL, GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; ++i) OK(hipHostRegister(memory, GRANULE, 0));
    OK(hipHostUnregister(memory));
    // Freed without unregistering, and had again at the same address.
    OK(hipHostRegister(memory, GRANULE, 0));
    munmap(memory, GRANULE);
    void* const again = mmap(memory, GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    OK(hipHostRegister(again, GRANULE, 0));
    void* there;
    OK(hipMalloc(&there, 64));
    memset(again, 7, 64);
    OK(hipMemcpy(there, again, 64, 1));
}

static void links(void) {
    uint32_t capabilities[1] = {0}, operations[1] = {0};
    hipDeviceGetP2PAtomicCapabilities(capabilities, operations, 1, 0, 1);
    const hipError_t code = hipExtModuleLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL, NULL, NULL, 0);
    IS(code != 0);
}

static void imports_own_pointer(void) {
    const Pool wanted = {.type = PINNED, .handles = FILE_DESCRIPTOR, .location = {DEVICE, 0}};
    hipMemPool_t pool, imported_pool, other;
    int file = -1;
    hipStream_t stream;
    void *memory, *imported;
    unsigned char exported[64];
    OK(hipStreamCreate(&stream));
    OK(hipMemPoolCreate(&pool, (const hipMemPoolProps*)&wanted));
    OK(hipMallocFromPoolAsync(&memory, 4096, pool, stream));
    OK(hipStreamSynchronize(stream));
    OK(hipMemPoolExportPointer((hipMemPoolPtrExportData*)exported, memory));
    OK(hipMemPoolExportToShareableHandle(&file, pool, (hipMemAllocationHandleType)FILE_DESCRIPTOR, 0));
    OK(hipMemPoolImportFromShareableHandle(&imported_pool, (void*)(intptr_t)file, (hipMemAllocationHandleType)FILE_DESCRIPTOR, 0));
    OK(hipMemPoolImportPointer(&imported, imported_pool, (hipMemPoolPtrExportData*)exported));
    IS(imported == memory);
    const Pool unknown = {.type = PINNED, .handles = 0x40, .location = {DEVICE, 0}};
    OK(hipMemPoolCreate(&other, (const hipMemPoolProps*)&unknown));
}

static void handles_of_pool_memory(void) {
    hipStream_t stream;
    void* memory;
    hipIpcMemHandle_st handle;
    OK(hipStreamCreate(&stream));
    OK(hipMallocAsync(&memory, 4096, stream));
    OK(hipStreamSynchronize(stream));
    IS(hipIpcGetMemHandle(&handle, memory) == INVALID_VALUE);
}

static void access_of_the_host(void) {
    const Allocation wanted = {.type = PINNED, .handles = FILE_DESCRIPTOR, .location = {DEVICE, 0}};
    const Access device = {{DEVICE, 0}, READ_WRITE}, host = {{HOST, 0}, READ_WRITE};
    const Access both[2] = {device, host};
    hipMemGenericAllocationHandle_t own, imported;
    int file = -1;
    OK(hipMemCreate(&own, GRANULE, (const hipMemAllocationProp*)&wanted, 0));
    OK(hipMemExportToShareableHandle(&file, own, (hipMemAllocationHandleType)FILE_DESCRIPTOR, 0));
    OK(hipMemImportFromShareableHandle(&imported, (void*)(intptr_t)file, (hipMemAllocationHandleType)FILE_DESCRIPTOR));
    const hipMemGenericAllocationHandle_t handles[2] = {own, imported};
    for (int i = 0; i < 2; ++i) {
        void* at;
        OK(hipMemAddressReserve(&at, GRANULE, 0, NULL, 0));
        OK(hipMemMap(at, GRANULE, 0, handles[i], 0));
        OK(hipMemSetAccess(at, GRANULE, (const hipMemAccessDesc*)&host, 1));
        OK(hipMemSetAccess(at, GRANULE, (const hipMemAccessDesc*)both, 2));
    }
}

// A handle of an address inside opens to the start of the allocation; the program adds the offset.
static void interior_handle(void) {
    enum { OFFSET = 4096, SIZE = 8192 };
    int there[2], back[2];
    IS(pipe(there) == 0 && pipe(back) == 0);
    const pid_t child = fork();   // before any call
    hipIpcMemHandle_st handle;
    char byte = 0;
    if (child == 0) {
        void* opened;
        unsigned char content[2];
        IS(read(there[0], &handle, sizeof handle) == (ssize_t)sizeof handle);
        OK(hipSetDevice(0));
        OK(hipIpcOpenMemHandle(&opened, handle, 1));
        OK(hipMemcpy(&content[0], opened, 1, TO_HOST));
        OK(hipMemcpy(&content[1], (char*)opened + OFFSET, 1, TO_HOST));
        IS(content[0] == 1 && content[1] == 2);
        OK(hipIpcCloseMemHandle(opened));
        IS(write(back[1], &byte, 1) == 1);
        _exit(0);
    }
    char* memory;
    int status;
    close(back[1]);
    OK(hipSetDevice(0));
    OK(hipMalloc((void**)&memory, SIZE));
    OK(hipMemset(memory, 1, OFFSET));
    OK(hipMemset(memory + OFFSET, 2, SIZE - OFFSET));
    OK(hipDeviceSynchronize());
    OK(hipIpcGetMemHandle(&handle, memory + OFFSET));
    IS(write(there[1], &handle, sizeof handle) == (ssize_t)sizeof handle);
    IS(read(back[0], &byte, 1) == 1);
    IS(waitpid(child, &status, 0) == child && status == 0);
    OK(hipFree(memory));
}

static void launch_text(void) {
    const dim3 one = {1, 1, 1};
    void* arguments[1] = {NULL};
    IS(hipLaunchKernel((const void*)launch_text, one, one, arguments, 32, NULL) == 801);
}

int main(int count, char** words) {
    static const struct {
        const char* name;
        void (*run)(void);
    } cases[] = {
        {"registers_again", registers_again}, {"links", links},
        {"imports_own_pointer", imports_own_pointer}, {"handles_of_pool_memory", handles_of_pool_memory},
        {"access_of_the_host", access_of_the_host}, {"interior_handle", interior_handle},
        {"launch_text", launch_text},
    };
    for (size_t i = 0; count > 1 && i < sizeof cases / sizeof *cases; ++i)
        if (!strcmp(words[1], cases[i].name)) {
            cases[i].run();
            puts("done");
            return 0;
        }
    return 97;
}

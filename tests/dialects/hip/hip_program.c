/* A program of HIP's C functions, which declares them itself; it is compiled as C++ and linked to libamdhip64. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void* Handle;
typedef struct { char reserved[64]; } IpcHandle;
typedef struct { size_t width, height, depth; } Extent;
typedef struct { void* ptr; size_t pitch, xsize, ysize; } Pitched;
typedef struct { int type, id; } Location;
typedef struct { int x, y, z, w, f; } Channel;
typedef struct { uint32_t x, y, z; } Dim;

extern "C" {
int hipGetDeviceCount(int*);
int hipSetDevice(int);
int hipGetDevice(int*);
int hipGetDevicePropertiesR0600(void*, int);
int hipDeviceGetName(char*, int, int);
int hipMalloc(void**, size_t);
int hipMallocManaged(void**, size_t, unsigned);
int hipMalloc3D(Pitched*, Extent);
int hipFree(void*);
int hipMemcpy(void*, const void*, size_t, int);
int hipMemcpyAsync(void*, const void*, size_t, int, Handle);
int hipMemcpyPeer(void*, int, const void*, int, size_t);
int hipMemcpyBatchAsync(void**, void**, size_t*, size_t, void*, size_t*, size_t, size_t*, Handle);
int hipMemset3D(Pitched, int, Extent);
int hipMemAdvise_v2(const void*, size_t, int, Location);
int hipPointerGetAttribute(void*, int, void*);
int hipStreamCreate(Handle*);
int hipStreamSynchronize(Handle);
int hipStreamAddCallback(Handle, void (*)(Handle, int, void*), void*, unsigned);
int hipLaunchHostFunc(Handle, void (*)(void*), void*);
int hipEventCreate(Handle*);
int hipEventRecord(Handle, Handle);
int hipEventElapsedTime(float*, Handle, Handle);
int hipIpcGetMemHandle(IpcHandle*, void*);
int hipIpcOpenMemHandle(void**, IpcHandle, unsigned);
int hipIpcCloseMemHandle(void*);
int hipGetLastError(void);
int hipPeekAtLastError(void);
const char* hipGetErrorName(int);
const char* hipGetErrorString(int);
int hipDrvGetErrorName(int, const char**);
Channel hipCreateChannelDesc(int, int, int, int, int);
int hipLaunchKernel(const void*, Dim, Dim, void**, size_t, Handle);
void** __hipRegisterFatBinary(const void*);
void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*);
void __hipUnregisterFatBinary(void**);
int __hipPushCallConfiguration(Dim, Dim, size_t, Handle);
int __hipPopCallConfiguration(Dim*, Dim*, size_t*, Handle*);
}

enum { INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101, NOT_SUPPORTED = 801, NO_MEMBER = 31337 };
enum { TO_DEVICE = 1, TO_HOST = 2, INVALID_DIRECTION = 21, SIZE_OF_PROPERTIES = 1472 };

#define IS(call, wanted)                                                                        \
    do {                                                                                        \
        long got_ = (long)(call), wanted_ = (long)(wanted);                                     \
        if (got_ != wanted_) {                                                                  \
            printf("line %d: %s is %ld, not %ld\n", __LINE__, #call, got_, wanted_);            \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)
#define WORKS(call) IS(call, 0)
#define TEXT_IS(text, wanted) IS(strcmp(text, wanted), 0)

static void** binary;
__attribute__((constructor)) static void before_main(void) {
    binary = __hipRegisterFatBinary(&binary);
    __hipRegisterFunction(binary, (void*)before_main, 0, "kernel", 0, 0, 0, 0, 0, 0);
}
__attribute__((destructor)) static void after_main(void) { __hipUnregisterFatBinary(binary); }

static int steps[4], count;
static void note_status(Handle, int status, void* data) {
    int device;
    WORKS(hipGetDevice(&device));
    steps[count++] = (int)(intptr_t)data + status;
}
static void called(void* data) { steps[count++] = (int)(intptr_t)data; }

/* Whether the process has a Python. */
static int has_python(void) {
    char line[4096];
    int is_mapped = 0;
    FILE* maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) is_mapped |= strstr(line, "libpython") != NULL;
    fclose(maps);
    return is_mapped;
}

static int child(const char* hex) {
    IpcHandle handle;
    for (int i = 0; i < 64; ++i) {
        unsigned value;
        sscanf(hex + 2 * i, "%2x", &value);
        handle.reserved[i] = (char)value;
    }
    void* there;
    int got = 0;
    WORKS(hipIpcOpenMemHandle(&there, handle, 1));
    WORKS(hipMemcpy(&got, there, sizeof got, TO_HOST));
    IS(got, 42);
    WORKS(hipIpcCloseMemHandle(there));
    return 0;
}

int main(int argc, char** argv) {
    if (argc > 1) return child(argv[1]);
    IS(has_python(), 0);

    int devices = 0, device = 9, data = 42, back = 0;
    void *first, *second;
    WORKS(hipGetDeviceCount(&devices));
    IS(devices, 2);
    WORKS(hipSetDevice(1));
    WORKS(hipGetDevice(&device));
    IS(device, 1);
    WORKS(hipMalloc(&first, 4096));
    WORKS(hipMemcpy(first, &data, sizeof data, TO_DEVICE));
    WORKS(hipSetDevice(0));
    WORKS(hipMalloc(&second, 4096));
    WORKS(hipMemcpyPeer(second, 0, first, 1, sizeof data));
    WORKS(hipMemcpy(&back, second, sizeof back, TO_HOST));
    IS(back, 42);

    Handle stream, begin, end;
    float milliseconds = -1;
    WORKS(hipStreamCreate(&stream));
    WORKS(hipEventCreate(&begin));
    WORKS(hipEventCreate(&end));
    WORKS(hipEventRecord(begin, stream));
    WORKS(hipStreamAddCallback(stream, note_status, (void*)1, 0));
    WORKS(hipLaunchHostFunc(stream, called, (void*)2));
    WORKS(hipEventRecord(end, stream));
    WORKS(hipStreamSynchronize(stream));
    IS(count, 2);
    IS(steps[0], 1);
    IS(steps[1], 2);
    WORKS(hipEventElapsedTime(&milliseconds, begin, end));
    IS(milliseconds >= 0, 1);

    /* Failures that the dialect of Python cannot have. */
    IS(hipGetDevice(NULL), INVALID_VALUE);
    IS(hipPeekAtLastError(), INVALID_VALUE);
    IS(hipGetLastError(), INVALID_VALUE);
    IS(hipGetLastError(), 0);
    IS(hipMemcpy(first, &data, sizeof data, 77), INVALID_DIRECTION);
    IS(hipGetLastError(), INVALID_DIRECTION);
    IS(hipSetDevice(99), INVALID_DEVICE);
    IS(hipGetLastError(), INVALID_DEVICE);

    const char* name = NULL;
    TEXT_IS(hipGetErrorName(INVALID_VALUE), "hipErrorInvalidValue");
    TEXT_IS(hipGetErrorString(INVALID_VALUE), "invalid argument");
    TEXT_IS(hipGetErrorName(NO_MEMBER), "hipErrorUnknown");
    WORKS(hipDrvGetErrorName(NO_DEVICE, &name));
    TEXT_IS(name, "hipErrorNoDevice");
    IS(hipDrvGetErrorName(NO_MEMBER, &name), INVALID_VALUE);
    WORKS(hipGetLastError());

    static char properties[1 << 14], shortened[5];
    memset(properties, 0x5a, sizeof properties);
    WORKS(hipGetDevicePropertiesR0600(properties, 0));
    IS(properties[SIZE_OF_PROPERTIES], 0x5a);
    IS(strlen(properties) > 4, 1);
    WORKS(hipDeviceGetName(shortened, sizeof shortened, 0));
    IS(strncmp(shortened, properties, 4) || shortened[4], 0);

    /* Structs by value: in registers and in memory. */
    Pitched box;
    Extent extent = {100, 3, 2};
    unsigned char byte = 0;
    WORKS(hipMalloc3D(&box, extent));
    WORKS(hipMemset3D(box, 7, extent));
    WORKS(hipMemcpy(&byte, (char*)box.ptr + box.pitch * 5 + 99, 1, TO_HOST));
    IS(byte, 7);
    void* managed;
    Location device_location = {1, 0}, nowhere = {1, 44};
    WORKS(hipMallocManaged(&managed, 4096, 1));
    WORKS(hipMemAdvise_v2(managed, 4096, 1, device_location));
    IS(hipMemAdvise_v2(managed, 4096, 3, nowhere), INVALID_DEVICE);
    Channel channel = hipCreateChannelDesc(8, 16, 0, -1, 2);
    IS(channel.x, 8);
    IS(channel.y, 16);
    IS(channel.w, -1);
    IS(channel.f, 2);

    int kind = 0;
    WORKS(hipPointerGetAttribute(&kind, 2, second));
    IS(kind, 2);
    void *targets[] = {first, (char*)first + 8}, *sources[] = {second, second};
    size_t sizes[] = {4, 4}, failed = 9;
    WORKS(hipMemcpyBatchAsync(targets, sources, sizes, 2, NULL, NULL, 0, &failed, stream));
    IS(failed, -1);
    WORKS(hipStreamSynchronize(stream));
    back = 0;
    WORKS(hipMemcpy(&back, (char*)first + 8, sizeof back, TO_HOST));
    IS(back, 42);

    Dim grid = {3, 2, 1}, block = {64, 1, 1}, popped_grid, popped_block;
    size_t shared;
    Handle on;
    WORKS(__hipPushCallConfiguration(grid, block, 17, stream));
    WORKS(__hipPopCallConfiguration(&popped_grid, &popped_block, &shared, &on));
    IS(popped_grid.x, 3);
    IS(popped_block.x, 64);
    IS(shared, 17);
    IS(on, stream);
    IS(hipLaunchKernel((void*)before_main, popped_grid, popped_block, NULL, shared, on), NOT_SUPPORTED);

    IpcHandle handle;
    char hex[129];
    WORKS(hipIpcGetMemHandle(&handle, second));
    for (int i = 0; i < 64; ++i) sprintf(hex + 2 * i, "%02x", (unsigned char)handle.reserved[i]);
    pid_t started = fork();
    if (!started) {
        execl(argv[0], argv[0], hex, (char*)NULL);
        _exit(9);
    }
    int status = 1;
    waitpid(started, &status, 0);
    IS(status, 0);

    WORKS(hipFree(first));
    WORKS(hipFree(second));
    IS(hipFree((void*)0x1234), INVALID_VALUE);
    puts("all as it should be");
    return 0;
}

// An exit handler that was registered before any call makes the first one that needs a device.
#include "acl.h"
#include "check.h"

static void at_exit(void) {
    void* memory;
    OK(aclrtSetDevice(1));
    OK(aclrtMalloc(&memory, 64, 0));
    OK(aclrtFree(memory));
    puts("done");
    fflush(stdout);
}

int main(void) {
    int32_t major, minor, patch;
    atexit(at_exit);
    OK(aclrtGetVersion(&major, &minor, &patch));
    return 0;
}

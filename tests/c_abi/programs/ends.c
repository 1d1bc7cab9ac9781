// What runs after main has returned calls too: exit handlers and destructors.
#include "acl.h"
#include "check.h"

static void* memory;

static void at_exit(void) {
    int32_t device = -1;
    const int code = aclrtGetDevice(&device);
    printf("exit handler: %d, device %d\n", code, device);
}

__attribute__((destructor)) static void at_end(void) {
    printf("destructor: %d\n", aclrtFree(memory));
    fflush(stdout);
}

int main(int count, char** words) {
    atexit(at_exit);
    OK(aclInit(NULL));
    OK(aclrtSetDevice(1));
    OK(aclrtMalloc(&memory, 64, 0));
    printf("main: %d words, the last is %s\n", count, words[count - 1]);
    return 7;
}

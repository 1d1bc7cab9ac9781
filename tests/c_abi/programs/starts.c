// What a program registers: callbacks of initialising and finalising, of failures, host functions, allocators, logs.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "acl.h"
#include "check.h"

enum { MODEL = 0, OTHER = 0xFFFF };

static char order[16];
static atomic_int seen;
static pthread_t caller;

static aclError note(const char* config, size_t length, void* argument) {
    IS(strlen(config) == length);
    strcat(order, argument);
    return 0;
}
static aclError refuse(const char* config, size_t length, void* argument) {
    (void)config, (void)length, (void)argument;
    return 123456;
}
static aclError end(void* argument) {
    strcat(order, argument);
    return 0;
}
static void count(void* argument) {
    IS(atomic_fetch_add(&seen, 1) == (int)(intptr_t)argument);
    IS(!pthread_equal(pthread_self(), caller));
}
static void failed(void* info) {
    IS(aclrtGetErrorCodeFromExceptionInfo(info) == 107019);
    atomic_fetch_add(&seen, 100);
}

static void initialise(void) {
    OK(aclInitCallbackRegister(OTHER, note, "o"));
    OK(aclInitCallbackRegister(MODEL, note, "m"));
    IS(aclInitCallbackRegister(MODEL, note, "m") == 500000);
    OK(aclFinalizeCallbackRegister(MODEL, end, "e"));
    OK(aclInitCallbackRegister(OTHER, refuse, NULL));
    IS(aclInit(NULL) == 123456);
    IS(strstr(aclGetRecentErrMsg(), "aclInit returned 123456"));
    OK(aclInitCallbackUnRegister(OTHER, refuse));
    IS(aclInitCallbackUnRegister(OTHER, refuse) == 500000);
    OK(aclInit(NULL));
    OK(aclInitCallbackRegister(OTHER, note, "n"));   // at once
    IS(!strcmp(order, "momon"));
}

static void run(aclrtStream stream) {
    aclrtEvent event;
    caller = pthread_self();
    for (int i = 0; i < 20; ++i) OK(aclrtLaunchHostFunc(stream, count, (void*)(intptr_t)i));
    IS(aclrtLaunchHostFunc(stream, NULL, NULL) == 107000);
    OK(aclrtSynchronizeStream(stream));
    IS(atomic_load(&seen) == 20);
    void *near, *far;
    OK(aclrtMalloc(&near, 8, 0));
    OK(aclrtMalloc(&far, 8, 0));
    for (int i = 0; i < 3; ++i) OK(aclrtMemcpyAsync(near, 8, far, 8, 3, stream));
    IS(aclrtMemcpyAsync(near, 8, far, 8, 1, stream) == 107000);   // both ends are on the device
    IS(strstr(aclGetRecentErrMsg(), "pass kind 3 (D2D)"));
    OK(aclrtMemcpy(near, 8, far, 8, 1));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtExceptionInfoCallbackRegister(failed));
    OK(aclrtExceptionInfoCallbackRegister(failed));
    OK(aclrtCreateEventWithFlag(&event, 1));
    OK(aclrtStreamWaitEventWithTimeout(stream, event, 20));   // nothing records it
    IS(aclrtSynchronizeStream(stream) == 107019);
    IS(atomic_load(&seen) == 120);
    OK(aclrtExceptionInfoCallbackUnregister(failed));
}

static void allocate(aclrtStream stream) {
    int object;
    void *looked_up, *looked_up_object, *function;
    aclrtAllocatorDesc description = aclrtAllocatorCreateDesc();
    OK(aclrtAllocatorSetObjToDesc(description, &object));
    IS(aclrtAllocatorRegister(stream, description) == 100000);
    OK(aclrtAllocatorSetAllocFuncToDesc(description, (void*)malloc));
    OK(aclrtAllocatorSetFreeFuncToDesc(description, (void*)free));
    OK(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(description, (void*)count));
    OK(aclrtAllocatorRegister(stream, description));
    OK(aclrtAllocatorGetByStream(stream, &looked_up, &looked_up_object, &function, NULL, NULL, NULL));
    IS(looked_up == description && looked_up_object == &object && function == (void*)malloc);
    OK(aclrtAllocatorUnregister(stream));
    IS(aclrtAllocatorGetByStream(stream, &looked_up, NULL, NULL, NULL, NULL, NULL) == 100000);
}

int main(void) {
    aclrtStream stream;
    char line[2000];
    initialise();
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    run(stream);
    allocate(stream);
    aclAppLog(2, "main", "starts.c", 7, "%s and %d", "a warning", 5);
    aclAppLog(1, "main", "starts.c", 8, "%s", "information");
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = 0;
    aclAppLog(3, "main", "starts.c", 9, "%s", line);
    aclAppLog(3, "main", "starts.c", 9, NULL);
    IS(aclrtCreateBinary() == NULL && aclrtLaunchKernel() == 200001);
    OK(aclFinalize());
    IS(!strcmp(order, "momone"));
    puts("done");
    return 0;
}

// Eight threads that Python never saw: each keeps its device, and copies its own bytes through streams.
#include <pthread.h>
#include <string.h>

#include "acl.h"
#include "check.h"

enum { kThreads = 8, kRounds = 100, kBytes = 4096 };

static void* work(void* argument) {
    const int number = (int)(intptr_t)argument, device = number % 2;
    int32_t current = -1;
    IS(aclrtGetDevice(&current) == 107002);   // a new thread has none
    OK(aclrtSetDevice(device));
    for (int round = 0; round < kRounds; ++round) {
        unsigned char sent[kBytes], got[kBytes];
        void *first, *second;
        aclrtStream stream;
        memset(sent, number * 31 + round, kBytes);
        OK(aclrtMalloc(&first, kBytes, 0));
        OK(aclrtMalloc(&second, kBytes, 0));
        OK(aclrtCreateStream(&stream));
        OK(aclrtMemcpy(first, kBytes, sent, kBytes, 1));
        OK(aclrtMemcpyAsync(second, kBytes, first, kBytes, 3, stream));
        OK(aclrtSynchronizeStream(stream));
        OK(aclrtMemcpy(got, kBytes, second, kBytes, 2));
        IS(memcmp(got, sent, kBytes) == 0);
        IS(aclrtGetDevice(&current) == 0 && current == device);
        OK(aclrtDestroyStream(stream));
        OK(aclrtFree(first));
        OK(aclrtFree(second));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[kThreads];
    for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, (void*)(intptr_t)i);
    for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}

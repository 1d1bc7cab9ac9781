// A callback of a stream uses memory in the stream's order, on the thread that serves it: "callback_orders_acl right" or "... racy".
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "acl.h"
#include "check.h"

enum { SIZE = 4 << 20 };

static atomic_int is_over;
static atomic_ullong server;
static void *memory, *other;

static void use(void* unused) {
    (void)unused;
    OK(aclrtMemset(memory, SIZE, 2, SIZE));   // in the callback
}

static void* serve(void* unused) {
    (void)unused;
    OK(aclrtSetDevice(0));
    atomic_store(&server, (unsigned long long)pthread_self());
    while (!atomic_load(&is_over)) aclrtProcessReport(50);
    return NULL;
}

int main(int count, char** words) {
    const int is_racy = count > 1 && !strcmp(words[1], "racy");
    aclrtStream stream, beside;
    pthread_t thread;
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&beside));
    OK(aclrtMalloc(&memory, SIZE, 0));
    OK(aclrtMalloc(&other, SIZE, 0));
    pthread_create(&thread, NULL, serve, NULL);
    while (!atomic_load(&server)) sched_yield();
    OK(aclrtSubscribeReport(atomic_load(&server), stream));
    OK(aclrtMemsetAsync(memory, SIZE, 1, SIZE, is_racy ? beside : stream));
    OK(aclrtLaunchCallback(use, NULL, 1, stream));
    OK(aclrtMemcpyAsync(other, SIZE, memory, SIZE, 3, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtSynchronizeStream(beside));
    OK(aclrtUnSubscribeReport(atomic_load(&server), stream));
    atomic_store(&is_over, 1);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}

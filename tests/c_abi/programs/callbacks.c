// Callbacks of streams run C functions on the thread that processes reports, in stream order.
#include <pthread.h>
#include <stdatomic.h>

#include "acl.h"
#include "check.h"

static atomic_int seen, is_over;
static pthread_t server;
static atomic_ullong server_number;

static void note(void* argument) {
    IS(pthread_equal(pthread_self(), server));
    IS(atomic_fetch_add(&seen, 1) == (int)(intptr_t)argument);
}

static void* serve(void* unused) {
    (void)unused;
    OK(aclrtSetDevice(0));
    atomic_store(&server_number, (unsigned long long)pthread_self());
    while (!atomic_load(&is_over)) aclrtProcessReport(50);
    return NULL;
}

int main(void) {
    aclrtStream stream;
    OK(aclrtSetDevice(0));
    pthread_create(&server, NULL, serve, NULL);
    while (!atomic_load(&server_number)) sched_yield();
    OK(aclrtCreateStream(&stream));
    OK(aclrtSubscribeReport(atomic_load(&server_number), stream));
    for (int i = 0; i < 20; ++i) OK(aclrtLaunchCallback(note, (void*)(intptr_t)i, 1, stream));
    IS(aclrtLaunchCallback((aclrtCallback)&seen, NULL, 1, stream) == 100000);   // no function is there
    OK(aclrtSynchronizeStream(stream));
    IS(atomic_load(&seen) == 20);
    OK(aclrtUnSubscribeReport(atomic_load(&server_number), stream));
    atomic_store(&is_over, 1);
    pthread_join(server, NULL);
    OK(aclrtDestroyStream(stream));
    puts("done");
    return 0;
}

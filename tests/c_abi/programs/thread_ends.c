// Ways to start, end and wait for threads: each writes, and the next one reads it.
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "acl.h"
#include "check.h"

static void* memory;
static pthread_key_t key;

static void touch(void) {
    OK(aclrtSetDevice(0));
    OK(aclrtMemset(memory, 64, 1, 64));
}

static void* returns(void* argument) {
    touch();
    return argument;
}

static void* exits(void* argument) {
    touch();
    pthread_exit(argument);
}

static void at_end(void* argument) {
    (void)argument;
    touch();
}

static void* writes_at_its_end(void* argument) {
    IS(pthread_setspecific(key, argument) == 0);
    return argument;
}

static void* starts(void* argument) {   // of which main is not the one that joins
    pthread_t inner;
    void* result;
    touch();
    IS(pthread_create(&inner, NULL, exits, argument) == 0);
    IS(pthread_join(inner, &result) == 0 && result == argument);
    return argument;
}

static void* nothing(void* argument) { return argument; }

int main(void) {
    void* (*bodies[])(void*) = {returns, exits, writes_at_its_end, starts};
    pthread_t thread;
    void* result;
    IS(pthread_create(&thread, NULL, nothing, NULL) == 0);   // there is no log yet
    IS(pthread_key_create(&key, at_end) == 0);
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&memory, 64, 0));
    IS(pthread_join(thread, NULL) == 0);
    for (int round = 0; round < 30; ++round)
        for (int i = 0; i < 4; ++i) {
            touch();
            IS(pthread_create(&thread, NULL, bodies[i], bodies) == 0);
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += 60;
            const int code = round % 2 ? pthread_join(thread, &result) : pthread_timedjoin_np(thread, &result, &until);
            IS(code == 0 && result == bodies);
        }
    pthread_attr_t detached;
    IS(pthread_attr_init(&detached) == 0 && pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
    for (int i = 0; i < 50; ++i) {   // their handles are used again
        IS(pthread_create(&thread, &detached, nothing, NULL) == 0);
        IS(pthread_create(&thread, NULL, nothing, NULL) == 0);
        IS(pthread_detach(thread) == 0);
        IS(pthread_create(&thread, NULL, returns, NULL) == 0);
        IS(pthread_join(thread, NULL) == 0);
    }
    OK(aclrtFree(memory));
    puts("done");
    return 0;
}

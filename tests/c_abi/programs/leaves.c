// Main returns while other threads call: none of them is told that its devices have gone.
#include <pthread.h>
#include <stdatomic.h>

#include "acl.h"
#include "check.h"

static atomic_int calling;

static void* calls(void* argument) {
    OK(aclrtSetDevice(0));
    for (bool is_first = true;; is_first = false) {
        void* memory;
        OK(aclrtMalloc(&memory, 64, 0));
        OK(aclrtFree(memory));
        if (is_first) ++calling;
    }
    return argument;
}

int main(void) {
    for (int i = 0; i < 4; ++i) {
        pthread_t thread;
        IS(pthread_create(&thread, NULL, calls, NULL) == 0);
        IS(pthread_detach(thread) == 0);
    }
    while (calling < 4) {}
    puts("done");
    return 0;
}

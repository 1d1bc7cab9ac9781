// Functions of the host in the order of their stream, on a thread of the library's; one that blocks holds up its own stream alone.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#ifdef HIP
#include "hip.h"
#define LAST_ERROR() hipGetErrorString(hipGetLastError())
typedef hipStream_t Stream;
#define DEVICE() hipSetDevice(0)
#define MAKE(stream) hipStreamCreate(stream)
#define WAIT(stream) hipStreamSynchronize(stream)
#define PINNED(at, size) hipHostMalloc(at, size, 0)
#define MEMORY(at, size) hipMalloc(at, size)
#define COPY(dst, src, kind, stream) hipMemcpyAsync(dst, src, 8, kind, stream)
#define LAUNCH(stream, function, data) hipLaunchHostFunc(stream, (void*)(function), data)
enum { NO_CODE = 1, NO_FUNCTION = 1 };
#else
#include "acl.h"
typedef aclrtStream Stream;
#define DEVICE() aclrtSetDevice(0)
#define MAKE(stream) aclrtCreateStream(stream)
#define WAIT(stream) aclrtSynchronizeStream(stream)
#define PINNED(at, size) aclrtMallocHost(at, size)
#define MEMORY(at, size) aclrtMalloc(at, size, 0)
#define COPY(dst, src, kind, stream) aclrtMemcpyAsync(dst, 8, src, 8, kind, stream)
#define LAUNCH(stream, function, data) aclrtLaunchHostFunc(stream, function, data)
enum { NO_CODE = 100000, NO_FUNCTION = 107000 };
#endif
#include "check.h"

enum { ROUNDS = 200, THREADS = 4, FROM_HOST = 1, TO_HOST = 2 };

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static atomic_int gate, has_begun, locked;
static pthread_t caller;
static uint64_t *landed, next_value;

static void look(void* data) {
    IS(!pthread_equal(pthread_self(), caller));
    IS(*landed == (uintptr_t)data);
    IS(*landed == next_value++);
}

static void block(void* unused) {
    (void)unused;
    atomic_store(&has_begun, 1);
    while (!atomic_load(&gate)) sched_yield();
}

static void lock(void* unused) {
    (void)unused;
    pthread_mutex_lock(&held);
    atomic_fetch_add(&locked, 1);
    pthread_mutex_unlock(&held);
}

static void count(void* at) { ++*(int*)at; }

static void* launch_many(void* unused) {
    Stream stream;
    int counted = 0;
    (void)unused;
    OK(DEVICE());
    OK(MAKE(&stream));
    for (int i = 0; i < ROUNDS; ++i) OK(LAUNCH(stream, count, &counted));
    OK(WAIT(stream));
    IS(counted == ROUNDS);
    return NULL;
}

#ifdef HIP
static uint64_t words[3];

static void note(hipStream_t stream, hipError_t status, void* data) {
    words[0] = (uintptr_t)stream;
    words[1] = (uint64_t)status;
    words[2] = (uintptr_t)data;
}

static void call_back(Stream stream) {
    for (uintptr_t i = 1; i < 4; ++i) {
        OK(hipStreamAddCallback(stream, (void*)note, (void*)i, 0));
        OK(WAIT(stream));
        IS(words[0] == (uintptr_t)stream && words[1] == 0 && words[2] == i);
        IS(hipStreamAddCallback(stream, (void*)note, NULL, 1) == 1);
    }
}
#endif

int main(void) {
    Stream stream, other;
    void *memory, *beside, *pinned, *arrived;
    pthread_t threads[THREADS];
    caller = pthread_self();
    OK(DEVICE());
    OK(MAKE(&stream));
    OK(MAKE(&other));
    OK(MEMORY(&memory, 8));
    OK(MEMORY(&beside, 8));
    OK(PINNED(&pinned, 8 * ROUNDS));
    OK(PINNED(&arrived, 8));
    landed = arrived;
    for (uint64_t i = 0; i < ROUNDS; ++i) {   // the copy behind a function must not have run when it looks
        ((uint64_t*)pinned)[i] = i;
        OK(COPY(memory, (uint64_t*)pinned + i, FROM_HOST, stream));
        OK(COPY(arrived, memory, TO_HOST, stream));
        OK(LAUNCH(stream, look, (void*)(uintptr_t)i));
    }
    OK(WAIT(stream));
    IS(next_value == ROUNDS);

    IS(LAUNCH(stream, NULL, NULL) == NO_FUNCTION);
    IS(LAUNCH(stream, (void (*)(void*))(uintptr_t)&next_value, NULL) == NO_CODE);

    pthread_mutex_lock(&held);   // a launch that called it would wait for itself
    for (int i = 0; i < ROUNDS; ++i) OK(LAUNCH(stream, lock, NULL));
    pthread_mutex_unlock(&held);
    OK(WAIT(stream));
    IS(atomic_load(&locked) == ROUNDS);

    OK(LAUNCH(stream, block, NULL));
    OK(COPY(memory, pinned, FROM_HOST, stream));
    OK(COPY(arrived, memory, TO_HOST, stream));
    OK(COPY(beside, (uint64_t*)pinned + 7, FROM_HOST, other));
    OK(WAIT(other));   // though the function of the first stream blocks
    IS(!atomic_load(&gate) && *landed == ROUNDS - 1);
    atomic_store(&gate, 1);
    OK(WAIT(stream));
    IS(atomic_load(&has_begun) && *landed == 0);

    for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, launch_many, NULL);
    for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
#ifdef HIP
    call_back(stream);
#endif
    int counted = 0;
    for (int i = 0; i < ROUNDS; ++i) OK(LAUNCH(NULL, count, &counted));   // the default stream
    OK(WAIT(NULL));
    IS(counted == ROUNDS);
    puts("done");
    return 0;
}

// A host function of HIP tells the program by a variable that its stream has come so far: "callback_orders right" or "... racy".
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "hip.h"
#define LAST_ERROR() hipGetErrorString(hipGetLastError())
#include "check.h"

enum { SIZE = 4 << 20, NON_BLOCKING = 1 };

static atomic_int signal_value;

static void send_signal(void* by) { atomic_store(&signal_value, *(const int*)by); }

int main(int count, char** words) {
    const int is_racy = count > 1 && !strcmp(words[1], "racy");
    hipStream_t stream;
    void* memory;
    OK(hipSetDevice(0));
    OK(hipStreamCreateWithFlags(&stream, NON_BLOCKING));
    OK(hipMalloc(&memory, SIZE));
    for (int turn = 1; turn <= 3; ++turn) {
        if (is_racy) OK(hipLaunchHostFunc(stream, send_signal, &turn));   // it tells of nothing
        OK(hipMemsetAsync(memory, turn, SIZE, stream));
        if (!is_racy) OK(hipLaunchHostFunc(stream, send_signal, &turn));
        while (atomic_load(&signal_value) != turn) sched_yield();
        OK(hipMemset(memory, 0, SIZE));   // behind the callback
        OK(hipStreamSynchronize(NULL));
    }
    OK(hipStreamSynchronize(stream));
    puts("done");
    return 0;
}

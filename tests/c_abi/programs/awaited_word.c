// A stream waits for a word that nobody writes ("awaited_word never"), or that another thread writes after a while ("awaited_word late").
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "hip.h"
#define LAST_ERROR() hipGetErrorString(hipGetLastError())
#include "check.h"

enum { NONBLOCKING = 1, EQUAL = 1 };

static void* word;

static void* write_late(void* unused) {
    const struct timespec nine = {9, 0};
    (void)unused;
    nanosleep(&nine, NULL);
    OK(hipMemset(word, 3, 8));
    return NULL;
}

int main(int count, char** words) {
    hipStream_t stream;
    OK(hipSetDevice(0));
    OK(hipStreamCreateWithFlags(&stream, NONBLOCKING));
    OK(hipMalloc(&word, 8));   // allocates
    OK(hipMemset(word, 0, 8));
    OK(hipDeviceSynchronize());
    OK(hipStreamWaitValue32(stream, word, 3, EQUAL, 0xFF));   // submits
    if (count > 1 && !strcmp(words[1], "late")) {
        pthread_t writer;
        pthread_create(&writer, NULL, write_late, NULL);
        OK(hipStreamSynchronize(stream));
        pthread_join(writer, NULL);
    } else {
        IS(hipStreamSynchronize(stream) != 0);
    }
    puts("done");
    return 0;
}

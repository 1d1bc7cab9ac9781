/* A word that a stream writes, and that the host polls by a plain load: `polled_word WAY MODE`.
 *
 * In `right` the program polls the word before it uses what the stream did before; in `early` it does so afterwards;
 * in `none` no word is written. */
#include <hip.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call)                                                             \
    do {                                                                     \
        int code_ = (int)(call);                                             \
        if (code_ != 0) fprintf(stderr, "%s: %d\n", #call, code_), exit(1);  \
    } while (0)

enum { kBytes = 1 << 20, kNonBlocking = 1, kDefault = 4 /* hipStreamNonBlocking, hipMemcpyDefault */ };

static volatile unsigned *word;
static void *source, *target, *device_word;
static hipStream_t stream, other;

static void write_word(const char *method) {
    if (strcmp(method, "value32") == 0) OK(hipStreamWriteValue32(stream, (void *)word, 1, 0));
    if (strcmp(method, "value64") == 0) OK(hipStreamWriteValue64(stream, (void *)word, 1, 0));
    if (strcmp(method, "copy") == 0) OK(hipMemcpyAsync((void *)word, device_word, sizeof *word, kDefault, stream));
    if (strcmp(method, "fill") == 0) OK(hipMemsetD32Async((void *)word, 1, 1, stream));
}

static void poll_word(void) {
    while (*word == 0) sched_yield();
}

/* What the stream did before is over for the caller, as far as the mode is right. */
static void use(const char *what, char *staging) {
    if (strcmp(what, "read") == 0) OK(hipMemcpyAsync(staging, target, kBytes, kDefault, other));
    if (strcmp(what, "overwrite") == 0) OK(hipMemsetAsync(source, 9, kBytes, other));
    if (strcmp(what, "stage") == 0) memset(staging, 9, kBytes);
}

int main(int count, char **words) {
    const char *method = words[1], *mode = words[2], *what = count > 3 ? words[3] : "read";
    unsigned one = 1;
    char *staging;
    OK(hipHostMalloc((void **)&word, 64, 0));
    OK(hipHostMalloc((void **)&staging, kBytes, 0));
    memset((void *)word, 0, 64);
    memset(staging, 3, kBytes);
    OK(hipMalloc(&source, kBytes));
    OK(hipMalloc(&target, kBytes));
    OK(hipMalloc(&device_word, 64));
    OK(hipMemset(source, 1, kBytes));
    OK(hipMemset(target, 2, kBytes));
    OK(hipMemcpy(device_word, &one, sizeof one, kDefault));
    OK(hipStreamCreateWithFlags(&stream, kNonBlocking));
    OK(hipStreamCreateWithFlags(&other, kNonBlocking));
    OK(hipDeviceSynchronize());

    if (strcmp(what, "stage") == 0)
        OK(hipMemcpyAsync(target, staging, kBytes, kDefault, stream));
    else
        OK(hipMemcpyAsync(target, source, kBytes, kDefault, stream));
    if (strcmp(mode, "early") == 0) use(what, staging);
    if (strcmp(mode, "none") != 0) write_word(method);
    if (strcmp(mode, "right") == 0) poll_word();
    if (strcmp(mode, "early") != 0) use(what, staging);
    OK(hipStreamSynchronize(other));
    OK(hipStreamSynchronize(stream));
    puts("done");
    return 0;
}

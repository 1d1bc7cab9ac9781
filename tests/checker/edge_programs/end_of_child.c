/* A child writes the memory of its parent, which reads it when the child has ended.
 *
 * `end_of_child WAIT MODE`: WAIT is what the parent waits with; in `right` it reads behind the wait, in `early` before. */
#define _GNU_SOURCE
#include <hip.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"

enum { kBytes = 4096, kDefault = 4 /* hipMemcpyDefault */ };

static int child;

static void await(const char *means) {
    int status = -1;
    struct rusage used;
    siginfo_t info;
    if (!strcmp(means, "wait")) OK(wait(&status) - child);
    if (!strcmp(means, "wait3")) OK(wait3(&status, 0, &used) - child);
    if (!strcmp(means, "wait4")) OK(wait4(child, NULL, 0, NULL) - child);
    if (!strcmp(means, "waitpid")) OK(waitpid(-1, NULL, 0) - child);
    if (!strcmp(means, "waitpid_of_killed")) OK(waitpid(child, &status, 0) - child);
    if (!strcmp(means, "waitid")) OK(waitid(P_PID, child, &info, WEXITED));
    if (!strcmp(means, "waitid_without_info")) OK(waitid(P_ALL, 0, NULL, WEXITED | WNOWAIT));
    if (!strcmp(means, "loop"))
        for (int ended = 0; ended == 0; usleep(1000)) {
            ended = waitpid(child, &status, WNOHANG);
            if (ended == 0 && status != -1) exit(1); /* the status is the caller's until there is one */
        }
    if (!strcmp(means, "stopped")) {
        OK(waitpid(child, &status, WUNTRACED) - child);
        if (!WIFSTOPPED(status)) exit(1);
    }
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *means = words[1];
    const int is_killed = !strcmp(means, "waitpid_of_killed"), is_stopped = !strcmp(means, "stopped");
    int ends[2];
    char bytes[kBytes], *memory;
    hipIpcMemHandle_st handle;
    hipStream_t stream;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    child = fork();
    if (child == 0) {
        OK(read(ends[0], &handle, sizeof handle) - (long)sizeof handle);
        OK(hipIpcOpenMemHandle((void **)&memory, handle, 1));
        OK(hipStreamCreateWithFlags(&stream, 1));
        OK(hipMemsetAsync(memory, 7, kBytes, stream));
        OK(hipStreamSynchronize(stream));
        OK(write(ends[0], ".", 1) - 1);
        if (is_killed) raise(SIGKILL);
        if (is_stopped) raise(SIGSTOP);
        return 0;
    }
    OK(hipMalloc((void **)&memory, kBytes));
    OK(hipIpcGetMemHandle(&handle, memory));
    OK(write(ends[1], &handle, sizeof handle) - (long)sizeof handle);
    if (!strcmp(words[2], "right")) await(means);
    else OK(read(ends[1], bytes, 1) - 1); /* which may carry the order, and need not */
    OK(hipMemcpy(bytes, memory, sizeof bytes, kDefault));
    if (bytes[0] != 7) return 1;
    if (strcmp(words[2], "right")) await(means);
    if (is_stopped) kill(child, SIGKILL), waitpid(child, NULL, 0);
    puts("done");
    return 0;
}

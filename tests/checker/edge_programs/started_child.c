/* A parent starts a child, which hears of its memory before its first call of peerlane, and writes it.
 *
 * `started_child HOW MODE`: HOW is what the parent starts it with; in `before` it has written the memory until then, in `behind` it
 * does so afterwards, before it says what memory that is. */
#define _GNU_SOURCE
#include <hip.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"

enum { kBytes = 4096, kDefault = 4 /* hipMemcpyDefault */ };

static void fill(char *memory) {
    OK(hipMemset(memory, 1, kBytes));
    OK(hipDeviceSynchronize());
}

int main(int count, char **words) {
    char bytes[kBytes], *memory;
    hipIpcMemHandle_st handle;
    if (count < 3) {
        OK(read(0, &handle, sizeof handle) - (long)sizeof handle);
        OK(hipIpcOpenMemHandle((void **)&memory, handle, 1));
        OK(hipMemset(memory, 7, kBytes));
        OK(hipDeviceSynchronize());
        return 0;
    }
    OK(hipMalloc((void **)&memory, kBytes));
    OK(hipIpcGetMemHandle(&handle, memory));
    int ends[2], status;
    pid_t child = 0;
    char *const child_words[] = {words[0], NULL};
    posix_spawn_file_actions_t actions;
    OK(pipe(ends));
    OK(posix_spawn_file_actions_init(&actions));
    OK(posix_spawn_file_actions_adddup2(&actions, ends[0], 0));
    if (!strcmp(words[2], "before")) fill(memory);
    if (!strcmp(words[1], "posix_spawn")) OK(posix_spawn(&child, "/proc/self/exe", &actions, NULL, child_words, environ));
    if (!strcmp(words[1], "posix_spawnp")) OK(posix_spawnp(&child, "/proc/self/exe", &actions, NULL, child_words, environ));
    if (!strcmp(words[1], "fork") && (child = fork()) == 0) {
        dup2(ends[0], 0);
        execv("/proc/self/exe", child_words);
        _exit(9);
    }
    if (!strcmp(words[2], "behind")) fill(memory);
    OK(write(ends[1], &handle, sizeof handle) - (long)sizeof handle);
    OK(waitpid(child, &status, 0) - child);
    OK(hipMemcpy(bytes, memory, sizeof bytes, kDefault));
    if (status != 0 || bytes[0] != 7) return 1;
    puts("done");
    return 0;
}

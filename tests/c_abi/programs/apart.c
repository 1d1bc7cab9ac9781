// A process reads memory that its parent writes: before it starts the child, or late, and then a pipe orders them.
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl.h"
#include "check.h"

enum { kSize = 4096, kKey = 65 };
extern char** environ;

static int reader(const char* key) {
    void *memory, *copy;
    char word;
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&copy, kSize, 0));
    OK(aclrtIpcMemImportByKey(&memory, key, 1));
    IS(read(0, &word, 1) == 1);
    OK(aclrtMemcpy(copy, kSize, memory, kSize, 3));
    OK(aclrtFree(copy));
    return 0;
}

int main(int count, char** words) {
    if (strcmp(words[1], "read") == 0) return reader(words[2]);
    const int is_late = count > 2;
    void* memory;
    char key[kKey] = {0};
    int ends[2], state;
    pid_t child;
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&memory, kSize, 0));
    OK(aclrtIpcMemGetExportKey(memory, kSize, key, kKey, 1));
    if (!is_late) OK(aclrtMemset(memory, kSize, 1, kSize));
    IS(pipe(ends) == 0 && dup2(ends[0], 0) == 0);
    char* const arguments[] = {words[0], "read", key, NULL};
    if (strcmp(words[1], "spawn") == 0) {
        IS(posix_spawn(&child, words[0], NULL, NULL, arguments, environ) == 0);
    } else if ((child = fork()) == 0) {
        execv(words[0], arguments);
        _exit(97);
    }
    if (is_late) OK(aclrtMemset(memory, kSize, 1, kSize));
    IS(write(ends[1], "x", 1) == 1);
    IS(waitpid(child, &state, 0) == child && state == 0);
    return 0;
}

// A child of a process that has used devices is refused; one of a process that has not uses its own.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl.h"
#include "check.h"

static int child(int (*body)(void)) {
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) exit(body());
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static int uses_devices(void) {
    void* memory = NULL;
    unsigned char byte = 5, got = 0;
    OK(aclrtSetDevice(1));
    OK(aclrtMalloc(&memory, 64, 0));
    OK(aclrtMemcpy(memory, 64, &byte, 1, 1));
    OK(aclrtMemcpy(&got, 1, memory, 1, 2));
    IS(got == 5);
    return 11;
}

static int is_refused(void) {
    IS(aclrtSetDevice(0) == 507033);
    IS(strstr(aclGetRecentErrMsg(), "was forked after its parent had used devices") != NULL);
    return 12;
}

int main(void) {
    uint32_t count = 0;
    printf("before any call: %d\n", child(uses_devices));
    OK(aclrtGetDeviceCount(&count));
    printf("after a count: %d\n", child(uses_devices));
    IS(uses_devices() == 11);
    printf("after use: %d\n", child(is_refused));
    IS(uses_devices() == 11);
    return 0;
}

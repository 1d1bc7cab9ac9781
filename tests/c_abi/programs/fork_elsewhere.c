// One thread uses a device; another one, which never called, forks.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl.h"
#include "check.h"

static void* use(void* unused) {
    OK(aclrtSetDevice(0));
    return unused;
}

int main(void) {
    pthread_t user;
    int state;
    pthread_create(&user, NULL, use, NULL);
    pthread_join(user, NULL);
    const pid_t child = fork();
    if (child == 0) {
        printf("child %d\n", aclrtSetDevice(0));
        fflush(stdout);
        _exit(0);
    }
    IS(waitpid(child, &state, 0) == child && state == 0);
    return 0;
}

/* Two processes use one memory: the child writes it, then its parent reads it; a means of the system is between.
 *
 * `two_processes MEANS MODE`: in `right` the means carries the order, in `early` the child uses it while it may still write, in
 * `unheard` the parent does not take what the child says, and in `none` it is not used.
 * `copied` and `streamed` are a word of the memory itself, which the parent copies until it is set. */
#define _GNU_SOURCE
#include <hip.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>
#include <linux/futex.h>

#include "ok.h"

enum { kBytes = 4096, kDefault = 4 /* hipMemcpyDefault */ };

static int setup[2], pair[2], pipes[2], event, number, child;
static char *memory; /* the data, and a word behind it */
static char name[64];
static sem_t *named;
static struct Shared {
    sem_t semaphore;
    pthread_barrier_t barrier;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    volatile int word;
} *shared;

/* What its parent can ask about the child, until the child changes it. */
static int group(void) { return setpgid(0, 0); }
static int has_group(void) { return getpgid(child) == child; }
static int session(void) { return setsid() < 0; }
static int has_session(void) { return getsid(child) == child; }
static int priority(void) { return setpriority(PRIO_PROCESS, 0, 3); }
static int has_priority(void) { return getpriority(PRIO_PROCESS, child) == 3; }
static int scheduler(void) { return sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}); }
static int has_scheduler(void) { return sched_getscheduler(child) == SCHED_BATCH; }
static int timer(void) { return timerfd_settime(event, 0, &(struct itimerspec){.it_value.tv_sec = 100}, NULL); }
static int has_timer(void) {
    struct itimerspec left;
    return timerfd_gettime(event, &left) == 0 && left.it_value.tv_sec != 0;
}
static int pending(void) { return kill(getppid(), SIGUSR1); }
static int is_pending(void) {
    sigset_t set;
    return sigpending(&set) == 0 && sigismember(&set, SIGUSR1);
}
static volatile sig_atomic_t came;
static void handle(int number) { came = number; }
static int asynchronous(void) { return write(pipes[1], ".", 1) != 1; }
static int has_come(void) { return came; }
static int process_name(void) { return prctl(PR_SET_NAME, "ready"); }
static int word_of_process(const char *file, const char *word) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/%s", child, file);
    FILE *opened = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, opened)] = 0;
    return fclose(opened) == 0 && strstr(text, word);
}
static int has_process_name(void) { return word_of_process("comm", "ready"); }
static int mask(void) { return umask(0123) == 0123; }
static int has_mask(void) { return word_of_process("status", "Umask:\t0123"); }

static const struct Known {
    const char *name;
    int (*change)(void), (*has)(void);
} knowns[] = {
    {"group", group, has_group}, {"session", session, has_session}, {"priority", priority, has_priority}, {"scheduler", scheduler, has_scheduler},
    {"timer", timer, has_timer}, {"pending", pending, is_pending}, {"asynchronous", asynchronous, has_come},
    {"process_name", process_name, has_process_name}, {"mask", mask, has_mask},
};

static const struct Known *known_by(const char *means) {
    for (size_t i = 0; i < sizeof knowns / sizeof *knowns; ++i)
        if (!strcmp(knowns[i].name, means)) return &knowns[i];
    return NULL;
}

static int is_shared(const char *means) {
    return !strcmp(means, "semaphore") || !strcmp(means, "barrier") || !strcmp(means, "condition") || !strcmp(means, "word") || !strcmp(means, "futex");
}

static int is_copied(const char *means) { return !strcmp(means, "copied") || !strcmp(means, "streamed"); }

static void make(const char *means) {
    snprintf(name, sizeof name, "/peerlane-edge-%d", (int)getpid());
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, setup));
    if (!strcmp(means, "socket") || !strcmp(means, "poll")) OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    if (!strcmp(means, "pipe") || !strcmp(means, "stream") || !strcmp(means, "asynchronous")) OK(pipe(pipes));
    if (!strcmp(means, "asynchronous")) {
        signal(SIGIO, handle); /* before the log begins */
        OK(fcntl(pipes[0], F_SETOWN, getpid()));
        OK(fcntl(pipes[0], F_SETFL, O_ASYNC));
    }
    if (!strcmp(means, "timer")) event = timerfd_create(CLOCK_MONOTONIC, 0);
    if (!strcmp(means, "event")) event = eventfd(0, 0);
    if (!strcmp(means, "system_semaphore")) number = semget(IPC_PRIVATE, 1, 0600);
    if (!strcmp(means, "named_semaphore")) {
        named = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
        OK(sem_unlink(name));
    }
    if (is_shared(means)) {
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pthread_barrierattr_t barrier;
        pthread_mutexattr_t mutex;
        pthread_condattr_t condition;
        OK(sem_init(&shared->semaphore, 1, 0));
        OK(pthread_barrierattr_init(&barrier));
        OK(pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED));
        OK(pthread_barrier_init(&shared->barrier, &barrier, 2));
        OK(pthread_mutexattr_init(&mutex));
        OK(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
        OK(pthread_mutex_init(&shared->mutex, &mutex));
        OK(pthread_condattr_init(&condition));
        OK(pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED));
        OK(pthread_cond_init(&shared->condition, &condition));
    }
    if (!strcmp(means, "signal") || !strcmp(means, "pending")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        OK(sigprocmask(SIG_BLOCK, &set, NULL));
    }
}

static void send_signal(const char *means) {
    if (known_by(means)) OK(known_by(means)->change());
    if (!strcmp(means, "socket") || !strcmp(means, "poll")) OK(send(pair[0], ".", 1, 0) - 1);
    if (!strcmp(means, "pipe")) OK(write(pipes[1], ".", 1) - 1);
    if (!strcmp(means, "stream")) {
        FILE *file = fdopen(pipes[1], "w");
        fprintf(file, "go\n");
        OK(fflush(file));
    }
    if (!strcmp(means, "event")) OK(eventfd_write(event, 1));
    if (!strcmp(means, "system_semaphore")) {
        struct sembuf up = {0, 1, 0};
        OK(semop(number, &up, 1));
    }
    if (!strcmp(means, "named_semaphore")) OK(sem_post(named));
    if (!strcmp(means, "semaphore")) OK(sem_post(&shared->semaphore));
    if (!strcmp(means, "barrier")) pthread_barrier_wait(&shared->barrier);
    if (!strcmp(means, "condition")) {
        OK(pthread_mutex_lock(&shared->mutex));
        shared->word = 1;
        OK(pthread_cond_signal(&shared->condition));
        OK(pthread_mutex_unlock(&shared->mutex));
    }
    if (!strcmp(means, "word")) __atomic_store_n(&shared->word, 1, __ATOMIC_RELEASE);
    if (!strcmp(means, "futex")) {
        __atomic_store_n(&shared->word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    if (!strcmp(means, "signal")) OK(kill(getppid(), SIGUSR1));
    if (is_copied(means)) {
        int one = 1;
        OK(hipMemcpy(memory + kBytes, &one, sizeof one, kDefault));
    }
}

static void await(const char *means) {
    char byte[4];
    while (known_by(means) && !known_by(means)->has()) usleep(100);
    if (!strcmp(means, "socket")) OK(recv(pair[1], byte, 1, 0) - 1);
    if (!strcmp(means, "poll")) {
        struct pollfd one = {pair[1], POLLIN, 0};
        OK(poll(&one, 1, 30000) - 1);
    }
    if (!strcmp(means, "pipe")) OK(read(pipes[0], byte, 1) - 1);
    if (!strcmp(means, "stream")) {
        FILE *file = fdopen(pipes[0], "r");
        if (!fgets(byte, sizeof byte, file)) exit(1);
    }
    if (!strcmp(means, "event")) {
        eventfd_t value;
        OK(eventfd_read(event, &value));
    }
    if (!strcmp(means, "system_semaphore")) {
        struct sembuf down = {0, -1, 0};
        OK(semop(number, &down, 1));
    }
    if (!strcmp(means, "named_semaphore")) OK(sem_wait(named));
    if (!strcmp(means, "semaphore")) OK(sem_wait(&shared->semaphore));
    if (!strcmp(means, "barrier")) pthread_barrier_wait(&shared->barrier);
    if (!strcmp(means, "condition")) {
        OK(pthread_mutex_lock(&shared->mutex));
        while (!shared->word) pthread_cond_wait(&shared->condition, &shared->mutex);
        OK(pthread_mutex_unlock(&shared->mutex));
    }
    if (!strcmp(means, "word"))
        while (!__atomic_load_n(&shared->word, __ATOMIC_ACQUIRE)) usleep(100);
    if (!strcmp(means, "futex"))
        while (!__atomic_load_n(&shared->word, __ATOMIC_ACQUIRE)) syscall(SYS_futex, &shared->word, FUTEX_WAIT, 0, NULL, NULL, 0);
    if (!strcmp(means, "signal")) {
        sigset_t set;
        int got;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        OK(sigwait(&set, &got));
    }
    if (!strcmp(means, "copied"))
        for (int word = 0; word == 0; sched_yield()) OK(hipMemcpy(&word, memory + kBytes, sizeof word, kDefault));
    if (!strcmp(means, "streamed")) {
        hipStream_t stream;
        OK(hipStreamCreateWithFlags(&stream, 1));
        for (int word = 0; word == 0; sched_yield()) {
            OK(hipMemcpyAsync(&word, memory + kBytes, sizeof word, kDefault, stream));
            OK(hipStreamSynchronize(stream));
        }
        OK(hipStreamDestroy(stream));
    }
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *means = words[1], *mode = words[2];
    char bytes[kBytes];
    hipIpcMemHandle_st handle;
    hipStream_t stream;
    make(means);
    child = fork();
    if (child == 0) {
        OK(hipMalloc((void **)&memory, 2 * kBytes));
        OK(hipMemset(memory + kBytes, 0, kBytes));
        OK(hipDeviceSynchronize());
        OK(hipIpcGetMemHandle(&handle, memory));
        OK(write(setup[0], &handle, sizeof handle) - (long)sizeof handle);
        OK(read(setup[0], bytes, 1) - 1);
        OK(hipStreamCreateWithFlags(&stream, 1));
        OK(hipMemsetAsync(memory, 7, kBytes, stream));
        if (!strcmp(mode, "early")) send_signal(means); /* the fill is submitted, and may still run */
        if (strcmp(mode, "early")) OK(hipStreamSynchronize(stream)); /* else nobody knows that it is over until the parent has read */
        if (!strcmp(mode, "right") || !strcmp(mode, "unheard")) send_signal(means);
        usleep(400000); /* the accesses have an order in time, not by the program */
        OK(read(setup[0], bytes, 1) - 1);
        OK(hipStreamSynchronize(stream));
        return 0;
    }
    OK(read(setup[1], &handle, sizeof handle) - (long)sizeof handle);
    OK(hipIpcOpenMemHandle((void **)&memory, handle, 1));
    OK(write(setup[1], ".", 1) - 1);
    if (!strcmp(mode, "right") || !strcmp(mode, "early")) await(means);
    if (strcmp(mode, "right")) usleep(200000);
    OK(hipMemcpy(bytes, memory, sizeof bytes, kDefault));
    if (!strcmp(mode, "right") && bytes[0] != 7) return 1;
    OK(write(setup[1], ".", 1) - 1);
    OK(waitpid(child, NULL, 0) - child);
    if (!strcmp(means, "system_semaphore")) OK(semctl(number, 0, IPC_RMID));
    puts("done");
    return 0;
}

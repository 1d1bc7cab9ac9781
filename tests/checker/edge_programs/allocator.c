/* An allocator that maps and unmaps memory by system calls under its lock, as that of the C library does where a library
 * such as UCX has replaced `mmap` and `munmap`.  It ends the program with 9 where who has the lock allocates, or waits
 * for a thread that does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { kLarge = 1 << 20, kPage = 1 << 16, kSeconds = 20 };

void *__libc_malloc(size_t);
static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

void *malloc(size_t size) {
    struct timespec last;
    clock_gettime(CLOCK_REALTIME, &last);
    last.tv_sec += kSeconds;
    if (pthread_mutex_timedlock(&lock, &last) != 0) _exit(9);
    if (size >= kLarge) {
        long at = syscall(SYS_mmap, 0L, 2L * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
        syscall(SYS_brk, 0L);
        syscall(SYS_mremap, at, 2L * kPage, (long)kPage, 0L);
        syscall(SYS_munmap, at, (long)kPage);
    }
    pthread_mutex_unlock(&lock);
    return __libc_malloc(size);
}

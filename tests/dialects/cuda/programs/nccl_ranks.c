// Ranks of NCCL that one program forks and executes: the unique id goes to them by a file.  Its prototypes are its own.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *stream_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef enum { ncclSuccess = 0, ncclRemoteError = 6, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclInt32 = 2, ncclFloat32 = 7 } ncclDataType_t;
typedef enum { ncclSum = 0, ncclAvg = 4 } ncclRedOp_t;
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, stream_t);
ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, stream_t);
ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, stream_t);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
const char *ncclGetErrorString(ncclResult_t);
const char *ncclGetLastError(ncclComm_t);
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t);
int cuMemcpyDtoH_v2(void *, uint64_t, size_t);
int cuStreamCreate(stream_t *, unsigned);
int cuStreamSynchronize(stream_t);

enum { COUNT = 1 << 16, RANKS = 3 };
#define NCCL(call)                                                                                       \
    do {                                                                                                 \
        ncclResult_t result_ = (call);                                                                   \
        if (result_ != ncclSuccess) {                                                                    \
            fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result_), ncclGetLastError(NULL)); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)
#define CUDA(call)                                      \
    do {                                                \
        int result_ = (call);                           \
        if (result_) {                                  \
            fprintf(stderr, "%s: %d\n", #call, result_); \
            exit(1);                                    \
        }                                               \
    } while (0)

static void rank_of(int rank, const char *path, int dies) {
    ncclUniqueId id;
    FILE *file = fopen(path, "rb");
    if (!file || fread(&id, sizeof id, 1, file) != 1) exit(2);
    void *context;
    CUDA(cuInit(0));
    CUDA(cuDevicePrimaryCtxRetain(&context, rank));
    CUDA(cuCtxSetCurrent(context));
    ncclComm_t comm;
    stream_t stream;
    NCCL(ncclCommInitRank(&comm, RANKS, id, rank));
    CUDA(cuStreamCreate(&stream, 1));
    uint64_t sent, received;
    CUDA(cuMemAlloc_v2(&sent, COUNT * sizeof(int)));
    CUDA(cuMemAlloc_v2(&received, COUNT * sizeof(int)));
    int *host = malloc(COUNT * sizeof(int));
    for (int i = 0; i < COUNT; ++i) host[i] = i + rank;
    CUDA(cuMemcpyHtoD_v2(sent, host, COUNT * sizeof(int)));
    NCCL(ncclAllReduce((void *)sent, (void *)received, COUNT, ncclInt32, ncclSum, comm, stream));
    CUDA(cuStreamSynchronize(stream));
    CUDA(cuMemcpyDtoH_v2(host, received, COUNT * sizeof(int)));
    for (int i = 0; i < COUNT; ++i)
        if (host[i] != RANKS * i + 3) exit(3);
    NCCL(ncclGroupStart());
    NCCL(ncclSend((void *)sent, COUNT, ncclInt32, (rank + 1) % RANKS, comm, stream));
    NCCL(ncclRecv((void *)received, COUNT, ncclInt32, (rank + RANKS - 1) % RANKS, comm, stream));
    NCCL(ncclGroupEnd());
    CUDA(cuStreamSynchronize(stream));
    CUDA(cuMemcpyDtoH_v2(host, received, COUNT * sizeof(int)));
    if (host[7] != 7 + (rank + RANKS - 1) % RANKS) exit(4);
    if (dies) {
        if (rank == 1) _exit(0);
        ncclResult_t state = ncclSuccess;
        NCCL(ncclAllReduce((void *)sent, (void *)received, COUNT, ncclInt32, ncclSum, comm, stream));
        if (!cuStreamSynchronize(stream)) exit(5);
        NCCL(ncclCommGetAsyncError(comm, &state));
        printf("rank %d: %s\n", rank, ncclGetErrorString(state));
        NCCL(ncclCommAbort(comm));
        exit(0);
    }
    NCCL(ncclCommDestroy(comm));
    printf("rank %d: done\n", rank);
    exit(0);
}

int main(int argc, char **argv) {
    if (argc == 4) rank_of(atoi(argv[1]), argv[2], !strcmp(argv[3], "dies"));
    char path[] = "/tmp/nccl-id-XXXXXX";
    const int descriptor = mkstemp(path);
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    if (write(descriptor, &id, sizeof id) != sizeof id) return 2;
    for (int rank = 0; rank < RANKS; ++rank)
        if (fork() == 0) {
            const char number[] = {(char)('0' + rank), 0};
            execl("/proc/self/exe", argv[0], number, path, argc > 1 ? argv[1] : "", (char *)NULL);
            _exit(9);
        }
    int status, worst = 0;
    while (wait(&status) > 0)
        if (status) worst = WIFEXITED(status) ? WEXITSTATUS(status) : 8;
    unlink(path);
    return worst;
}

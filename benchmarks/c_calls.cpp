// Times calls of the C libraries: "c_calls ROUNDS NUMBER" prints, for each round, a name and the seconds of one call.
// "c_calls first" prints the seconds of the first call of a process.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

extern "C" {
int aclInit(const char* path);
int aclrtSetDevice(int32_t device);
int aclrtGetDevice(int32_t* device);
int aclrtMalloc(void** memory, size_t size, int32_t policy);
int aclrtCreateStream(void** stream);
int aclrtMemcpy(void* dst, size_t room, const void* src, size_t count, int32_t kind);
int aclrtSynchronizeStream(void* stream);
int aclrtLaunchHostFunc(void* stream, void (*function)(void*), void* data);
int aclrtMemcpyAsync(void* dst, size_t room, const void* src, size_t count, int32_t kind, void* stream);
int hipSetDevice(int device);
int hipGetDevice(int* device);
int hipMalloc(void** memory, size_t size);
int hipStreamCreate(void** stream);
int hipStreamSynchronize(void* stream);
int hipLaunchHostFunc(void* stream, void (*function)(void*), void* data);
int hipStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned flags);
int hipEventCreate(void** event);
int hipEventRecord(void* event, void* stream);
int hipEventQuery(void* event);
int hipStreamWaitEvent(void* stream, void* event, unsigned flags);
int hipMallocAsync(void** memory, size_t size, void* stream);
int hipFreeAsync(void* memory, void* stream);
int hipDeviceGetDefaultMemPool(void** pool, int device);
int hipMemPoolSetAttribute(void* pool, int attribute, void* value);
int hipMemcpy(void* dst, const void* src, size_t count, int kind);
int hipMemcpyAsync(void* dst, const void* src, size_t count, int kind, void* stream);
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuCtxGetDevice(int* device);
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
int cuMemAlloc_v2(uint64_t* memory, size_t size);
int cuMemAllocAsync(uint64_t* memory, size_t size, void* stream);
int cuMemFreeAsync(uint64_t memory, void* stream);
int cuDeviceGetDefaultMemPool(void** pool, int device);
int cuMemPoolSetAttribute(void* pool, int attribute, void* value);
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamSynchronize(void* stream);
int cuStreamWaitEvent(void* stream, void* event, unsigned flags);
int cuEventCreate(void** event, unsigned flags);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuMemcpyHtoD_v2(uint64_t dst, const void* src, size_t count);
int cuMemcpyDtoH_v2(void* dst, uint64_t src, size_t count);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t count, void* stream);
int cuMemcpyHtoD_v2_ptds(uint64_t dst, const void* src, size_t count);
int cuMemcpyAsync_ptsz(uint64_t dst, uint64_t src, size_t count, void* stream);
int cuEventRecord_ptsz(void* event, void* stream);
int cuStreamWaitEvent_ptsz(void* stream, void* event, unsigned flags);
int cuStreamSynchronize_ptsz(void* stream);
int cuPointerGetAttribute(void* value, int attribute, uint64_t address);
struct ChannelDesc {
    uint32_t header[4];
    uint32_t remoteRank;
    int32_t protocol;
    uint8_t endpoints[312];
    uint32_t notifies;
    void** memories;
    uint32_t memoryCount;
    uint8_t rest[128];
};
int HcclCommInitAll(uint32_t count, int32_t* devices, void** comms);
int HcclChannelDescInit(ChannelDesc* desc, uint32_t count);
int HcclChannelAcquire(void* comm, int32_t engine, const ChannelDesc* desc, uint32_t count, uint64_t* channels);
int HcclThreadAcquireWithStream(void* comm, int32_t engine, void* stream, uint32_t notifies, uint64_t* thread);
int HcclGetHcclBuffer(void* comm, void** buffer, uint64_t* size);
int HcclChannelGetHcclBuffer(void* comm, uint64_t channel, void** buffer, uint64_t* size);
int HcommWriteOnThread(uint64_t thread, uint64_t channel, void* dst, const void* src, uint64_t size);
}

namespace {

constexpr size_t kBytes = 8;
constexpr int kHostToDevice = 1, kDeviceToDevice = 3, kEngine = 1;

void check(int code, const char* what) {
    if (code == 0) return;
    std::fprintf(stderr, "%s returned %d\n", what, code);
    std::exit(1);
}
#define OK(call) check(call, #call)

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class Call>
double seconds(int number, const Call& call) {
    const double begun = now();
    for (int i = 0; i < number; ++i) call();
    return (now() - begun) / number;
}

struct Contender {
    std::string name;
    std::function<double(int)> sample;
};

template <class Call>
Contender timed(std::string name, Call call) {
    return {std::move(name), [call](int number) { return seconds(number, call); }};
}

// What the library's threads do for a call counts, too.
template <class Call, class Wait>
Contender timed_to_the_end(std::string name, Call call, Wait wait) {
    return {std::move(name), [call, wait](int number) {
        const double begun = now();
        for (int i = 0; i < number; ++i) call();
        wait();
        return (now() - begun) / number;
    }};
}

int calls = 0;
void count(void*) { ++calls; }
void count_on_stream(void*, int, void*) { ++calls; }

constexpr int kReleaseThreshold = 4;
uint64_t all_memory = UINT64_MAX;

void add_acl(std::vector<Contender>& all) {
    static void *a, *b, *stream;
    static char host[kBytes];
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&a, kBytes, 0));
    OK(aclrtMalloc(&b, kBytes, 0));
    OK(aclrtCreateStream(&stream));
    const auto copy = [] { OK(aclrtMemcpy(a, kBytes, b, kBytes, kDeviceToDevice)); };
    all.push_back(timed("aclrtGetDevice", [] {
        int32_t device;
        OK(aclrtGetDevice(&device));
    }));
    all.push_back(timed("aclrtMemcpy", copy));
    all.push_back(timed("aclrtMemcpy from the host", [] { OK(aclrtMemcpy(a, kBytes, host, kBytes, kHostToDevice)); }));
    all.push_back(timed("aclrtMemcpyAsync", [] { OK(aclrtMemcpyAsync(a, kBytes, b, kBytes, kDeviceToDevice, stream)); }));
    all.push_back(timed_to_the_end("aclrtLaunchHostFunc", [] { OK(aclrtLaunchHostFunc(stream, count, nullptr)); },
                                   [] { OK(aclrtSynchronizeStream(stream)); }));
    all.push_back({"aclrtMemcpy of two threads", [copy](int number) {
        double medians[2];
        const auto run = [&](int at) {
            OK(aclrtSetDevice(0));
            copy();
            medians[at] = seconds(number, copy);
        };
        std::thread other(run, 1);
        run(0);
        other.join();
        return (medians[0] + medians[1]) / 2;
    }});
}

void add_hip(std::vector<Contender>& all) {
    static void *a, *b, *stream;
    static char host[kBytes];
    OK(hipSetDevice(0));
    OK(hipMalloc(&a, kBytes));
    OK(hipMalloc(&b, kBytes));
    OK(hipStreamCreate(&stream));
    all.push_back(timed("hipGetDevice", [] {
        int device;
        OK(hipGetDevice(&device));
    }));
    all.push_back(timed("hipMemcpy", [] { OK(hipMemcpy(a, b, kBytes, kDeviceToDevice)); }));
    all.push_back(timed("hipMemcpy from the host", [] { OK(hipMemcpy(a, host, kBytes, kHostToDevice)); }));
    all.push_back(timed("hipMemcpyAsync", [] { OK(hipMemcpyAsync(a, b, kBytes, kDeviceToDevice, stream)); }));
    static void* event;
    OK(hipEventCreate(&event));
    const auto wait = [] { OK(hipStreamSynchronize(stream)); };
    all.push_back(timed_to_the_end("hipEventRecord", [] { OK(hipEventRecord(event, stream)); }, wait));
    all.push_back(timed("hipEventQuery", [] { OK(hipEventQuery(event)); }));
    all.push_back(timed_to_the_end("hipStreamWaitEvent", [] { OK(hipStreamWaitEvent(stream, event, 0)); }, wait));
    all.push_back(timed("hipStreamSynchronize", wait));
    void* pool;
    OK(hipDeviceGetDefaultMemPool(&pool, 0));
    OK(hipMemPoolSetAttribute(pool, kReleaseThreshold, &all_memory));
    const auto allocate = [] {
        void* memory;
        OK(hipMallocAsync(&memory, kBytes, stream));
        OK(hipFreeAsync(memory, stream));
    };
    all.push_back(timed_to_the_end("hipMallocAsync and hipFreeAsync", allocate, wait));
    all.push_back(timed_to_the_end("hipLaunchHostFunc", [] { OK(hipLaunchHostFunc(stream, count, nullptr)); }, wait));
    all.push_back(timed_to_the_end("hipStreamAddCallback", [] { OK(hipStreamAddCallback(stream, count_on_stream, nullptr, 0)); }, wait));
}

void add_cuda(std::vector<Contender>& all) {
    constexpr int kMemoryType = 2;
    static void *context, *stream, *event;
    static uint64_t a, b;
    static char host[kBytes];
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&a, kBytes));
    OK(cuMemAlloc_v2(&b, kBytes));
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
    const auto wait = [] { OK(cuStreamSynchronize(stream)); };
    all.push_back(timed("cuCtxGetDevice", [] {
        int device;
        OK(cuCtxGetDevice(&device));
    }));
    all.push_back(timed("cuCtxPushCurrent and cuCtxPopCurrent", [] {
        OK(cuCtxPushCurrent_v2(context));
        OK(cuCtxPopCurrent_v2(nullptr));
    }));
    all.push_back(timed("cuPointerGetAttribute", [] {
        int type;
        OK(cuPointerGetAttribute(&type, kMemoryType, a));
    }));
    all.push_back(timed("cuMemcpyHtoD", [] { OK(cuMemcpyHtoD_v2(a, host, kBytes)); }));
    all.push_back(timed("cuMemcpyDtoH", [] { OK(cuMemcpyDtoH_v2(host, a, kBytes)); }));
    all.push_back(timed("cuMemcpyAsync", [] { OK(cuMemcpyAsync(a, b, kBytes, stream)); }));
    all.push_back(timed_to_the_end("cuEventRecord", [] { OK(cuEventRecord(event, stream)); }, wait));
    all.push_back(timed("cuEventQuery", [] { OK(cuEventQuery(event)); }));
    all.push_back(timed_to_the_end("cuStreamWaitEvent", [] { OK(cuStreamWaitEvent(stream, event, 0)); }, wait));
    all.push_back(timed("cuStreamSynchronize", wait));
    const auto wait_own = [] { OK(cuStreamSynchronize_ptsz(nullptr)); };
    all.push_back(timed("cuMemcpyHtoD_v2_ptds", [] { OK(cuMemcpyHtoD_v2_ptds(a, host, kBytes)); }));
    all.push_back(timed_to_the_end("cuMemcpyAsync_ptsz", [] { OK(cuMemcpyAsync_ptsz(a, b, kBytes, nullptr)); }, wait_own));
    all.push_back(timed_to_the_end("cuEventRecord_ptsz", [] { OK(cuEventRecord_ptsz(event, nullptr)); }, wait_own));
    all.push_back(timed_to_the_end("cuStreamWaitEvent_ptsz", [] { OK(cuStreamWaitEvent_ptsz(nullptr, event, 0)); }, wait_own));
    all.push_back(timed("cuStreamSynchronize_ptsz", wait_own));
    void* pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, kReleaseThreshold, &all_memory));
    const auto allocate = [] {
        uint64_t memory;
        OK(cuMemAllocAsync(&memory, kBytes, stream));
        OK(cuMemFreeAsync(memory, stream));
    };
    all.push_back(timed_to_the_end("cuMemAllocAsync and cuMemFreeAsync", allocate, wait));
    all.push_back(timed_to_the_end("cuEventRecord while a pool keeps memory", [] { OK(cuEventRecord(event, stream)); }, wait));
}

void add_hcomm(std::vector<Contender>& all) {
    static uint64_t channels[2], thread;
    static void *comms[2], *ours, *theirs, *stream;
    int32_t devices[2] = {0, 1};
    uint64_t size;
    OK(HcclCommInitAll(2, devices, comms));
    const auto connect = [&](uint32_t rank) {
        OK(aclrtSetDevice(static_cast<int32_t>(rank)));
        ChannelDesc desc;
        std::memset(&desc, 0, sizeof desc);
        OK(HcclChannelDescInit(&desc, 1));
        desc.remoteRank = 1 - rank;
        desc.protocol = 0;
        desc.notifies = 1;
        OK(HcclChannelAcquire(comms[rank], kEngine, &desc, 1, &channels[rank]));
    };
    std::thread other(connect, 1);
    connect(0);
    other.join();
    OK(aclrtCreateStream(&stream));
    OK(HcclThreadAcquireWithStream(comms[0], kEngine, stream, 1, &thread));
    OK(HcclGetHcclBuffer(comms[0], &ours, &size));
    OK(HcclChannelGetHcclBuffer(comms[0], channels[0], &theirs, &size));
    all.push_back(timed("HcommWriteOnThread", [] { OK(HcommWriteOnThread(thread, channels[0], theirs, ours, kBytes)); }));
}

}  // namespace

int main(int count, char** words) {
    const double begun = now();
    OK(aclInit(nullptr));
    if (count < 3) {
        std::printf("%.9f\n", now() - begun);
        return 0;
    }
    std::vector<Contender> all;
    add_acl(all);
    add_hip(all);
    add_cuda(all);
    add_hcomm(all);
    const int rounds = std::atoi(words[1]), number = std::atoi(words[2]);
    for (const Contender& each : all) each.sample(number);
    for (int round = 0; round < rounds; ++round)
        for (const Contender& each : all) std::printf("%.12f %s\n", each.sample(number), each.name.c_str());
}

// Two ranks write to each other in threads, and main ends their communicators: after a join, or after a condition variable.
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

extern "C" {
int aclrtSetDevice(int device);
int aclrtMalloc(void** memory, size_t size, int policy);
int aclrtMemset(void* memory, size_t most, int value, size_t count);
int aclrtCreateStream(void** stream);
int aclrtSynchronizeStream(void* stream);
const char* aclGetRecentErrMsg();
}
#include "check.h"
#include "hcomm.h"

namespace {

std::mutex mutex;
std::condition_variable is_signalled;
int done = 0;

void rank(int own, void* group) {
    void *memory, *stream, *theirs;
    uint64_t size;
    OK(aclrtSetDevice(own));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMalloc(&memory, 4096, 0));
    OK(aclrtMemset(memory, 4096, 1, 4096));
    HcclChannelDesc wanted{};
    OK(HcclChannelDescInit(&wanted, 1));
    wanted.remoteRank = 1 - own;
    wanted.channelProtocol = 0;
    wanted.notifyNum = 2;
    ChannelHandle channel;
    ThreadHandle thread;
    OK(HcclChannelAcquire(group, 1, &wanted, 1, &channel));
    OK(HcclThreadAcquireWithStream(group, 1, stream, 2, &thread));
    OK(HcclChannelGetHcclBuffer(group, channel, &theirs, &size));
    OK(HcommWriteOnThread(thread, channel, theirs, memory, 4096));
    OK(HcommChannelNotifyRecordOnThread(thread, channel, 1));
    OK(HcommChannelNotifyWaitOnThread(thread, channel, 1, 20));
    OK(aclrtSynchronizeStream(stream));
    const std::lock_guard lock(mutex);
    ++done;
    is_signalled.notify_one();
}

}  // namespace

int main(int, char** words) {
    int32_t devices[] = {0, 1};
    void* groups[2];
    OK(HcclCommInitAll(2, devices, groups));
    std::thread threads[] = {std::thread(rank, 0, groups[0]), std::thread(rank, 1, groups[1])};
    const bool joins = strcmp(words[1], "join") == 0;
    if (joins)
        for (auto& each : threads) each.join();
    else {
        std::unique_lock lock(mutex);
        is_signalled.wait(lock, [] { return done == 2; });
    }
    for (void* each : groups) OK(HcclCommDestroy(each));
    if (!joins)
        for (auto& each : threads) each.join();
}

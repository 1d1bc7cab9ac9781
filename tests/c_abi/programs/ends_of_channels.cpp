// What is used after its end: a channel and a thread of a destroyed communicator, memory that a peer has freed, and a
// communicator with queued work.
#include "ranks.h"

namespace {

std::atomic<int> looked{0};

// Both ranks: what came before is over.
void meet(const Rank& rank, ThreadHandle thread, ChannelHandle channel, uint32_t notify) {
    OK(HcommChannelNotifyRecordOnThread(thread, channel, notify));
    OK(HcommChannelNotifyWaitOnThread(thread, channel, notify, kSeconds));
    OK(aclrtSynchronizeStream(rank.stream));
}

void use_ended_objects(const Rank& rank) {
    HcclComm comm = nullptr;
    const uint32_t both[] = {0, 1};
    HcclCommConfig settings;
    HcclCommConfigInit(&settings);
    HcclComm whole = rank.comm;
    OK(HcclCreateSubCommConfig(&whole, 2, both, 7, rank.number, &settings, &comm));
    void* const own = rank.filled(std::vector<float>(64, 1));
    const CommMem registered{0, own, 256};
    HcclMemHandle handle;
    OK(HcclCommMemReg(comm, "own", &registered, &handle));
    IS(HcclCommMemReg(comm, "own", &registered, &handle) == 1);   // the tag is taken
    HcclChannelDesc desc = rank.desc(1 - rank.number, 3);
    ChannelHandle channel = 0;
    ThreadHandle thread = 0;
    IS(HcclChannelAcquire(nullptr, kCpuTs, &desc, 1, &channel) == 2);
    IS(HcommChannelNotifyRecordOnThread(1, 1, 0) == 6);   // nothing was acquired
    OK(HcclThreadAcquireWithStream(comm, kCpuTs, rank.stream, 1, &thread));
    IS(HcommChannelNotifyRecordOnThread(thread, 0, 0) == 2);   // no channel yet
    OK(HcclChannelAcquire(comm, kCpuTs, &desc, 1, &channel));
    IS(HcommChannelNotifyRecordOnThread(thread, channel, 3) == 1);
    IS(HcommThreadNotifyRecordOnThread(thread, thread, 1) == 1);
    IS(HcommBatchModeEnd("none") == 1);
    OK(HcommBatchModeStart("outer"));
    IS(HcommBatchModeStart("inner") == 1);
    OK(HcommBatchModeEnd("outer"));

    uint32_t count = 0;
    CommMem* memories = nullptr;
    char** tags = nullptr;
    OK(HcclChannelGetRemoteMems(comm, channel, &count, &memories, &tags));
    void* theirs = nullptr;
    for (uint32_t i = 0; i < count; ++i)
        if (!strcmp(tags[i], "own")) theirs = memories[i].addr;
    IS(theirs != nullptr);
    meet(rank, thread, channel, 0);
    OK(HcommChannelNotifyWaitOnThread(thread, channel, 2, kSeconds));
    IS(HcclCommDestroy(comm) == 20);   // its thread waits
    both_have_come(looked);
    OK(HcommChannelNotifyRecordOnThread(thread, channel, 1));
    OK(aclrtFree(own));
    ThreadHandle second = 0;
    OK(HcclThreadAcquire(comm, kCpuTs, 1, 1, &second));
    OK(HcommChannelNotifyRecordOnThread(second, channel, 2));
    OK(aclrtSynchronizeStream(rank.stream));
    OK(HcommChannelNotifyWaitOnThread(thread, channel, 1, kSeconds));
    OK(aclrtSynchronizeStream(rank.stream));
    IS(HcommWriteOnThread(thread, channel, theirs, memories[0].addr, 64) == 6);   // the peer has freed it
    meet(rank, thread, channel, 0);
    OK(HcclCommDestroy(comm));
    IS(HcclCommDestroy(comm) == 6);
    IS(HcommChannelNotifyRecordOnThread(thread, channel, 0) == 6);
    IS(HcommLocalCopyOnThread(second, theirs, theirs, 4) == 6);
    void* buffer;
    uint64_t size;
    IS(HcclGetHcclBuffer(comm, &buffer, &size) == 6);
    IS(HcclChannelGetHcclBuffer(rank.comm, channel, &buffer, &size) == 6);
}

}  // namespace

int main() { return run_ranks(use_ended_objects); }

// Two ranks as threads of one process: structs and arrays go both ways, and an older program's structs are shorter.
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "hcomm.h"

extern "C" {
const char* aclGetRecentErrMsg(void);
int aclrtSetDevice(int32_t);
int aclrtCreateStream(void**);
int aclrtSynchronizeStream(void*);
int aclrtMalloc(void**, size_t, int);
int aclrtMemcpy(void*, size_t, const void*, size_t, int);
}

#include "check.h"

namespace {

constexpr uint32_t kRanks = 2, kBytes = 4096, kReady = 0, kWritten = 1;
constexpr int kCpuTs = 1, kHccs = 0;

void look_at_topology(HcclComm comm, uint32_t rank) {
    uint32_t number = 99, count = 0, *list = nullptr;
    OK(HcclGetRankSize(comm, &number));
    IS(number == kRanks);
    OK(HcclGetRankId(comm, &number));
    IS(number == rank);
    char name[128];
    OK(HcclGetCommName(comm, name));
    HcclComm same = nullptr;
    OK(HcclCommGetHandleWithName(name, &same));
    IS(same != nullptr);   // both ranks of this process have the name
    OK(HcclRankGraphGetLayers(comm, &list, &count));
    IS(count == 1 && list[0] == 0);
    OK(HcclRankGraphGetRanksByLayer(comm, 0, &list, &count));
    IS(count == kRanks && list[0] == 0 && list[1] == 1);
    CommLink* links = nullptr;
    OK(HcclRankGraphGetLinks(comm, 0, rank, 1 - rank, &links, &count));
    IS(count > 0 && links[0].header.magicWord == 0x0f0e0f0f && links[0].header.size == sizeof(CommLink));
    uint32_t endpoints = 0;
    OK(HcclRankGraphGetEndpointNum(comm, 0, 0, &endpoints));
    std::vector<EndpointDesc> descs(endpoints);
    OK(HcclRankGraphGetEndpointDesc(comm, 0, 0, &endpoints, descs.data()));
    IS(endpoints == descs.size() && endpoints > 0);
    uint32_t value = 0;
    OK(HcclRankGraphGetEndpointInfo(comm, rank, &descs[0], 0, sizeof value, reinterpret_cast<uint8_t*>(&value)));
}

ChannelHandle channel_to(HcclComm comm, uint32_t peer) {
    HcclChannelDesc desc;
    std::memset(&desc, 0, sizeof desc);
    ChannelHandle channel = 0;
    IS(HcclChannelAcquire(comm, kCpuTs, &desc, 1, &channel) == 1);   // Init has not filled it
    OK(HcclChannelDescInit(&desc, 1));
    IS(desc.header.size == sizeof desc && desc.header.magicWord == 0x0f0f0f0f && desc.header.version == 1);
    IS(desc.remoteRank == ~0u && desc.channelProtocol == -1 && desc.notifyNum == 0 && desc.memHandles == nullptr);
    IS(desc.raws[0] == 0xFF && desc.localEndpoint.protocol == -1 && desc.localEndpoint.raws[51] == 0xFF);
    desc.remoteRank = peer;
    desc.channelProtocol = kHccs;
    desc.notifyNum = 3;
    OK(HcclChannelAcquire(comm, kCpuTs, &desc, 1, &channel));
    ChannelHandle known = 0;
    OK(HcclChannelQuery(comm, kCpuTs, &desc, 1, &known));
    IS(known == channel);
    uint32_t notifies = 0;
    OK(HcclChannelGetNotifyNum(comm, channel, &notifies));
    IS(notifies == 3);
    return channel;
}

void be_rank(HcclComm comm, uint32_t rank) {
    OK(aclrtSetDevice(static_cast<int32_t>(rank)));
    look_at_topology(comm, rank);
    void* own = nullptr;
    HcclMemHandle handle = nullptr;
    OK(aclrtMalloc(&own, kBytes, 0));
    const std::string tag = "t\xe9g of rank " + std::to_string(rank);
    const CommMem registered{0, own, kBytes};
    OK(HcclCommMemReg(comm, tag.c_str(), &registered, &handle));
    const ChannelHandle channel = channel_to(comm, 1 - rank);

    uint32_t memories = 0;
    CommMem* remote = nullptr;
    char** tags = nullptr;
    OK(HcclChannelGetRemoteMems(comm, channel, &memories, &remote, &tags));
    const std::string wanted = "t\xe9g of rank " + std::to_string(1 - rank);
    void* there = nullptr;
    for (uint32_t i = 0; i < memories; ++i)
        if (tags[i] == wanted) there = remote[i].addr;
    IS(there != nullptr);

    void* stream = nullptr;
    ThreadHandle threads[2];
    OK(HcclThreadAcquire(comm, kCpuTs, 2, 1, threads));
    IS(threads[0] != 0 && threads[0] != threads[1]);
    ThreadHandle thread = 0;
    OK(aclrtCreateStream(&stream));
    OK(HcclThreadAcquireWithStream(comm, kCpuTs, stream, 2, &thread));
    std::vector<uint8_t> sent(kBytes, static_cast<uint8_t>(17 + rank)), got(kBytes);
    OK(aclrtMemcpy(own, kBytes, sent.data(), kBytes / 2, 1));
    OK(HcommChannelNotifyRecordOnThread(thread, channel, kReady));
    OK(HcommChannelNotifyWaitOnThread(thread, channel, kReady, 20));
    HcommBatchTransferDesc transfers[2];
    std::memset(transfers, 0, sizeof transfers);
    transfers[0].transType = 0;   // a write
    transfers[0].transferInfo.write.len = kBytes / 2;
    transfers[0].transferInfo.write.dst = static_cast<uint8_t*>(there) + kBytes / 2;
    transfers[0].transferInfo.write.src = own;
    transfers[1].transType = 6;   // a record
    transfers[1].transferInfo.notifyRecord.notifyIdx = kWritten;
    OK(HcommBatchTransferOnThread(thread, channel, transfers, 2));
    OK(HcommChannelNotifyWaitOnThread(thread, channel, kWritten, 20));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(got.data(), kBytes, own, kBytes, 2));
    for (uint32_t i = 0; i < kBytes; ++i) IS(got[i] == 17 + (i < kBytes / 2 ? rank : 1 - rank));

    const uint64_t counts[kRanks] = {256, 256}, displacements[kRanks] = {0, 256};
    void* gathered = nullptr;
    OK(aclrtMalloc(&gathered, 512, 0));
    OK(HcclAllGatherV(own, 256, gathered, counts, displacements, 0, comm, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(got.data(), 512, gathered, 512, 2));
    for (uint32_t i = 0; i < 512; ++i) IS(got[i] == 17 + i / 256);
    IS(HcclAllGatherV(own, 256, gathered, nullptr, displacements, 0, comm, stream) == 2);
    IS(HcclChannelAcquire(comm, kCpuTs, nullptr, 1, threads) == 2);
    OK(HcclBarrier(comm, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(HcclCommDestroy(comm));
}

// Version 10 of the configuration ends before its last field: what lies behind it is not the library's.
void look_at_older_structs() {
    struct {
        HcclCommConfig config;
        char behind[64];
    } older;
    OK(aclrtSetDevice(0));
    HcclCommConfigInit(&older.config);
    IS(older.config.size == sizeof(HcclCommConfig) && older.config.magicWord == 0xf0f0f0f0);
    older.config.size = offsetof(HcclCommConfig, hcclChannelSqDepth);
    older.config.version = 10;
    std::strcpy(older.config.hcclCommName, "older");
    std::memset(&older.config.hcclChannelSqDepth, 0x5A, sizeof older.config.hcclChannelSqDepth + sizeof older.behind);
    uint8_t info[4108];
    HcclComm comm = nullptr;
    OK(HcclGetRootInfo(info));
    OK(HcclCommInitRootInfoConfig(1, info, 0, &older.config, &comm));
    char name[128];
    OK(HcclGetCommName(comm, name));
    IS(std::string(name) == "older");
    OK(HcclCommDestroy(comm));
}

}  // namespace

int main() {
    const int32_t devices[kRanks] = {0, 1};
    HcclComm comms[kRanks];
    OK(aclrtSetDevice(0));
    look_at_older_structs();
    OK(HcclCommInitAll(kRanks, devices, comms));
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < kRanks; ++rank) ranks.emplace_back(be_rank, comms[rank], rank);
    for (std::thread& rank : ranks) rank.join();
    std::puts("done");
}

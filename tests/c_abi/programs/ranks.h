// The ranks of a test program: threads of one process, or one process each under `peerlane launch`.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hcomm.h"

extern "C" {
const char* aclGetRecentErrMsg(void);
const char* aclrtGetSocName(void);
int aclInit(const char* path);
int aclFinalize(void);
int aclrtSetDevice(int32_t device);
int aclrtResetDevice(int32_t device);
int aclrtGetDeviceCount(uint32_t* count);
int aclrtMalloc(void** memory, size_t size, int policy);
int aclrtFree(void* memory);
int aclrtMemset(void* memory, size_t most, int32_t value, size_t count);
int aclrtMemcpy(void* to, size_t most, const void* from, size_t count, int kind);
int aclrtCreateStream(aclrtStream* stream);
int aclrtDestroyStream(aclrtStream stream);
int aclrtSynchronizeStream(aclrtStream stream);
int aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t milliseconds);
}

#include "check.h"
#include "seconds.h"

enum { kCpu = 0, kCpuTs = 1, kAicpu = 2, kAicpuTs = 3, kToDevice = 1, kToHost = 2, kHccs = 0, kRoce = 1, kFloat = 4, kSum = 0 };

inline std::atomic<bool> has_wrong_bytes{false};

// A rank: its communicator, and a stream of its device.
struct Rank {
    uint32_t number, ranks;
    HcclComm comm;
    aclrtStream stream;

    void* memory(size_t bytes) const {
        void* buffer = nullptr;
        OK(aclrtMalloc(&buffer, bytes, 0));
        return buffer;
    }
    void* filled(const std::vector<float>& content) const {
        void* const buffer = memory(content.size() * sizeof(float));
        OK(aclrtMemcpy(buffer, content.size() * sizeof(float), content.data(), content.size() * sizeof(float), kToDevice));
        return buffer;
    }
    std::vector<float> content(const void* from, size_t count) const {
        std::vector<float> buffer(count);
        OK(aclrtMemcpy(buffer.data(), count * sizeof(float), from, count * sizeof(float), kToHost));
        return buffer;
    }
    // The program goes on if the bytes are others, so that all that happens is seen, and ends with 1.
    void expect(const void* at, const std::vector<float>& wanted) const {
        if (content(at, wanted.size()) == wanted) return;
        fprintf(stderr, "rank %u has other bytes\n", number);
        has_wrong_bytes = true;
    }
    // A descriptor of a channel to a peer, over the link that the topology has.
    HcclChannelDesc desc(uint32_t peer, uint32_t notifies) const {
        CommLink* links = nullptr;
        uint32_t count = 0;
        OK(HcclRankGraphGetLinks(comm, 0, number, peer, &links, &count));
        IS(count > 0);
        HcclChannelDesc description;
        OK(HcclChannelDescInit(&description, 1));
        description.remoteRank = peer;
        description.channelProtocol = links[0].linkAttr.linkProtocol;
        description.notifyNum = notifies;
        description.localEndpoint = links[0].srcEndpointDesc;
        description.remoteEndpoint = links[0].dstEndpointDesc;
        return description;
    }
};

inline void be_rank(uint32_t number, uint32_t ranks, const uint8_t* info, const std::function<void(const Rank&)>& body) {
    OK(aclrtSetDevice(static_cast<int32_t>(number)));
    Rank rank{number, ranks, nullptr, nullptr};
    OK(HcclCommInitRootInfo(ranks, info, number, &rank.comm));
    OK(aclrtCreateStream(&rank.stream));
    body(rank);
    OK(HcclCommDestroy(rank.comm));
    OK(aclrtDestroyStream(rank.stream));
    OK(aclrtResetDevice(static_cast<int32_t>(number)));
}

// The root info of rank 0 in a file that all processes of a launch know.
inline void share_root_info(uint32_t number, uint8_t (&info)[4108]) {
    const std::string path = std::string(getenv("TMPDIR")) + "/root_info." + std::to_string(getppid());
    if (number == 0) {
        OK(aclrtSetDevice(0));
        OK(HcclGetRootInfo(info));
        std::ofstream(path + ".new", std::ios::binary).write(reinterpret_cast<char*>(info), sizeof info);
        rename((path + ".new").c_str(), path.c_str());
        return;
    }
    std::ifstream file;
    for (int tries = 0; tries < 3000 && !file.is_open(); ++tries) {
        file.open(path, std::ios::binary);
        if (!file.is_open()) usleep(10'000);
    }
    file.read(reinterpret_cast<char*>(info), sizeof info);
}

// Both threads of a process: wait until the other one has come.
inline void both_have_come(std::atomic<int>& counter) {
    ++counter;
    while (counter != 2) usleep(1000);
}

// Run the ranks, of which there are as many as devices; return what the program ends with.
inline int run_ranks(const std::function<void(const Rank&)>& body) {
    OK(aclInit(nullptr));
    uint8_t info[4108];
    if (const char* const number = getenv("RANK")) {
        share_root_info(static_cast<uint32_t>(atoi(number)), info);
        be_rank(static_cast<uint32_t>(atoi(number)), static_cast<uint32_t>(atoi(getenv("WORLD_SIZE"))), info, body);
    } else {
        uint32_t ranks = 0;
        OK(aclrtGetDeviceCount(&ranks));
        OK(aclrtSetDevice(0));
        OK(HcclGetRootInfo(info));
        std::vector<std::thread> threads;
        for (uint32_t each = 0; each < ranks; ++each) threads.emplace_back([=] { be_rank(each, ranks, info, body); });
        for (std::thread& each : threads) each.join();
    }
    OK(aclFinalize());
    puts("done");
    return has_wrong_bytes;
}

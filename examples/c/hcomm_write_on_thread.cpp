// One-sided writes: rank 0 writes its communication buffer into that of every other rank, over channels.
//
// The program of the vendor's page of HcommWriteOnThread, completed.  On virtual devices, one process a rank:
//
//     g++ hcomm_write_on_thread.cpp -L$(peerlane c-abi --print-dir) -lhcomm -lascendcl -o hcomm_write_on_thread
//     peerlane launch -n 3 --devices 3 ./hcomm_write_on_thread
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "check.h"
#include "hcomm_declarations.h"

namespace {

constexpr uint32_t kReady = 0, kWritten = 1, kDone = 2;   // the notifies of a channel
constexpr uint32_t kNotifies = 3;
constexpr uint32_t kSeconds = 30;

uint32_t number_of(const char* variable) {
    const char* const text = std::getenv(variable);
    return text ? static_cast<uint32_t>(std::atoi(text)) : 0;
}

// The bytes of rank 0 reach the others by any means; here by a file, which appears under its name when it is whole.
HcclRootInfo root_info(uint32_t rank) {
    const char* const folder = std::getenv("TMPDIR");
    const std::string path = std::string(folder ? folder : "/tmp") + "/root_info." + std::to_string(getppid());
    HcclRootInfo info;
    if (rank == 0) {
        CHECK(HcclGetRootInfo(&info));
        std::ofstream(path + ".new", std::ios::binary).write(info.internal, sizeof info.internal);
        std::rename((path + ".new").c_str(), path.c_str());
        return info;
    }
    std::ifstream file;
    for (int tries = 0; tries < 3000 && !file.is_open(); ++tries) {
        file.open(path, std::ios::binary);
        if (!file.is_open()) usleep(10'000);
    }
    file.read(info.internal, sizeof info.internal);
    return info;
}

// Queue the exchange with one peer, in which rank 0 writes; nothing here waits.
void sample(HcclComm comm, ChannelHandle channel, ThreadHandle thread, uint32_t rank) {
    void *local = nullptr, *remote = nullptr;
    uint64_t local_size = 0, remote_size = 0;
    CHECK(HcclGetHcclBuffer(comm, &local, &local_size));
    CHECK(HcommChannelNotifyRecordOnThread(thread, channel, kReady));
    CHECK(HcommChannelNotifyWaitOnThread(thread, channel, kReady, kSeconds));
    if (rank == 0) {
        CHECK(HcclChannelGetHcclBuffer(comm, channel, &remote, &remote_size));
        CHECK(HcommWriteOnThread(thread, channel, remote, local, std::min(local_size, remote_size)));
    }
    for (const uint32_t notify : {kWritten, kDone}) {
        CHECK(HcommChannelNotifyRecordOnThread(thread, channel, notify));
        CHECK(HcommChannelNotifyWaitOnThread(thread, channel, notify, kSeconds));
    }
}

}  // namespace

int main() {
    setenv("HCCL_BUFFSIZE", "8", 0);   // MB: the communication buffer has twice as much
    const uint32_t rank = number_of("RANK"), ranks = number_of("WORLD_SIZE");
    CHECK(aclInit(nullptr));
    CHECK(aclrtSetDevice(static_cast<int32_t>(rank)));
    const HcclRootInfo info = root_info(rank);
    HcclComm comm = nullptr;
    CHECK(HcclCommInitRootInfo(ranks, &info, rank, &comm));

    std::vector<uint32_t> peers;
    for (uint32_t other = 0; other < ranks; ++other)
        if ((rank == 0) != (other == 0)) peers.push_back(other);
    std::vector<HcclChannelDesc> descs(peers.size());
    CHECK(HcclChannelDescInit(descs.data(), static_cast<uint32_t>(descs.size())));
    for (size_t i = 0; i < peers.size(); ++i) {
        descs[i].remoteRank = peers[i];
        descs[i].channelProtocol = COMM_PROTOCOL_HCCS;
        descs[i].notifyNum = kNotifies;
    }
    std::vector<ChannelHandle> channels(peers.size());
    CHECK(HcclChannelAcquire(comm, COMM_ENGINE_CPU_TS, descs.data(), static_cast<uint32_t>(descs.size()), channels.data()));
    std::vector<aclrtStream> streams(peers.size());
    std::vector<ThreadHandle> threads(peers.size());
    for (size_t i = 0; i < peers.size(); ++i) {
        CHECK(aclrtCreateStream(&streams[i]));
        CHECK(HcclThreadAcquireWithStream(comm, COMM_ENGINE_CPU_TS, streams[i], 2, &threads[i]));
    }

    void* buffer = nullptr;
    uint64_t size = 0;
    CHECK(HcclGetHcclBuffer(comm, &buffer, &size));
    std::vector<uint64_t> words(size / 8), received(words.size());
    for (size_t i = 0; i < words.size(); ++i) words[i] = i * 0x9E3779B97F4A7C15u;
    const std::vector<uint64_t>& mine = rank == 0 ? words : received;
    CHECK(aclrtMemcpy(buffer, size, mine.data(), size, ACL_MEMCPY_HOST_TO_DEVICE));
    for (size_t i = 0; i < peers.size(); ++i) sample(comm, channels[i], threads[i], rank);
    for (const aclrtStream stream : streams) CHECK(aclrtSynchronizeStream(stream));

    CHECK(aclrtMemcpy(received.data(), size, buffer, size, ACL_MEMCPY_DEVICE_TO_HOST));
    if (received != words) {
        std::fprintf(stderr, "rank %u has other bytes than rank 0 wrote\n", rank);
        return 1;
    }
    std::printf("rank %u of %u: %llu bytes %s, every byte verified\n", rank, ranks, static_cast<unsigned long long>(size),
                rank == 0 ? "written" : "received");
    CHECK(HcclCommDestroy(comm));
    for (const aclrtStream stream : streams) CHECK(aclrtDestroyStream(stream));
    CHECK(aclFinalize());
}

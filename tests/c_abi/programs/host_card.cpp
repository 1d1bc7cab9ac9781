// The engine CPU over ROCE, as a network card of the host: the calls act at once, transfers that do not block are fenced.
#include "ranks.h"

namespace {

void write_and_fence(const Rank& rank) {
    enum { kAck, kData, kEnd };
    const uint32_t peer = rank.number ^ 1;
    HcclChannelDesc desc = rank.desc(peer, 3);
    desc.channelProtocol = kRoce;
    ChannelHandle channel = 0;
    OK(HcclChannelAcquire(rank.comm, kCpu, &desc, 1, &channel));
    void *local = nullptr, *remote = nullptr;
    uint64_t bytes = 0;
    OK(HcclGetHcclBuffer(rank.comm, &local, &bytes));
    OK(HcclChannelGetHcclBuffer(rank.comm, channel, &remote, &bytes));
    const std::vector<float> sent(1000, static_cast<float>(rank.number));
    OK(aclrtMemcpy(local, 4000, sent.data(), 4000, kToDevice));
    IS(HcommChannelNotifyWaitOnThread(0, channel, kAck, 0) == 1);   // it would be for ever
    IS(HcommWriteNbi(channel, remote, local, 0) == 1);
    IS(HcommWriteNbi(channel, local, local, 4) == 6);   // not the peer's
    OK(HcommChannelNotifyRecord(channel, kAck));
    OK(HcommChannelNotifyWait(channel, kAck, kSeconds));
    OK(HcommWriteWithNotifyNbi(channel, static_cast<char*>(remote) + 8192, local, 4000, kData));
    OK(HcommChannelNotifyWait(channel, kData, kSeconds));
    OK(HcommChannelNotifyRecordOnThread(0, channel, kEnd));
    OK(HcommChannelNotifyWaitOnThread(0, channel, kEnd, kSeconds));
    OK(HcommReadNbi(channel, static_cast<char*>(local) + 16384, remote, 4000));
    OK(HcommChannelFence(channel));
    OK(HcommFenceOnThread(0));
    const std::vector<float> theirs(1000, static_cast<float>(peer));
    rank.expect(static_cast<char*>(local) + 8192, theirs);
    rank.expect(static_cast<char*>(local) + 16384, theirs);
    OK(HcommChannelNotifyRecord(channel, kAck));
    OK(HcommChannelNotifyWait(channel, kAck, kSeconds));
    IS(HcommChannelNotifyWait(channel, kData, 1) == 9);   // nobody records it
    OK(HcommChannelNotifyRecord(channel, kAck));   // this rank ends only when the other one has waited in vain, too
    OK(HcommChannelNotifyWait(channel, kAck, kSeconds));
}

}  // namespace

int main() { return run_ranks(write_and_fence); }

// The layer below communicators: endpoints, memory that travels as bytes, threads, and channels that connect on their own.
#include "ranks.h"

namespace {

struct Offer {
    std::vector<uint8_t> memory;
    EndpointDesc endpoint;
};
Offer offers[2];
std::atomic<int> offered{0}, done{0};

void write_without_a_communicator(uint32_t number) {
    OK(aclrtSetDevice(static_cast<int32_t>(number)));
    EndpointDesc own;
    OK(EndpointDescInit(&own, 1));
    own.protocol = kHccs;
    own.commAddr.type = 3;   // an id
    own.commAddr.id = number;
    own.loc.locType = 0;   // a device
    own.loc.device.devPhyId = number;
    EndpointHandle endpoint = nullptr;
    OK(HcommEndpointCreate(&own, &endpoint));
    void* memory = nullptr;
    OK(aclrtMalloc(&memory, 4096, 0));
    OK(aclrtMemset(memory, 4096, static_cast<int32_t>(number + 1), 4096));
    const CommMem registered{0, memory, 4096};
    HcommMemHandle handle = nullptr;
    OK(HcommMemReg(endpoint, "block", &registered, &handle));
    uint8_t* exported = nullptr;
    uint32_t bytes = 0;
    OK(HcommMemExport(endpoint, handle, &exported, &bytes));
    offers[number] = {std::vector<uint8_t>(exported, exported + bytes), own};
    both_have_come(offered);

    const Offer& other = offers[1 - number];
    CommMem theirs;
    OK(HcommMemImport(endpoint, other.memory.data(), static_cast<uint32_t>(other.memory.size()), &theirs));
    IS(theirs.size == 4096);
    HcommChannelDesc desc;
    OK(HcommChannelDescInit(&desc, 1));
    desc.remoteEndpoint = other.endpoint;
    desc.notifyNum = 2;
    desc.exchangeAllMems = true;
    desc.role = number == 0 ? 0 : 1;   // who connects, and who listens
    ChannelHandle channel = 0;
    OK(HcommChannelCreate(endpoint, kCpuTs, &desc, 1, &channel));
    int32_t status = 1;
    for (int tries = 0; tries < 3000 && status == 1; ++tries) {
        OK(HcommChannelGetStatus(&channel, 1, &status));
        if (status == 1) usleep(10'000);
    }
    IS(status == 0);
    const uint32_t notifies = 1;
    ThreadHandle thread = 0;
    OK(HcommThreadAlloc(kCpuTs, 1, &notifies, &thread));
    OK(HcommChannelNotifyRecordOnThread(thread, channel, 0));
    OK(HcommChannelNotifyWaitOnThread(thread, channel, 0, kSeconds));
    OK(HcommWriteOnThread(thread, channel, static_cast<char*>(theirs.addr) + 2048, memory, 2048));
    OK(HcommChannelNotifyRecordOnThread(thread, channel, 1));
    OK(HcommChannelNotifyWaitOnThread(thread, channel, 1, kSeconds));
    OK(HcommThreadJoin(thread, kSeconds));
    std::vector<uint8_t> content(4096);
    OK(aclrtMemcpy(content.data(), 4096, memory, 4096, kToHost));
    for (size_t i = 0; i < content.size(); ++i) if (content[i] != (i < 2048 ? number : 1 - number) + 1) has_wrong_bytes = true;
    both_have_come(done);
    IS(HcommEndpointDestroy(endpoint) == 20);   // it has a channel
    OK(HcommChannelDestroy(&channel, 1));
    IS(HcommChannelNotifyRecordOnThread(thread, channel, 0) == 6);
    OK(HcommThreadFree(&thread, 1));
    IS(HcommThreadFree(&thread, 1) == 6);
    OK(HcommMemUnimport(endpoint, other.memory.data(), static_cast<uint32_t>(other.memory.size())));
    OK(HcommMemUnreg(endpoint, handle));
    OK(HcommEndpointDestroy(endpoint));
    OK(aclrtFree(memory));
}

}  // namespace

int main() {
    OK(aclInit(nullptr));
    std::thread first(write_without_a_communicator, 0), second(write_without_a_communicator, 1);
    first.join();
    second.join();
    puts("done");
    return has_wrong_bytes;
}

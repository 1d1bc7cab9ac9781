// What the library gives out stays while its thing lives; an Init reads nothing; names and tags may be any bytes.
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "hcomm.h"

extern "C" {
const char* aclGetRecentErrMsg(void);
int aclrtSetDevice(int32_t);
int aclrtMalloc(void**, size_t, int);
}

#include "check.h"

namespace {

constexpr size_t kBytes = 4096;
constexpr int kTimes = 4000;

template <typename Struct>
Struct garbage() {
    Struct created;
    std::memset(&created, 0xAB, sizeof created);
    return created;
}

void fill_garbage() {
    auto channel = garbage<HcclChannelDesc>();
    OK(HcclChannelDescInit(&channel, 1));
    IS(channel.header.size == sizeof channel && channel.memHandles == nullptr && channel.raws[127] == 0xFF);
    OK(HcclChannelDescInit(nullptr, 0));
    IS(HcclChannelDescInit(nullptr, 1) == 2);
    IS(HcclChannelDescInit(&channel, ~0u) == 1);
    HcommChannelDesc basic[2] = {garbage<HcommChannelDesc>(), garbage<HcommChannelDesc>()};
    OK(HcommChannelDescInit(basic, 2));
    IS(basic[1].header.size == sizeof basic[1] && basic[1].socket == nullptr && basic[1].channelName == nullptr);
    IS(basic[1].roceAttr.srcPortList == nullptr && basic[1].roceAttr.queueNum == ~0u && basic[1].memHandleNum == 0);
    auto team = garbage<HcclTeamCreateDesc>();
    OK(HcclTeamCreateDescInit(&team));
    IS(team.header.size == sizeof team && team.rankIds == nullptr && team.rankNum == 0);
    auto channels = garbage<HcclTeamCreateChannelsDesc>();
    OK(HcclTeamCreateChannelsDescInit(&channels));
    IS(channels.header.size == sizeof channels && channels.channelCnt == 0);
    auto config = garbage<HcclCommConfig>();
    HcclCommConfigInit(&config);
    IS(config.size == sizeof config && config.reserved == 0 && config.hcclCommName[0] == 0);
    auto link = garbage<CommLink>();
    OK(CommLinkInit(&link, 1));
    IS(link.header.size == sizeof link && link.linkAttr.hop == 1);
    auto endpoint = garbage<EndpointDesc>();
    OK(EndpointDescInit(&endpoint, 1));
    IS(endpoint.protocol == -1 && endpoint.commAddr.type == -1 && endpoint.loc.locType == -1);
}

void find_own_communicators() {
    const int32_t devices[2] = {0, 1};
    HcclComm comms[2], another = nullptr;
    char name[128];
    OK(HcclCommInitAll(2, devices, comms));
    for (int device = 1; device >= 0; device--) {
        OK(aclrtSetDevice(device));
        OK(HcclGetCommName(comms[device], name));
        OK(HcclCommGetHandleWithName(name, &another));
        IS(another == comms[device]);
    }
    uint32_t *ranks = nullptr, *again = nullptr, count = 0;
    OK(HcclRankGraphGetRanksByLayer(comms[0], 0, &ranks, &count));
    OK(HcclRankGraphGetRanksByLayer(comms[0], 0, &again, &count));
    IS(ranks == again && count == 2 && ranks[1] == 1);
}

long kilobytes() {
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
}

void export_memory() {
    void* memory = nullptr;
    OK(aclrtMalloc(&memory, kBytes, 0));
    EndpointDesc desc;
    std::memset(&desc, 0, sizeof desc);
    desc.commAddr.type = 2;
    EndpointHandle endpoint = nullptr;
    OK(HcommEndpointCreate(&desc, &endpoint));
    const CommMem registered = {0, memory, kBytes};
    HcommMemHandle handle = nullptr;
    uint8_t *first = nullptr, *second = nullptr;
    uint32_t length = 0;
    OK(HcommMemReg(endpoint, "kept", &registered, &handle));
    OK(HcommMemExport(endpoint, handle, &first, &length));
    const std::string text(reinterpret_cast<char*>(first), length);
    OK(HcommMemExport(endpoint, handle, &second, &length));
    IS(first == second && text == std::string(reinterpret_cast<char*>(second), length));

    const std::string large(255, 't');   // what is kept of each would have more bytes
    long before = 0;
    for (int time = 0; time < kTimes; time++) {
        if (time == kTimes / 4) before = kilobytes();
        OK(HcommMemReg(endpoint, large.c_str(), &registered, &handle));
        OK(HcommMemExport(endpoint, handle, &second, &length));
        OK(HcommMemUnreg(endpoint, handle));
    }
    IS(kilobytes() - before < kTimes / 2);
    IS(std::memcmp(first, text.data(), text.size()) == 0);
    OK(HcommEndpointDestroy(endpoint));
}

void use_other_bytes() {
    std::ofstream("caf\xe9.json") << "no table";
    HcclComm comm = nullptr;
    const int missing = HcclCommInitClusterInfo("\xff.json", 0, &comm);
    const int wrong = HcclCommInitClusterInfo("caf\xe9.json", 0, &comm);
    IS(missing != 0 && wrong == 1 && missing != wrong);   // the second was opened

    auto config = garbage<HcclCommConfig>();
    HcclCommConfigInit(&config);
    std::strcpy(config.hcclCommName, "caf\xe9");
    uint8_t root[4108];
    OK(HcclGetRootInfo(root));
    OK(HcclCommInitRootInfoConfig(1, root, 0, &config, &comm));
    char name[128];
    OK(HcclGetCommName(comm, name));
    IS(std::strcmp(name, "caf\xe9") == 0);
    OK(HcclCommDestroy(comm));
}

}   // namespace

int main() {
    OK(aclrtSetDevice(0));
    fill_garbage();
    find_own_communicators();
    export_memory();
    use_other_bytes();
    IS(HcommSetNotifyWaitTimeOut(NAN) == 1);
    IS(std::strstr(aclGetRecentErrMsg(), "the timeout is nan") != nullptr);
    puts("done");
    return 0;
}

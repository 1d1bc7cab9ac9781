// Every collective and message once, on communicators of root info, of a rank table, and of some ranks of another.
// Argument: the rank table.
#include "ranks.h"

namespace {

using Floats = std::vector<float>;

// What rank `from` has for rank `to`.
float value(uint32_t from, uint32_t to) { return static_cast<float>(10 * from + to); }

void call_each(const Rank& rank, HcclComm comm) {
    const uint32_t me = rank.number, n = rank.ranks;
    Floats row, column, sums, all;
    for (uint32_t i = 0; i < n; ++i) {
        row.push_back(value(me, i));
        column.push_back(value(i, me));
        sums.push_back(static_cast<float>(10 * (n * (n - 1) / 2) + n * i));
        for (uint32_t j = 0; j < n; ++j) all.push_back(value(i, j));
    }
    void* const in = rank.filled(row);
    void* const out = rank.memory(sizeof(float) * n * n);
    const auto gives = [&](HcclResult code, const Floats& wanted) {
        OK(code);
        OK(aclrtSynchronizeStream(rank.stream));
        rank.expect(out, wanted);
    };
    gives(HcclAllReduce(in, out, n, kFloat, kSum, comm, rank.stream), sums);
    gives(HcclAllGather(in, out, n, kFloat, comm, rank.stream), all);
    gives(HcclReduceScatter(in, out, 1, kFloat, kSum, comm, rank.stream), {sums[me]});
    gives(HcclReduce(in, out, n, kFloat, kSum, 1, comm, rank.stream), me == 1 ? sums : rank.content(out, n));
    gives(HcclScatter(in, out, 1, kFloat, 0, comm, rank.stream), {value(0, me)});
    gives(HcclAlltoAll(in, 1, kFloat, out, 1, kFloat, comm, rank.stream), column);
    const std::vector<uint64_t> ones(n * n, 1);
    std::vector<uint64_t> addresses;
    for (uint64_t i = 0; i < n; ++i) addresses.push_back(i);
    gives(HcclAlltoAllV(in, ones.data(), addresses.data(), kFloat, out, ones.data(), addresses.data(), kFloat, comm, rank.stream), column);
    gives(HcclAlltoAllVC(in, ones.data(), kFloat, out, kFloat, comm, rank.stream), column);
    const uint32_t next = (me + 1) % n, last = (me + n - 1) % n;
    HcclSendRecvItem ring[] = {{0, in, n, kFloat, next}, {1, out, n, kFloat, last}};
    gives(HcclBatchSendRecv(ring, 2, comm, rank.stream), Floats(all.begin() + last * n, all.begin() + (last + 1) * n));
    if (me < 2) {
        const HcclResult code = me == 0 ? HcclSend(in, n, kFloat, 1, comm, rank.stream) : HcclRecv(out, n, kFloat, 0, comm, rank.stream);
        gives(code, me == 0 ? rank.content(out, n) : Floats(all.begin(), all.begin() + n));
    }
    OK(HcclBroadcast(in, n, kFloat, 1, comm, rank.stream));
    OK(HcclBarrier(comm, rank.stream));
    OK(aclrtSynchronizeStream(rank.stream));
    rank.expect(in, Floats(all.begin() + n, all.begin() + 2 * n));
    IS(HcclAllReduce(nullptr, out, n, kFloat, kSum, comm, rank.stream) == 2);
    IS(HcclBroadcast(in, n, kFloat, n, comm, rank.stream) == 1);
    IS(HcclAllReduce(in, out, n, 12, kSum, comm, rank.stream) == 5);
    OK(aclrtFree(in));
    OK(aclrtFree(out));
}

}  // namespace

int main(int, char** words) {
    return run_ranks([=](const Rank& rank) {
        call_each(rank, rank.comm);
        HcclCommConfig settings;
        HcclCommConfigInit(&settings);
        settings.hcclBufferSize = 1;
        strcpy(settings.hcclCommName, "of a table");
        HcclComm comm = nullptr;
        OK(HcclCommInitClusterInfoConfig(words[1], rank.number, &settings, &comm));
        char name[128];
        OK(HcclGetCommName(comm, name));
        IS(!strcmp(name, "of a table"));
        call_each(rank, comm);
        HcclComm again = nullptr;
        IS(HcclCommInitClusterInfo(words[1], rank.number, &again) == 1);   // it was made, and not destroyed
        if (rank.number < 2) {
            const uint32_t turned[] = {1, 0};
            strcpy(settings.hcclCommName, "of two");
            Rank some{1 - rank.number, 2, nullptr, rank.stream};
            OK(HcclCreateSubCommConfig(&comm, 2, turned, 1, some.number, &settings, &some.comm));
            call_each(some, some.comm);
            OK(HcclCommDestroy(some.comm));
        }
        OK(HcclCommDestroy(comm));
    });
}

// The host's part of a custom operator: threads, channels, a context in device memory, and the launch.
#pragma once
#include <stdexcept>

#include "operator.h"
#include "ranks.h"

extern "C" {
struct LoadOption {
    int32_t type, value, rest[3];
};
struct LoadOptions {
    const LoadOption* options;
    size_t count;
};
int aclrtBinaryLoadFromFile(const char* path, const LoadOptions* options, void** binary);
int aclrtBinaryGetFunction(void* binary, const char* name, void** kernel);
int aclrtKernelArgsInit(void* kernel, void** arguments);
int aclrtKernelArgsAppend(void* arguments, const void* content, size_t bytes, void** argument);
int aclrtKernelArgsFinalize(void* arguments);
int aclrtLaunchKernelWithConfig(void* kernel, uint32_t blocks, aclrtStream stream, void* settings, void* arguments, void* reserve);
}

struct Operator {
    const Rank& rank;
    uint64_t host_thread = 0, leading_thread = 0;   // the second is known to the host
    Call call{};

    // `peers` are the ranks that it talks to, each with a thread of its own.
    Operator(const Rank& of, const char* tag, const std::vector<uint32_t>& peers, int engine, uint32_t notifies) : rank(of) {
        const auto count = static_cast<uint32_t>(peers.size());
        strcpy(call.tag, tag);
        OK(HcclGetCommName(rank.comm, call.comm));
        OK(HcclGetRankId(rank.comm, &call.rank));
        OK(HcclGetRankSize(rank.comm, &call.ranks));
        call.go = count - 1;   // behind those by which the other threads report
        Resources held{};
        held.threads = held.links = count;
        OK(HcclThreadAcquireWithStream(rank.comm, kCpuTs, rank.stream, 1, &host_thread));
        OK(HcclThreadExportToCommEngine(rank.comm, 1, &host_thread, kAicpuTs, &held.host_thread));
        OK(HcclThreadAcquire(rank.comm, kAicpuTs, count, count, held.thread));
        OK(HcclThreadExportToCommEngine(rank.comm, 1, held.thread, kCpuTs, &leading_thread));
        std::vector<HcclChannelDesc> descs;
        for (const uint32_t peer : peers) descs.push_back(rank.desc(peer, notifies));
        std::vector<ChannelHandle> channels(count);
        OK(HcclChannelAcquire(rank.comm, engine, descs.data(), count, channels.data()));
        OK(HcclGetHcclBuffer(rank.comm, &held.local, &held.bytes));
        for (uint32_t i = 0; i < count; ++i) {
            uint64_t bytes = 0;
            held.link[i].channel = channels[i];
            OK(HcclChannelGetHcclBuffer(rank.comm, channels[i], &held.link[i].remote, &bytes));
        }
        void* context = nullptr;
        uint64_t size = 0;
        IS(HcclEngineCtxGet(rank.comm, tag, engine, &context, &size) == 6);
        OK(HcclEngineCtxCreate(rank.comm, tag, engine, sizeof held, &context));
        OK(HcclEngineCtxCopy(rank.comm, engine, tag, &held, sizeof held, 0));
        OK(HcclEngineCtxGet(rank.comm, tag, engine, &context, &size));
        IS(size == sizeof held);
        call.resources = static_cast<const Resources*>(context);
    }

    // Queue a call of the kernel on the stream of the host, between a record for it and a wait for it.
    void launch(const char* description, const char* name) const {
        const LoadOption mode{3, 0, {}};   // the kernels that a description names
        const LoadOptions options{&mode, 1};
        void *binary, *kernel, *arguments, *argument;
        OK(aclrtBinaryLoadFromFile(description, &options, &binary));
        OK(HcommThreadNotifyRecordOnThread(host_thread, leading_thread, call.go));
        OK(aclrtBinaryGetFunction(binary, name, &kernel));
        OK(aclrtKernelArgsInit(kernel, &arguments));
        OK(aclrtKernelArgsAppend(arguments, &call, sizeof call, &argument));
        OK(aclrtKernelArgsFinalize(arguments));
        OK(aclrtLaunchKernelWithConfig(kernel, 1, rank.stream, nullptr, arguments, nullptr));
        OK(HcommThreadNotifyWaitOnThread(host_thread, 0, kSeconds));
    }
};

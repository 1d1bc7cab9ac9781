// The vendors' types and functions that the examples call, as far as they use them.  Programs include the vendor's headers
// instead: the names, the layout and the numbers are the same.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// AscendCL.
typedef int aclError;
typedef void* aclrtStream;
typedef enum { ACL_MEM_MALLOC_HUGE_FIRST = 0, ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5 } aclrtMemMallocPolicy;
typedef enum {
    ACL_MEMCPY_HOST_TO_DEVICE = 1,
    ACL_MEMCPY_DEVICE_TO_HOST = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6
} aclrtMemcpyKind;

aclError aclInit(const char* configPath);
aclError aclFinalize(void);
const char* aclGetRecentErrMsg(void);
aclError aclrtSetDevice(int32_t deviceId);
aclError aclrtResetDevice(int32_t deviceId);
aclError aclrtCreateStream(aclrtStream* stream);
aclError aclrtDestroyStream(aclrtStream stream);
aclError aclrtSynchronizeStream(aclrtStream stream);
aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind);

// HCCL and HCOMM.
typedef enum { HCCL_SUCCESS = 0 } HcclResult;
typedef enum { COMM_ENGINE_CPU_TS = 1 } CommEngine;
typedef enum { COMM_PROTOCOL_HCCS = 0 } CommProtocol;
typedef enum { COMM_MEM_TYPE_DEVICE = 0 } CommMemType;
typedef void* HcclComm;
typedef uint64_t ThreadHandle;
typedef uint64_t ChannelHandle;
typedef struct {
    char internal[4108];
} HcclRootInfo;
typedef struct {
    uint32_t version, magicWord, size, reserved;
} CommAbiHeader;
typedef struct {
    int32_t protocol;
    int32_t addressType;
    uint8_t address[36];
    int32_t locationType;
    uint8_t location[60];
    uint8_t raws[52];
} EndpointDesc;
typedef struct {
    CommAbiHeader header;
    uint32_t remoteRank;
    CommProtocol channelProtocol;
    EndpointDesc localEndpoint, remoteEndpoint;
    uint32_t notifyNum;
    void** memHandles;
    uint32_t memHandleNum;
    uint8_t raws[128];
} HcclChannelDesc;

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo);
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm);
HcclResult HcclCommDestroy(HcclComm comm);
HcclResult HcclGetHcclBuffer(HcclComm comm, void** buffer, uint64_t* size);
HcclResult HcclChannelGetHcclBuffer(HcclComm comm, ChannelHandle channel, void** buffer, uint64_t* size);
HcclResult HcclChannelDescInit(HcclChannelDesc* channelDesc, uint32_t descNum);
HcclResult HcclChannelAcquire(HcclComm comm, CommEngine engine, const HcclChannelDesc* channelDescs, uint32_t channelNum, ChannelHandle* channels);
HcclResult HcclThreadAcquireWithStream(HcclComm comm, CommEngine engine, aclrtStream stream, uint32_t notifyNum, ThreadHandle* thread);
int32_t HcommWriteOnThread(ThreadHandle thread, ChannelHandle channel, void* dst, const void* src, uint64_t len);
int32_t HcommChannelNotifyRecordOnThread(ThreadHandle thread, ChannelHandle channel, uint32_t remoteNotifyIdx);
int32_t HcommChannelNotifyWaitOnThread(ThreadHandle thread, ChannelHandle channel, uint32_t localNotifyIdx, uint32_t timeOut);

#ifdef __cplusplus
}
#endif

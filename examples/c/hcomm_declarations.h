// What the examples call of HCCL and HCOMM, in the vendor's names, layout and numbers.  A program includes the vendor's
// headers instead.
#pragma once

#include <stdint.h>

#include "acl_declarations.h"

#ifdef __cplusplus
extern "C" {
#endif

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

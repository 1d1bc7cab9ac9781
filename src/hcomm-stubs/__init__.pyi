import enum
from collections.abc import Callable
from typing import Any

class HcclResult(enum.IntEnum):
    HCCL_SUCCESS = 0
    HCCL_E_PARA = 1
    HCCL_E_PTR = 2
    HCCL_E_MEMORY = 3
    HCCL_E_INTERNAL = 4
    HCCL_E_NOT_SUPPORT = 5
    HCCL_E_NOT_FOUND = 6
    HCCL_E_UNAVAIL = 7
    HCCL_E_SYSCALL = 8
    HCCL_E_TIMEOUT = 9
    HCCL_E_OPEN_FILE_FAILURE = 10
    HCCL_E_TCP_CONNECT = 11
    HCCL_E_ROCE_CONNECT = 12
    HCCL_E_TCP_TRANSFER = 13
    HCCL_E_ROCE_TRANSFER = 14
    HCCL_E_RUNTIME = 15
    HCCL_E_DRV = 16
    HCCL_E_PROFILING = 17
    HCCL_E_CCE = 18
    HCCL_E_NETWORK = 19
    HCCL_E_AGAIN = 20
    HCCL_E_REMOTE = 21
    HCCL_E_SUSPENDING = 22
    HCCL_E_OPRETRY_FAIL = 23
    HCCL_E_OOM = 24
    HCCL_E_IN_STATUS = 1041
    HCCL_E_RESERVED = 1042

class HcclDataType(enum.IntEnum):
    HCCL_DATA_TYPE_INT8 = 0
    HCCL_DATA_TYPE_INT16 = 1
    HCCL_DATA_TYPE_INT32 = 2
    HCCL_DATA_TYPE_FP16 = 3
    HCCL_DATA_TYPE_FP32 = 4
    HCCL_DATA_TYPE_INT64 = 5
    HCCL_DATA_TYPE_UINT64 = 6
    HCCL_DATA_TYPE_UINT8 = 7
    HCCL_DATA_TYPE_UINT16 = 8
    HCCL_DATA_TYPE_UINT32 = 9
    HCCL_DATA_TYPE_FP64 = 10
    HCCL_DATA_TYPE_BFP16 = 11
    HCCL_DATA_TYPE_INT128 = 12
    HCCL_DATA_TYPE_HIF8 = 14
    HCCL_DATA_TYPE_FP8E4M3 = 15
    HCCL_DATA_TYPE_FP8E5M2 = 16
    HCCL_DATA_TYPE_FP8E8M0 = 17
    HCCL_DATA_TYPE_RESERVED = 255

class HcclReduceOp(enum.IntEnum):
    HCCL_REDUCE_SUM = 0
    HCCL_REDUCE_PROD = 1
    HCCL_REDUCE_MAX = 2
    HCCL_REDUCE_MIN = 3
    HCCL_REDUCE_RESERVED = 255

class HcommDataType(enum.IntEnum):
    HCOMM_DATA_TYPE_INT8 = 0
    HCOMM_DATA_TYPE_INT16 = 1
    HCOMM_DATA_TYPE_INT32 = 2
    HCOMM_DATA_TYPE_FP16 = 3
    HCOMM_DATA_TYPE_FP32 = 4
    HCOMM_DATA_TYPE_INT64 = 5
    HCOMM_DATA_TYPE_UINT64 = 6
    HCOMM_DATA_TYPE_UINT8 = 7
    HCOMM_DATA_TYPE_UINT16 = 8
    HCOMM_DATA_TYPE_UINT32 = 9
    HCOMM_DATA_TYPE_FP64 = 10
    HCOMM_DATA_TYPE_BFP16 = 11
    HCOMM_DATA_TYPE_INT128 = 12
    HCOMM_DATA_TYPE_HIF8 = 14
    HCOMM_DATA_TYPE_FP8E4M3 = 15
    HCOMM_DATA_TYPE_FP8E5M2 = 16
    HCOMM_DATA_TYPE_FP8E8M0 = 17
    HCOMM_DATA_TYPE_RESERVED = 255

class HcommReduceOp(enum.IntEnum):
    HCOMM_REDUCE_SUM = 0
    HCOMM_REDUCE_PROD = 1
    HCOMM_REDUCE_MAX = 2
    HCOMM_REDUCE_MIN = 3
    HCOMM_REDUCE_RESERVED = 255

class CommEngine(enum.IntEnum):
    COMM_ENGINE_RESERVED = -1
    COMM_ENGINE_CPU = 0
    COMM_ENGINE_CPU_TS = 1
    COMM_ENGINE_AICPU = 2
    COMM_ENGINE_AICPU_TS = 3
    COMM_ENGINE_AIV = 4
    COMM_ENGINE_CCU = 5

class CommProtocol(enum.IntEnum):
    COMM_PROTOCOL_RESERVED = -1
    COMM_PROTOCOL_HCCS = 0
    COMM_PROTOCOL_ROCE = 1
    COMM_PROTOCOL_PCIE = 2
    COMM_PROTOCOL_SIO = 3
    COMM_PROTOCOL_UB_CTP = 4
    COMM_PROTOCOL_UBC_CTP = 4
    COMM_PROTOCOL_UBC_TP = 5
    COMM_PROTOCOL_UB_MEM = 6
    COMM_PROTOCOL_UBOE = 7
    COMM_PROTOCOL_HCCS_ONLY = 8
    COMM_PROTOCOL_UB_RTP = 9
    COMM_PROTOCOL_UBG = 9

class CommTopo(enum.IntEnum):
    COMM_TOPO_RESERVED = -1
    COMM_TOPO_CLOS = 0
    COMM_TOPO_1DMESH = 1
    COMM_TOPO_910_93 = 2
    COMM_TOPO_310P = 3
    COMM_TOPO_A2AXSERVER = 4
    COMM_TOPO_CUSTOM = 5

class CommAddrType(enum.IntEnum):
    COMM_ADDR_TYPE_RESERVED = -1
    COMM_ADDR_TYPE_IP_V4 = 0
    COMM_ADDR_TYPE_IP_V6 = 1
    COMM_ADDR_TYPE_ID = 2
    COMM_ADDR_TYPE_EID = 3

class EndpointLocType(enum.IntEnum):
    ENDPOINT_LOC_TYPE_RESERVED = -1
    ENDPOINT_LOC_TYPE_DEVICE = 0
    ENDPOINT_LOC_TYPE_HOST = 1

class EndpointAttr(enum.IntEnum):
    ENDPOINT_ATTR_INVALID = -1
    ENDPOINT_ATTR_BW_COEFF = 0
    ENDPOINT_ATTR_DIE_ID = 1
    ENDPOINT_ATTR_LOCATION = 2

class CommMemType(enum.IntEnum):
    COMM_MEM_TYPE_INVALID = -1
    COMM_MEM_TYPE_DEVICE = 0
    COMM_MEM_TYPE_HOST = 1

class HcclMemType(enum.IntEnum):
    HCCL_MEM_TYPE_DEVICE = 0
    HCCL_MEM_TYPE_HOST = 1

class HcommSocketRole(enum.IntEnum):
    HCOMM_SOCKET_ROLE_RESERVED = -1
    HCOMM_SOCKET_ROLE_CLIENT = 0
    HCOMM_SOCKET_ROLE_SERVER = 1

class HcommTransferType(enum.IntEnum):
    HCOMM_TRANSFER_TYPE_INVALID = -1
    HCOMM_TRANSFER_TYPE_WRITE = 0
    HCOMM_TRANSFER_TYPE_WRITE_REDUCE = 1
    HCOMM_TRANSFER_TYPE_WRITE_WITH_NOTIFY = 2
    HCOMM_TRANSFER_TYPE_WRITE_REDUCE_WITH_NOTIFY = 3
    HCOMM_TRANSFER_TYPE_READ = 4
    HCOMM_TRANSFER_TYPE_READ_REDUCE = 5
    HCOMM_TRANSFER_TYPE_NOTIFY_RECORD = 6

class HcclCommStatus(enum.IntEnum):
    HCCL_COMM_STATUS_READY = 0
    HCCL_COMM_STATUS_SUSPENDING = 1
    HCCL_COMM_STATUS_INVALID = 254
    HCCL_COMM_STATUS_RESERVED = 255

class HcclCommConfigCapability(enum.IntEnum):
    HCCL_COMM_CONFIG_BUFFER_SIZE = 0
    HCCL_COMM_CONFIG_DETERMINISTIC = 1
    HCCL_COMM_CONFIG_COMM_NAME = 2
    HCCL_COMM_CONFIG_OP_EXPANSION_MODE = 3
    HCCL_COMM_CONFIG_SUPPORT_INIT_BY_ENV = 4
    HCCL_COMM_CONFIG_WORLD_RANKID = 5
    HCCL_COMM_CONFIG_JOBID = 6
    HCCL_COMM_CONFIG_ACLGRAPH_ZEROCOPY_ENABLE = 7
    HCCL_COMM_CONFIG_EXEC_TIMEOUT = 8
    HCCL_COMM_CONFIG_ALGO = 9
    HCCL_COMM_CONFIG_RETRY = 10
    HCCL_COMM_CONFIG_BUFFER_NAME = 11
    HCCL_COMM_CONFIG_RESERVED = 12

class HcclHeterogMode(enum.IntEnum):
    HCCL_HETEROG_MODE_INVALID = -1
    HCCL_HETEROG_MODE_HOMOGENEOUS = 0
    HCCL_HETEROG_MODE_MIX_A2_A3 = 1

class ThreadType(enum.IntEnum):
    THREAD_TYPE_INVALID = -1
    THREAD_TYPE_TS = 0

class ThreadResType(enum.IntEnum):
    THREAD_RES_TYPE_INVALID = -1
    THREAD_RES_TYPE_STREAM = 0

class HcclDedicatedThreadType(enum.IntEnum):
    HCCL_DED_THREAD_TYPE_INVALID = -1
    HCCL_DED_THREAD_TYPE_AICPU_LAUNCH = 0
    HCCL_DED_THREAD_TYPE_AICPU_LAUNCH_GE = 1
    HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_OPBASE = 2
    HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_ACLGRAPH = 3
    HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_GE = 4
    HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_DEVICE = 5

class HcclConfig(enum.IntEnum):
    HCCL_DETERMINISTIC = 0
    HCCL_CONFIG_RESERVED = 1

class HcclCommStatePhase(enum.IntEnum):
    HCCL_COMM_STATE_PHASE_INVALID = -1
    HCCL_COMM_STATE_PHASE_DESTROY_PRE = 0
    HCCL_COMM_STATE_PHASE_DESTROY_POST = 1
    HCCL_COMM_STATE_PHASE_RESUME_PRE = 2
    HCCL_COMM_STATE_PHASE_RESUME_POST = 3

class HcclSendRecvType(enum.IntEnum):
    HCCL_SEND = 0
    HCCL_RECV = 1
    HCCL_SEND_RECV_RESERVED = 2

class HcommTeamWindowFlag(enum.IntEnum):
    HCOMM_TEAM_WINDOW_FLAG_INVALID = -1
    HCOMM_TEAM_WINDOW_FLAG_SYMMETRIC = 0

class CommAbiHeader:
    version: int
    magicWord: int
    size: int
    reserved: int
    def __init__(self, version: int = ..., magicWord: int = ..., size: int = ..., reserved: int = ...) -> None: ...

class CommAddr:
    type: int
    raws: bytes
    addr: bytes
    addr6: bytes
    id: int
    eid: bytes
    def __init__(self, type: int = ..., raws: bytes = ..., addr: bytes = ..., addr6: bytes = ..., id: int = ..., eid: bytes = ...) -> None: ...

class EndpointLocDevice:
    devPhyId: int
    superDevId: int
    serverIdx: int
    superPodIdx: int
    def __init__(self, devPhyId: int = ..., superDevId: int = ..., serverIdx: int = ..., superPodIdx: int = ...) -> None: ...

class EndpointLocHost:
    id: int
    def __init__(self, id: int = ...) -> None: ...

class EndpointLoc:
    locType: int
    device: EndpointLocDevice
    host: EndpointLocHost
    def __init__(self, locType: int = ..., device: EndpointLocDevice = ..., host: EndpointLocHost = ...) -> None: ...

class EndpointDesc:
    protocol: int
    commAddr: CommAddr
    loc: EndpointLoc
    raws: bytes
    def __init__(self, protocol: int = ..., commAddr: CommAddr = ..., loc: EndpointLoc = ..., raws: bytes = ...) -> None: ...

class HcclChannelDescRoceAttr:
    queueNum: int
    retryCnt: int
    retryInterval: int
    tc: int
    sl: int
    def __init__(self, queueNum: int = ..., retryCnt: int = ..., retryInterval: int = ..., tc: int = ..., sl: int = ...) -> None: ...

class HcclChannelDescUbMemAttr:
    pathMode: int
    def __init__(self, pathMode: int = ...) -> None: ...

class HcclChannelDesc:
    header: CommAbiHeader
    remoteRank: int
    channelProtocol: int
    localEndpoint: EndpointDesc
    remoteEndpoint: EndpointDesc
    notifyNum: int
    memHandles: list[int] | None
    memHandleNum: int
    raws: bytes
    roceAttr: HcclChannelDescRoceAttr
    ubMemAttr: HcclChannelDescUbMemAttr
    def __init__(self, header: CommAbiHeader = ..., remoteRank: int = ..., channelProtocol: int = ..., localEndpoint: EndpointDesc = ..., remoteEndpoint: EndpointDesc = ..., notifyNum: int = ..., memHandles: list[int] | None = ..., memHandleNum: int = ..., raws: bytes = ..., roceAttr: HcclChannelDescRoceAttr = ..., ubMemAttr: HcclChannelDescUbMemAttr = ...) -> None: ...

class HcommChannelDescRoceAttr:
    queueNum: int
    retryCnt: int
    retryInterval: int
    tc: int
    sl: int
    qpThreshold: int
    cqAttrFlags: int
    srcPortList: object
    def __init__(self, queueNum: int = ..., retryCnt: int = ..., retryInterval: int = ..., tc: int = ..., sl: int = ..., qpThreshold: int = ..., cqAttrFlags: int = ..., srcPortList: object = ...) -> None: ...

class HcommChannelDescHccsAttr:
    qos: int
    def __init__(self, qos: int = ...) -> None: ...

class HcommChannelDescUbAttr:
    sqDepth: int
    def __init__(self, sqDepth: int = ...) -> None: ...

class HcommChannelDescUbMemAttr:
    pathMode: int
    def __init__(self, pathMode: int = ...) -> None: ...

class HcommChannelDesc:
    header: CommAbiHeader
    remoteEndpoint: EndpointDesc
    notifyNum: int
    exchangeAllMems: bool
    memHandles: list[int] | None
    memHandleNum: int
    socket: object
    role: int
    port: int
    raws: bytes
    roceAttr: HcommChannelDescRoceAttr
    hccsAttr: HcommChannelDescHccsAttr
    ubAttr: HcommChannelDescUbAttr
    ubMemAttr: HcommChannelDescUbMemAttr
    qos: int
    channelName: str | None
    def __init__(self, header: CommAbiHeader = ..., remoteEndpoint: EndpointDesc = ..., notifyNum: int = ..., exchangeAllMems: bool = ..., memHandles: list[int] | None = ..., memHandleNum: int = ..., socket: object = ..., role: int = ..., port: int = ..., raws: bytes = ..., roceAttr: HcommChannelDescRoceAttr = ..., hccsAttr: HcommChannelDescHccsAttr = ..., ubAttr: HcommChannelDescUbAttr = ..., ubMemAttr: HcommChannelDescUbMemAttr = ..., qos: int = ..., channelName: str | None = ...) -> None: ...

class CommMem:
    type: int
    addr: int
    size: int
    def __init__(self, type: int = ..., addr: int = ..., size: int = ...) -> None: ...

class CommLinkAttr:
    linkProtocol: int
    hop: int
    def __init__(self, linkProtocol: int = ..., hop: int = ...) -> None: ...

class CommLink:
    header: CommAbiHeader
    srcEndpointDesc: EndpointDesc
    dstEndpointDesc: EndpointDesc
    linkAttr: CommLinkAttr
    def __init__(self, header: CommAbiHeader = ..., srcEndpointDesc: EndpointDesc = ..., dstEndpointDesc: EndpointDesc = ..., linkAttr: CommLinkAttr = ...) -> None: ...

class HcclCommConfig:
    size: int
    magicWord: int
    version: int
    reserved: int
    hcclBufferSize: int
    hcclDeterministic: int
    hcclCommName: str
    hcclUdi: str
    hcclOpExpansionMode: int
    hcclRdmaTrafficClass: int
    hcclRdmaServiceLevel: int
    hcclWorldRankID: int
    hcclJobID: int
    aclGraphZeroCopyEnable: int
    hcclExecTimeOut: int
    hcclAlgo: str
    hcclRetryEnable: str
    hcclRetryParams: str
    hcclBufferName: str
    hcclQos: int
    hcclSymWinMaxMemSizePerRank: int
    hcclChannelSqDepth: int
    def __init__(self, size: int = ..., magicWord: int = ..., version: int = ..., reserved: int = ..., hcclBufferSize: int = ..., hcclDeterministic: int = ..., hcclCommName: str = ..., hcclUdi: str = ..., hcclOpExpansionMode: int = ..., hcclRdmaTrafficClass: int = ..., hcclRdmaServiceLevel: int = ..., hcclWorldRankID: int = ..., hcclJobID: int = ..., aclGraphZeroCopyEnable: int = ..., hcclExecTimeOut: int = ..., hcclAlgo: str = ..., hcclRetryEnable: str = ..., hcclRetryParams: str = ..., hcclBufferName: str = ..., hcclQos: int = ..., hcclSymWinMaxMemSizePerRank: int = ..., hcclChannelSqDepth: int = ...) -> None: ...

class ThreadConfig:
    notifyNumPerThread: int
    def __init__(self, notifyNumPerThread: int = ...) -> None: ...

class HcommTransferInfoWrite:
    len: int
    dst: int
    src: int
    def __init__(self, len: int = ..., dst: int = ..., src: int = ...) -> None: ...

class HcommTransferInfoRead:
    len: int
    dst: int
    src: int
    def __init__(self, len: int = ..., dst: int = ..., src: int = ...) -> None: ...

class HcommTransferInfoReduce:
    count: int
    dst: int
    src: int
    reduceOp: int
    dataType: int
    def __init__(self, count: int = ..., dst: int = ..., src: int = ..., reduceOp: int = ..., dataType: int = ...) -> None: ...

class HcommTransferInfoNotifyRecord:
    notifyIdx: int
    def __init__(self, notifyIdx: int = ...) -> None: ...

class HcommTransferInfoWriteWithNotify:
    len: int
    dst: int
    src: int
    notifyIdx: int
    def __init__(self, len: int = ..., dst: int = ..., src: int = ..., notifyIdx: int = ...) -> None: ...

class HcommTransferInfoWriteReduceWithNotify:
    count: int
    dst: int
    src: int
    reduceOp: int
    dataType: int
    notifyIdx: int
    def __init__(self, count: int = ..., dst: int = ..., src: int = ..., reduceOp: int = ..., dataType: int = ..., notifyIdx: int = ...) -> None: ...

class HcommTransferInfo:
    write: HcommTransferInfoWrite
    read: HcommTransferInfoRead
    reduce: HcommTransferInfoReduce
    notifyRecord: HcommTransferInfoNotifyRecord
    writeWithNotify: HcommTransferInfoWriteWithNotify
    writeReduceWithNotify: HcommTransferInfoWriteReduceWithNotify
    def __init__(self, write: HcommTransferInfoWrite = ..., read: HcommTransferInfoRead = ..., reduce: HcommTransferInfoReduce = ..., notifyRecord: HcommTransferInfoNotifyRecord = ..., writeWithNotify: HcommTransferInfoWriteWithNotify = ..., writeReduceWithNotify: HcommTransferInfoWriteReduceWithNotify = ...) -> None: ...

class HcommBatchTransferDesc:
    transType: int
    reserved: bytes
    transferInfo: HcommTransferInfo
    def __init__(self, transType: int = ..., reserved: bytes = ..., transferInfo: HcommTransferInfo = ...) -> None: ...

class HcclSendRecvItem:
    sendRecvType: int
    buf: int
    count: int
    dataType: int
    remoteRank: int
    def __init__(self, sendRecvType: int = ..., buf: int = ..., count: int = ..., dataType: int = ..., remoteRank: int = ...) -> None: ...

class HcommTeamSyncMemRequirement:
    signalCount: int
    counterCount: int
    barrierCount: int
    reserved: bytes
    def __init__(self, signalCount: int = ..., counterCount: int = ..., barrierCount: int = ..., reserved: bytes = ...) -> None: ...

class HcclTeamCreateDesc:
    header: CommAbiHeader
    rankIds: list[int] | None
    rankNum: int
    selfRankId: int
    netLayer: int
    protocol: int
    requirement: HcommTeamSyncMemRequirement
    engine: int
    notifyNum: int
    channelCnt: int
    isSharedQueue: int
    sharedQueueTag: str
    reserved: bytes
    def __init__(self, header: CommAbiHeader = ..., rankIds: list[int] | None = ..., rankNum: int = ..., selfRankId: int = ..., netLayer: int = ..., protocol: int = ..., requirement: HcommTeamSyncMemRequirement = ..., engine: int = ..., notifyNum: int = ..., channelCnt: int = ..., isSharedQueue: int = ..., sharedQueueTag: str = ..., reserved: bytes = ...) -> None: ...

class HcclTeamCreateChannelsDesc:
    header: CommAbiHeader
    engine: int
    notifyNum: int
    protocol: int
    channelCnt: int
    reserved: bytes
    def __init__(self, header: CommAbiHeader = ..., engine: int = ..., notifyNum: int = ..., protocol: int = ..., channelCnt: int = ..., reserved: bytes = ...) -> None: ...

HCCL_ROOT_INFO_BYTES: int
COMM_NAME_MAX_LENGTH: int
BUFFER_NAME_MAX_LENGTH: int
UDI_MAX_LENGTH: int
HCCL_COMM_ALGO_MAX_LENGTH: int
HCCL_COMM_RETRY_ENABLE_MAX_LENGTH: int
HCCL_COMM_RETRY_PARAMS_MAX_LENGTH: int
HCCL_RES_TAG_MAX_LEN: int
HCCL_WIN_COLL_SYMMETRIC: int
HCCL_COMM_CONFIG_MAGIC_WORD: int
HCCL_COMM_CONFIG_VERSION: int
HCCL_COMM_DEFAULT_BUFFSIZE: int
HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET: int
HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET: int
HCCL_COMM_DEFAULT_OP_EXPANSION_MODE: int
HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET: int
HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET: int
HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET: int
HCCL_COMM_QOS_CONFIG_NOT_SET: int
HCCL_CHANNEL_MAGIC_WORD: int
HCCL_CHANNEL_VERSION: int
HCOMM_CHANNEL_MAGIC_WORD: int
HCOMM_CHANNEL_VERSION: int
HCOMM_CHANNEL_NAME_MAX_LEN: int
HCCL_TEAM_CREATE_DESC_MAGIC_WORD: int
HCCL_TEAM_CREATE_DESC_VERSION: int
HCCL_TEAM_CREATE_CHANNELS_DESC_MAGIC_WORD: int
HCCL_TEAM_CREATE_CHANNELS_DESC_VERSION: int
HCCL_CHANNEL_CONFIG_SHARED_QUEUE_TAG_MAX_LEN: int
COMM_LINK_MAGIC_WORD: int
COMM_LINK_VERSION: int
HCCL_SUCCESS: HcclResult
HCCL_E_PARA: HcclResult
HCCL_E_PTR: HcclResult
HCCL_E_MEMORY: HcclResult
HCCL_E_INTERNAL: HcclResult
HCCL_E_NOT_SUPPORT: HcclResult
HCCL_E_NOT_FOUND: HcclResult
HCCL_E_UNAVAIL: HcclResult
HCCL_E_SYSCALL: HcclResult
HCCL_E_TIMEOUT: HcclResult
HCCL_E_OPEN_FILE_FAILURE: HcclResult
HCCL_E_TCP_CONNECT: HcclResult
HCCL_E_ROCE_CONNECT: HcclResult
HCCL_E_TCP_TRANSFER: HcclResult
HCCL_E_ROCE_TRANSFER: HcclResult
HCCL_E_RUNTIME: HcclResult
HCCL_E_DRV: HcclResult
HCCL_E_PROFILING: HcclResult
HCCL_E_CCE: HcclResult
HCCL_E_NETWORK: HcclResult
HCCL_E_AGAIN: HcclResult
HCCL_E_REMOTE: HcclResult
HCCL_E_SUSPENDING: HcclResult
HCCL_E_OPRETRY_FAIL: HcclResult
HCCL_E_OOM: HcclResult
HCCL_E_IN_STATUS: HcclResult
HCCL_E_RESERVED: HcclResult
HCCL_DATA_TYPE_INT8: HcclDataType
HCCL_DATA_TYPE_INT16: HcclDataType
HCCL_DATA_TYPE_INT32: HcclDataType
HCCL_DATA_TYPE_FP16: HcclDataType
HCCL_DATA_TYPE_FP32: HcclDataType
HCCL_DATA_TYPE_INT64: HcclDataType
HCCL_DATA_TYPE_UINT64: HcclDataType
HCCL_DATA_TYPE_UINT8: HcclDataType
HCCL_DATA_TYPE_UINT16: HcclDataType
HCCL_DATA_TYPE_UINT32: HcclDataType
HCCL_DATA_TYPE_FP64: HcclDataType
HCCL_DATA_TYPE_BFP16: HcclDataType
HCCL_DATA_TYPE_INT128: HcclDataType
HCCL_DATA_TYPE_HIF8: HcclDataType
HCCL_DATA_TYPE_FP8E4M3: HcclDataType
HCCL_DATA_TYPE_FP8E5M2: HcclDataType
HCCL_DATA_TYPE_FP8E8M0: HcclDataType
HCCL_DATA_TYPE_RESERVED: HcclDataType
HCCL_REDUCE_SUM: HcclReduceOp
HCCL_REDUCE_PROD: HcclReduceOp
HCCL_REDUCE_MAX: HcclReduceOp
HCCL_REDUCE_MIN: HcclReduceOp
HCCL_REDUCE_RESERVED: HcclReduceOp
HCOMM_DATA_TYPE_INT8: HcommDataType
HCOMM_DATA_TYPE_INT16: HcommDataType
HCOMM_DATA_TYPE_INT32: HcommDataType
HCOMM_DATA_TYPE_FP16: HcommDataType
HCOMM_DATA_TYPE_FP32: HcommDataType
HCOMM_DATA_TYPE_INT64: HcommDataType
HCOMM_DATA_TYPE_UINT64: HcommDataType
HCOMM_DATA_TYPE_UINT8: HcommDataType
HCOMM_DATA_TYPE_UINT16: HcommDataType
HCOMM_DATA_TYPE_UINT32: HcommDataType
HCOMM_DATA_TYPE_FP64: HcommDataType
HCOMM_DATA_TYPE_BFP16: HcommDataType
HCOMM_DATA_TYPE_INT128: HcommDataType
HCOMM_DATA_TYPE_HIF8: HcommDataType
HCOMM_DATA_TYPE_FP8E4M3: HcommDataType
HCOMM_DATA_TYPE_FP8E5M2: HcommDataType
HCOMM_DATA_TYPE_FP8E8M0: HcommDataType
HCOMM_DATA_TYPE_RESERVED: HcommDataType
HCOMM_REDUCE_SUM: HcommReduceOp
HCOMM_REDUCE_PROD: HcommReduceOp
HCOMM_REDUCE_MAX: HcommReduceOp
HCOMM_REDUCE_MIN: HcommReduceOp
HCOMM_REDUCE_RESERVED: HcommReduceOp
COMM_ENGINE_RESERVED: CommEngine
COMM_ENGINE_CPU: CommEngine
COMM_ENGINE_CPU_TS: CommEngine
COMM_ENGINE_AICPU: CommEngine
COMM_ENGINE_AICPU_TS: CommEngine
COMM_ENGINE_AIV: CommEngine
COMM_ENGINE_CCU: CommEngine
COMM_PROTOCOL_RESERVED: CommProtocol
COMM_PROTOCOL_HCCS: CommProtocol
COMM_PROTOCOL_ROCE: CommProtocol
COMM_PROTOCOL_PCIE: CommProtocol
COMM_PROTOCOL_SIO: CommProtocol
COMM_PROTOCOL_UB_CTP: CommProtocol
COMM_PROTOCOL_UBC_CTP: CommProtocol
COMM_PROTOCOL_UBC_TP: CommProtocol
COMM_PROTOCOL_UB_MEM: CommProtocol
COMM_PROTOCOL_UBOE: CommProtocol
COMM_PROTOCOL_HCCS_ONLY: CommProtocol
COMM_PROTOCOL_UB_RTP: CommProtocol
COMM_PROTOCOL_UBG: CommProtocol
COMM_TOPO_RESERVED: CommTopo
COMM_TOPO_CLOS: CommTopo
COMM_TOPO_1DMESH: CommTopo
COMM_TOPO_910_93: CommTopo
COMM_TOPO_310P: CommTopo
COMM_TOPO_A2AXSERVER: CommTopo
COMM_TOPO_CUSTOM: CommTopo
COMM_ADDR_TYPE_RESERVED: CommAddrType
COMM_ADDR_TYPE_IP_V4: CommAddrType
COMM_ADDR_TYPE_IP_V6: CommAddrType
COMM_ADDR_TYPE_ID: CommAddrType
COMM_ADDR_TYPE_EID: CommAddrType
ENDPOINT_LOC_TYPE_RESERVED: EndpointLocType
ENDPOINT_LOC_TYPE_DEVICE: EndpointLocType
ENDPOINT_LOC_TYPE_HOST: EndpointLocType
ENDPOINT_ATTR_INVALID: EndpointAttr
ENDPOINT_ATTR_BW_COEFF: EndpointAttr
ENDPOINT_ATTR_DIE_ID: EndpointAttr
ENDPOINT_ATTR_LOCATION: EndpointAttr
COMM_MEM_TYPE_INVALID: CommMemType
COMM_MEM_TYPE_DEVICE: CommMemType
COMM_MEM_TYPE_HOST: CommMemType
HCCL_MEM_TYPE_DEVICE: HcclMemType
HCCL_MEM_TYPE_HOST: HcclMemType
HCOMM_SOCKET_ROLE_RESERVED: HcommSocketRole
HCOMM_SOCKET_ROLE_CLIENT: HcommSocketRole
HCOMM_SOCKET_ROLE_SERVER: HcommSocketRole
HCOMM_TRANSFER_TYPE_INVALID: HcommTransferType
HCOMM_TRANSFER_TYPE_WRITE: HcommTransferType
HCOMM_TRANSFER_TYPE_WRITE_REDUCE: HcommTransferType
HCOMM_TRANSFER_TYPE_WRITE_WITH_NOTIFY: HcommTransferType
HCOMM_TRANSFER_TYPE_WRITE_REDUCE_WITH_NOTIFY: HcommTransferType
HCOMM_TRANSFER_TYPE_READ: HcommTransferType
HCOMM_TRANSFER_TYPE_READ_REDUCE: HcommTransferType
HCOMM_TRANSFER_TYPE_NOTIFY_RECORD: HcommTransferType
HCCL_COMM_STATUS_READY: HcclCommStatus
HCCL_COMM_STATUS_SUSPENDING: HcclCommStatus
HCCL_COMM_STATUS_INVALID: HcclCommStatus
HCCL_COMM_STATUS_RESERVED: HcclCommStatus
HCCL_COMM_CONFIG_BUFFER_SIZE: HcclCommConfigCapability
HCCL_COMM_CONFIG_DETERMINISTIC: HcclCommConfigCapability
HCCL_COMM_CONFIG_COMM_NAME: HcclCommConfigCapability
HCCL_COMM_CONFIG_OP_EXPANSION_MODE: HcclCommConfigCapability
HCCL_COMM_CONFIG_SUPPORT_INIT_BY_ENV: HcclCommConfigCapability
HCCL_COMM_CONFIG_WORLD_RANKID: HcclCommConfigCapability
HCCL_COMM_CONFIG_JOBID: HcclCommConfigCapability
HCCL_COMM_CONFIG_ACLGRAPH_ZEROCOPY_ENABLE: HcclCommConfigCapability
HCCL_COMM_CONFIG_EXEC_TIMEOUT: HcclCommConfigCapability
HCCL_COMM_CONFIG_ALGO: HcclCommConfigCapability
HCCL_COMM_CONFIG_RETRY: HcclCommConfigCapability
HCCL_COMM_CONFIG_BUFFER_NAME: HcclCommConfigCapability
HCCL_COMM_CONFIG_RESERVED: HcclCommConfigCapability
HCCL_HETEROG_MODE_INVALID: HcclHeterogMode
HCCL_HETEROG_MODE_HOMOGENEOUS: HcclHeterogMode
HCCL_HETEROG_MODE_MIX_A2_A3: HcclHeterogMode
THREAD_TYPE_INVALID: ThreadType
THREAD_TYPE_TS: ThreadType
THREAD_RES_TYPE_INVALID: ThreadResType
THREAD_RES_TYPE_STREAM: ThreadResType
HCCL_DED_THREAD_TYPE_INVALID: HcclDedicatedThreadType
HCCL_DED_THREAD_TYPE_AICPU_LAUNCH: HcclDedicatedThreadType
HCCL_DED_THREAD_TYPE_AICPU_LAUNCH_GE: HcclDedicatedThreadType
HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_OPBASE: HcclDedicatedThreadType
HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_ACLGRAPH: HcclDedicatedThreadType
HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_GE: HcclDedicatedThreadType
HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_DEVICE: HcclDedicatedThreadType
HCCL_DETERMINISTIC: HcclConfig
HCCL_CONFIG_RESERVED: HcclConfig
HCCL_COMM_STATE_PHASE_INVALID: HcclCommStatePhase
HCCL_COMM_STATE_PHASE_DESTROY_PRE: HcclCommStatePhase
HCCL_COMM_STATE_PHASE_DESTROY_POST: HcclCommStatePhase
HCCL_COMM_STATE_PHASE_RESUME_PRE: HcclCommStatePhase
HCCL_COMM_STATE_PHASE_RESUME_POST: HcclCommStatePhase
HCCL_SEND: HcclSendRecvType
HCCL_RECV: HcclSendRecvType
HCCL_SEND_RECV_RESERVED: HcclSendRecvType
HCOMM_TEAM_WINDOW_FLAG_INVALID: HcommTeamWindowFlag
HCOMM_TEAM_WINDOW_FLAG_SYMMETRIC: HcommTeamWindowFlag
def explain() -> str: ...
def CommLinkInit(commLink: list[CommLink] | None, linkNum: int, /) -> int: ...
def EndpointDescInit(endpoint: list[EndpointDesc] | None, num: int, /) -> int: ...
def HcclAllGather(sendBuf: int, recvBuf: int, sendCount: int, dataType: int, comm: int, stream: int, /) -> int: ...
def HcclAllGatherV(sendBuf: int, sendCount: int, recvBuf: int, recvCounts: list[int] | None, recvDispls: list[int] | None, dataType: int, comm: int, stream: int, /) -> int: ...
def HcclAllReduce(sendBuf: int, recvBuf: int, count: int, dataType: int, op: int, comm: int, stream: int, /) -> int: ...
def HcclAlltoAll(sendBuf: int, sendCount: int, sendType: int, recvBuf: int, recvCount: int, recvType: int, comm: int, stream: int, /) -> int: ...
def HcclAlltoAllV(sendBuf: int, sendCounts: list[int] | None, sdispls: list[int] | None, sendType: int, recvBuf: int, recvCounts: list[int] | None, rdispls: list[int] | None, recvType: int, comm: int, stream: int, /) -> int: ...
def HcclAlltoAllVC(sendBuf: int, sendCountMatrix: list[list[int]] | None, sendType: int, recvBuf: int, recvType: int, comm: int, stream: int, /) -> int: ...
def HcclBarrier(comm: int, stream: int, /) -> int: ...
def HcclBatchSendRecv(sendRecvInfo: list[HcclSendRecvItem] | None, itemNum: int, comm: int, stream: int, /) -> int: ...
def HcclBroadcast(buf: int, count: int, dataType: int, root: int, comm: int, stream: int, /) -> int: ...
def HcclChannelAcquire(comm: int, engine: int, channelDescs: list[HcclChannelDesc] | None, channelNum: int, /) -> tuple[list[int], int]: ...
def HcclChannelDescInit(channelDesc: list[HcclChannelDesc] | None, descNum: int, /) -> int: ...
def HcclChannelDestroy(comm: int, channels: list[int] | None, channelNum: int, /) -> int: ...
def HcclChannelGetHcclBuffer(comm: int, channel: int, /) -> tuple[int, int, int]: ...
def HcclChannelGetNotifyNum(comm: int, channel: int, /) -> tuple[int, int]: ...
def HcclChannelGetRemoteMems(comm: int, channel: int, /) -> tuple[int, list[CommMem], list[str], int]: ...
def HcclChannelQuery(comm: int, engine: int, channelDescs: list[HcclChannelDesc] | None, channelNum: int, /) -> tuple[list[int], int]: ...
def HcclCommConfigInit(config: HcclCommConfig | None, /) -> int: ...
def HcclCommDestroy(comm: int, /) -> int: ...
def HcclCommGetHandleWithName(commName: str | None, /) -> tuple[int, int]: ...
def HcclCommGetStatus(commId: str | None, /) -> tuple[int, int]: ...
def HcclCommInitAll(ndev: int, devices: list[int] | None, /) -> tuple[list[int], int]: ...
def HcclCommInitClusterInfo(clusterInfo: str | None, rank: int, /) -> tuple[int, int]: ...
def HcclCommInitClusterInfoConfig(clusterInfo: str | None, rank: int, config: HcclCommConfig | None, /) -> tuple[int, int]: ...
def HcclCommInitRootInfo(nRanks: int, rootInfo: bytes | None, rank: int, /) -> tuple[int, int]: ...
def HcclCommInitRootInfoConfig(nRanks: int, rootInfo: bytes | None, rank: int, config: HcclCommConfig | None, /) -> tuple[int, int]: ...
def HcclCommMemReg(comm: int, memTag: str | None, mem: CommMem | None, /) -> tuple[int, int]: ...
def HcclCommRegCommStateCallback(regName: str | None, cb: Callable[..., Any] | None, args: Any, /) -> int: ...
def HcclCommResume(comm: int, /) -> int: ...
def HcclCommSuspend(comm: int, /) -> int: ...
def HcclCommSymWinDeregister(winHandle: int, /) -> int: ...
def HcclCommSymWinGet(comm: int, ptr: int, size: int, /) -> tuple[int, int, int]: ...
def HcclCommSymWinRegister(comm: int, addr: int, size: int, flag: int, /) -> tuple[int, int]: ...
def HcclCreateSubCommConfig(comm: int, rankNum: int, rankIds: list[int] | None, subCommId: int, subCommRankId: int, config: HcclCommConfig | None, /) -> tuple[int, int]: ...
def HcclDedicatedThreadAcquire(comm: int, useType: int, notifyNumPerThread: int, /) -> tuple[int, int]: ...
def HcclEngineCtxCopy(comm: int, engine: int, ctxTag: str | None, srcCtx: int, size: int, dstCtxOffset: int, /) -> int: ...
def HcclEngineCtxCreate(comm: int, ctxTag: str | None, engine: int, size: int, /) -> tuple[int, int]: ...
def HcclEngineCtxDestroy(comm: int, ctxTag: str | None, engine: int, /) -> int: ...
def HcclEngineCtxGet(comm: int, ctxTag: str | None, engine: int, /) -> tuple[int, int, int]: ...
def HcclGetCommAsyncError(comm: int, /) -> tuple[int, int]: ...
def HcclGetCommConfigCapability(*args: Any) -> int: ...
def HcclGetCommName(comm: int, /) -> tuple[str, int]: ...
def HcclGetConfig(config: int, /) -> tuple[int, int]: ...
def HcclGetErrorString(code: int, /) -> str: ...
def HcclGetHcclBuffer(comm: int, /) -> tuple[int, int, int]: ...
def HcclGetHcclBufferCleared(comm: int, /) -> tuple[int, int, int]: ...
def HcclGetHeterogMode(comm: int, /) -> tuple[int, int]: ...
def HcclGetRankId(comm: int, /) -> tuple[int, int]: ...
def HcclGetRankSize(comm: int, /) -> tuple[int, int]: ...
def HcclGetRootInfo(*args: Any) -> tuple[bytes, int]: ...
def HcclGroupEnd(*args: Any) -> int: ...
def HcclGroupStart(*args: Any) -> int: ...
def HcclRankGraphGetEndpointDesc(comm: int, layer: int, topoInstId: int, descNum: int, /) -> tuple[list[EndpointDesc], int, int]: ...
def HcclRankGraphGetEndpointInfo(comm: int, rankId: int, endpointDesc: EndpointDesc | None, endpointAttr: int, infoLen: int, /) -> tuple[int, int]: ...
def HcclRankGraphGetEndpointNum(comm: int, layer: int, topoInstId: int, /) -> tuple[int, int]: ...
def HcclRankGraphGetInstSizeListByLayer(comm: int, netLayer: int, /) -> tuple[list[int], int, int]: ...
def HcclRankGraphGetLayers(comm: int, /) -> tuple[list[int], int, int]: ...
def HcclRankGraphGetLinks(comm: int, netLayer: int, srcRank: int, dstRank: int, /) -> tuple[list[CommLink], int, int]: ...
def HcclRankGraphGetRankSizeByLayer(comm: int, netLayer: int, /) -> tuple[int, int]: ...
def HcclRankGraphGetRanksByLayer(comm: int, netLayer: int, /) -> tuple[list[int], int, int]: ...
def HcclRankGraphGetRanksByTopoInst(comm: int, netLayer: int, topoInstId: int, /) -> tuple[list[int], int, int]: ...
def HcclRankGraphGetTopoInstsByLayer(comm: int, netLayer: int, /) -> tuple[list[int], int, int]: ...
def HcclRankGraphGetTopoType(comm: int, netLayer: int, topoInstId: int, /) -> tuple[int, int]: ...
def HcclRankGraphGetTopoTypeByLayer(comm: int, netLayer: int, /) -> tuple[int, int]: ...
def HcclRecv(recvBuf: int, count: int, dataType: int, srcRank: int, comm: int, stream: int, /) -> int: ...
def HcclReduce(sendBuf: int, recvBuf: int, count: int, dataType: int, op: int, root: int, comm: int, stream: int, /) -> int: ...
def HcclReduceScatter(sendBuf: int, recvBuf: int, recvCount: int, dataType: int, op: int, comm: int, stream: int, /) -> int: ...
def HcclReduceScatterV(sendBuf: int, sendCounts: list[int] | None, sendDispls: list[int] | None, recvBuf: int, recvCount: int, dataType: int, op: int, comm: int, stream: int, /) -> int: ...
def HcclScatter(sendBuf: int, recvBuf: int, recvCount: int, dataType: int, root: int, comm: int, stream: int, /) -> int: ...
def HcclSend(sendBuf: int, count: int, dataType: int, destRank: int, comm: int, stream: int, /) -> int: ...
def HcclSetConfig(config: int, configValue: int, /) -> int: ...
def HcclSubTeamCreate(worldTeam: int, desc: HcclTeamCreateDesc | None, /) -> tuple[int, int]: ...
def HcclSymWinGetPeerPointer(winHandle: int, offset: int, peerRank: int, /) -> tuple[int, int]: ...
def HcclTeamChannelsCreate(comm: int, team: int, desc: HcclTeamCreateChannelsDesc | None, /) -> int: ...
def HcclTeamCreate(comm: int, desc: HcclTeamCreateDesc | None, /) -> tuple[int, int]: ...
def HcclTeamCreateChannelsDescInit(desc: HcclTeamCreateChannelsDesc | None, /) -> int: ...
def HcclTeamCreateDescInit(desc: HcclTeamCreateDesc | None, /) -> int: ...
def HcclTeamDestroy(team: int, /) -> int: ...
def HcclTeamGetLsaTeam(comm: int, /) -> tuple[int, int]: ...
def HcclTeamMemberToRank(comm: int, team: int, memberId: int, /) -> tuple[int, int]: ...
def HcclTeamRankToMember(comm: int, team: int, rankId: int, /) -> tuple[int, int]: ...
def HcclTeamWindowDeregister(worldTeam: int, window: int, /) -> int: ...
def HcclTeamWindowRegister(comm: int, worldTeam: int, localMem: CommMem | None, flag: int, /) -> tuple[int, int]: ...
def HcclThreadAcquire(comm: int, engine: int, threadNum: int, notifyNumPerThread: int, /) -> tuple[list[int], int]: ...
def HcclThreadAcquireWithConfig(comm: int, engine: int, threadNum: int, type: int, config: list[ThreadConfig] | None, /) -> tuple[list[int], int]: ...
def HcclThreadAcquireWithStream(comm: int, engine: int, stream: int, notifyNum: int, /) -> tuple[int, int]: ...
def HcclThreadExportToCommEngine(comm: int, threadNum: int, threads: list[int] | None, dstCommEngine: int, /) -> tuple[list[int], int]: ...
def HcclThreadResGetInfo(comm: int, thread: int, resType: int, infoLen: int, /) -> tuple[int, int]: ...
def HcclWorldTeamCreate(comm: int, desc: HcclTeamCreateDesc | None, /) -> tuple[int, int]: ...
def HcommAclrtNotifyRecordOnThread(thread: int, dstNotifyId: int, /) -> int: ...
def HcommAclrtNotifyWaitOnThread(thread: int, notifyId: int, timeOut: int, /) -> int: ...
def HcommAcquireComm(commId: str | None, /) -> int: ...
def HcommBatchModeEnd(batchTag: str | None, /) -> int: ...
def HcommBatchModeStart(batchTag: str | None, /) -> int: ...
def HcommBatchTransferOnThread(thread: int, channel: int, transferDescs: list[HcommBatchTransferDesc] | None, transferDescNum: int, /) -> int: ...
def HcommChannelCreate(endpointHandle: int, engine: int, channelDescs: list[HcommChannelDesc] | None, channelNum: int, /) -> tuple[list[int], int]: ...
def HcommChannelDescInit(channelDesc: list[HcommChannelDesc] | None, descNum: int, /) -> int: ...
def HcommChannelDestroy(channels: list[int] | None, channelNum: int, /) -> int: ...
def HcommChannelDrainOnThread(thread: int, channel: int, /) -> int: ...
def HcommChannelFence(channel: int, /) -> int: ...
def HcommChannelFenceOnThread(thread: int, channel: int, /) -> int: ...
def HcommChannelGetStatus(channelList: list[int] | None, listNum: int, /) -> tuple[list[int], int]: ...
def HcommChannelNotifyRecord(channel: int, remoteNotifyIdx: int, /) -> int: ...
def HcommChannelNotifyRecordOnThread(thread: int, channel: int, remoteNotifyIdx: int, /) -> int: ...
def HcommChannelNotifyWait(channel: int, localNotifyIdx: int, timeOut: int, /) -> int: ...
def HcommChannelNotifyWaitOnThread(thread: int, channel: int, localNotifyIdx: int, timeOut: int, /) -> int: ...
def HcommChannelNotifyWaitOnThreadWithDefaultTimeout(thread: int, channel: int, localNotifyIdx: int, /) -> int: ...
def HcommEndpointCreate(endpoint: EndpointDesc | None, /) -> tuple[int, int]: ...
def HcommEndpointDestroy(endpointHandle: int, /) -> int: ...
def HcommEndpointGetDescNum(deviceLogicId: int, /) -> tuple[int, int]: ...
def HcommEndpointGetDescs(deviceLogicId: int, descNum: int, /) -> tuple[int, list[EndpointDesc], int]: ...
def HcommEndpointGetListenPort(endpointHandle: int, /) -> tuple[int, int]: ...
def HcommFenceOnThread(thread: int, /) -> int: ...
def HcommLocalCopyOnThread(thread: int, dst: int, src: int, len: int, /) -> int: ...
def HcommLocalReduceOnThread(thread: int, dst: int, src: int, count: int, dataType: int, reduceOp: int, /) -> int: ...
def HcommMemAlloc(size: int, /) -> tuple[int, int]: ...
def HcommMemExport(endpointHandle: int, memHandle: int, /) -> tuple[bytes, int, int]: ...
def HcommMemFree(ptr: int, /) -> int: ...
def HcommMemImport(endpointHandle: int, memDesc: bytes | None, descLen: int, /) -> tuple[CommMem, int]: ...
def HcommMemReg(endpointHandle: int, memTag: str | None, mem: CommMem | None, /) -> tuple[int, int]: ...
def HcommMemUnimport(endpointHandle: int, memDesc: bytes | None, descLen: int, /) -> int: ...
def HcommMemUnreg(endpointHandle: int, memHandle: int, /) -> int: ...
def HcommReadNbi(channel: int, dst: int, src: int, len: int, /) -> int: ...
def HcommReadNbiOnThread(thread: int, channel: int, dst: int, src: int, len: int, /) -> int: ...
def HcommReadOnThread(thread: int, channel: int, dst: int, src: int, len: int, /) -> int: ...
def HcommReadReduceOnThread(thread: int, channel: int, dst: int, src: int, count: int, dataType: int, reduceOp: int, /) -> int: ...
def HcommReleaseComm(commId: str | None, /) -> int: ...
def HcommSetNotifyWaitTimeOut(timeOut: float, /) -> int: ...
def HcommThreadAlloc(engine: int, threadNum: int, notifyNumPerThread: list[int] | None, /) -> tuple[list[int], int]: ...
def HcommThreadFree(threads: list[int] | None, threadNum: int, /) -> int: ...
def HcommThreadJoin(thread: int, timeout: int, /) -> int: ...
def HcommThreadNotifyRecordOnThread(thread: int, dstThread: int, dstNotifyIdx: int, /) -> int: ...
def HcommThreadNotifyWaitOnThread(thread: int, notifyIdx: int, timeOut: int, /) -> int: ...
def HcommThreadNotifyWaitOnThreadWithDefaultTimeout(thread: int, notifyIdx: int, /) -> int: ...
def HcommThreadResAcquireTimeOut(timeOut: float, /) -> int: ...
def HcommThreadResGetInfo(thread: int, resType: int, infoLen: int, /) -> tuple[int, int]: ...
def HcommWriteNbi(channel: int, dst: int, src: int, len: int, /) -> int: ...
def HcommWriteNbiOnThread(thread: int, channel: int, dst: int, src: int, len: int, /) -> int: ...
def HcommWriteOnThread(thread: int, channel: int, dst: int, src: int, len: int, /) -> int: ...
def HcommWriteReduceOnThread(thread: int, channel: int, dst: int, src: int, count: int, dataType: int, reduceOp: int, /) -> int: ...
def HcommWriteReduceWithNotifyOnThread(thread: int, channel: int, dst: int, src: int, count: int, dataType: int, reduceOp: int, remoteNotifyIdx: int, /) -> int: ...
def HcommWriteWithNotifyNbi(channel: int, dst: int, src: int, len: int, remoteNotifyIdx: int, /) -> int: ...
def HcommWriteWithNotifyNbiOnThread(thread: int, channel: int, dst: int, src: int, len: int, remoteNotifyIdx: int, /) -> int: ...
def HcommWriteWithNotifyOnThread(thread: int, channel: int, dst: int, src: int, len: int, remoteNotifyIdx: int, /) -> int: ...
def __getattr__(name: str) -> Callable[..., Any]: ...

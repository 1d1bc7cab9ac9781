"""Enumerations and constants of HCOMM, under the vendor's names (facts/hcomm 1.5, 2.6, 2.7)."""

from __future__ import annotations

import enum
from typing import Any


class HcclResult(enum.IntEnum):
    """The return code of every call."""

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
    """Types of elements."""

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
    """Operations of reductions."""

    HCCL_REDUCE_SUM = 0
    HCCL_REDUCE_PROD = 1
    HCCL_REDUCE_MAX = 2
    HCCL_REDUCE_MIN = 3
    HCCL_REDUCE_RESERVED = 255


class HcclSendRecvType(enum.IntEnum):
    """Whether an item of HcclBatchSendRecv is a send or a receive."""

    HCCL_SEND = 0
    HCCL_RECV = 1
    HCCL_SEND_RECV_RESERVED = 2


class CommEngine(enum.IntEnum):
    """The engine that runs operations."""

    COMM_ENGINE_RESERVED = -1
    COMM_ENGINE_CPU = 0
    COMM_ENGINE_CPU_TS = 1
    COMM_ENGINE_AICPU = 2
    COMM_ENGINE_AICPU_TS = 3
    COMM_ENGINE_AIV = 4
    COMM_ENGINE_CCU = 5


class CommProtocol(enum.IntEnum):
    """The protocol of a link or channel."""

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
    """How the ranks of a layer are connected."""

    COMM_TOPO_RESERVED = -1
    COMM_TOPO_CLOS = 0
    COMM_TOPO_1DMESH = 1
    COMM_TOPO_910_93 = 2
    COMM_TOPO_310P = 3
    COMM_TOPO_A2AXSERVER = 4
    COMM_TOPO_CUSTOM = 5


class CommAddrType(enum.IntEnum):
    """The kind of an endpoint's address."""

    COMM_ADDR_TYPE_RESERVED = -1
    COMM_ADDR_TYPE_IP_V4 = 0
    COMM_ADDR_TYPE_IP_V6 = 1
    COMM_ADDR_TYPE_ID = 2
    COMM_ADDR_TYPE_EID = 3


class EndpointLocType(enum.IntEnum):
    """Where an endpoint is."""

    ENDPOINT_LOC_TYPE_RESERVED = -1
    ENDPOINT_LOC_TYPE_DEVICE = 0
    ENDPOINT_LOC_TYPE_HOST = 1


class EndpointAttr(enum.IntEnum):
    """Attributes of an endpoint."""

    ENDPOINT_ATTR_INVALID = -1
    ENDPOINT_ATTR_BW_COEFF = 0
    ENDPOINT_ATTR_DIE_ID = 1
    ENDPOINT_ATTR_LOCATION = 2


class CommMemType(enum.IntEnum):
    """Where memory is."""

    COMM_MEM_TYPE_INVALID = -1
    COMM_MEM_TYPE_DEVICE = 0
    COMM_MEM_TYPE_HOST = 1


class HcclMemType(enum.IntEnum):
    """The older name of CommMemType."""

    HCCL_MEM_TYPE_DEVICE = 0
    HCCL_MEM_TYPE_HOST = 1


class HcommSocketRole(enum.IntEnum):
    """Which end of a channel of the basic layer listens."""

    HCOMM_SOCKET_ROLE_RESERVED = -1
    HCOMM_SOCKET_ROLE_CLIENT = 0
    HCOMM_SOCKET_ROLE_SERVER = 1


class HcommTransferType(enum.IntEnum):
    """The kind of one transfer of a batch."""

    HCOMM_TRANSFER_TYPE_INVALID = -1
    HCOMM_TRANSFER_TYPE_WRITE = 0
    HCOMM_TRANSFER_TYPE_WRITE_REDUCE = 1
    HCOMM_TRANSFER_TYPE_WRITE_WITH_NOTIFY = 2
    HCOMM_TRANSFER_TYPE_WRITE_REDUCE_WITH_NOTIFY = 3
    HCOMM_TRANSFER_TYPE_READ = 4
    HCOMM_TRANSFER_TYPE_READ_REDUCE = 5
    HCOMM_TRANSFER_TYPE_NOTIFY_RECORD = 6


class HcclCommStatus(enum.IntEnum):
    """The state of a communicator."""

    HCCL_COMM_STATUS_READY = 0
    HCCL_COMM_STATUS_SUSPENDING = 1
    HCCL_COMM_STATUS_INVALID = 254
    HCCL_COMM_STATUS_RESERVED = 255


class HcclCommStatePhase(enum.IntEnum):
    """The change of a communicator that a callback is told of."""

    HCCL_COMM_STATE_PHASE_INVALID = -1
    HCCL_COMM_STATE_PHASE_DESTROY_PRE = 0
    HCCL_COMM_STATE_PHASE_DESTROY_POST = 1
    HCCL_COMM_STATE_PHASE_RESUME_PRE = 2
    HCCL_COMM_STATE_PHASE_RESUME_POST = 3


class HcclCommConfigCapability(enum.IntEnum):
    """Which fields of HcclCommConfig a version knows."""

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
    """Whether the chips of a communicator are of one kind."""

    HCCL_HETEROG_MODE_INVALID = -1
    HCCL_HETEROG_MODE_HOMOGENEOUS = 0
    HCCL_HETEROG_MODE_MIX_A2_A3 = 1


class ThreadType(enum.IntEnum):
    """The kind of a communication thread."""

    THREAD_TYPE_INVALID = -1
    THREAD_TYPE_TS = 0


class ThreadResType(enum.IntEnum):
    """Attributes of a communication thread."""

    THREAD_RES_TYPE_INVALID = -1
    THREAD_RES_TYPE_STREAM = 0


class HcclDedicatedThreadType(enum.IntEnum):
    """The use of a dedicated thread."""

    HCCL_DED_THREAD_TYPE_INVALID = -1
    HCCL_DED_THREAD_TYPE_AICPU_LAUNCH = 0
    HCCL_DED_THREAD_TYPE_AICPU_LAUNCH_GE = 1
    HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_OPBASE = 2
    HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_ACLGRAPH = 3
    HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_GE = 4
    HCCL_DED_THREAD_TYPE_AICPU_ORDER_LAUNCH_DEVICE = 5


class HcommTeamWindowFlag(enum.IntEnum):
    """The kind of a team's window."""

    HCOMM_TEAM_WINDOW_FLAG_INVALID = -1
    HCOMM_TEAM_WINDOW_FLAG_SYMMETRIC = 0


class HcclConfig(enum.IntEnum):
    """The settings of HcclSetConfig."""

    HCCL_DETERMINISTIC = 0
    HCCL_CONFIG_RESERVED = 1


def _of_hcomm(kind: type[enum.IntEnum], name: str) -> type[enum.IntEnum]:
    """Return the same enumeration as the data plane names it."""
    members = {each.replace("HCCL_", "HCOMM_", 1): member.value for each, member in kind.__members__.items()}
    make: Any = enum.IntEnum  # the functional form, with members that no checker can follow
    made: type[enum.IntEnum] = make(name, members, module=__name__)
    made.__doc__ = f"{kind.__name__}, as the data plane names it."
    return made


HcommDataType = _of_hcomm(HcclDataType, "HcommDataType")
HcommReduceOp = _of_hcomm(HcclReduceOp, "HcommReduceOp")

ENUMS: tuple[type[enum.IntEnum], ...] = (
    *(
        HcclResult,
        HcclDataType,
        HcclReduceOp,
        HcommDataType,
        HcommReduceOp,
        CommEngine,
        CommProtocol,
        CommTopo,
    ),
    *(CommAddrType, EndpointLocType, EndpointAttr, CommMemType, HcclMemType, HcommSocketRole),
    *(
        HcommTransferType,
        HcclCommStatus,
        HcclCommConfigCapability,
        HcclHeterogMode,
        ThreadType,
        ThreadResType,
    ),
    *(HcclDedicatedThreadType, HcclConfig, HcclCommStatePhase, HcclSendRecvType, HcommTeamWindowFlag),
)

CONSTANTS: dict[str, int] = {
    "HCCL_ROOT_INFO_BYTES": 4108,
    "COMM_NAME_MAX_LENGTH": 128,
    "BUFFER_NAME_MAX_LENGTH": 128,
    "UDI_MAX_LENGTH": 128,
    "HCCL_COMM_ALGO_MAX_LENGTH": 1600,
    "HCCL_COMM_RETRY_ENABLE_MAX_LENGTH": 50,
    "HCCL_COMM_RETRY_PARAMS_MAX_LENGTH": 128,
    "HCCL_RES_TAG_MAX_LEN": 255,
    "HCCL_WIN_COLL_SYMMETRIC": 1,
    "HCCL_COMM_CONFIG_MAGIC_WORD": 0xF0F0F0F0,
    "HCCL_COMM_CONFIG_VERSION": 11,
    "HCCL_COMM_DEFAULT_BUFFSIZE": 200,
    "HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET": 0xFFFFFFFF,
    "HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET": 0xFFFFFFFF,
    "HCCL_COMM_DEFAULT_OP_EXPANSION_MODE": 0,
    "HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET": 0xFFFFFFFF,
    "HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET": 0xFFFFFFFF,
    "HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET": 0xFFFFFFFF,
    "HCCL_COMM_QOS_CONFIG_NOT_SET": 0xFFFFFFFF,
    "HCCL_CHANNEL_MAGIC_WORD": 0x0F0F0F0F,
    "HCCL_CHANNEL_VERSION": 1,
    "HCOMM_CHANNEL_MAGIC_WORD": 0x0FCF0F0F,
    "HCOMM_CHANNEL_VERSION": 4,
    "HCOMM_CHANNEL_NAME_MAX_LEN": 191,
    "HCCL_TEAM_CREATE_DESC_MAGIC_WORD": 0x0FCF0F14,
    "HCCL_TEAM_CREATE_DESC_VERSION": 2,
    "HCCL_TEAM_CREATE_CHANNELS_DESC_MAGIC_WORD": 0x0FCF0F15,
    "HCCL_TEAM_CREATE_CHANNELS_DESC_VERSION": 1,
    "HCCL_CHANNEL_CONFIG_SHARED_QUEUE_TAG_MAX_LEN": 255,
    "COMM_LINK_MAGIC_WORD": 0x0F0E0F0F,
    "COMM_LINK_VERSION": 1,
}

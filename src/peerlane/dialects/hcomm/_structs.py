"""Structs of HCOMM as plain classes: fields are C's, defaults are zeros or what the vendor's Init sets.

The members of a union are side by side: the library reads the one that is meant, and not the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from peerlane.dialects.hcomm._enums import (
    CONSTANTS,
    CommMemType,
    CommProtocol,
    HcclSendRecvType,
    HcommTransferType,
)

_UNSET = 0xFFFFFFFF
_RESERVED = -1


@dataclass(slots=True)
class CommAbiHeader:
    """The header of a struct, with its version."""

    version: int = 0
    magicWord: int = 0
    size: int = 0
    reserved: int = 0


@dataclass(slots=True)
class CommAddr:
    """The address of an endpoint; ``addr`` and ``addr6`` are the bytes of an IP address."""

    type: int = 0
    raws: bytes = b"\0" * 36
    addr: bytes = b"\0" * 4
    addr6: bytes = b"\0" * 16
    id: int = 0
    eid: bytes = b"\0" * 16


@dataclass(slots=True)
class EndpointLocDevice:
    """Where an endpoint on a device is."""

    devPhyId: int = 0
    superDevId: int = 0
    serverIdx: int = 0
    superPodIdx: int = 0


@dataclass(slots=True)
class EndpointLocHost:
    """Where an endpoint on a host is."""

    id: int = 0


@dataclass(slots=True)
class EndpointLoc:
    """Where an endpoint is; ``device`` or ``host`` counts, as ``locType`` says."""

    locType: int = 0
    device: EndpointLocDevice = field(default_factory=EndpointLocDevice)
    host: EndpointLocHost = field(default_factory=EndpointLocHost)


@dataclass(slots=True)
class EndpointDesc:
    """An endpoint: its protocol, its address, and where it is."""

    protocol: int = 0
    commAddr: CommAddr = field(default_factory=CommAddr)
    loc: EndpointLoc = field(default_factory=EndpointLoc)
    raws: bytes = b"\0" * 52


@dataclass(slots=True)
class RoceAttr:
    """How a channel over RoCE is made; changes nothing here."""

    queueNum: int = 0
    retryCnt: int = 0
    retryInterval: int = 0
    tc: int = 0
    sl: int = 0
    qpThreshold: int = 0
    cqAttrFlags: int = 0
    srcPortList: list[int] | None = None


@dataclass(slots=True)
class UbMemAttr:
    """Which way a channel over UB_MEM takes; changes nothing here."""

    pathMode: int = 0


@dataclass(slots=True)
class UbAttr:
    """How deep a queue over UB is; changes nothing here."""

    sqDepth: int = 0


@dataclass(slots=True)
class HccsAttr:
    """The quality of service over HCCS; changes nothing here."""

    qos: int = 0


@dataclass(slots=True)
class HcclChannelDesc:
    """A channel of a communicator; HcclChannelDescInit must have filled it (facts/hcomm 2.5)."""

    header: CommAbiHeader = field(default_factory=CommAbiHeader)
    remoteRank: int = 0
    channelProtocol: int = 0
    localEndpoint: EndpointDesc = field(default_factory=EndpointDesc)
    remoteEndpoint: EndpointDesc = field(default_factory=EndpointDesc)
    notifyNum: int = 0
    memHandles: list[int] | None = None
    memHandleNum: int = 0
    raws: bytes = b"\0" * 128
    roceAttr: RoceAttr = field(default_factory=RoceAttr)
    ubMemAttr: UbMemAttr = field(default_factory=UbMemAttr)


@dataclass(slots=True)
class HcommChannelDesc:
    """A channel of the basic layer; HcommChannelDescInit must have filled it."""

    header: CommAbiHeader = field(default_factory=CommAbiHeader)
    remoteEndpoint: EndpointDesc = field(default_factory=EndpointDesc)
    notifyNum: int = 0
    exchangeAllMems: bool = False
    memHandles: list[int] | None = None
    memHandleNum: int = 0
    socket: object = None
    role: int = 0
    port: int = 0
    raws: bytes = b"\0" * 128
    roceAttr: RoceAttr = field(default_factory=RoceAttr)
    hccsAttr: HccsAttr = field(default_factory=HccsAttr)
    ubAttr: UbAttr = field(default_factory=UbAttr)
    ubMemAttr: UbMemAttr = field(default_factory=UbMemAttr)
    qos: int = 0
    channelName: str | None = None


@dataclass(slots=True)
class CommMem:
    """Memory: where it is, its address and its bytes."""

    type: int = CommMemType.COMM_MEM_TYPE_DEVICE
    addr: int = 0
    size: int = 0


@dataclass(slots=True)
class CommLinkAttr:
    """The protocol of a link, and how many hops it has."""

    linkProtocol: int = 0
    hop: int = 0


@dataclass(slots=True)
class CommLink:
    """A link between two endpoints."""

    header: CommAbiHeader = field(default_factory=CommAbiHeader)
    srcEndpointDesc: EndpointDesc = field(default_factory=EndpointDesc)
    dstEndpointDesc: EndpointDesc = field(default_factory=EndpointDesc)
    linkAttr: CommLinkAttr = field(default_factory=CommLinkAttr)


@dataclass(slots=True)
class HcclCommConfig:
    """The configuration of a communicator; a new one is as HcclCommConfigInit fills it (facts/hcomm 2.2)."""

    size: int = 0
    magicWord: int = CONSTANTS["HCCL_COMM_CONFIG_MAGIC_WORD"]
    version: int = CONSTANTS["HCCL_COMM_CONFIG_VERSION"]
    reserved: int = 0
    hcclBufferSize: int = _UNSET
    hcclDeterministic: int = _UNSET
    hcclCommName: str = ""
    hcclUdi: str = ""
    hcclOpExpansionMode: int = 0
    hcclRdmaTrafficClass: int = _UNSET
    hcclRdmaServiceLevel: int = _UNSET
    hcclWorldRankID: int = 0
    hcclJobID: int = 0
    aclGraphZeroCopyEnable: int = 0
    hcclExecTimeOut: int = _UNSET
    hcclAlgo: str = ""
    hcclRetryEnable: str = ""
    hcclRetryParams: str = ""
    hcclBufferName: str = ""
    hcclQos: int = _UNSET
    hcclSymWinMaxMemSizePerRank: int = 16
    hcclChannelSqDepth: int = _UNSET

    def __post_init__(self) -> None:
        self.size = self.size or CONFIG_BYTES


@dataclass(slots=True)
class ThreadConfig:
    """How a communication thread is made."""

    notifyNumPerThread: int = 0


@dataclass(slots=True)
class _Moved:
    len: int = 0
    dst: int = 0
    src: int = 0


@dataclass(slots=True)
class _MovedWithNotify(_Moved):
    notifyIdx: int = 0


@dataclass(slots=True)
class _Reduced:
    count: int = 0
    dst: int = 0
    src: int = 0
    reduceOp: int = 0
    dataType: int = 0


@dataclass(slots=True)
class _ReducedWithNotify(_Reduced):
    notifyIdx: int = 0


@dataclass(slots=True)
class _Recorded:
    notifyIdx: int = 0


@dataclass(slots=True)
class HcommTransferInfo:
    """The union of a batch's descriptor; ``transType`` tells which member counts."""

    write: _Moved = field(default_factory=_Moved)
    read: _Moved = field(default_factory=_Moved)
    reduce: _Reduced = field(default_factory=_Reduced)
    notifyRecord: _Recorded = field(default_factory=_Recorded)
    writeWithNotify: _MovedWithNotify = field(default_factory=_MovedWithNotify)
    writeReduceWithNotify: _ReducedWithNotify = field(default_factory=_ReducedWithNotify)


@dataclass(slots=True)
class HcommBatchTransferDesc:
    """One transfer of a batch (facts/hcomm 1.2)."""

    transType: int = HcommTransferType.HCOMM_TRANSFER_TYPE_WRITE
    reserved: bytes = b"\0" * 4
    transferInfo: HcommTransferInfo = field(default_factory=HcommTransferInfo)


@dataclass(slots=True)
class HcclSendRecvItem:
    """A message of HcclBatchSendRecv: ``count`` elements at ``buf``, to or from a rank."""

    sendRecvType: int = HcclSendRecvType.HCCL_SEND
    buf: int = 0
    count: int = 0
    dataType: int = 0
    remoteRank: int = 0


@dataclass(slots=True)
class HcommTeamSyncMemRequirement:
    """How much memory the kernels of a team need to synchronize; ``barrierCount`` is at least 1, the others are 0."""

    signalCount: int = 0
    counterCount: int = 0
    barrierCount: int = 0
    reserved: bytes = b"\0" * 20


@dataclass(slots=True)
class HcclTeamCreateDesc:
    """A team; HcclTeamCreateDescInit must have filled it.  From ``engine`` on, HcclTeamCreate alone reads it."""

    header: CommAbiHeader = field(default_factory=CommAbiHeader)
    rankIds: list[int] | None = None
    rankNum: int = 0
    selfRankId: int = 0
    netLayer: int = 0
    protocol: int = 0
    requirement: HcommTeamSyncMemRequirement = field(default_factory=HcommTeamSyncMemRequirement)
    engine: int = 0
    notifyNum: int = 0
    channelCnt: int = 0
    isSharedQueue: int = 0
    sharedQueueTag: str = ""
    reserved: bytes = b"\0" * 32


@dataclass(slots=True)
class HcclTeamCreateChannelsDesc:
    """The channels of a team; HcclTeamCreateChannelsDescInit must have filled it."""

    header: CommAbiHeader = field(default_factory=CommAbiHeader)
    engine: int = 0
    notifyNum: int = 0
    protocol: int = 0
    channelCnt: int = 0
    reserved: bytes = b"\0" * 16


CONFIG_BYTES = 2248  #: sizeof() in C
#: Of structs with a header: what their constants begin with, and sizeof() in C.
_HEADERS: dict[type, tuple[str, int]] = {
    HcclChannelDesc: ("HCCL_CHANNEL", 496),
    HcommChannelDesc: ("HCOMM_CHANNEL", 360),
    CommLink: ("COMM_LINK", 464),
    HcclTeamCreateDesc: ("HCCL_TEAM_CREATE_DESC", 376),
    HcclTeamCreateChannelsDesc: ("HCCL_TEAM_CREATE_CHANNELS_DESC", 48),
}

STRUCTS: tuple[type, ...] = (
    *(CommAbiHeader, CommAddr, EndpointLoc, EndpointDesc, HcclChannelDesc, HcommChannelDesc, CommMem),
    *(CommLink, HcclCommConfig, ThreadConfig, HcommBatchTransferDesc, HcommTransferInfo, HcclSendRecvItem),
    *(HcommTeamSyncMemRequirement, HcclTeamCreateDesc, HcclTeamCreateChannelsDesc),
)

_BYTES_OF = {"tc": 1, "sl": 1, "pathMode": 1}


def fill(struct: Any) -> None:
    """Set every bit of every field, as ``memset(…, 0xFF, …)`` does."""
    fresh = type(struct)()  # a program may have set a field to anything
    for each in fields(struct):
        value = getattr(fresh, each.name)
        if isinstance(value, bytes):
            setattr(struct, each.name, b"\xff" * len(value))
        elif isinstance(value, bool | int):
            setattr(struct, each.name, (1 << 8 * _BYTES_OF.get(each.name, 4)) - 1)
        elif hasattr(value, "__dataclass_fields__"):
            if type(getattr(struct, each.name)) is not type(value):
                setattr(struct, each.name, value)
            fill(getattr(struct, each.name))
        else:
            setattr(struct, each.name, value)  # a pointer that no program may follow


def reset(struct: Any) -> None:
    """Set every field of a struct to that of a new one."""
    fresh = type(struct)()
    for each in fields(fresh):
        setattr(struct, each.name, getattr(fresh, each.name))


def reset_endpoint(endpoint: EndpointDesc) -> None:
    """Set an endpoint to one without protocol, address and place."""
    fresh = EndpointDesc()
    fill(fresh)
    fresh.protocol = CommProtocol.COMM_PROTOCOL_RESERVED
    fresh.commAddr.type = fresh.loc.locType = _RESERVED
    for each in fields(fresh):
        setattr(endpoint, each.name, getattr(fresh, each.name))


def header(kind: type) -> CommAbiHeader:
    """Return the header of structs of a class, as the vendor's Init sets it."""
    prefix, size = _HEADERS[kind]
    return CommAbiHeader(CONSTANTS[f"{prefix}_VERSION"], CONSTANTS[f"{prefix}_MAGIC_WORD"], size, 0)


def is_initialised(struct: Any, kind: type) -> bool:
    """Tell whether a struct of a class has the header that the vendor's Init sets."""
    return bool(getattr(struct.header, "magicWord", None) == header(kind).magicWord)

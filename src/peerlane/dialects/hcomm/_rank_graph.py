"""``hcomm``: how the ranks of a communicator are connected (facts/hcomm 2.7).

A virtual node is one server: its ranks are one layer, layer 0, in which every rank reaches every other.
"""

from __future__ import annotations

from peerlane import Device, devices
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm import _structs as structs
from peerlane.dialects.hcomm._arguments import Endpoint, Endpoints, Enum, Links, UInt32, given
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._comm import Comm, CommHandle
from peerlane.dialects.hcomm._enums import (
    CommAddrType,
    CommProtocol,
    CommTopo,
    EndpointAttr,
    EndpointLocType,
    HcclHeterogMode,
)
from peerlane.dialects.hcomm._state import hcomm

_WORD = 4
_ON_BUS = "Ascend950"


def _refuse_layer(comm: Comm, layer: int, instance: int = 0) -> None:
    if layer or instance:
        raise Refusal(
            PARA,
            f"layer is {layer}, instance {instance}; {comm} has layer 0 with instance 0, for a node is one server",
            "ask HcclRankGraphGetLayers",
        )


@hcomm.call("hcomm.HcclRankGraphGetLayers", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetLayers(comm: CommHandle) -> tuple[list[int], int]:
    """Return the layers of the network that this rank is in: the server.

    Gives: `[0]`, 1
    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    return [0], 1


@hcomm.call("hcomm.HcclRankGraphGetRanksByLayer", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetRanksByLayer(comm: CommHandle, netLayer: UInt32) -> tuple[list[int], int]:
    """Return the ranks that this one reaches in a layer, itself included.

    Gives: ranks, number
    Refuses: 2 NULL; 6 the communicator; 1 `netLayer` but 0
    Basis: D; C for 1
    """
    _refuse_layer(comm, netLayer)
    return list(range(comm.group.size)), comm.group.size


@hcomm.call("hcomm.HcclRankGraphGetRankSizeByLayer", out=1)
def HcclRankGraphGetRankSizeByLayer(comm: CommHandle, netLayer: UInt32) -> int:
    """Return how many ranks this one reaches in a layer, itself included.

    Gives: number
    Refuses: as `HcclRankGraphGetRanksByLayer`
    Basis: D; C for 1
    """
    _refuse_layer(comm, netLayer)
    return comm.group.size


@hcomm.call("hcomm.HcclRankGraphGetTopoTypeByLayer", out=1)
def HcclRankGraphGetTopoTypeByLayer(comm: CommHandle, netLayer: UInt32) -> int:
    """Return how the ranks of a layer are connected: each with each.

    Gives: COMM_TOPO_1DMESH
    Refuses: as `HcclRankGraphGetRanksByLayer`
    Basis: D; C for 1, and the value
    """
    _refuse_layer(comm, netLayer)
    return int(CommTopo.COMM_TOPO_1DMESH)


@hcomm.call("hcomm.HcclRankGraphGetInstSizeListByLayer", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetInstSizeListByLayer(comm: CommHandle, netLayer: UInt32) -> tuple[list[int], int]:
    """Return how many ranks each server has.

    Gives: list of one number, 1
    Refuses: as `HcclRankGraphGetRanksByLayer`
    Basis: D; C for 1
    """
    _refuse_layer(comm, netLayer)
    return [comm.group.size], 1


@hcomm.call("hcomm.HcclRankGraphGetLinks", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetLinks(
    comm: CommHandle, netLayer: UInt32, srcRank: UInt32, dstRank: UInt32
) -> tuple[list[structs.CommLink], int]:
    """Return the links from one rank to another: UB_CTP over a unified bus, else HCCS or PCIE.

    Gives: list of CommLink, 1; none from a rank to itself
    Refuses: as `HcclRankGraphGetRanksByLayer`; 1 a rank
    Basis: D, S for UB_CTP; C for 1, and the other values
    """
    _refuse_layer(comm, netLayer)
    ends = [_device(comm, each) for each in (srcRank, dstRank)]
    if srcRank == dstRank:
        return [], 0
    protocol = protocol_between(*ends)
    link = structs.CommLink()
    initialise([link])
    link.srcEndpointDesc, link.dstEndpointDesc = (endpoint_of(each, protocol) for each in ends)
    link.linkAttr.linkProtocol = protocol
    return [link], 1


def protocol_between(one: Device, other: Device) -> int:
    """Return the protocol between two devices."""
    if one is not other and not one.can_access(other):
        return int(CommProtocol.COMM_PROTOCOL_PCIE)
    return protocol_of(one)


def is_on_bus(device: Device) -> bool:
    """Tell whether a device is on a unified bus, as Ascend 950 is."""
    others = (each for each in devices() if each is not device)
    return device.info.name.startswith(_ON_BUS) or any(device.link(each) == "UB" for each in others)


def protocol_of(device: Device) -> int:
    """Return the protocol between a device and the devices that it reaches."""
    return int(CommProtocol.COMM_PROTOCOL_UB_CTP if is_on_bus(device) else CommProtocol.COMM_PROTOCOL_HCCS)


def _device(comm: Comm, rank: int) -> Device:
    if rank >= comm.group.size:
        raise Refusal(
            PARA,
            f"{rank:,} is not a rank; valid are 0 to {comm.group.size - 1}",
            "pass a rank below HcclGetRankSize",
        )
    return comm.group.members[rank].device


def endpoint_of(device: Device, protocol: int) -> structs.EndpointDesc:
    """Return the descriptor of a device as an end of channels."""
    made = structs.EndpointDesc()
    structs.reset_endpoint(made)
    made.protocol = protocol
    made.commAddr.type, made.commAddr.id = int(CommAddrType.COMM_ADDR_TYPE_ID), device.ordinal
    made.loc.locType = int(EndpointLocType.ENDPOINT_LOC_TYPE_DEVICE)
    made.loc.device = structs.EndpointLocDevice(device.ordinal, device.ordinal, 0, 0)
    return made


def initialise(links: list[structs.CommLink]) -> None:
    """Fill links with the vendor's defaults."""
    for link in links:
        structs.fill(link)
        link.header = structs.header(structs.CommLink)
        structs.reset_endpoint(link.srcEndpointDesc)
        structs.reset_endpoint(link.dstEndpointDesc)
        link.linkAttr = structs.CommLinkAttr(int(CommProtocol.COMM_PROTOCOL_RESERVED), 1)


@hcomm.call("hcomm.CommLinkInit")
def CommLinkInit(commLink: Links, linkNum: UInt32) -> None:
    """Fill links: every bit set, then the header, no protocol, one hop.

    Refuses: 2 NULL; 1 fewer than announced
    Basis: S
    """
    if linkNum:
        initialise(given("commLink", commLink, linkNum)[:linkNum])


@hcomm.call("hcomm.EndpointDescInit")
def EndpointDescInit(endpoint: Endpoints, num: UInt32) -> None:
    """Fill endpoints: every bit set, then no protocol, address and place.

    Refuses: 2 NULL; 1 fewer than announced
    Basis: S
    """
    if num:
        for each in given("endpoint", endpoint, num)[:num]:
            structs.reset_endpoint(each)


@hcomm.call("hcomm.HcclGetHeterogMode", out=1)
def HcclGetHeterogMode(comm: CommHandle) -> int:
    """Return whether the communicator mixes chips of several kinds: it does not.

    Gives: HCCL_HETEROG_MODE_HOMOGENEOUS
    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    return int(HcclHeterogMode.HCCL_HETEROG_MODE_HOMOGENEOUS)


@hcomm.call("hcomm.HcclRankGraphGetTopoInstsByLayer", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetTopoInstsByLayer(comm: CommHandle, netLayer: UInt32) -> tuple[list[int], int]:
    """Return the instances of a layer that this rank is in.

    Gives: `[0]`, 1
    Refuses: as `HcclRankGraphGetRanksByLayer`
    Basis: D; C for 1
    """
    _refuse_layer(comm, netLayer)
    return [0], 1


@hcomm.call("hcomm.HcclRankGraphGetTopoType", out=1)
def HcclRankGraphGetTopoType(comm: CommHandle, netLayer: UInt32, topoInstId: UInt32) -> int:
    """Return how the ranks of an instance are connected.

    Gives: COMM_TOPO_1DMESH
    Refuses: as `HcclRankGraphGetRanksByLayer`; 1 `topoInstId` but 0
    Basis: D; C for 1, and the value
    """
    _refuse_layer(comm, netLayer, topoInstId)
    return int(CommTopo.COMM_TOPO_1DMESH)


@hcomm.call("hcomm.HcclRankGraphGetRanksByTopoInst", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetRanksByTopoInst(
    comm: CommHandle, netLayer: UInt32, topoInstId: UInt32
) -> tuple[list[int], int]:
    """Return the ranks of an instance.

    Gives: ranks, number
    Refuses: as `HcclRankGraphGetTopoType`
    Basis: D; C for 1
    """
    _refuse_layer(comm, netLayer, topoInstId)
    return list(range(comm.group.size)), comm.group.size


@hcomm.call("hcomm.HcclRankGraphGetEndpointNum", out=1)
def HcclRankGraphGetEndpointNum(comm: CommHandle, layer: UInt32, topoInstId: UInt32) -> int:
    """Return how many endpoints this rank has in an instance.

    Gives: 1
    Refuses: as `HcclRankGraphGetTopoType`
    Basis: D; C for the value
    """
    _refuse_layer(comm, layer, topoInstId)
    return 1


@hcomm.call("hcomm.HcclRankGraphGetEndpointDesc", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetEndpointDesc(
    comm: CommHandle, layer: UInt32, topoInstId: UInt32, descNum: UInt32
) -> tuple[list[structs.EndpointDesc], int]:
    """Return the endpoints of this rank in an instance.

    Gives: list of EndpointDesc, number
    Refuses: as `HcclRankGraphGetTopoType`; 1 `descNum` not what ``HcclRankGraphGetEndpointNum`` gives
    Basis: D; C for the values
    """
    _refuse_layer(comm, layer, topoInstId)
    if descNum != 1:
        raise Refusal(PARA, f"descNum is {descNum}", "pass what HcclRankGraphGetEndpointNum gives, 1")
    return [endpoint_of(comm.group.device, protocol_of(comm.group.device))], 1


@hcomm.call("hcomm.HcclRankGraphGetEndpointInfo", out=1)
def HcclRankGraphGetEndpointInfo(
    comm: CommHandle, rankId: UInt32, endpointDesc: Endpoint, endpointAttr: Enum, infoLen: UInt32
) -> int:
    """Return an attribute of an endpoint: its share of the bandwidth 1, its die 0, its place 0.

    Gives: number
    Refuses: 2 NULL; 6 the communicator; 1 the rank, `endpointAttr`, `infoLen` not 4
    Basis: D; C for the values
    """
    _device(comm, rankId)
    given("endpointDesc", endpointDesc)
    known = endpointAttr in EndpointAttr.__members__.values() and endpointAttr >= 0
    if not known or infoLen != _WORD:
        raise Refusal(
            PARA, f"endpointAttr is {endpointAttr}, infoLen {infoLen}", "pass an ENDPOINT_ATTR_* and 4"
        )
    return int(endpointAttr == EndpointAttr.ENDPOINT_ATTR_BW_COEFF)

"""``hcomm``: how the ranks of a communicator are connected (facts/hcomm 2.7).

Layer 0 is within a server: every rank reaches every other.  With several servers there is layer 1, the network that
joins all ranks.
"""

from __future__ import annotations

from peerlane import Device, devices
from peerlane.dialects.hcomm import _header as header
from peerlane.dialects.hcomm._arguments import Endpoint, Endpoints, Enum, Links, UInt32, required
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._comm import Comm, CommHandle
from peerlane.dialects.hcomm._header import (
    CommAddrType,
    CommProtocol,
    CommTopo,
    EndpointAttr,
    EndpointLocType,
    HcclHeterogMode,
)
from peerlane.dialects.hcomm._servers import NETWORK_PROTOCOLS
from peerlane.dialects.hcomm._state import hcomm

_WORD = 4
_ON_BUS = "Ascend950"
NETWORK = 1  # the layer


def layers_of(comm: Comm) -> list[int]:
    """Return the layers of a communicator: its servers, and if they are several the network between them."""
    return [0, NETWORK] if len(comm.servers.sizes) > 1 else [0]


def _refuse_layer(comm: Comm, layer: int, instance: int = 0) -> None:
    known = layers_of(comm)
    if layer not in known or instance:
        raise PARA.refusal(
            f"layer is {layer}, instance {instance}; {comm} has the layers {known}, each with instance 0",
            "ask HcclRankGraphGetLayers",
        )


def _ranks_in(comm: Comm, layer: int) -> list[int]:
    """Return the ranks that this one reaches in a layer."""
    _refuse_layer(comm, layer)
    return list(range(comm.group.size)) if layer else comm.servers.ranks_with(comm.group.rank)


def _topo_of(layer: int) -> int:
    return int(CommTopo.COMM_TOPO_CLOS if layer else CommTopo.COMM_TOPO_1DMESH)


@hcomm.call("hcomm.HcclRankGraphGetLayers", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetLayers(comm: CommHandle) -> tuple[list[int], int]:
    """Return the layers of the network that this rank is in: 0, the server; with several servers 1, their network.

    Gives: `[0]` or `[0, 1]`, their number
    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    layers = layers_of(comm)
    return layers, len(layers)


@hcomm.call("hcomm.HcclRankGraphGetRanksByLayer", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetRanksByLayer(comm: CommHandle, netLayer: UInt32) -> tuple[list[int], int]:
    """Return the ranks that this one reaches in a layer, itself included: those of its server, or all.

    Gives: ranks, number
    Refuses: 2 NULL; 6 the communicator; 1 a layer that ``HcclRankGraphGetLayers`` does not give
    Basis: D; C for 1
    """
    ranks = _ranks_in(comm, netLayer)
    return ranks, len(ranks)


@hcomm.call("hcomm.HcclRankGraphGetRankSizeByLayer", out=1)
def HcclRankGraphGetRankSizeByLayer(comm: CommHandle, netLayer: UInt32) -> int:
    """Return how many ranks this one reaches in a layer, itself included.

    Gives: number
    Refuses: as `HcclRankGraphGetRanksByLayer`
    Basis: D; C for 1
    """
    return len(_ranks_in(comm, netLayer))


@hcomm.call("hcomm.HcclRankGraphGetTopoTypeByLayer", out=1)
def HcclRankGraphGetTopoTypeByLayer(comm: CommHandle, netLayer: UInt32) -> int:
    """Return how the ranks of a layer are connected: in a server each with each, between servers by switches.

    Gives: COMM_TOPO_1DMESH for layer 0, COMM_TOPO_CLOS for layer 1
    Refuses: as `HcclRankGraphGetRanksByLayer`
    Basis: D; C for 1, and the values
    """
    _refuse_layer(comm, netLayer)
    return _topo_of(netLayer)


@hcomm.call("hcomm.HcclRankGraphGetInstSizeListByLayer", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetInstSizeListByLayer(comm: CommHandle, netLayer: UInt32) -> tuple[list[int], int]:
    """Return how many ranks each instance of a layer has: for layer 0 each server, for layer 1 the network.

    Gives: list of numbers, their number
    Refuses: as `HcclRankGraphGetRanksByLayer`
    Basis: D; C for 1
    """
    _refuse_layer(comm, netLayer)
    sizes = [comm.group.size] if netLayer else comm.servers.sizes
    return sizes, len(sizes)


@hcomm.call("hcomm.HcclRankGraphGetLinks", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetLinks(
    comm: CommHandle, netLayer: UInt32, srcRank: UInt32, dstRank: UInt32
) -> tuple[list[header.CommLink], int]:
    """Return the links from one rank to another.

    In layer 0: UB_CTP over a unified bus, else HCCS or PCIE; ranks of two servers have none.  In layer 1: ROCE, and
    before it UBOE for devices on a unified bus.

    Gives: list of CommLink, number; none from a rank to itself
    Refuses: as `HcclRankGraphGetRanksByLayer`; 1 a rank
    Basis: D, S for UB_CTP; C for 1, the other values, and for no link in layer 0
    """
    _refuse_layer(comm, netLayer)
    for each in (srcRank, dstRank):
        _device(comm, each)
    links = [_link(comm, srcRank, dstRank, each) for each in protocols_of(comm, netLayer, srcRank, dstRank)]
    return links, len(links)


def protocols_of(comm: Comm, layer: int, rank: int, other: int) -> list[int]:
    """Return the protocols of the links of two ranks in a layer, the best one first."""
    if rank == other:
        return []
    one, two = _device(comm, rank), _device(comm, other)
    if layer:
        return _network_of(one)
    return [protocol_between(one, two)] if comm.servers.are_one(rank, other) else []


def _network_of(device: Device) -> list[int]:
    """Return the protocols by which a device reaches other servers, the best one first."""
    roce, uboe = NETWORK_PROTOCOLS
    return [uboe, roce] if is_on_bus(device) else [roce]


def _link(comm: Comm, rank: int, other: int, protocol: int) -> header.CommLink:
    link = header.CommLink()
    initialise([link])
    link.srcEndpointDesc, link.dstEndpointDesc = (_end(comm, each, protocol) for each in (rank, other))
    link.linkAttr.linkProtocol = protocol
    return link


def _end(comm: Comm, rank: int, protocol: int) -> header.EndpointDesc:
    """Return the endpoint of a rank; a network card has the address of the rank table."""
    endpoint = endpoint_of(_device(comm, rank), protocol)
    endpoint.loc.device.serverIdx = comm.servers.number(rank)
    address = comm.servers.addresses[rank]
    if protocol in NETWORK_PROTOCOLS and address:
        endpoint.commAddr.type, endpoint.commAddr.addr = int(CommAddrType.COMM_ADDR_TYPE_IP_V4), address
    return endpoint


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
        raise PARA.refusal(
            f"{rank:,} is not a rank; valid are 0 to {comm.group.size - 1}",
            "pass a rank below HcclGetRankSize",
        )
    return comm.group.members[rank].device


def endpoint_of(device: Device, protocol: int) -> header.EndpointDesc:
    """Return the descriptor of a device as an end of channels."""
    endpoint = header.EndpointDesc()
    header.reset_endpoint(endpoint)
    endpoint.protocol = protocol
    endpoint.commAddr.type, endpoint.commAddr.id = int(CommAddrType.COMM_ADDR_TYPE_ID), device.ordinal
    endpoint.loc.locType = int(EndpointLocType.ENDPOINT_LOC_TYPE_DEVICE)
    endpoint.loc.device = header.EndpointLocDevice(device.ordinal, device.ordinal, 0, 0)
    return endpoint


def initialise(links: list[header.CommLink]) -> None:
    """Fill links with the vendor's defaults."""
    for link in links:
        header.fill(link)
        link.header = header.abi_header(header.CommLink)
        header.reset_endpoint(link.srcEndpointDesc)
        header.reset_endpoint(link.dstEndpointDesc)
        link.linkAttr = header.CommLinkAttr(int(CommProtocol.COMM_PROTOCOL_RESERVED), 1)


@hcomm.call("hcomm.CommLinkInit")
def CommLinkInit(commLink: Links, linkNum: UInt32) -> None:
    """Fill links: every bit set, then the header, no protocol, one hop.

    Refuses: 2 NULL; 1 fewer than announced
    Basis: S
    """
    if linkNum:
        initialise(required("commLink", commLink, linkNum))


@hcomm.call("hcomm.EndpointDescInit")
def EndpointDescInit(endpoint: Endpoints, num: UInt32) -> None:
    """Fill endpoints: every bit set, then no protocol, address and location.

    Refuses: 2 NULL; 1 fewer than announced
    Basis: S
    """
    if num:
        for each in required("endpoint", endpoint, num):
            header.reset_endpoint(each)


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

    Gives: as `HcclRankGraphGetTopoTypeByLayer`
    Refuses: as `HcclRankGraphGetRanksByLayer`; 1 `topoInstId` but 0
    Basis: D; C for 1, and the values
    """
    _refuse_layer(comm, netLayer, topoInstId)
    return _topo_of(netLayer)


@hcomm.call("hcomm.HcclRankGraphGetRanksByTopoInst", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetRanksByTopoInst(
    comm: CommHandle, netLayer: UInt32, topoInstId: UInt32
) -> tuple[list[int], int]:
    """Return the ranks of an instance: instance 0 of a layer is the one that this rank is in.

    Gives: ranks, number
    Refuses: as `HcclRankGraphGetTopoType`
    Basis: D; C for 1
    """
    _refuse_layer(comm, netLayer, topoInstId)
    ranks = _ranks_in(comm, netLayer)
    return ranks, len(ranks)


@hcomm.call("hcomm.HcclRankGraphGetEndpointNum", out=1)
def HcclRankGraphGetEndpointNum(comm: CommHandle, layer: UInt32, topoInstId: UInt32) -> int:
    """Return how many endpoints this rank has in an instance: one, but two in layer 1 on a unified bus.

    Gives: number
    Refuses: as `HcclRankGraphGetTopoType`
    Basis: D; C for the value
    """
    return len(_endpoints(comm, layer, topoInstId))


def _endpoints(comm: Comm, layer: int, instance: int) -> list[header.EndpointDesc]:
    _refuse_layer(comm, layer, instance)
    device = comm.group.device
    return [
        _end(comm, comm.group.rank, each)
        for each in (_network_of(device) if layer else [protocol_of(device)])
    ]


@hcomm.call("hcomm.HcclRankGraphGetEndpointDesc", out=2, blank=lambda *_: ([], 0))
def HcclRankGraphGetEndpointDesc(
    comm: CommHandle, layer: UInt32, topoInstId: UInt32, descNum: UInt32
) -> tuple[list[header.EndpointDesc], int]:
    """Return the endpoints of this rank in an instance.

    Those of a network have the ``device_ip`` of the rank table as address, else the number of the device.

    Gives: list of EndpointDesc, number
    Refuses: as `HcclRankGraphGetTopoType`; 1 `descNum` not what ``HcclRankGraphGetEndpointNum`` gives
    Basis: D; C for the values
    """
    endpoints = _endpoints(comm, layer, topoInstId)
    if descNum != len(endpoints):
        raise PARA.refusal(
            f"descNum is {descNum}", f"pass what HcclRankGraphGetEndpointNum gives, {len(endpoints)}"
        )
    return endpoints, len(endpoints)


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
    required("endpointDesc", endpointDesc)
    known = endpointAttr in EndpointAttr.__members__.values() and endpointAttr >= 0
    if not known or infoLen != _WORD:
        raise PARA.refusal(
            f"endpointAttr is {endpointAttr}, infoLen {infoLen}", "pass an ENDPOINT_ATTR_* and 4"
        )
    return int(endpointAttr == EndpointAttr.ENDPOINT_ATTR_BW_COEFF)

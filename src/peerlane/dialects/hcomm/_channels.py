"""``hcomm``: channels of a communicator (facts/hcomm 2.5)."""

from __future__ import annotations

from typing import Annotated

from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm import _header as header
from peerlane.dialects.hcomm._arguments import ChannelDescs, Handle, Handles, UInt32, field, required, within
from peerlane.dialects.hcomm._codes import AGAIN, NOT_FOUND, NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._comm import (
    BUFFER_TAG,
    Comm,
    CommHandle,
    HcommChannel,
    channel_of,
    comm_of,
    destroyed,
    keep,
    refuse_if_destroyed,
)
from peerlane.dialects.hcomm._header import CommProtocol
from peerlane.dialects.hcomm._state import hcomm
from peerlane.dialects.hcomm._threads import AnyEngine

_MOST_CHANNELS = 1048576
_MOST_NOTIFIES = 64
_PLUGINS = 1000
_Channels = Annotated[UInt32, within(1, _MOST_CHANNELS, "pass the number of descriptors")]


@hcomm.call("hcomm.HcclChannelDescInit")
def HcclChannelDescInit(channelDesc: ChannelDescs, descNum: UInt32) -> None:
    """Fill descriptors: every bit set, then the header, remoteRank ~0, protocol RESERVED, no notifies and memory.

    Refuses: 2 NULL; 1 fewer than announced
    Basis: S
    """
    if not descNum:
        return
    for each in required("channelDesc", channelDesc, descNum):
        header.fill(each)
        each.header = header.abi_header(header.HcclChannelDesc)
        each.remoteRank = 0xFFFFFFFF
        each.channelProtocol = int(CommProtocol.COMM_PROTOCOL_RESERVED)
        each.notifyNum = each.memHandleNum = 0
        each.memHandles = None
        header.reset_endpoint(each.localEndpoint)
        header.reset_endpoint(each.remoteEndpoint)


@hcomm.call("hcomm.HcclChannelAcquire", out=1, blank=lambda *_: ([],))
def HcclChannelAcquire(
    comm: CommHandle, engine: AnyEngine, channelDescs: ChannelDescs, channelNum: _Channels
) -> list[int]:
    """Return channels, one for each descriptor; both ends call it, in any order, within HCCL_CONNECT_TIMEOUT.

    An existing channel of the same engine, rank and protocol is returned again, unchanged.  Within a server every
    protocol of the vendor is taken, between servers ROCE and UBOE.  All are shared memory on one machine, and UCX
    between machines.

    Gives: list of channel
    Refuses: 2 NULL; 6 the communicator, or it was destroyed meanwhile; 1 `channelNum` 0 or above 1,048,576, fewer
        descriptors, not initialised, rank, own rank, protocol RESERVED, above 64 notifies, one rank and protocol
        twice, no engine; 5 engines AIV and CCU, protocols of plugins, other protocols between servers, no UCX for
        another machine; 9 the other end did not come; 20 another thread acquires; 21 the other rank died; 24 no room
        for the HcclBuffer
    Basis: D, S; C for 20, and for protocols between servers
    """
    keys = [_checked(comm, engine, each) for each in required("channelDescs", channelDescs, channelNum)]
    if len(set(keys)) < len(keys):
        raise PARA.refusal(
            "two descriptors are of one rank and protocol, which have one channel", "list each once"
        )
    counts = [field(each, "notifyNum") for each in channelDescs or ()]
    acquire(comm, dict(zip(keys, counts, strict=False)))
    return [comm.channels[key].handle for key in keys]


def acquire(comm: Comm, wanted: dict[tuple[int, int, int], int]) -> None:
    """Make the wanted channels that do not exist yet, each with its number of notifies."""
    if not comm.acquiring.acquire(blocking=False):
        raise AGAIN.refusal(
            f"another thread acquires channels of {comm}", "acquire all channels in one thread"
        )
    try:
        _make(comm, {key: count for key, count in wanted.items() if key not in comm.channels})
    finally:
        comm.acquiring.release()


def _make(comm: Comm, wanted: dict[tuple[int, int, int], int]) -> None:
    if not wanted:
        return
    comm.hccl_buffer()
    comm.forget_freed()
    with refuse_if_destroyed(comm):
        opened = comm.group.channels(
            [peer for _, peer, _ in wanted],
            notifies=list(wanted.values()),
            names=[f"e{engine}.p{protocol}" for engine, _, protocol in wanted],
            timeout=comm.settings.connect_timeout,
        )
    with comm.guard:
        if machine.resources.get(comm.handle) is not comm:
            for each in opened:
                each.close()
            raise destroyed(comm)
        for key, neutral in zip(wanted, opened, strict=True):
            channel = HcommChannel(comm.context, comm, key[0], key[2], comm.regions, comm.reached(key[1]))
            channel.connect(neutral)
            keep(channel)
            comm.channels[key] = channel


def _checked(comm: Comm, engine: int, desc: header.HcclChannelDesc) -> tuple[int, int, int]:
    """Return the key of the channel of a descriptor: engine, rank and protocol."""
    if not header.is_initialised(desc, header.HcclChannelDesc):
        raise PARA.refusal("a descriptor is not initialised", "call HcclChannelDescInit first")
    rank, protocol = field(desc, "remoteRank"), field(desc, "channelProtocol", signed=True)
    count = field(desc, "notifyNum")
    size = comm.group.size
    if rank >= size or rank == comm.group.rank:
        raise PARA.refusal(
            f"remoteRank is {rank:,}; valid are ranks below {size} but {comm.group.rank}, this one",
            "set remoteRank to the rank at the other end",
        )
    refuse_protocol(protocol)
    refuse_notifies(count)
    comm.servers.refuse_unjoined(comm.group.rank, rank, protocol)
    return engine, rank, protocol


def refuse_notifies(count: int) -> None:
    """Refuse more notifies than a channel has: HCCL_E_PARA."""
    if count > _MOST_NOTIFIES:
        raise PARA.refusal(f"notifyNum is {count:,}; the most is {_MOST_NOTIFIES}", "ask for fewer")


def refuse_protocol(protocol: int) -> None:
    """Refuse numbers that are not a protocol, HCCL_E_PARA, and those of plugins, HCCL_E_NOT_SUPPORT."""
    if protocol >= _PLUGINS:
        raise NOT_SUPPORT.refusal(
            f"protocol {protocol} is a plugin's, and there are none", "use COMM_PROTOCOL_HCCS"
        )
    if protocol < 0 or protocol not in CommProtocol.__members__.values():
        raise PARA.refusal(
            f"channelProtocol is {protocol}, which is not a protocol", "set COMM_PROTOCOL_HCCS or _ROCE"
        )


@hcomm.call("hcomm.HcclChannelQuery", out=1, blank=lambda *_: ([],))
def HcclChannelQuery(
    comm: CommHandle, engine: AnyEngine, channelDescs: ChannelDescs, channelNum: _Channels
) -> list[int]:
    """Return for each descriptor its channel, 0 where none was acquired.

    Gives: list of channel or 0
    Refuses: 2 NULL; 6 the communicator; 1, 5 as `HcclChannelAcquire`
    Basis: D
    """
    keys = [_checked(comm, engine, each) for each in required("channelDescs", channelDescs, channelNum)]
    return [comm.channels[key].handle if key in comm.channels else 0 for key in keys]


@hcomm.call("hcomm.HcclChannelDestroy")
def HcclChannelDestroy(comm: CommHandle, channels: Handles, channelNum: UInt32) -> None:
    """Refuse: the vendor destroys channels of engine CCU only; others end with their communicator.

    Refuses: 2 NULL; 6 the communicator, a channel; 1 `channelNum`; 5
    Basis: D
    """
    for each in required("channels", channels, channelNum):
        channel_of(each)
    if not channelNum:
        raise PARA.refusal("channelNum is 0", "pass the number of channels")
    raise NOT_SUPPORT.refusal(
        "only channels of engine CCU can be destroyed, and there are none", "call HcclCommDestroy"
    )


@hcomm.call("hcomm.HcclChannelGetNotifyNum", out=1)
def HcclChannelGetNotifyNum(comm: Handle, channel: Handle) -> int:
    """Return how many notifies this end can wait for.

    Gives: number
    Refuses: 2 NULL; 6 the communicator, the channel, or it is another communicator's
    Basis: S
    """
    return _of(comm, channel).neutral.notifies


@hcomm.call("hcomm.HcclChannelGetHcclBuffer", out=2)
def HcclChannelGetHcclBuffer(comm: Handle, channel: Handle) -> tuple[int, int]:
    """Return where the other end's HcclBuffer is for calls of this rank, and its bytes.

    In another server it is a number that only operations of channels take.

    Gives: address, bytes
    Refuses: 2 NULL; 6 the communicator, the channel, or it is another communicator's
    Basis: D
    """
    link = _of(comm, channel)
    return link.remote.listed()[BUFFER_TAG]


@hcomm.call("hcomm.HcclChannelGetRemoteMems", out=3, blank=lambda *_: (0, [], []))
def HcclChannelGetRemoteMems(comm: Handle, channel: Handle) -> tuple[int, list[header.CommMem], list[str]]:
    """Return all memory of the other end that the channel reaches: number, CommMem of each, tag of each.

    Memory that the other end registered after it acquired the channel is not listed.  Windows are listed as soon as
    ``HcclTeamChannelsCreate`` made them take effect.

    Gives: number, list of CommMem, list of tags
    Refuses: 2 NULL; 6 the communicator, the channel, or it is another communicator's
    Basis: D, S; C for the tags
    """
    link = _of(comm, channel)
    regions = link.remote.listed() | link.imported.listed()
    return len(regions), [header.CommMem(0, *each) for each in regions.values()], list(regions)


def _of(comm: int, channel: int) -> HcommChannel:
    link, parent = channel_of(channel), comm_of(comm)
    if link.comm is not parent:
        raise NOT_FOUND.refusal(
            f"{link} is not of {parent}", "pass the communicator that the channel was acquired of"
        )
    return link

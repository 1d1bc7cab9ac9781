"""``hcomm``: messages from rank to rank (facts/hcomm 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peerlane import Buffer, Stream, copy
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._arguments import (
    Enum,
    Handle,
    Pointer,
    SendRecvItems,
    UInt32,
    UInt64,
    field,
    required,
)
from peerlane.dialects.hcomm._codes import NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._collectives import refuse_no_rank, worker_on
from peerlane.dialects.hcomm._comm import ActiveComm, Comm, HcommThread, refuse_if_destroyed
from peerlane.dialects.hcomm._elements import memory, width_of
from peerlane.dialects.hcomm._grouping import current, kept
from peerlane.dialects.hcomm._header import HcclSendRecvItem, HcclSendRecvType
from peerlane.dialects.hcomm._state import hcomm


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes that go to a rank or come from it."""

    comm: Comm
    worker: HcommThread  #: on whose stream
    out: bool
    peer: int
    content: Buffer

    def go(self, stream: Stream | None) -> None:
        """Queue it."""
        call = self.comm.group.send if self.out else self.comm.group.recv
        with refuse_if_destroyed(self.comm):
            call(self.content, self.peer, stream=stream)


def _checked(
    comm: Comm, worker: HcommThread, out: bool, address: int, count: int, dtype: int, peer: int
) -> Message:
    nbytes = count * width_of(dtype, count)
    refuse_no_rank(comm, "destRank" if out else "srcRank", peer)
    return Message(comm, worker, out, peer, memory(comm, "sendBuf" if out else "recvBuf", address, nbytes))


def _one(name: str, message: Message) -> None:
    """Send or receive a message, or keep it until its group ends: HCCL_E_NOT_SUPPORT for one to this rank itself."""
    group = kept(name, "messages")
    if group is not None:
        group.messages.append(message)
        return
    if message.peer == message.comm.group.rank:
        raise NOT_SUPPORT.refusal(
            f"rank {message.peer} is this one",
            "copy instead, or use HcclBatchSendRecv or a group, where both ends are known",
        )
    message.go(message.worker.stream_after_earlier_work())
    message.worker.note()


@hcomm.call("hcomm.HcclSend")
def HcclSend(
    sendBuf: Pointer, count: UInt64, dataType: Enum, destRank: UInt32, comm: ActiveComm, stream: Handle
) -> None:
    """Send ``count`` elements to a rank, which receives as many; messages to one rank arrive in order.

    The stream goes on when ``sendBuf`` may be changed: long messages hold it until the peer receives them.

    Refuses: as `HcclBroadcast`; 1 the rank; 5 this rank itself, unless in a group
    Basis: D, S
    """
    _one("HcclSend", _checked(comm, worker_on(comm, stream), True, sendBuf, count, dataType, destRank))


@hcomm.call("hcomm.HcclRecv")
def HcclRecv(
    recvBuf: Pointer, count: UInt64, dataType: Enum, srcRank: UInt32, comm: ActiveComm, stream: Handle
) -> None:
    """Receive ``count`` elements of a rank.

    Refuses: as `HcclSend`
    Basis: D, S
    """
    _one("HcclRecv", _checked(comm, worker_on(comm, stream), False, recvBuf, count, dataType, srcRank))


@hcomm.call("hcomm.HcclBatchSendRecv")
def HcclBatchSendRecv(sendRecvInfo: SendRecvItems, itemNum: UInt32, comm: ActiveComm, stream: Handle) -> None:
    """Queue messages that do not wait for one another; those to one rank, and from one rank, stay in order.

    A message from a rank to itself has both ends in the same list.

    Refuses: as `HcclBroadcast`; 2 NULL; 1 fewer items than announced, a wrong rank or type of an item, messages of
        the rank to itself whose two ends differ; 5 in a group
    Basis: D, S; C for messages of a rank to itself
    """
    worker = worker_on(comm, stream)
    if current() is not None:
        raise NOT_SUPPORT.refusal(
            "the vendor has no HcclBatchSendRecv in a group", "call HcclSend and HcclRecv"
        )
    if not itemNum:
        return
    wanted = []
    for number, item in enumerate(required("sendRecvInfo", sendRecvInfo, itemNum)):
        try:
            wanted.append(_item(comm, worker, item))
        except Refusal as error:
            raise Refusal(error.code, f"item {number}: {error}", error.remedy) from None
    exchange(wanted)


def _item(comm: Comm, worker: HcommThread, item: HcclSendRecvItem) -> Message:
    kind = field(item, "sendRecvType", signed=True)
    if kind not in (HcclSendRecvType.HCCL_SEND, HcclSendRecvType.HCCL_RECV):
        raise PARA.refusal(f"sendRecvType is {kind}", "set HCCL_SEND or HCCL_RECV")
    address, count = field(item, "buf", bits=64), field(item, "count", bits=64)
    dtype, peer = field(item, "dataType", signed=True), field(item, "remoteRank")
    return _checked(comm, worker, kind == HcclSendRecvType.HCCL_SEND, address, count, dtype, peer)


def exchange(messages: Sequence[Message]) -> None:
    """Queue messages side by side: each rank has one stream for sends and one for receives, beside the caller's."""
    together: dict[tuple[int, int], list[Message]] = {}
    for each in messages:
        together.setdefault((each.comm.handle, each.worker.handle), []).append(each)
    copies = {key: _to_itself(some) for key, some in together.items()}
    for key, some in together.items():
        comm, worker = some[0].comm, some[0].worker
        stream = worker.stream_after_earlier_work()
        assert stream is not None
        begun, ends = stream.record(), []
        lanes: dict[tuple[bool, int], list[Message]] = {}
        for each in some:
            if each.peer != comm.group.rank:
                lanes.setdefault((each.out, each.peer), []).append(each)
        for lane, queued in lanes.items():
            side = _side(comm, lane)
            side.wait(begun)
            for each in queued:
                each.go(side)
            ends.append(side.record())
        for dst, src in copies[key]:
            copy(dst, src, stream=stream)
        for end in ends:
            stream.wait(end)
        worker.note()


def _side(comm: Comm, lane: tuple[bool, int]) -> Stream:
    with comm.guard:
        side = comm.sides.get(lane)
        if side is None:
            side = comm.sides[lane] = comm.group.device.create_stream()
        return side


def _to_itself(messages: Sequence[Message]) -> list[tuple[Buffer, Buffer]]:
    """Return both ends of each message of a rank to itself: HCCL_E_PARA if they do not agree."""
    mine = [each for each in messages if each.peer == each.comm.group.rank]
    sent, received = ([each.content for each in mine if each.out is out] for out in (True, False))
    if [each.size for each in sent] != [each.size for each in received]:
        raise PARA.refusal(
            f"this rank sends itself messages of {[each.size for each in sent]} bytes, and receives "
            f"{[each.size for each in received]}",
            "list both ends of each message, in one order",
        )
    return list(zip(received, sent, strict=True))

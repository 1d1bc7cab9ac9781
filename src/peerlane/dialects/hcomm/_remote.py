"""``hcomm``: reading and writing another rank's memory (facts/hcomm 1.2)."""

from __future__ import annotations

from typing import Annotated, Any

from peerlane import Buffer
from peerlane.dialects._shared.call import Check
from peerlane.dialects.hcomm._arguments import HANDLE, Enum, Handle, NotNull, Pointer, UInt32, UInt64, zero
from peerlane.dialects.hcomm._batch import operation
from peerlane.dialects.hcomm._codes import NOT_SUPPORT, PARA, PTR
from peerlane.dialects.hcomm._comm import (
    Caller,
    HcommChannel,
    HcommThread,
    channel_of,
    pair,
    refuse_suspended,
)
from peerlane.dialects.hcomm._header import CommProtocol
from peerlane.dialects.hcomm._local import REMOTE_TYPES, Run, checked_reduction

_Worker = HcommThread | Caller


def _refuse_null(**addresses: int) -> None:
    """Refuse NULL: HCCL_E_PTR."""
    for name, address in addresses.items():
        if not address:
            raise PTR.refusal(f"{name} is NULL", f"pass an address as {name}")


def refuse_notify(link: HcommChannel, index: int, *, incoming: bool = False) -> None:
    """Refuse an index beyond the notifies of an end: HCCL_E_PARA."""
    count = link.neutral.notifies if incoming else link.neutral.peer_notifies
    if index >= count:
        whose = "this end" if incoming else f"the end of rank {link.neutral.peer}"
        known = f"valid are 0 to {count - 1}" if count else "it has none"
        raise PARA.refusal(
            f"{index:,} is not a notify of {whose}; {known}", "set notifyNum of its HcclChannelDesc to more"
        )


def _ends(
    link: HcommChannel, dst: int, src: int, nbytes: int, *, reads: bool = False
) -> tuple[Buffer, Buffer, int]:
    """Return this rank's bytes, the peer's memory that has the other ones, and their offset: HCCL_E_NOT_FOUND."""
    theirs, ours = (("src", src), ("dst", dst)) if reads else (("dst", dst), ("src", src))
    memory, at = link.theirs(*theirs, nbytes)
    return link.ours(*ours, nbytes), memory, at


def _move(
    worker: _Worker,
    link: HcommChannel,
    verb: str,
    ends: tuple[Buffer, Buffer, int],
    notify: int | None = None,
    **options: Any,
) -> Run:
    """Return the function that calls a method of the neutral channel in the order of a thread."""
    mine, memory, at = ends
    if notify is not None:
        refuse_notify(link, notify)
        options["notify"] = notify

    def run() -> None:
        move = getattr(link.neutral, verb)
        move(mine, at=at, memory=memory, stream=worker.stream_after_earlier_work(), **options)
        worker.note()

    return run


def write(worker: _Worker, link: HcommChannel, dst: int, src: int, nbytes: int, notify: int | None) -> Run:
    """Check a write, and return the function that queues it."""
    _refuse_null(dst=dst, src=src)
    return _move(worker, link, "write", _ends(link, dst, src, nbytes), notify)


def write_reduce(
    worker: _Worker,
    link: HcommChannel,
    dst: int,
    src: int,
    count: int,
    dtype: int,
    op: int,
    notify: int | None,
) -> Run:
    """Check a write that reduces, and return the function that queues it."""
    _refuse_null(dst=dst, src=src)
    name, width, how = checked_reduction(REMOTE_TYPES, dtype, op)
    return _move(
        worker, link, "write_reduce", _ends(link, dst, src, count * width), notify, dtype=name, op=how
    )


def read(worker: _Worker, link: HcommChannel, dst: int, src: int, nbytes: int) -> Run:
    """Check a read, and return the function that queues it."""
    _refuse_null(dst=dst, src=src)
    return _move(worker, link, "read", _ends(link, dst, src, nbytes, reads=True))


def read_reduce(
    worker: _Worker, link: HcommChannel, dst: int, src: int, count: int, dtype: int, op: int
) -> Run:
    """Check a read that reduces, and return the function that queues it."""
    _refuse_null(dst=dst, src=src)
    name, width, how = checked_reduction(REMOTE_TYPES, dtype, op)
    ends = _ends(link, dst, src, count * width, reads=True)
    return _move(worker, link, "read_reduce", ends, dtype=name, op=how)


@operation("hcomm.HcommWriteOnThread")
def HcommWriteOnThread(thread: Handle, channel: Handle, dst: Pointer, src: Pointer, len: UInt64) -> Run:
    """Write ``len`` bytes of this rank at ``src`` to the other end's memory at ``dst``.

    Protocols other than ROCE and UBOE take any device memory of this rank as ``src``.  The peer has the bytes as soon
    as its wait for a later record on this channel and thread is over, and not sooner.

    Refuses: 2 NULL; 6 the thread, the channel, `dst` not memory that the channel reaches, `src` not registered; 1 a
        thread of another engine
    Basis: D, S; C for `src` of other protocols
    """
    return write(*pair(thread, channel), dst, src, len, None)


@operation("hcomm.HcommReadOnThread")
def HcommReadOnThread(thread: Handle, channel: Handle, dst: Pointer, src: Pointer, len: UInt64) -> Run:
    """Read ``len`` bytes of the other end's memory at ``src`` to this rank's at ``dst``.

    Refuses: as `HcommWriteOnThread`
    Basis: D, S
    """
    return read(*pair(thread, channel), dst, src, len)


@operation("hcomm.HcommWriteReduceOnThread")
def HcommWriteReduceOnThread(
    thread: Handle, channel: Handle, dst: Pointer, src: Pointer, count: UInt64, dataType: Enum, reduceOp: Enum
) -> Run:
    """Combine ``count`` elements of this rank into the other end's.

    Refuses: as `HcommWriteOnThread`; 1 types but those of `HcommLocalReduceOnThread` and uint8, uint16, uint32; PROD
    Basis: D, S
    """
    return write_reduce(*pair(thread, channel), dst, src, count, dataType, reduceOp, None)


@operation("hcomm.HcommReadReduceOnThread")
def HcommReadReduceOnThread(
    thread: Handle, channel: Handle, dst: Pointer, src: Pointer, count: UInt64, dataType: Enum, reduceOp: Enum
) -> Run:
    """Combine ``count`` elements of the other end into this rank's.

    Refuses: as `HcommWriteReduceOnThread`
    Basis: D, S
    """
    return read_reduce(*pair(thread, channel), dst, src, count, dataType, reduceOp)


@operation("hcomm.HcommWriteWithNotifyOnThread")
def HcommWriteWithNotifyOnThread(
    thread: Handle, channel: Handle, dst: Pointer, src: Pointer, len: UInt64, remoteNotifyIdx: UInt32
) -> Run:
    """As ``HcommWriteOnThread``, then record a notify of the other end.

    Refuses: as `HcommWriteOnThread`; 1 no notify of the other end
    Basis: D, S
    """
    return write(*pair(thread, channel), dst, src, len, remoteNotifyIdx)


@operation("hcomm.HcommWriteReduceWithNotifyOnThread")
def HcommWriteReduceWithNotifyOnThread(
    thread: Handle,
    channel: Handle,
    dst: Pointer,
    src: Pointer,
    count: UInt64,
    dataType: Enum,
    reduceOp: Enum,
    remoteNotifyIdx: UInt32,
) -> Run:
    """As ``HcommWriteReduceOnThread``, then record a notify of the other end.

    Refuses: as `HcommWriteReduceOnThread`; 1 no notify of the other end; 5 engine CPU
    Basis: D, S
    """
    worker, link = pair(thread, channel)
    if link.is_cpu:
        raise NOT_SUPPORT.refusal(
            "engine CPU has no reduction with a notify",
            "call HcommWriteReduceOnThread, then HcommChannelNotifyRecordOnThread",
        )
    return write_reduce(worker, link, dst, src, count, dataType, reduceOp, remoteNotifyIdx)


def by_card(channel: int) -> HcommChannel:
    """Return a channel of engine CPU over RoCE: HCCL_E_NOT_SUPPORT for others."""
    link = channel_of(channel)
    refuse_suspended(link.comm)
    if not link.is_cpu or link.protocol != CommProtocol.COMM_PROTOCOL_ROCE:
        raise NOT_SUPPORT.refusal(
            f"{link} is of engine {link.engine} and protocol {link.protocol}; this call needs COMM_ENGINE_CPU and "
            "COMM_PROTOCOL_ROCE",
            "use the call that ends with OnThread",
        )
    return link


CardChannel = Annotated[HcommChannel, HANDLE, Check(lambda _name: by_card)]
_Bytes = Annotated[UInt64, zero(remedy="pass at least one byte")]


def _loose(
    link: HcommChannel, dst: int, src: int, nbytes: int, *, reads: bool = False, notify: int | None = None
) -> Run:
    """Check a nonblocking read or write, which only a fence orders, and return the function that begins it."""
    if notify is not None:
        refuse_notify(link, notify)
    mine, memory, at = _ends(link, dst, src, nbytes, reads=reads)
    if reads:
        return lambda: link.neutral.read(mine, at=at, memory=memory, nonblocking=True)
    return lambda: link.neutral.write(mine, at=at, memory=memory, notify=notify, nonblocking=True)


@operation("hcomm.HcommWriteNbiOnThread")
def HcommWriteNbiOnThread(
    thread: Handle, channel: CardChannel, dst: NotNull, src: NotNull, len: _Bytes
) -> Run:
    """Begin a write that only ``HcommChannelFence`` and ``HcommChannelFenceOnThread`` end; ``thread`` is ignored.

    Refuses: 2 NULL; 6 the channel, memory as `HcommWriteOnThread`; 1 `len` 0; 5 all but engine CPU over ROCE
    Basis: D, S
    """
    return _loose(channel, dst, src, len)


@operation("hcomm.HcommWriteNbi")
def HcommWriteNbi(channel: CardChannel, dst: NotNull, src: NotNull, len: _Bytes) -> Run:
    """As ``HcommWriteNbiOnThread``.

    Refuses: as `HcommWriteNbiOnThread`
    Basis: D
    """
    return _loose(channel, dst, src, len)


@operation("hcomm.HcommReadNbiOnThread")
def HcommReadNbiOnThread(
    thread: Handle, channel: CardChannel, dst: NotNull, src: NotNull, len: _Bytes
) -> Run:
    """Begin a read; the bytes are there after a fence.

    Refuses: as `HcommWriteNbiOnThread`
    Basis: D, S
    """
    return _loose(channel, dst, src, len, reads=True)


@operation("hcomm.HcommReadNbi")
def HcommReadNbi(channel: CardChannel, dst: NotNull, src: NotNull, len: _Bytes) -> Run:
    """As ``HcommReadNbiOnThread``.

    Refuses: as `HcommWriteNbiOnThread`
    Basis: D
    """
    return _loose(channel, dst, src, len, reads=True)


@operation("hcomm.HcommWriteWithNotifyNbiOnThread")
def HcommWriteWithNotifyNbiOnThread(
    thread: Handle, channel: CardChannel, dst: NotNull, src: NotNull, len: _Bytes, remoteNotifyIdx: UInt32
) -> Run:
    """As ``HcommWriteNbiOnThread``, and record a notify of the other end once the bytes are there.

    Refuses: as `HcommWriteNbiOnThread`; 1 no notify of the other end
    Basis: D
    """
    return _loose(channel, dst, src, len, notify=remoteNotifyIdx)


@operation("hcomm.HcommWriteWithNotifyNbi")
def HcommWriteWithNotifyNbi(
    channel: CardChannel, dst: NotNull, src: NotNull, len: _Bytes, remoteNotifyIdx: UInt32
) -> Run:
    """As ``HcommWriteWithNotifyNbiOnThread``.

    Refuses: as `HcommWriteWithNotifyNbiOnThread`
    Basis: D
    """
    return _loose(channel, dst, src, len, notify=remoteNotifyIdx)

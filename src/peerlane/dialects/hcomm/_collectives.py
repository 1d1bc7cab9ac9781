"""``hcomm``: collectives (facts/hcomm 4)."""

from __future__ import annotations

from collections.abc import Callable

from peerlane import Buffer
from peerlane.dialects.hcomm._arguments import (
    Enum,
    Handle,
    Matrix,
    Pointer,
    UInt32,
    UInt64,
    UInt64s,
    required,
)
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._comm import ActiveComm, Comm, HcommThread, refuse_if_destroyed
from peerlane.dialects.hcomm._elements import memory, reduction, refuse_same, refuse_types, width_of
from peerlane.dialects.hcomm._grouping import Run, collective
from peerlane.dialects.hcomm._header import CommEngine
from peerlane.dialects.hcomm._threads import on_stream


def worker_on(comm: Comm, stream: int) -> HcommThread:
    """Return the thread of a communicator on a stream of ``acl``."""
    return on_stream(comm, int(CommEngine.COMM_ENGINE_CPU_TS), stream)


def _queued(worker: HcommThread, call: Callable[..., None], *args: object, **options: object) -> Run:
    """Return the function that queues a collective of a group on the stream of a thread."""
    assert worker.comm is not None
    comm = worker.comm

    def run() -> None:
        with refuse_if_destroyed(comm):
            call(*args, stream=worker.stream_after_earlier_work(), **options)
        worker.note()

    return run


def refuse_no_rank(comm: Comm, name: str, rank: int) -> None:
    """Refuse a rank of no communicator: HCCL_E_PARA."""
    if rank >= comm.group.size:
        raise PARA.refusal(
            f"{name} is {rank:,}; valid are 0 to {comm.group.size - 1}", "pass a rank of the communicator"
        )


def _parts(
    name: str, comm: Comm, counts: list[int] | None, starts: list[int] | None
) -> tuple[list[int], list[int]]:
    """Return for each rank how many elements it has, and where they begin: HCCL_E_PTR, HCCL_E_PARA."""
    size = comm.group.size
    sizes, at = (required(f"{name}s", counts, size), required(f"the offsets of {name}s", starts, size))
    for rank, number in enumerate(sizes):
        end = at[rank] + number
        for other in range(rank):
            if number and sizes[other] and at[rank] < at[other] + sizes[other] and at[other] < end:
                raise PARA.refusal(
                    f"the parts of ranks {other} and {rank} overlap", "correct the offsets and counts"
                )
    return sizes, at


def _end_of(sizes: list[int], at: list[int]) -> int:
    return max((first + number for first, number in zip(at, sizes, strict=True) if number), default=0)


def _scaled(numbers: list[int], width: int, sizes: list[int]) -> list[int]:
    """Return bytes; an empty part may be anywhere, and is 0."""
    return [number * width if size else 0 for number, size in zip(numbers, sizes, strict=True)]


@collective("HcclAllReduce")
def HcclAllReduce(
    sendBuf: Pointer,
    recvBuf: Pointer,
    count: UInt64,
    dataType: Enum,
    op: Enum,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """Combine ``count`` elements of all ranks; all ranks get the result, and ``sendBuf`` may be ``recvBuf``.

    As all collectives it is queued on the stream, which stops at a failure from then on.  Ranks combine in the order
    of their numbers, so all have the same bits.  The first collective of a communicator waits for ranks in other
    processes, for HCCL_CONNECT_TIMEOUT; on the stream a rank waits for another one for HCCL_EXEC_TIMEOUT (507046).

    Refuses: 2 NULL; 6 the communicator, or its collectives have failed before; the stream, memory that acl has not
        given out; 1 above 0x7FFFFFFFF elements, addresses that are not a multiple of an element, ends that overlap,
        memory or a stream of another device, in a group of messages, another rank calls something else or with other
        numbers; 5 types but int8, int16, int32, int64, uint64, fp16, fp32, fp64 and bfp16, PROD of int16 and bfp16,
        no operation; 9 a rank in another process did not come; 21 a rank died or has ended its communicator; 22
        suspended; 24 no room for scratch memory
    Basis: D, S; C for 6, 21 and 24, ends that overlap, and what ranks call
    """
    worker = worker_on(comm, stream)
    width, name, how = reduction(dataType, op, count)
    nbytes = count * width
    source, target = memory(comm, "sendBuf", sendBuf, nbytes), memory(comm, "recvBuf", recvBuf, nbytes)

    return _queued(worker, comm.group.all_reduce, target, source, dtype=name, op=how)


@collective("HcclReduce")
def HcclReduce(
    sendBuf: Pointer,
    recvBuf: Pointer,
    count: UInt64,
    dataType: Enum,
    op: Enum,
    root: UInt32,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """Combine ``count`` elements of all ranks; rank ``root`` gets the result, the others' ``recvBuf`` may be NULL.

    Refuses: as `HcclAllReduce`; 1 `root`
    Basis: D, S; C for NULL
    """
    worker = worker_on(comm, stream)
    width, name, how = reduction(dataType, op, count)
    refuse_no_rank(comm, "root", root)
    nbytes = count * width
    source = memory(comm, "sendBuf", sendBuf, nbytes)
    target = memory(comm, "recvBuf", recvBuf, nbytes) if comm.group.rank == root else None

    return _queued(worker, comm.group.reduce, target, source, root, dtype=name, op=how)


@collective("HcclReduceScatter")
def HcclReduceScatter(
    sendBuf: Pointer,
    recvBuf: Pointer,
    recvCount: UInt64,
    dataType: Enum,
    op: Enum,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """Combine the elements of all ranks; each rank gets ``recvCount`` elements of the result, in rank order.

    ``recvBuf`` may be this rank's part of ``sendBuf``.

    Refuses: as `HcclAllReduce`
    Basis: D, S
    """
    worker = worker_on(comm, stream)
    width, name, how = reduction(dataType, op, recvCount)
    nbytes = recvCount * width
    source = memory(comm, "sendBuf", sendBuf, nbytes * comm.group.size)
    target = memory(comm, "recvBuf", recvBuf, nbytes)

    return _queued(worker, comm.group.reduce_scatter, target, source, dtype=name, op=how)


@collective("HcclReduceScatterV")
def HcclReduceScatterV(
    sendBuf: Pointer,
    sendCounts: UInt64s,
    sendDispls: UInt64s,
    recvBuf: Pointer,
    recvCount: UInt64,
    dataType: Enum,
    op: Enum,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """As ``HcclReduceScatter``, with parts of any sizes: ``sendCounts[i]`` elements at ``sendDispls[i]`` for rank i.

    Refuses: as `HcclAllReduce`; 2 NULL; 1 fewer counts than ranks, `recvCount` is not this rank's, parts that
        overlap, `sendBuf` is `recvBuf`
    Basis: D, S; C for parts that overlap
    """
    worker = worker_on(comm, stream)
    sizes, at = _parts("sendCount", comm, sendCounts, sendDispls)
    width, name, how = reduction(dataType, op, recvCount, *sizes)
    _refuse_count("recvCount", recvCount, sizes[comm.group.rank], "sendCounts")
    whole = _end_of(sizes, at) * width
    refuse_same(sendBuf, recvBuf, recvCount)
    source = memory(comm, "sendBuf", sendBuf, whole)
    target = memory(comm, "recvBuf", recvBuf, recvCount * width)
    sends, starts = _scaled(sizes, width, sizes), _scaled(at, width, sizes)

    return _queued(
        worker, comm.group.reduce_scatter_v, target, source, sends=sends, sends_at=starts, dtype=name, op=how
    )


def _refuse_count(name: str, count: int, wanted: int, where: str) -> None:
    if count != wanted:
        raise PARA.refusal(f"{name} is {count:,}, and this rank's of {where} is {wanted:,}", "pass it twice")


@collective("HcclBroadcast")
def HcclBroadcast(
    buf: Pointer, count: UInt64, dataType: Enum, root: UInt32, comm: ActiveComm, stream: Handle
) -> Run:
    """Copy ``count`` elements of rank ``root`` to all ranks.

    Refuses: as `HcclAllReduce`; 5 INT128 and no type; 1 `root`
    Basis: D, S
    """
    worker = worker_on(comm, stream)
    nbytes = count * width_of(dataType, count)
    refuse_no_rank(comm, "root", root)
    whole = memory(comm, "buf", buf, nbytes)

    return _queued(worker, comm.group.broadcast, whole, root)


@collective("HcclScatter")
def HcclScatter(
    sendBuf: Pointer,
    recvBuf: Pointer,
    recvCount: UInt64,
    dataType: Enum,
    root: UInt32,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """Copy ``recvCount`` elements of rank ``root`` to each rank, in rank order; the others' ``sendBuf`` may be NULL.

    Refuses: as `HcclBroadcast`
    Basis: D, S; C for NULL
    """
    worker = worker_on(comm, stream)
    nbytes = recvCount * width_of(dataType, recvCount)
    refuse_no_rank(comm, "root", root)
    target = memory(comm, "recvBuf", recvBuf, nbytes)
    is_root = comm.group.rank == root
    source = memory(comm, "sendBuf", sendBuf, nbytes * comm.group.size) if is_root else None

    return _queued(worker, comm.group.scatter, target, source, root)


@collective("HcclAllGather")
def HcclAllGather(
    sendBuf: Pointer, recvBuf: Pointer, sendCount: UInt64, dataType: Enum, comm: ActiveComm, stream: Handle
) -> Run:
    """Copy ``sendCount`` elements of each rank to all, side by side; ``sendBuf`` may be this rank's part there.

    Refuses: as `HcclBroadcast`
    Basis: D, S
    """
    worker = worker_on(comm, stream)
    nbytes = sendCount * width_of(dataType, sendCount)
    source = memory(comm, "sendBuf", sendBuf, nbytes)
    target = memory(comm, "recvBuf", recvBuf, nbytes * comm.group.size)

    return _queued(worker, comm.group.all_gather, target, source)


@collective("HcclAllGatherV")
def HcclAllGatherV(
    sendBuf: Pointer,
    sendCount: UInt64,
    recvBuf: Pointer,
    recvCounts: UInt64s,
    recvDispls: UInt64s,
    dataType: Enum,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """As ``HcclAllGather``, with parts of any sizes: ``recvCounts[i]`` elements of rank i at ``recvDispls[i]``.

    Refuses: as `HcclBroadcast`; 2 NULL; 1 fewer counts than ranks, `sendCount` is not this rank's, parts that
        overlap, `sendBuf` is `recvBuf`
    Basis: D, S; C for parts that overlap
    """
    worker = worker_on(comm, stream)
    sizes, at = _parts("recvCount", comm, recvCounts, recvDispls)
    width = width_of(dataType, sendCount, *sizes)
    _refuse_count("sendCount", sendCount, sizes[comm.group.rank], "recvCounts")
    refuse_same(sendBuf, recvBuf, sendCount)
    source = memory(comm, "sendBuf", sendBuf, sendCount * width)
    target = memory(comm, "recvBuf", recvBuf, _end_of(sizes, at) * width)
    receives, starts = _scaled(sizes, width, sizes), _scaled(at, width, sizes)

    return _queued(worker, comm.group.all_gather_v, target, source, receives=receives, receives_at=starts)


@collective("HcclAlltoAll")
def HcclAlltoAll(
    sendBuf: Pointer,
    sendCount: UInt64,
    sendType: Enum,
    recvBuf: Pointer,
    recvCount: UInt64,
    recvType: Enum,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """Send ``sendCount`` elements to each rank, and receive as many of each, in rank order.

    Refuses: as `HcclBroadcast`; 1 two counts or two types, `sendBuf` is `recvBuf`
    Basis: D, S
    """
    worker = worker_on(comm, stream)
    refuse_types(sendType, recvType)
    _refuse_count("sendCount", sendCount, recvCount, "recvCount")
    nbytes = sendCount * width_of(sendType, sendCount) * comm.group.size
    refuse_same(sendBuf, recvBuf, nbytes)
    source, target = memory(comm, "sendBuf", sendBuf, nbytes), memory(comm, "recvBuf", recvBuf, nbytes)

    return _queued(worker, comm.group.all_to_all, target, source)


@collective("HcclAlltoAllV")
def HcclAlltoAllV(
    sendBuf: Pointer,
    sendCounts: UInt64s,
    sdispls: UInt64s,
    sendType: Enum,
    recvBuf: Pointer,
    recvCounts: UInt64s,
    rdispls: UInt64s,
    recvType: Enum,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """Send ``sendCounts[i]`` elements at ``sdispls[i]`` to rank i, and receive ``recvCounts[i]`` at ``rdispls[i]``.

    Refuses: as `HcclBroadcast`; 2 NULL; 1 fewer counts than ranks, two types, parts that overlap, what the rank
        sends to itself differs from what it receives, `sendBuf` is `recvBuf`
    Basis: D, S; C for parts that overlap
    """
    worker = worker_on(comm, stream)
    refuse_types(sendType, recvType)
    gives, takes = (
        _parts("sendCount", comm, sendCounts, sdispls),
        _parts("recvCount", comm, recvCounts, rdispls),
    )
    return _exchange(comm, worker, sendBuf, gives, recvBuf, takes, sendType)


@collective("HcclAlltoAllVC")
def HcclAlltoAllVC(
    sendBuf: Pointer,
    sendCountMatrix: Matrix,
    sendType: Enum,
    recvBuf: Pointer,
    recvType: Enum,
    comm: ActiveComm,
    stream: Handle,
) -> Run:
    """Send ``sendCountMatrix[i][j]`` elements from rank i to rank j, side by side in rank order at both.

    The matrix is a list of rows, or one list of them all, row by row.

    Refuses: as `HcclBroadcast`; 2 NULL; 1 fewer counts than ranks times ranks, two types, `sendBuf` is `recvBuf`
    Basis: D, S
    """
    worker = worker_on(comm, stream)
    refuse_types(sendType, recvType)
    size, rank = comm.group.size, comm.group.rank
    counts = required("sendCountMatrix", sendCountMatrix, size * size)
    gives, takes = counts[rank * size : (rank + 1) * size], counts[rank : size * size : size]
    sides = [(each, [sum(each[:at]) for at in range(size)]) for each in (gives, takes)]
    return _exchange(comm, worker, sendBuf, sides[0], recvBuf, sides[1], sendType)


def _exchange(
    comm: Comm,
    worker: HcommThread,
    send: int,
    gives: tuple[list[int], list[int]],
    recv: int,
    takes: tuple[list[int], list[int]],
    dtype: int,
) -> Run:
    width = width_of(dtype, *gives[0], *takes[0])
    refuse_same(send, recv, max(*gives[0], *takes[0]))
    source: Buffer = memory(comm, "sendBuf", send, _end_of(*gives) * width)
    target: Buffer = memory(comm, "recvBuf", recv, _end_of(*takes) * width)
    sends, sends_at = _scaled(gives[0], width, gives[0]), _scaled(gives[1], width, gives[0])
    receives, receives_at = _scaled(takes[0], width, takes[0]), _scaled(takes[1], width, takes[0])

    return _queued(
        worker,
        comm.group.all_to_all_v,
        target,
        source,
        receives=receives,
        receives_at=receives_at,
        sends=sends,
        sends_at=sends_at,
    )


@collective("HcclBarrier")
def HcclBarrier(comm: ActiveComm, stream: Handle) -> Run:
    """Let the stream wait until the streams of all ranks have reached this call.

    Refuses: 2 NULL; 6 the communicator, or its collectives have failed before; the stream; 1 a stream of another
        device, in a group of messages, another rank calls something else; 9, 21, 22, 24 as `HcclAllReduce`
    Basis: D; C for the codes
    """
    worker = worker_on(comm, stream)

    return _queued(worker, comm.group.barrier)

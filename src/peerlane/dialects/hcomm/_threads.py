"""``hcomm``: communication threads, which run operations in order (facts/hcomm 2.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from peerlane.dialects._shared.call import Check, Refusal
from peerlane.dialects._shared.checks import one_of
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import machine
from peerlane.dialects.acl._stream import AclStream
from peerlane.dialects.hcomm._arguments import (
    Enum,
    Handle,
    Handles,
    ThreadConfigs,
    UInt32,
    field,
    required,
    zero,
)
from peerlane.dialects.hcomm._codes import NOT_FOUND, NOT_SUPPORT, PARA, PTR, UNAVAIL
from peerlane.dialects.hcomm._comm import Comm, CommHandle, HcommThread, ThreadHandle, keep, thread_of
from peerlane.dialects.hcomm._header import CommEngine, HcclDedicatedThreadType, ThreadType
from peerlane.dialects.hcomm._state import hcomm
from peerlane.errors import Error, Fault

_MOST_NOTIFIES = 65535
_QUOTA = 65536
_MOST_DEDICATED = 64
_CPU = int(CommEngine.COMM_ENGINE_CPU)
#: AICPU and AICPU_TS differ in what feeds their queue; a virtual device has a stream for both.
_ON_STREAMS = frozenset(
    map(int, (CommEngine.COMM_ENGINE_CPU_TS, CommEngine.COMM_ENGINE_AICPU, CommEngine.COMM_ENGINE_AICPU_TS))
)


def refuse_engine(engine: int, *, cpu: bool) -> int:
    """Refuse engines that a virtual device lacks, HCCL_E_NOT_SUPPORT, and other numbers, HCCL_E_PARA."""
    if engine in _ON_STREAMS or (cpu and engine == _CPU):
        return engine
    if engine not in CommEngine.__members__.values() or engine == CommEngine.COMM_ENGINE_RESERVED:
        raise PARA.refusal(f"{engine} is not an engine", "pass COMM_ENGINE_CPU_TS")
    name = CommEngine(engine).name
    engines = "COMM_ENGINE_CPU_TS, COMM_ENGINE_AICPU or COMM_ENGINE_AICPU_TS"
    engines += ", or COMM_ENGINE_CPU" if cpu else ""
    raise NOT_SUPPORT.refusal(
        f"{name} is not for this call, or runs kernels, which no virtual device does", f"pass {engines}"
    )


AnyEngine = Annotated[Enum, Check(lambda _name: partial(refuse_engine, cpu=True))]
_StreamEngine = Annotated[Enum, Check(lambda _name: partial(refuse_engine, cpu=False))]
_Threads = Annotated[UInt32, zero(remedy="ask for one thread at least")]
_OnStream = Annotated[Enum, one_of(NOT_SUPPORT, (ThreadType.THREAD_TYPE_TS,), "pass THREAD_TYPE_TS")]


def refuse_more_notifies(comm: Comm, wanted: int) -> None:
    """Refuse more notifies than a communicator may have: HCCL_E_UNAVAIL."""
    if comm.notifies + wanted > _QUOTA:
        raise UNAVAIL.refusal(
            f"the threads of {comm} have {comm.notifies:,} notifies, and {wanted:,} more are beyond {_QUOTA:,}",
            "acquire threads once, and use them again",
        )


def _acquire(comm: Comm, engine: int, counts: list[int]) -> list[int]:
    most = comm.context.device.info.max_streams
    with comm.guard:
        refuse_more_notifies(comm, sum(counts))
        if sum(each.owns_stream for each in comm.threads) + len(counts) > most:
            raise UNAVAIL.refusal(
                f"{len(counts):,} more threads are beyond the {most:,} streams of {comm.context.device.name}",
                "acquire threads once, and use them again",
            )
        threads = [HcommThread(comm.context, comm, engine, None, count) for count in counts]
        handles = [keep(each) for each in threads]
        comm.threads += threads
        comm.notifies += sum(counts)
    return handles


def _refuse_count(count: int, most: int = _MOST_NOTIFIES) -> None:
    if count > most:
        raise PARA.refusal(f"{count:,} notifies are more than {most:,}", "ask for fewer")


@hcomm.call("hcomm.HcclThreadAcquire", out=1, blank=lambda *_: ([],))
def HcclThreadAcquire(
    comm: CommHandle, engine: _StreamEngine, threadNum: _Threads, notifyNumPerThread: UInt32
) -> list[int]:
    """Return new threads, each with a stream of its own; they end with the communicator.

    Gives: list of thread
    Refuses: 2 NULL; 6 the communicator; 1 `threadNum` 0, `notifyNumPerThread` above 65,535, no engine; 5 engines CPU,
        AIV and CCU; 7 above 65,536 notifies of the communicator, or the device's streams
    Basis: D, S; C for streams
    """
    _refuse_count(notifyNumPerThread)
    most = comm.context.device.info.max_streams
    if threadNum > most:
        raise UNAVAIL.refusal(
            f"{threadNum:,} threads are more than the {most:,} streams of a device", "ask for fewer"
        )
    return _acquire(comm, engine, [notifyNumPerThread] * threadNum)


@hcomm.call(
    "hcomm.HcclThreadAcquireWithConfig", out=1, blank=lambda *_: ([],), first=("comm", "engine", "type")
)
def HcclThreadAcquireWithConfig(
    comm: CommHandle, engine: AnyEngine, threadNum: _Threads, type: _OnStream, config: ThreadConfigs
) -> list[int]:
    """As ``HcclThreadAcquire``, with the number of notifies of each thread.

    Gives: list of thread
    Refuses: as `HcclThreadAcquire`; 1 fewer configurations than threads; 5 other types than THREAD_TYPE_TS
    Basis: D; C for the codes
    """
    counts = [field(each, "notifyNumPerThread") for each in required("config", config, threadNum)]
    for count in counts:
        _refuse_count(count)
    return _acquire(comm, engine, counts)


@hcomm.call("hcomm.HcclThreadAcquireWithStream", out=1)
def HcclThreadAcquireWithStream(
    comm: CommHandle, engine: AnyEngine, stream: Handle, notifyNum: UInt32
) -> int:
    """Return a thread whose operations are queued on a stream of ``acl``; from then on a failure stops that stream.

    A second call for the same stream and engine returns the same thread, with the largest number of notifies asked
    for.  The thread ends with its stream, and gives its notifies back.  A thread of engine CPU does not; its
    operations run in the caller, after the earlier operations of the stream.

    Gives: thread
    Refuses: 2 NULL; 6 the communicator, the stream; 1 `notifyNum` above 65,535, a stream of another device, no
        engine; 5 engines AIV and CCU; 7 above 65,536 notifies of the communicator
    Basis: D, S; C for the second call, and the stop
    """
    return on_stream(comm, engine, stream, notifyNum).handle


def on_stream(comm: Comm, engine: int, stream: int, notifies: int = 0) -> HcommThread:
    """Return the thread of a communicator on a stream of ``acl``, with so many notifies at least."""
    wrapped = stream_of(stream)
    if wrapped.context.device is not comm.context.device:
        raise PARA.refusal(
            f"{wrapped} is not of device {comm.context.device.ordinal}, as {comm} is",
            "create the stream where the communicator was made",
        )
    _refuse_count(notifies)
    with comm.guard:
        known = comm.streams.get((engine, stream))
        if known is not None:
            more = max(0, notifies - known.notifies)
            refuse_more_notifies(comm, more)
            known.notifies += more
            comm.notifies += more
            return known
        _forget_ended(comm)
        refuse_more_notifies(comm, notifies)
        thread = HcommThread(comm.context, comm, engine, wrapped.neutral, notifies)
        keep(thread)
        comm.threads.append(thread)
        comm.streams[engine, stream] = thread
        comm.notifies += notifies
    if engine != _CPU:
        wrapped.neutral.on_error = "stop"  # later tasks must not run (facts/hcomm 3.12)
        wrapped.retell = _retold(comm)
    return thread


def _forget_ended(comm: Comm) -> None:
    """End the threads whose stream was destroyed."""
    ended = [
        key
        for key, each in comm.streams.items()
        if not (each.owns_stream or each.is_cpu) and each.stream is not None and each.stream.is_closed
    ]
    for key in ended:
        thread = comm.streams.pop(key)
        comm.threads.remove(thread)
        comm.notifies -= thread.notifies
        machine.drop(thread, "the end of its stream")
        thread.end()


def stream_of(handle: int) -> AclStream:
    """Return the stream of ``acl`` of a handle: HCCL_E_PTR, HCCL_E_NOT_FOUND."""
    remedy = "pass what acl.rt.create_stream returned, before it is destroyed"
    if not handle:
        raise PTR.refusal("the stream is NULL (0)", remedy)
    wrapped = machine.resources.get(handle)
    if not isinstance(wrapped, AclStream):
        try:
            machine.resource(handle, AclStream)
        except Refusal as error:
            raise NOT_FOUND.refusal(str(error), remedy) from None
        raise AssertionError(handle)
    return wrapped


def _first_of(error: Error) -> Error:
    """Return the first failure of a chain: messages of a batch run on streams of their own."""
    while isinstance(error.__cause__, Error):
        error = error.__cause__
    return error


def _retold(comm: Comm) -> Callable[[Error], Error | Refusal]:
    """Return the function that words a failed wait of this communicator for its stream (facts/hcomm 3.12)."""
    name, rank, sides = comm.comm_name, comm.group.rank, comm.sides

    def retell(error: Error) -> Error | Refusal:
        first = _first_of(error)
        own = first.failed_operation
        if own is None or own.stream not in [side.id for side in sides.values()]:
            first = error
        if first.fault is Fault.PEER_LOST:
            return first
        failed = first.failed_operation
        if first.fault is not Fault.WAIT_TIMEOUT or failed is None or not failed.ends:
            return error
        return Code.RT_STREAM_SYNC_TIMEOUT.refusal(
            f"EI0002: rank {rank} of communicator {name!r} waited in vain: {first}",
            "look at the rank that had to record it: it did not get there, or recorded another notify",
        )

    return retell


@hcomm.call("hcomm.HcclDedicatedThreadAcquire", out=1)
def HcclDedicatedThreadAcquire(comm: CommHandle, useType: Enum, notifyNumPerThread: UInt32) -> int:
    """Return the thread of a communicator for a use; the same at each call.

    Gives: thread
    Refuses: 2 NULL; 6 the communicator; 1 no use, above 64 notifies; 7 as `HcclThreadAcquire`
    Basis: D; C for the codes
    """
    if useType not in HcclDedicatedThreadType.__members__.values() or useType < 0:
        raise PARA.refusal(f"{useType} is not a use of a thread", "pass an HCCL_DED_THREAD_TYPE_*")
    _refuse_count(notifyNumPerThread, _MOST_DEDICATED)
    key = (-1 - useType, 0)
    with comm.guard:
        if key not in comm.streams:
            (handle,) = _acquire(comm, int(CommEngine.COMM_ENGINE_AICPU_TS), [notifyNumPerThread])
            comm.streams[key] = thread_of(handle)
        return comm.streams[key].handle


@hcomm.call("hcomm.HcclThreadExportToCommEngine", out=1, blank=lambda *_: ([],))
def HcclThreadExportToCommEngine(
    comm: CommHandle, threadNum: UInt32, threads: Handles, dstCommEngine: AnyEngine
) -> list[int]:
    """Return handles of threads for another engine: the same handles.

    Gives: list of thread
    Refuses: 2 NULL; 6 the communicator, a thread; 1 fewer threads than announced, no engine; 5 engines
        AIV and CCU
    Basis: D; C for the codes
    """
    return [thread_of(each).handle for each in required("threads", threads, threadNum)]


@hcomm.call("hcomm.HcclThreadResGetInfo", out=1)
def HcclThreadResGetInfo(comm: CommHandle, thread: ThreadHandle, resType: Enum, infoLen: UInt32) -> int:
    """Return the stream of ``acl`` on which a thread was acquired.

    Gives: stream
    Refuses: 2 NULL; 6 the communicator, the thread; 1 `resType`, `infoLen` not 8; 5 a thread with a stream of its own
    Basis: D; C for the codes
    """
    return _stream_of(thread, resType, infoLen)


@hcomm.call("hcomm.HcommThreadResGetInfo", out=1)
def HcommThreadResGetInfo(thread: ThreadHandle, resType: Enum, infoLen: UInt32) -> int:
    """As ``HcclThreadResGetInfo``, of any thread.

    Gives: stream
    Refuses: 2 NULL; 6 the thread; 1 `resType`, `infoLen` not 8; 5 a thread with a stream of its own
    Basis: D, S; C for the code 5
    """
    return _stream_of(thread, resType, infoLen)


def _stream_of(thread: HcommThread, resType: int, infoLen: int) -> int:
    if resType != 0 or infoLen != 8:
        raise PARA.refusal(f"resType is {resType}, infoLen {infoLen}", "pass THREAD_RES_TYPE_STREAM and 8")
    streams = thread.comm.streams if thread.comm is not None else {}
    for (_, stream), each in streams.items():
        if each is thread and stream:
            return stream
    raise NOT_SUPPORT.refusal(
        f"{thread} has a stream of its own, which acl does not know", "use HcclThreadAcquireWithStream"
    )

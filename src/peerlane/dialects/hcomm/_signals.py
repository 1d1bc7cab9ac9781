"""``hcomm``: the notifies of channels, fences, and waiting until all is done (facts/hcomm 1.3)."""

from __future__ import annotations

from peerlane.dialects.hcomm._arguments import Handle, UInt32
from peerlane.dialects.hcomm._batch import operation
from peerlane.dialects.hcomm._comm import (
    CALLER,
    Caller,
    ChannelHandle,
    HcommChannel,
    HcommThread,
    pair,
    thread_of,
)
from peerlane.dialects.hcomm._local import Run
from peerlane.dialects.hcomm._remote import CardChannel, refuse_notify
from peerlane.dialects.hcomm._settings import notify_timeout
from peerlane.dialects.hcomm._waiting import busy, in_caller, join


def record(worker: HcommThread | Caller, link: HcommChannel, index: int) -> Run:
    """Check a record, and return the function that queues it."""
    refuse_notify(link, index)

    def run() -> None:
        link.neutral.notify(index, stream=worker.stream_after_earlier_work())
        worker.note()

    return run


def _wait(worker: HcommThread | Caller, link: HcommChannel, index: int, seconds: float | None) -> Run:
    refuse_notify(link, index, incoming=True)

    def run() -> None:
        stream = worker.stream_after_earlier_work()
        if stream is not None:
            link.neutral.wait(index, stream=stream, timeout=seconds)
            worker.note()
            return
        with busy(link.comm):
            link.neutral.wait(index, timeout=seconds)

    return run


@operation("hcomm.HcommChannelNotifyRecordOnThread")
def HcommChannelNotifyRecordOnThread(thread: Handle, channel: Handle, remoteNotifyIdx: UInt32) -> Run:
    """Record a notify of the other end, in the order of the thread; its waiter sees the earlier writes.

    Refuses: 2 NULL; 6 the thread, the channel; 1 no notify of the other end, a thread of another engine
    Basis: D, S
    """
    return record(*pair(thread, channel), remoteNotifyIdx)


@operation("hcomm.HcommChannelNotifyWaitOnThread")
def HcommChannelNotifyWaitOnThread(
    thread: Handle, channel: Handle, localNotifyIdx: UInt32, timeOut: UInt32
) -> Run:
    """Let later operations of the thread wait for a notify of this end; ``timeOut`` in seconds, 0 for ever.

    The synchronization of the stream reports a wait that took too long (507046), or for a rank that died (507057).
    Engine CPU: the caller waits, and ``timeOut`` is 1 at least.

    Refuses: 2 NULL; 6 the thread, the channel; 1 no notify of this end, `timeOut` 0 for engine CPU, a thread of
        another engine; 9, 21 for engine CPU
    Basis: D, S, R
    """
    worker, link = pair(thread, channel)
    return _wait(worker, link, localNotifyIdx, in_caller(timeOut) if link.is_cpu else timeOut or None)


@operation("hcomm.HcommChannelNotifyWaitOnThreadWithDefaultTimeout")
def HcommChannelNotifyWaitOnThreadWithDefaultTimeout(
    thread: Handle, channel: Handle, localNotifyIdx: UInt32
) -> Run:
    """As ``HcommChannelNotifyWaitOnThread``, for the seconds of ``HcommSetNotifyWaitTimeOut``.

    Refuses: as `HcommChannelNotifyWaitOnThread`
    Basis: D
    """
    return _wait(*pair(thread, channel), localNotifyIdx, notify_timeout())


@operation("hcomm.HcommChannelNotifyRecord")
def HcommChannelNotifyRecord(channel: CardChannel, remoteNotifyIdx: UInt32) -> Run:
    """Record a notify of the other end.

    Refuses: 2 NULL; 6 the channel; 1 no notify of the other end; 5 all but engine CPU over ROCE
    Basis: D
    """
    refuse_notify(channel, remoteNotifyIdx)
    return lambda: channel.neutral.notify(remoteNotifyIdx)


@operation("hcomm.HcommChannelNotifyWait")
def HcommChannelNotifyWait(channel: CardChannel, localNotifyIdx: UInt32, timeOut: UInt32) -> Run:
    """Wait for a notify of this end; ``timeOut`` in seconds.

    Refuses: 2 NULL; 6 the channel; 1 no notify of this end, `timeOut` 0; 5 all but engine CPU over ROCE; 9; 21
    Basis: D
    """
    return _wait(CALLER, channel, localNotifyIdx, in_caller(timeOut))


@operation("hcomm.HcommChannelFenceOnThread")
def HcommChannelFenceOnThread(thread: Handle, channel: Handle) -> Run:
    """Let later operations of the channel run after all earlier ones.

    Engine CPU: wait until the earlier ones are over, for HCCL_EXEC_TIMEOUT.

    Refuses: 2 NULL; 6 the thread, the channel; 1 a thread of another engine; 9, and the code of a failed operation,
        for engine CPU
    Basis: D, S
    """
    worker, link = pair(thread, channel)

    def run() -> None:
        stream = worker.stream_after_earlier_work()
        if stream is None:
            _drain(link)
        else:
            link.neutral.fence(stream=stream)
            worker.note()

    return run


@operation("hcomm.HcommChannelFence")
def HcommChannelFence(channel: ChannelHandle) -> Run:
    """Wait until all operations of the channel without a thread are over, for HCCL_EXEC_TIMEOUT.

    Refuses: 2 NULL; 6 the channel; 9; the code of a failed operation
    Basis: D, S
    """
    return lambda: _drain(channel)


def _drain(link: HcommChannel) -> None:
    with busy(link.comm):
        link.neutral.drain(timeout=link.exec_timeout)


@operation("hcomm.HcommFenceOnThread")
def HcommFenceOnThread(thread: Handle) -> Run:
    """Flush what the caller has begun; it waits for no channel: channels have fences of their own.

    Refuses: 6 the thread
    Basis: D
    """
    if thread:
        thread_of(thread)
    return _nothing


@operation("hcomm.HcommChannelDrainOnThread")
def HcommChannelDrainOnThread(thread: Handle, channel: Handle) -> Run:
    """Wait until all operations of the thread on the channel are over, for HCCL_EXEC_TIMEOUT.

    Refuses: 2 NULL; 6 the thread, the channel; 1 a thread of another engine; 9; the code of a failed
        operation
    Basis: D; C for other protocols than ROCE
    """
    worker, link = pair(thread, channel)

    def run() -> None:
        stream = worker.stream_after_earlier_work()
        if stream is None:
            _drain(link)
            return
        link.neutral.fence(stream=stream)
        with busy(link.comm):
            join(stream, link.exec_timeout)

    return run


def _nothing() -> None:
    pass

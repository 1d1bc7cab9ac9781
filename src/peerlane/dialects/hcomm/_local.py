"""``hcomm``: copies, reductions and notifies within a rank (facts/hcomm 1.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from peerlane import Notify
from peerlane.dialects._shared.call import Check
from peerlane.dialects.acl._notify import AclNotify
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._arguments import HANDLE, Enum, Float, NotNull, UInt32, UInt64
from peerlane.dialects.hcomm._batch import operation
from peerlane.dialects.hcomm._codes import NOT_FOUND, PARA
from peerlane.dialects.hcomm._comm import HcommThread, ThreadHandle, refuse_suspended, thread_of
from peerlane.dialects.hcomm._header import HcclDataType, HcclReduceOp
from peerlane.dialects.hcomm._settings import chosen, notify_timeout, whole_seconds
from peerlane.dialects.hcomm._state import hcomm
from peerlane.dialects.hcomm._waiting import block_on, busy, in_caller, join
from peerlane.errors import BadAddress
from peerlane.memory import raw

#: By HcommDataType: name and bytes.
LOCAL_TYPES = {
    int(HcclDataType.HCCL_DATA_TYPE_INT8): ("int8", 1),
    int(HcclDataType.HCCL_DATA_TYPE_INT16): ("int16", 2),
    int(HcclDataType.HCCL_DATA_TYPE_INT32): ("int32", 4),
    int(HcclDataType.HCCL_DATA_TYPE_FP16): ("float16", 2),
    int(HcclDataType.HCCL_DATA_TYPE_FP32): ("float32", 4),
    int(HcclDataType.HCCL_DATA_TYPE_BFP16): ("bfloat16", 2),
}
REMOTE_TYPES = LOCAL_TYPES | {
    int(HcclDataType.HCCL_DATA_TYPE_UINT8): ("uint8", 1),
    int(HcclDataType.HCCL_DATA_TYPE_UINT16): ("uint16", 2),
    int(HcclDataType.HCCL_DATA_TYPE_UINT32): ("uint32", 4),
}
_OPS = {
    int(HcclReduceOp.HCCL_REDUCE_SUM): "sum",
    int(HcclReduceOp.HCCL_REDUCE_MAX): "max",
    int(HcclReduceOp.HCCL_REDUCE_MIN): "min",
}
Run = Callable[[], None]


def worker_of(handle: int) -> HcommThread:
    """Return the thread of a handle: HCCL_E_SUSPENDING if its communicator is suspended."""
    worker = thread_of(handle)
    refuse_suspended(worker.comm)
    return worker


ActiveThread = Annotated[HcommThread, HANDLE, Check(lambda _name: worker_of)]


def checked_reduction(types: dict[int, tuple[str, int]], dtype: int, op: int) -> tuple[str, int, str]:
    """Return the names of a type and an operation, and the bytes of an element: HCCL_E_PARA."""
    if dtype not in types or op not in _OPS:
        known = ", ".join(name for name, _ in types.values())
        raise PARA.refusal(
            f"dataType is {dtype}, reduceOp {op}; valid are {known}, and SUM 0, MAX 2, MIN 3",
            "reduce another type in the program, or with a collective",
        )
    return *types[dtype], _OPS[op]


def _refuse_unreachable(name: str, address: int, nbytes: int) -> None:
    """Refuse memory that no engine reaches: HCCL_E_NOT_FOUND."""
    try:
        block = raw.find(address)
    except BadAddress as error:
        raise NOT_FOUND.refusal(f"{name}: {error}", "pass memory of acl.rt.malloc that lives") from None
    if block is None:
        raise NOT_FOUND.refusal(
            f"{name} {address:#x} is pageable host memory, which no engine reaches",
            "copy it to a device, or allocate it with acl.rt.malloc_host",
        )
    if address + nbytes > block[1] + block[2]:
        raise NOT_FOUND.refusal(
            f"{name}: {nbytes:,} bytes at {address:#x} end beyond {machine.describe(address)}",
            "pass a range that lies in one allocation",
        )


@operation("hcomm.HcommLocalCopyOnThread")
def HcommLocalCopyOnThread(thread: ActiveThread, dst: NotNull, src: NotNull, len: UInt64) -> Run:
    """Copy ``len`` bytes within a rank, in the order of the thread; 0 bytes are valid.

    Refuses: 2 NULL; 6 the thread, addresses that no engine reaches
    Basis: D, S; C for 6
    """
    if len:
        _refuse_unreachable("dst", dst, len)
        _refuse_unreachable("src", src, len)

    def run() -> None:
        raw.copy(dst, src, len, stream=thread.stream_after_earlier_work())
        thread.note()

    return run


@operation("hcomm.HcommLocalReduceOnThread")
def HcommLocalReduceOnThread(
    thread: ActiveThread, dst: NotNull, src: NotNull, count: UInt64, dataType: Enum, reduceOp: Enum
) -> Run:
    """Combine ``count`` elements of ``src`` into those of ``dst``, in the order of the thread.

    Refuses: 2 NULL; 6 the thread, addresses that no engine reaches; 1 types but int8, int16, int32, fp16, fp32 and
        bfp16, PROD, addresses that are not a multiple of an element
    Basis: D, S; C for 6, and for odd addresses
    """
    name, width, op = checked_reduction(LOCAL_TYPES, dataType, reduceOp)
    if count:
        _refuse_unreachable("dst", dst, count * width)
        _refuse_unreachable("src", src, count * width)

    def run() -> None:
        raw.reduce(dst, src, count, dtype=name, op=op, stream=thread.stream_after_earlier_work())
        thread.note()

    return run


@operation("hcomm.HcommThreadNotifyRecordOnThread")
def HcommThreadNotifyRecordOnThread(
    thread: ActiveThread, dstThread: ActiveThread, dstNotifyIdx: UInt32
) -> Run:
    """Record a notify of another thread of this rank, in the order of this thread.

    Refuses: 2 NULL; 6 a thread; 1 no notify of `dstThread`
    Basis: D
    """
    return _record(thread, dstThread.notify(dstNotifyIdx, "HcclThreadAcquire"))


@operation("hcomm.HcommThreadNotifyWaitOnThread")
def HcommThreadNotifyWaitOnThread(thread: ActiveThread, notifyIdx: UInt32, timeOut: UInt32) -> Run:
    """Let later operations of the thread wait for one of its notifies; ``timeOut`` in seconds, 0 for ever.

    The synchronization of its stream reports a wait that took too long.  Engine CPU: the caller waits.

    Refuses: 2 NULL; 6 the thread; 1 no notify, `timeOut` 0 for engine CPU; 9 for engine CPU
    Basis: D
    """
    return _wait(thread, thread.notify(notifyIdx, "HcclThreadAcquire"), timeOut)


@operation("hcomm.HcommThreadNotifyWaitOnThreadWithDefaultTimeout")
def HcommThreadNotifyWaitOnThreadWithDefaultTimeout(thread: ActiveThread, notifyIdx: UInt32) -> Run:
    """As ``HcommThreadNotifyWaitOnThread``, for the seconds of ``HcommSetNotifyWaitTimeOut``.

    Refuses: as `HcommThreadNotifyWaitOnThread`
    Basis: D
    """
    return _wait_for(thread, thread.notify(notifyIdx, "HcclThreadAcquire"), notify_timeout())


@operation("hcomm.HcommAclrtNotifyRecordOnThread")
def HcommAclrtNotifyRecordOnThread(thread: ActiveThread, dstNotifyId: UInt64) -> Run:
    """Record a notify of ``acl``, by the number that ``acl.rt.get_notify_id`` gives.

    Refuses: 2 NULL; 6 the thread, no notify of acl has the number
    Basis: D; C for 6
    """
    return _record(thread, _of_acl(dstNotifyId))


@operation("hcomm.HcommAclrtNotifyWaitOnThread")
def HcommAclrtNotifyWaitOnThread(thread: ActiveThread, notifyId: UInt64, timeOut: UInt32) -> Run:
    """Wait for a notify of ``acl``; otherwise as ``HcommThreadNotifyWaitOnThread``.

    Refuses: 2 NULL; 6 the thread, no notify of acl has the number; 1 `timeOut` 0 for engine CPU; 9 for engine CPU
    Basis: D; C for 6
    """
    return _wait(thread, _of_acl(notifyId), timeOut)


def _of_acl(number: int) -> Notify:
    machine.devices()
    with machine.lock:
        objects = list(machine.resources.values())
    for each in objects:
        if isinstance(each, AclNotify) and each.neutral.id == number:
            return each.neutral
    raise NOT_FOUND.refusal(
        f"no notify of acl has the number {number}",
        "pass what acl.rt.get_notify_id returned, before the notify is destroyed",
    )


def _record(worker: HcommThread, notify: Notify) -> Run:
    def run() -> None:
        stream = worker.stream_after_earlier_work()
        if stream is None:
            notify.record()
        else:
            stream.notify(notify)
            worker.note()

    return run


def _wait(worker: HcommThread, notify: Notify, timeout: int) -> Run:
    return _wait_for(worker, notify, in_caller(timeout) if worker.is_cpu else timeout or None)


def _wait_for(worker: HcommThread, notify: Notify, seconds: float | None) -> Run:
    def run() -> None:
        stream = worker.stream_after_earlier_work()
        if stream is None:
            with busy(worker.comm):
                block_on(notify, worker.context.device, seconds)
        else:
            stream.wait(notify, timeout=seconds)
            worker.note()

    return run


@hcomm.call("hcomm.HcommThreadJoin")
def HcommThreadJoin(thread: ThreadHandle, timeout: UInt32) -> None:
    """Wait until all operations of the thread are over; ``timeout`` in seconds, 0 for HCCL_EXEC_TIMEOUT.

    Refuses: 2 NULL; 6 the thread; 9; the code of a failed operation
    Basis: D; C for 0, and for failures
    """
    if thread.stream is not None:
        join(thread.stream, float(timeout) if timeout else thread.exec_timeout)


@hcomm.call("hcomm.HcommSetNotifyWaitTimeOut")
def HcommSetNotifyWaitTimeOut(timeOut: Float) -> None:
    """Set the seconds of waits ``WithDefaultTimeout``, 0 for ever; before the first call HCCL_EXEC_TIMEOUT counts.

    Refuses: 1 all but whole seconds
    Basis: D; C for the first value
    """
    chosen.notify_wait = whole_seconds(timeOut)


@hcomm.call("hcomm.HcommThreadResAcquireTimeOut")
def HcommThreadResAcquireTimeOut(timeOut: Float) -> None:
    """Check the seconds that a call may wait for a full queue: no queue of a virtual device is ever full.

    Refuses: 1 all but whole seconds
    Basis: D
    """
    whole_seconds(timeOut)

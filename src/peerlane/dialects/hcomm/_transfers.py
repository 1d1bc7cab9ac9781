"""``hcomm``: lists of transfers (facts/hcomm 1.2)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm import _header as header
from peerlane.dialects.hcomm._arguments import Handle, TransferDescs, UInt32, field, part, required
from peerlane.dialects.hcomm._batch import operation
from peerlane.dialects.hcomm._codes import NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._comm import Caller, HcommChannel, HcommThread, pair
from peerlane.dialects.hcomm._header import HcommBatchTransferDesc, HcommTransferType
from peerlane.dialects.hcomm._local import Run
from peerlane.dialects.hcomm._remote import read, read_reduce, write, write_reduce
from peerlane.dialects.hcomm._signals import record

_Kind = HcommTransferType


@operation("hcomm.HcommBatchTransferOnThread")
def HcommBatchTransferOnThread(
    thread: Handle, channel: Handle, transferDescs: TransferDescs, transferDescNum: UInt32
) -> Run:
    """Queue transfers and records, in the order of the list; none if one of them is wrong.

    Refuses: 2 NULL; 6 the thread, the channel, memory as `HcommWriteOnThread`; 1 `transferDescNum` 0, fewer
        descriptors, a wrong type of a transfer, what its own call refuses; 5 engine CPU
    Basis: D, S; C for types other than WRITE and READ
    """
    worker, link = pair(thread, channel)
    if link.is_cpu:
        raise NOT_SUPPORT.refusal("engine CPU has no lists of transfers", "submit them one by one")
    if not transferDescNum:
        raise PARA.refusal("transferDescNum is 0", "pass one descriptor at least")
    runs = []
    for number, desc in enumerate(required("transferDescs", transferDescs, transferDescNum)):
        try:
            runs.append(_checked(worker, link, desc))
        except Refusal as error:
            raise Refusal(error.code, f"descriptor {number}: {error}", error.remedy) from None

    def run() -> None:
        for each in runs:
            each()

    return run


def _checked(worker: HcommThread | Caller, link: HcommChannel, desc: HcommBatchTransferDesc) -> Run:
    kind = field(desc, "transType", signed=True)
    info = part(desc, "transferInfo", header.HcommTransferInfo)
    match kind:
        case _Kind.HCOMM_TRANSFER_TYPE_WRITE:
            return write(worker, link, *_moved(part(info, "write", header.HcommTransferInfoWrite)), None)
        case _Kind.HCOMM_TRANSFER_TYPE_WRITE_WITH_NOTIFY:
            with_notify = part(info, "writeWithNotify", header.HcommTransferInfoWriteWithNotify)
            return write(worker, link, *_moved(with_notify), _index(with_notify))
        case _Kind.HCOMM_TRANSFER_TYPE_WRITE_REDUCE:
            return write_reduce(
                worker, link, *_reduced(part(info, "reduce", header.HcommTransferInfoReduce)), None
            )
        case _Kind.HCOMM_TRANSFER_TYPE_WRITE_REDUCE_WITH_NOTIFY:
            one = part(info, "writeReduceWithNotify", header.HcommTransferInfoWriteReduceWithNotify)
            return write_reduce(worker, link, *_reduced(one), _index(one))
        case _Kind.HCOMM_TRANSFER_TYPE_READ:
            return read(worker, link, *_moved(part(info, "read", header.HcommTransferInfoRead)))
        case _Kind.HCOMM_TRANSFER_TYPE_READ_REDUCE:
            return read_reduce(worker, link, *_reduced(part(info, "reduce", header.HcommTransferInfoReduce)))
        case _Kind.HCOMM_TRANSFER_TYPE_NOTIFY_RECORD:
            return record(
                worker, link, _index(part(info, "notifyRecord", header.HcommTransferInfoNotifyRecord))
            )
    raise PARA.refusal(
        f"transType is {kind}, which is not a type of a transfer", "set an HCOMM_TRANSFER_TYPE_*"
    )


def _moved(one: Any) -> tuple[int, int, int]:
    return field(one, "dst", bits=64), field(one, "src", bits=64), field(one, "len", bits=64)


def _reduced(one: Any) -> tuple[int, int, int, int, int]:
    dst, src = field(one, "dst", bits=64), field(one, "src", bits=64)
    dtype, op = field(one, "dataType", signed=True), field(one, "reduceOp", signed=True)
    return dst, src, field(one, "count", bits=64), dtype, op


def _index(one: Any) -> int:
    return field(one, "notifyIdx")

"""Many copies, or many waits and writes of words, with one call (facts/cuda 3.5, 4.2)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda.state import call, define, enums, gpu, invalid, refuse_flags
from peerlane.dialects.cuda.streams import values, wait_operation, write_operation
from peerlane.dialects.gpu.copies import Side
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.values import HALF_WORD, MOST_OPERATIONS, WORD, WordOperation
from peerlane.dialects.gpu.vendor import Reason

Fields = Mapping[str, Any]
_ORDERS = {
    number: name.removeprefix("CU_MEMCPY_SRC_ACCESS_ORDER_")
    for name, number in enums["CUmemcpySrcAccessOrder"].items()
}
_OPERATIONS = {
    number: name.removeprefix("CU_STREAM_MEM_OP_") for name, number in enums["CUstreamBatchMemOpType"].items()
}
_POINTER = enums["CUmemcpy3DOperandType"]["CU_MEMCPY_OPERAND_TYPE_POINTER"]


def _order(described: Fields) -> str:
    order = _ORDERS.get(described["srcAccessOrder"], "")
    if order not in ("STREAM", "DURING_API_CALL", "ANY"):
        raise invalid(
            f"srcAccessOrder is {described['srcAccessOrder']}", "pass a member of CUmemcpySrcAccessOrder"
        )
    return order


def _copy(dst: int, src: int, nbytes: int, order: str, stream: AnyStream) -> None:
    if not nbytes:
        raise invalid("it has 0 bytes", "leave it out")
    if order == "DURING_API_CALL":
        gpu.copies.copy_with_stream(stream, dst, src, nbytes)
    else:
        gpu.copies.copy_async(stream, dst, src, nbytes)


def _refuse_legacy(stream: AnyStream) -> None:
    if stream is stream.context.default_stream:
        raise invalid("the stream is the legacy one", "pass a stream that cuStreamCreate returned")


class _Failed(Refusal):
    """The refusal of one operation of a batch."""

    number: int


@contextlib.contextmanager
def _numbering_failures() -> Iterator[None]:
    """Let a refusal have the number of the operation that failed; none for one of the whole batch."""
    try:
        yield
    except Refusal as error:
        number = error.number if isinstance(error, _Failed) else _NONE_FAILED
        raise Refusal(error.code, str(error), error.remedy, (number,)) from None


def _each(count: int, submit: Callable[[int], None], name: str) -> None:
    failure = gpu.batches.run(count, submit, name)
    if failure is not None:
        number, refusal = failure
        failed = _Failed(refusal.code, str(refusal), refusal.remedy)
        failed.number = number
        raise failed


def _copy_each(
    dsts: Sequence[int],
    srcs: Sequence[int],
    sizes: Sequence[int],
    attributes: Sequence[Fields],
    starts: Sequence[int],
    stream: AnyStream,
) -> None:
    """Queue copies in their order; those before the one that fails stay queued."""
    _refuse_legacy(stream)
    if not sizes or not starts:
        raise invalid(
            f"there are {len(sizes)} copies and {len(starts)} attributes", "pass at least one of each"
        )
    if not all(map(len, (dsts, srcs, attributes))):
        raise invalid("dsts, srcs or attrs is NULL", "pass arrays")
    orders = [_order(each) for each in attributes]
    group_of = gpu.batches.group_of("attrsIdxs", starts, len(sizes))
    _each(len(sizes), lambda at: _copy(dsts[at], srcs[at], sizes[at], orders[group_of(at)], stream), "copy")


def _copy_batch(
    dsts: Any, srcs: Any, sizes: Any, count: int, attrs: Any, starts: Any, number: int, stream: AnyStream
) -> None:
    _copy_each(dsts, srcs, sizes, attrs, starts, stream)


define("cuMemcpyBatchAsync_v2", _copy_batch)
_NONE_FAILED = (1 << 64) - 1


def _copy_batch_12(
    dsts: Any, srcs: Any, sizes: Any, count: int, attrs: Any, starts: Any, number: int, stream: AnyStream
) -> int:
    """Queue copies for programs of CUDA 12, which get the number of the copy that failed."""
    with _numbering_failures():
        _copy_each(dsts, srcs, sizes, attrs, starts, stream)
    return _NONE_FAILED


define("cuMemcpyBatchAsync", _copy_batch_12)


@call
def cuMemcpyWithAttributesAsync(dst: int, src: int, size: int, attr: Fields, hStream: AnyStream) -> None:
    if not attr:
        raise invalid("attr is NULL", "pass a CUmemcpyAttributes")
    if size:
        _copy(dst, src, size, _order(attr), hStream)


def _operand(operand: Fields) -> Side:
    if operand["type"] != _POINTER:
        raise gpu.vendor.refusal(
            Reason.UNSUPPORTED,
            f"an operand of type {operand['type']} is an array of textures, which peerlane does not have",
            "copy pitched memory",
        )
    memory = operand["op"]["ptr"]
    return Side(memory["ptr"], memory["rowLength"], memory["layerHeight"])


def _copy_box(described: Fields, stream: AnyStream) -> None:
    order = _order(described)
    extent = described["extent"]
    sizes = extent["width"], extent["height"], extent["depth"]
    if not all(sizes):
        return
    gpu.copies.move_async(
        stream, gpu.copies.box(_operand(described["dst"]), _operand(described["src"]), sizes)
    )
    if order == "DURING_API_CALL":
        stream.catch_up()


def _copy_boxes(numOps: int, opList: Sequence[Fields], flags: int, stream: AnyStream) -> None:
    refuse_flags(flags)
    _refuse_legacy(stream)
    if not opList:
        raise invalid("there are no boxes", "pass at least one")
    _each(numOps, lambda at: _copy_box(opList[at], stream), "box")


def _copy_boxes_12(numOps: int, opList: Sequence[Fields], flags: int, stream: AnyStream) -> int:
    with _numbering_failures():
        _copy_boxes(numOps, opList, flags, stream)
    return _NONE_FAILED


define("cuMemcpy3DBatchAsync_v2", _copy_boxes)
define("cuMemcpy3DBatchAsync", _copy_boxes_12)


@call
def cuMemcpy3DWithAttributesAsync(op: Fields, flags: int, hStream: AnyStream) -> None:
    refuse_flags(flags)
    if not op:
        raise invalid("op is NULL", "pass a CUDA_MEMCPY3D_BATCH_OP")
    _copy_box(op, hStream)


def _operation(described: Fields) -> WordOperation | None:
    """Return the operation of a batch; None for a barrier, as a stream runs its operations in order."""
    name = _OPERATIONS.get(described["operation"], "")
    if name in ("BARRIER", "FLUSH_REMOTE_WRITES"):
        return None
    if not name.startswith(("WAIT_VALUE", "WRITE_VALUE")):
        raise gpu.vendor.refusal(
            Reason.UNSUPPORTED,
            f"the operation is {described['operation']} {name}",
            "pass waits, writes, barriers and flushes",
        )
    is_wait, width = name.startswith("WAIT"), WORD if name.endswith("64") else HALF_WORD
    fields = described["waitValue" if is_wait else "writeValue"]
    value = fields["value64" if width == WORD else "value"]
    make = wait_operation if is_wait else write_operation
    return make(fields["address"], value, fields["flags"], width)


@call
def cuStreamBatchMemOp_v2(stream: AnyStream, count: int, paramArray: Sequence[Fields], flags: int) -> None:
    """Queue waits and writes of words in their order; all are checked first."""
    refuse_flags(flags)
    values.submit(stream, *words_of(paramArray, count))


def words_of(described: Sequence[Fields], count: int) -> tuple[WordOperation, ...]:
    """Return the waits and writes of an array of CUstreamBatchMemOpParams."""
    if not 0 < count <= MOST_OPERATIONS or not described:
        raise invalid(f"count is {count}", f"pass 1 to {MOST_OPERATIONS} operations")
    return tuple(each for each in map(_operation, described) if each is not None)

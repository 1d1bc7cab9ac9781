"""``hip``: many copies with one call (facts/hip 1.3.1, 3.10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.copies import Side
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding.convention import (
    Stopped,
    hipError_t,
    invalid,
    member,
    refusal,
    refuse_fewer,
)
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.pointers import write
from peerlane.dialects.hip.copies.boxes import refuse_arrays
from peerlane.dialects.hip.state import calls, gpu
from peerlane.dialects.hip.streams.stream import stream_of

_NONE_FAILED = (1 << 64) - 1
_NO_STREAM = Reason.INVALID_HANDLE
_ORDER = "hipMemcpySrcAccessOrder"
_OPERATIONS = tuple(f"hipMemcpyFlagExtOp{each}" for each in ("Swap", "IndirectSrc", "IndirectDst"))


@calls.call("hipMemcpyBatchAsync")
def hipMemcpyBatchAsync(srcs: Any, count: int, attrs: Any, numAttrs: int, stream: int) -> tuple[Any, ...]:
    """Queue many copies; none with the arguments of hip-python, which makes outputs of the sizes.

    C's arguments are taken as well: ``(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, stream)``,
    lists or arrays and numbers; ``failIdx`` is an address or None, and comes back too.  Those before the one that
    fails were queued; ``failIdx`` is 2**64 - 1 when none did.  With ordinary host memory a copy is over on return, as
    is one whose attributes say hipMemcpySrcAccessOrderDuringApiCall.

    Gives: failIdx
    Refuses: hipErrorInvalidResourceHandle the stream; hipErrorInvalidValue NULL, no copies, one of 0 bytes, as
        `hipMemcpyAsync`, attributes of no order, more of them than copies, or not from the first copy on in ascending
        order; hipErrorNotSupported flags with hipMemcpyFlagExtOp in their names
    Basis: S, D; C for C's arguments
    """
    raise _without_sizes(count, stream, 4)


@calls.declare_overload("hipMemcpyBatchAsync", "earlier")
def _copy_without_sizes(
    dsts: Any, srcs: Any, count: int, attrs: Any, numAttrs: int, stream: int
) -> tuple[int, ...]:
    raise _without_sizes(count, stream, 3)


def _without_sizes(count: int, stream: int, outputs: int) -> Refusal:
    stream_of(stream, _NO_STREAM)
    _refuse_none(count)
    cause = "hip-python makes an output of `sizes`, which the C function reads: every size is 0"
    remedy = "pass (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, stream)"
    blank = (None, 0, 0, 0)[-outputs:]
    return Stopped(hipError_t["hipErrorInvalidValue"], cause, remedy, *blank)


@calls.declare_overload("hipMemcpyBatchAsync", "C")
def _copy_batch(dsts: Any, srcs: Any, sizes: Any, count: int, *others: Any) -> int:
    attributes, indices, number, fail_index, stream = others
    on = stream_of(stream, _NO_STREAM)
    for name, array in (("dsts", dsts), ("srcs", srcs), ("sizes", sizes)):
        if not int(array):
            raise invalid(f"{name} is NULL", "pass a list")
    _refuse_none(count)
    orders = _orders(count, attributes, indices, number)

    def submit(at: int) -> None:
        nbytes = int(sizes[at])
        if not nbytes:
            raise invalid(f"copy {at} has 0 bytes", "leave it out")
        gpu.copies.copy_async(on, int(dsts[at]), int(srcs[at]), nbytes)
        if orders(at) == f"{_ORDER}DuringApiCall":
            on.catch_up()

    return _each(count, submit, fail_index)


def _refuse_none(count: int) -> None:
    if not count:
        raise invalid("count is 0", "pass at least one copy")


def _orders(count: int, attributes: Any, indices: Any, number: int) -> Callable[[int], str | None]:
    """Return the access order of a copy by its number, None without attributes; refuse wrong attributes."""
    if not number:
        return lambda at: None
    for name, array in (("attrs", attributes), ("attrsIdxs", indices)):
        if array is None or not int(array):
            raise invalid(f"numAttrs is {number:,}, and {name} is NULL", "pass a list, or numAttrs of 0")
    if number > count:
        raise invalid(f"numAttrs is {number:,}, and count {count:,}", "pass at most one for each copy")
    refuse_fewer("attrs", attributes, number)
    starts = [int(indices[at]) for at in range(number)]
    group_of = gpu.batches.group_of("attrsIdxs", starts, count)
    orders = [_order(attributes, at) for at in range(number)]
    return lambda at: orders[group_of(at)]


def _order(attributes: Any, at: int) -> str:
    order = str(member(attributes, "srcAccessOrder", at=at).name)
    valid = [f"{_ORDER}{each}" for each in ("Stream", "DuringApiCall", "Any")]
    if order not in valid:
        raise invalid(f"srcAccessOrder of attributes {at} is {order}", f"set one of {', '.join(valid)}")
    flags, known = attributes.get_flags(at), enumeration("hipMemcpyFlags")
    operations = sum(known[each] for each in _OPERATIONS)
    if flags & operations:
        raise refusal(
            "hipErrorNotSupported",
            f"flags of attributes {at} are {flags:#x}: copies neither exchange memory nor follow pointers here",
            f"clear the bits of {operations:#x}",
        )
    return order


def _each(count: int, submit: Callable[[int], None], fail_index: int = 0) -> int:
    """Submit copy by copy; write the number of the one that failed to ``fail_index``, and return it."""
    failure = gpu.batches.run(count, submit, "copy")
    at = _NONE_FAILED if failure is None else failure[0]
    if fail_index:
        write(fail_index, at.to_bytes(8, "little"))
    if failure is not None:
        _, error = failure
        raise Stopped(error.code, str(error), error.remedy, at)
    return at


@calls.call("hipMemcpy3DBatchAsync")
def hipMemcpy3DBatchAsync(numOps: int, opList: Any, flags: int, stream: int) -> int:
    """Queue the copies of many boxes; those before the one that fails were queued.

    Row lengths are bytes; 0 means that rows, or slices, lie side by side.

    Gives: failIdx, 2**64 - 1 when none failed
    Refuses: hipErrorInvalidValue flags, no boxes, as `hipMemcpyParam2D`; hipErrorInvalidResourceHandle the stream;
        hipErrorNotSupported arrays
    Basis: S, D
    """
    if flags or opList is None or not numOps:
        raise invalid(
            f"flags are {flags:#x}, numOps is {numOps:,}, opList is {'NULL' if opList is None else 'given'}",
            "pass at least one box, and flags of 0",
        )
    refuse_fewer("opList", opList, numOps)
    on = stream_of(stream, _NO_STREAM)
    return _each(numOps, lambda at: _submit_box(opList, at, on))


def _submit_box(boxes: Any, at: int, stream: AnyStream) -> None:
    extent = boxes.get_extent(at)
    if extent.width and extent.height and extent.depth:
        dst, src = _operand(boxes.get_dst(at)), _operand(boxes.get_src(at))
        gpu.copies.move_async(stream, gpu.copies.box(dst, src, (extent.width, extent.height, extent.depth)))


def _operand(operand: Any) -> Side:
    if member(operand, "type").name == "hipMemcpyOperandTypeArray":
        refuse_arrays(operand.op.array.array)
    memory = operand.op.ptr
    return Side(int(memory.ptr), memory.rowLength, memory.layerHeight)

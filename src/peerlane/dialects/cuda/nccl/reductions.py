"""Element types and reductions, also those that multiply or divide (facts/cuda 8.3)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from peerlane import Buffer, Stream, copy, raw, reduce
from peerlane.dialects.cuda.hardware import chip_of
from peerlane.dialects.cuda.nccl.codes import enums, invalid
from peerlane.dialects.cuda.nccl.communicator import Communicator
from peerlane.dialects.cuda.nccl.memory import memory
from peerlane.dialects.cuda.nccl.state import call
from peerlane.support.reductions import number_of

_TYPES = enums["ncclDataType_t"]
#: By number: the core's name of a type, and the bytes of an element.
_ELEMENTS = {
    _TYPES["ncclInt8"]: ("int8", 1),
    _TYPES["ncclUint8"]: ("uint8", 1),
    _TYPES["ncclInt32"]: ("int32", 4),
    _TYPES["ncclUint32"]: ("uint32", 4),
    _TYPES["ncclInt64"]: ("int64", 8),
    _TYPES["ncclUint64"]: ("uint64", 8),
    _TYPES["ncclFloat16"]: ("float16", 2),
    _TYPES["ncclFloat32"]: ("float32", 4),
    _TYPES["ncclFloat64"]: ("float64", 8),
    _TYPES["ncclBfloat16"]: ("bfloat16", 2),
    _TYPES["ncclFloat8e4m3"]: ("float8_e4m3fn", 1),
    _TYPES["ncclFloat8e5m2"]: ("float8_e5m2", 1),
}
_OPERATIONS = enums["ncclRedOp_t"]
_NAMES = {
    _OPERATIONS["ncclSum"]: "sum",
    _OPERATIONS["ncclProd"]: "prod",
    _OPERATIONS["ncclMax"]: "max",
    _OPERATIONS["ncclMin"]: "min",
}
_AVERAGE, _FIRST_CUSTOM = _OPERATIONS["ncclAvg"], _OPERATIONS["ncclNumOps"]
_ON_DEVICE, _IMMEDIATE = (
    enums["ncclScalarResidence_t"][each] for each in ("ncclScalarDevice", "ncclScalarHostImmediate")
)
_LONGEST = 8  # bytes of an element
_EIGHT_BITS_FROM = 9, 0  # the compute capability from which elements of 8 bits are combined (facts/cuda 8.3)
_PIECE = 1 << 20  # bytes that are multiplied at once


def width_of(datatype: int) -> int:
    """Return the bytes of an element; refuse numbers of no type."""
    if datatype not in _ELEMENTS:
        raise invalid(f"the type is {datatype}", f"pass a ncclDataType_t, 0 to {_TYPES['ncclNumTypes'] - 1}")
    return _ELEMENTS[datatype][1]


@dataclass(frozen=True, slots=True)
class _Scaling:
    """A reduction that multiplies the elements of this rank by a scalar, then adds them.

    Attributes
    ----------
    datatype : int
    scalar : bytes or Buffer
        One element: its bytes, or memory that is read when the reduction runs.
    """

    datatype: int
    scalar: bytes | Buffer


@dataclass(frozen=True, slots=True)
class Reduction:
    """How elements are combined.

    Attributes
    ----------
    dtype, op : str
        As the core names them.
    width : int
        Bytes of an element.
    scalar : bytes, Buffer or None
        By which the elements of each rank are multiplied before.
    divisor : int
        By which the result is divided, rounding toward zero.
    """

    dtype: str
    op: str
    width: int
    scalar: bytes | Buffer | None = None
    divisor: int = 1

    def submit(
        self,
        communicator: Communicator,
        source: Buffer,
        target: Buffer | None,
        combine: Callable[[Buffer], None],
        stream: Stream,
    ) -> None:
        """Queue a collective: ``combine`` queues it for the elements of this rank, as they are or multiplied."""
        if self.scalar is None:
            combine(source)
        else:
            scaled = source.device.allocate(source.size, stream=stream)
            copy(scaled, source, stream=stream)
            factors = self._factors(communicator, self.scalar, min(source.size, _PIECE), stream)
            for first in range(0, source.size, _PIECE):
                part = scaled[first : min(first + _PIECE, source.size)]
                reduce(part, factors[: part.size], dtype=self.dtype, op="prod", stream=stream)
            combine(scaled)
            scaled.close(stream=stream)
            if isinstance(self.scalar, Buffer):
                factors.close(stream=stream)
        if self.divisor > 1 and target is not None:
            stream.launch_callback(_divide, target.address, target.size, self.dtype, self.divisor)

    def _factors(
        self, communicator: Communicator, scalar: bytes | Buffer, nbytes: int, stream: Stream
    ) -> Buffer:
        """Return memory that is full of the scalar; it is kept if the scalar cannot change."""
        if isinstance(scalar, Buffer):
            return _filled(communicator, scalar, nbytes, stream)
        key = self.dtype, scalar
        kept = communicator.kept.get(key)
        if kept is None or kept.size < nbytes:
            with communicator.group.device.allocate(self.width, stream=stream) as one:
                one.copy_from(scalar)
                filled = _filled(communicator, one, nbytes, stream)
            if kept is not None:
                kept.close(stream=stream)
            kept = communicator.kept[key] = filled
        return kept


def _filled(communicator: Communicator, one: Buffer, nbytes: int, stream: Stream) -> Buffer:
    filled = communicator.group.device.allocate(nbytes, stream=stream)
    copy(filled[: one.size], one, stream=stream)
    done = one.size
    while done < nbytes:
        more = min(done, nbytes - done)
        copy(filled[done : done + more], filled[:more], stream=stream)
        done += more
    return filled


def _divide(address: int, nbytes: int, dtype: str, divisor: int) -> None:
    import numpy as np

    values = np.frombuffer(raw.view(address, nbytes), dtype)
    wide = values if values.itemsize == _LONGEST else values.astype(np.int64)  # which can count all ranks
    number = wide.dtype.type(divisor)
    values[:] = wide // number + ((wide % number != 0) & (wide < 0))  # toward zero


_PLAIN = {
    (datatype, op): Reduction(dtype, name, width)
    for datatype, (dtype, width) in _ELEMENTS.items()
    for op, name in _NAMES.items()
}


def known_natively() -> tuple[dict[int, int], dict[tuple[int, int], int]]:
    """Return the bytes of each type, and the number in native code of each reduction that only combines."""
    widths = {datatype: width for datatype, (_, width) in _ELEMENTS.items()}
    return widths, {key: number_of("NCCL", each.dtype, each.op) for key, each in _PLAIN.items()}


def reduction(communicator: Communicator, datatype: int, op: int) -> Reduction:
    """Return how elements of a type are combined by an operation, which may be a custom one."""
    width, dtype = width_of(datatype), _ELEMENTS[datatype][0]
    if dtype.startswith("float8"):
        _refuse_older_chip(communicator)
    plain = _PLAIN.get((datatype, op))
    if plain is not None:
        return plain
    if op == _AVERAGE:
        if "float" in dtype:
            return Reduction(dtype, "sum", width, _encoded(dtype, 1 / communicator.size))
        return Reduction(dtype, "sum", width, divisor=communicator.size)
    custom = communicator.operations.get(op)
    if not isinstance(custom, _Scaling):
        raise invalid(
            f"{op} is not an operation of {communicator}",
            "pass ncclSum to ncclAvg, 0 to 4, or what ncclRedOpCreatePreMulSum returned for this communicator",
        )
    if custom.datatype != datatype:
        raise invalid(
            f"the type is {datatype}, and operation {op} was made for type {custom.datatype}",
            "make an operation for each type",
        )
    return Reduction(dtype, "sum", width, custom.scalar)


def _refuse_older_chip(communicator: Communicator) -> None:
    capability = chip_of(communicator.context.device).capability
    if capability < _EIGHT_BITS_FROM:
        number = ".".join(map(str, capability))
        raise invalid(
            f"device {communicator.context.number} has compute capability {number}, and elements of 8-bit floating "
            "point are combined from 9.0 on",
            "combine elements of ncclFloat16 or ncclBfloat16; the other collectives move all types",
        )


def _encoded(dtype: str, value: float) -> bytes:
    import numpy as np

    from peerlane.support.host_reductions import rounded

    return rounded(np.array([value]), dtype).tobytes()


@call
def ncclRedOpCreatePreMulSum(scalar: int, datatype: int, residence: int, comm: Communicator) -> int:
    """Make an operation that multiplies each rank's elements by its scalar, then adds them.

    A scalar of a device is read when the operation runs; one of the host is read now.
    """
    width = width_of(datatype)
    if residence == _ON_DEVICE:
        value: bytes | Buffer = memory(comm, "scalar", scalar, width)
    elif residence == _IMMEDIATE:
        value = ctypes.string_at(scalar, width)
    else:
        raise invalid(f"residence is {residence}", "pass ncclScalarDevice, 0, or ncclScalarHostImmediate, 1")
    with comm.guard:
        comm.refuse_unready()
        number = next(each for each in range(_FIRST_CUSTOM, 1 << 31) if each not in comm.operations)
        comm.operations[number] = _Scaling(datatype, value)
    return number


@call
def ncclRedOpDestroy(op: int, comm: Communicator) -> None:
    with comm.guard:
        if comm.operations.pop(op, None) is None:
            raise invalid(
                f"{op} is not an operation that {comm} has", "pass what ncclRedOpCreatePreMulSum returned"
            )

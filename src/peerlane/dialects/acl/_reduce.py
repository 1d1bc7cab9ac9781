"""``acl.rt``: sums, maxima and minima on streams (spec acl 2.7).

One thread of the process computes them all, in NumPy, when their streams come to them: so two streams that reduce
into the same memory lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from peerlane import Device, Kind, raw
from peerlane.dialects._call import Address, Int32, Refusal, Word
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._copy import refuse_null
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import stream_of
from peerlane.errors import Error

_Array = npt.NDArray[Any]
_PIECE = 1 << 20
_SUM, _EQUAL = 10, 13
_KINDS: dict[int, Callable[..., Any]] = {_SUM: np.add, 11: np.maximum, 12: np.minimum}
_BF16 = 27
_IN_CACHE = 1 << 14  # elements
_TYPES = {0: "<f4", 1: "<f2", 2: "<i1", 3: "<i4", 6: "<i2", 8: "<u4", _BF16: "<u2"}
_NARROW = frozenset({4, 7, 29})  # uint8, uint16, int4: known to the call, and reduced by no chip
_OF_310 = frozenset({0, 1, 6})


@acl.call("acl.rt.reduce_async")
def reduce_async(
    dst: Address, src: Address, count: Word, kind: Int32, type: Int32, stream: Address, reserve: Address
) -> None:
    """Queue ``dst = dst op src``, element by element, over ``count`` bytes of the stream's device (spec acl 2.7).

    Kinds: 10 sum, 11 maximum, 12 minimum.  Types: 0 float32, 1 float16, 2 int8, 3 int32, 6 int16, 8 uint32, 27
    bfloat16; sums of integers wrap.  The memory must not be freed before it has run: else the next synchronization
    returns 107000.  A MiB takes about 0.3 ms, of float16 3 ms, of bfloat16 1 ms.

    Refuses: 100000 NULL, `reserve`, no type; 107002; 107000 stream, kind, `count` 0 or no whole number of elements,
        addresses, memory of another device; 107003; 207000 kind 13, types of no chip; on the 310 family all but sums
        of types 0, 1 and 6
    Basis: S, D; C for the codes, kind 13, and what wraps
    """
    refuse_null(dst=dst, src=src)
    if reserve:
        raise Refusal(Code.INVALID_PARAM, f"reserve is {reserve:#x}; it is reserved", "pass 0")
    if type not in _TYPES and type not in _NARROW:
        raise Refusal(Code.INVALID_PARAM, f"type is {type}", _valid_types())
    found = stream_of(stream)
    device = found.context.device
    _refuse_kind(kind, type, device)
    dtype = np.dtype(_TYPES[type])
    if not count or count % dtype.itemsize:
        raise Refusal(
            Code.RT_PARAM_INVALID,
            f"count is {count:,} bytes, and an element has {dtype.itemsize}",
            "pass the bytes of at least one element",
        )
    for name, address in (("dst", dst), ("src", src)):
        _refuse_elsewhere(name, address, count, device)
    found.neutral.launch_callback(_Reduction(dst, src, count, kind, type).run)


@dataclass(frozen=True, slots=True)
class _Reduction:
    dst: int
    src: int
    nbytes: int
    kind: int
    type: int

    def run(self) -> None:
        """Reduce piece by piece; only copies touch the devices' memory, so whoever observes sees what is done."""
        try:
            self._run()
        except Error as error:
            ends = f"{self.nbytes:,} bytes at {self.src:#x} into {self.dst:#x}"
            raise error._retold(f"{error} [{ends}]") from None

    def _run(self) -> None:
        room = min(self.nbytes, _PIECE)
        into, by = np.empty(room, np.uint8), np.empty(room, np.uint8)
        for start in range(0, self.nbytes, _PIECE):
            size = min(_PIECE, self.nbytes - start)
            for scratch, address in ((into, self.dst), (by, self.src)):
                raw.copy(scratch.ctypes.data, address + start, size)
            dtype = np.dtype(_TYPES[self.type])
            self._apply(into[:size].view(dtype), by[:size].view(dtype))
            raw.copy(self.dst + start, into.ctypes.data, size)

    def _apply(self, into: _Array, by: _Array) -> None:
        operation = _KINDS[self.kind]
        with np.errstate(all="ignore"):
            if self.type == _BF16:
                _apply_to_bfloat16(operation, into, by)
            else:
                operation(into, by, out=into)


def _apply_to_bfloat16(operation: Callable[..., Any], into: _Array, by: _Array) -> None:
    room = min(into.size, _IN_CACHE)
    left, right, rounded = (np.empty(room, np.uint32) for _ in range(3))
    for start in range(0, into.size, room):
        to, of = into[start : start + room], by[start : start + room]
        a, b = _widened(to, left), _widened(of, right)
        operation(a, b, out=a)
        _narrow(a, to, rounded[: to.size])


def _widened(halves: _Array, room: _Array) -> _Array:
    wide = room[: halves.size]
    np.copyto(wide, halves)
    np.left_shift(wide, 16, out=wide)
    return wide.view(np.float32)


def _narrow(values: _Array, into: _Array, rounded: _Array) -> None:
    """Round float32 to bfloat16, to the nearest, and to the even one of two; what is no number stays none."""
    bits = values.view(np.uint32)
    np.right_shift(bits, 16, out=rounded)
    np.bitwise_and(rounded, 1, out=rounded)
    np.add(rounded, 0x7FFF, out=rounded)
    np.add(rounded, bits, out=rounded)
    np.right_shift(rounded, 16, out=rounded)
    np.copyto(into, rounded, casting="unsafe")
    nan = np.isnan(values)
    if nan.any():
        into[nan] = (bits[nan] >> 16) | 0x40


def _refuse_kind(kind: int, type: int, device: Device) -> None:
    if kind not in _KINDS and kind != _EQUAL:
        raise Refusal(Code.RT_PARAM_INVALID, f"kind is {kind}", "pass 10 (sum), 11 (maximum) or 12 (minimum)")
    name = device.info.name
    if kind == _EQUAL:
        cause = "kind is 13, EQUAL, and the vendor does not say what that gives"
    elif type in _NARROW:
        cause = f"type {type} is known, and no chip reduces it"
    elif name.startswith("Ascend310") and (kind != _SUM or type not in _OF_310):
        cause = (
            f"{name} reduces only sums (kind 10) of types 0, 1 and 6, and this is kind {kind} of type {type}"
        )
    else:
        return
    raise Refusal(Code.RT_FEATURE_NOT_SUPPORT, cause, "copy to the host and compute it there")


def _refuse_elsewhere(name: str, address: int, count: int, device: Device) -> None:
    place = raw.locate(address)
    if place.kind is not Kind.DEVICE or place.ordinal != device.ordinal:
        raise Refusal(
            Code.RT_PARAM_INVALID,
            f"{name} is {machine.describe(address)}, not memory of device {device.ordinal}, whose stream it is",
            "copy it there first, with acl.rt.memcpy_async",
        )
    if count > place.base + place.size - address and machine.reservations.around(address) is None:
        raise Refusal(
            Code.RT_PARAM_INVALID,
            f"{name} is {machine.describe(address)} and has {place.base + place.size - address:,} bytes from there "
            f"on, not {count:,}",
            "pass a smaller count",
        )


def _valid_types() -> str:
    return f"pass {', '.join(map(str, _TYPES))}"

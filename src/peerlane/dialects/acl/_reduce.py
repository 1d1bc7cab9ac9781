"""``acl.rt``: sums, maxima and minima on streams (facts/acl 2.7)."""

from __future__ import annotations

from peerlane import Device, Kind
from peerlane.dialects._shared.call import Address, Int32, Word
from peerlane.dialects.acl._checks import null, one_of, reserved
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import stream_of
from peerlane.memory import raw

_SUM, _EQUAL = 10, 13
_KINDS = {_SUM: "sum", 11: "max", 12: "min"}
_TYPES = {
    0: ("float32", 4),
    1: ("float16", 2),
    2: ("int8", 1),
    3: ("int32", 4),
    6: ("int16", 2),
    8: ("uint32", 4),
}
_TYPES[27] = ("bfloat16", 2)
_NARROW = frozenset({4, 7, 29})  # uint8, uint16, int4: known to the call, and reduced by no chip
_OF_310 = frozenset({0, 1, 6})
_TYPE = one_of("type", {*_TYPES, *_NARROW}, f"pass {', '.join(map(str, _TYPES))}", code=Code.INVALID_PARAM)


@acl.call("acl.rt.reduce_async", checks=[null("dst", "src"), reserved("reserve"), _TYPE])
def reduce_async(
    dst: Address, src: Address, count: Word, kind: Int32, type: Int32, stream: Address, reserve: Address
) -> None:
    """Queue ``dst = dst op src``, element by element, over ``count`` bytes of the stream's device (facts/acl 2.7).

    Kinds: 10 sum, 11 maximum, 12 minimum.  Types: 0 float32, 1 float16, 2 int8, 3 int32, 6 int16, 8 uint32, 27
    bfloat16; sums of integers wrap.  The memory stays usable until the operation has run.

    Refuses: 100000 NULL, `reserve`, no type; 107002; 107000 stream, kind, `count` 0 or no whole number of elements,
        addresses, alignment, ends that overlap in part, memory of another device; 107003; 207000 kind 13, types of
        no chip; on the 310 family all but sums of types 0, 1 and 6
    Basis: S, D; C for the codes, kind 13, and what wraps
    """
    acl_stream = stream_of(stream)
    device = acl_stream.context.device
    _refuse_kind(kind, type, device)
    dtype, width = _TYPES[type]
    if not count or count % width:
        raise Code.RT_PARAM_INVALID.refusal(
            f"count is {count:,} bytes, and an element has {width}", "pass the bytes of at least one element"
        )
    for name, address in (("dst", dst), ("src", src)):
        _refuse_elsewhere(name, address, count, device)
    raw.reduce(dst, src, count // width, dtype=dtype, op=_KINDS[kind], stream=acl_stream.neutral)


def _refuse_kind(kind: int, type: int, device: Device) -> None:
    if kind not in _KINDS and kind != _EQUAL:
        raise Code.RT_PARAM_INVALID.refusal(f"kind is {kind}", "pass 10 (sum), 11 (maximum) or 12 (minimum)")
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
    raise Code.RT_FEATURE_NOT_SUPPORT.refusal(cause, "copy to the host and compute it there")


def _refuse_elsewhere(name: str, address: int, count: int, device: Device) -> None:
    location = raw.locate(address)
    if location.kind is not Kind.DEVICE or location.ordinal != device.ordinal:
        raise Code.RT_PARAM_INVALID.refusal(
            f"{name} is {machine.describe(address)}, not memory of device {machine.number_of(device)}, which has the "
            "stream",
            "copy it there first, with acl.rt.memcpy_async",
        )
    if count > location.base + location.size - address and machine.reservations.around(address) is None:
        raise Code.RT_PARAM_INVALID.refusal(
            f"{name} is {machine.describe(address)} and has {location.base + location.size - address:,} bytes from "
            f"there on, not {count:,}",
            "pass a smaller count",
        )

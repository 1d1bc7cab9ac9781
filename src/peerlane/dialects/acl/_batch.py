"""``acl.rt``: many copies with one call (facts/acl 6)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from peerlane.dialects._shared.call import Address, Object, Refusal
from peerlane.dialects.acl._async import queue_copy
from peerlane.dialects.acl._checks import null
from peerlane.dialects.acl._codes import FAULTS, Code
from peerlane.dialects.acl._copy import copy_now
from peerlane.dialects.acl._register import DEVICE, HOST, location_of
from peerlane.dialects.acl._state import acl, explain, machine
from peerlane.dialects.acl._stream import AclStream, stream_of
from peerlane.errors import Error

_NONE_FAILED = (1 << 64) - 1
_BY_ADDRESS = 4
_NUMA = 4
_LOCATIONS = {HOST: "the host", DEVICE: "a device"}


@acl.call("aclrtMemcpyBatch", checks=[null("fail_index")])
def memcpy_batch(
    dsts: Object,
    dest_maxs: Object,
    srcs: Object,
    sizes: Object,
    attrs: Object,
    attrs_indexes: Object,
    fail_index: Address,
) -> None:
    """Copy from the host to devices or back, ``sizes[i]`` bytes each; copies before the first failure are made.

    ``attrs`` are dicts with ``dstLoc`` and ``srcLoc``, the locations of the addresses; each applies from the copy
    whose number ``attrs_indexes`` has.  ``fail_index`` gets the number of the copy that failed, 2**64 - 1 if none
    did. If all sizes are 0 the call does nothing.

    Refuses: 100000 NULL, no copies, a size beyond its `dest_maxs`, reserved bytes; 107002; with the number of the
        copy: 107000 size 0, NULL, not between host and device, not where its attribute says; as `memcpy`
    Basis: S; C for attributes that are missing
    """
    _copy_all(dsts, dest_maxs, srcs, sizes, attrs, attrs_indexes, fail_index)


@acl.call("aclrtMemcpyBatchV2")
def memcpy_batch_v2(
    dsts: Object, dest_maxs: Object, srcs: Object, sizes: Object, attrs: Object, attrs_indexes: Object
) -> None:
    """Copy as ``aclrtMemcpyBatch``, without the number of the copy that failed.

    Refuses: as `aclrtMemcpyBatch`
    Basis: S
    """
    _copy_all(dsts, dest_maxs, srcs, sizes, attrs, attrs_indexes)


@acl.call("aclrtMemcpyBatchAsync", checks=[null("fail_index")])
def memcpy_batch_async(
    dsts: Object,
    dest_maxs: Object,
    srcs: Object,
    sizes: Object,
    attrs: Object,
    attrs_indexes: Object,
    fail_index: Address,
    stream: Address,
) -> None:
    """Queue copies as ``aclrtMemcpyBatch``; with ordinary host memory one is over on return.

    Refuses: as `aclrtMemcpyBatch`; 107000, 107003 the stream
    Basis: S
    """
    _copy_all(dsts, dest_maxs, srcs, sizes, attrs, attrs_indexes, fail_index, stream)


@acl.call("aclrtMemcpyBatchAsyncV2")
def memcpy_batch_async_v2(
    dsts: Object,
    dest_maxs: Object,
    srcs: Object,
    sizes: Object,
    attrs: Object,
    attrs_indexes: Object,
    stream: Address,
) -> None:
    """Queue copies as ``aclrtMemcpyBatchAsync``, without the number of the copy that failed.

    Refuses: as `aclrtMemcpyBatchAsync`
    Basis: S
    """
    _copy_all(dsts, dest_maxs, srcs, sizes, attrs, attrs_indexes, 0, stream)


def _copy_all(
    dsts: Any,
    dest_maxs: Any,
    srcs: Any,
    sizes: Any,
    attrs: Any,
    attrs_indexes: Any,
    fail_index: int = 0,
    stream: int | None = None,
) -> None:
    """Make the copies at once, or queue them on a stream; 0 is the default stream."""
    if not sizes:
        raise _refused("sizes is NULL, or there are 0 copies", "pass at least one copy")
    _write_index(fail_index, _NONE_FAILED)
    if not any(sizes):
        return
    for name, array in {"dsts": dsts, "destMaxs": dest_maxs, "srcs": srcs, "attrs": attrs}.items():
        if array is None:
            raise _refused(f"{name} is NULL", f"pass an array of {name}")
    _refuse_small(dest_maxs, sizes)
    if not attrs or attrs_indexes is None:
        raise _refused("there are no attributes", "pass one, whose index is 0, for all copies")
    _refuse_reserved(attrs)
    on = stream_of(stream) if stream is not None else None
    machine.context()
    at, attribute = 0, 0
    try:
        for at, nbytes in enumerate(sizes):
            if attribute + 1 < len(attrs) and at >= attrs_indexes[attribute + 1]:
                attribute += 1
            _copy(dsts[at], srcs[at], nbytes, attrs[attribute], on)
    except (Refusal, Error) as error:
        _write_index(fail_index, at)
        if isinstance(error, Refusal):
            raise Refusal(error.code, f"copy {at}: {error}", error.remedy) from None
        cause, remedy = explain(error)
        raise Refusal(FAULTS[error.fault], f"copy {at}: {cause}", remedy) from None


def _copy(dst: int, src: int, nbytes: int, attribute: dict[str, Any], on: AclStream | None) -> None:
    if not (nbytes and dst and src):
        name = "its size is 0" if not nbytes else "dst is NULL" if not dst else "src is NULL"
        raise Code.RT_PARAM_INVALID.refusal(name, "leave the copy out")
    ends = {"dst": location_of(dst), "src": location_of(src)}
    for name, (kind, number) in ends.items():
        location = attribute[f"{name}Loc"]
        wanted, wanted_number = HOST if location["type"] == _NUMA else location["type"], location["id"]
        if wanted != kind or (kind == DEVICE and wanted_number != number):
            raise Code.RT_PARAM_INVALID.refusal(
                f"{name} is {machine.describe(dst if name == 'dst' else src)}, and its attribute says type {wanted}, "
                f"id {wanted_number}",
                f"set {name}Loc to type {kind}, id {number}",
            )
    if ends["dst"][0] == ends["src"][0]:
        raise Code.RT_PARAM_INVALID.refusal(
            f"both ends are memory of {_LOCATIONS[ends['dst'][0]]}",
            "copy from the host to a device or back; copy other memory with acl.rt.memcpy",
        )
    if on is None:
        copy_now(dst, src, nbytes, _BY_ADDRESS)
    else:
        queue_copy(dst, src, nbytes, _BY_ADDRESS, on)


def _refuse_small(dest_maxs: Sequence[int], sizes: Sequence[int]) -> None:
    for at, (room, nbytes) in enumerate(zip(dest_maxs, sizes, strict=True)):
        if room < nbytes:
            raise _refused(
                f"copy {at} has {nbytes:,} bytes, more than its destMaxs, which is {room:,}",
                "pass the size of each destination from its pointer on, and copy no more",
            )


def _refuse_reserved(attrs: Sequence[dict[str, Any]]) -> None:
    for at, each in enumerate(attrs):
        if any(each["rsv"]):
            raise _refused(f"rsv of attrs[{at}] is not 0", "fill the struct with 0 first")


def _refused(cause: str, remedy: str) -> Refusal:
    return Code.INVALID_PARAM.refusal(cause, remedy)


def _write_index(address: int, number: int) -> None:
    if address:
        ctypes.c_uint64.from_address(address).value = number

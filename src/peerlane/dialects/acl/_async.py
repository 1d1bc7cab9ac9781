"""``acl.rt``: copies and fills on streams (facts/acl 2.7, 4.2).

A copy of pageable host memory is not queued, unless the memory is registered: the call waits for the stream, and then
copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane import Kind
from peerlane.dialects._shared.call import Address, Int32, Refusal, UInt32, Word
from peerlane.dialects.acl._codes import SUCCESS, Code
from peerlane.dialects.acl._copy import (
    KINDS,
    access_explained,
    check_copy,
    check_fill,
    check_rectangle,
    check_words,
    rectangle_explained,
    refuse_far,
    refuse_ordinary,
)
from peerlane.dialects.acl._policy import CORRECTED, VARIABLE, corrects_kinds
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import AclStream, stream_of
from peerlane.errors import Error
from peerlane.memory import raw
from peerlane.memory.raw import find, quick_submit

_WIDEST, _HIGHEST = 5_000_000, 5_242_880
_BY_ADDRESS = 4
# By kind: whether the destination and the source are device memory.
_ON_DEVICES = {0: (False, False), 1: (True, False), 2: (False, True), 3: (True, True), 5: (True, False)}
_ANY = [(True, True), (True, False), (False, True), (False, False)]
_NAMES = {True: "device memory", False: "host memory"}
# The kinds, each with the ends that it may have on a stream: destination, source.
_QUEUED = frozenset(
    (kind, *ends) for kind in KINDS for ends in _ANY if any(ends) and _ON_DEVICES.get(kind, ends) == ends
)


def _declare(name: str, doc: str) -> None:
    def body(dst: Address, dest_max: Word, src: Address, count: Word, kind: Int32, stream: Address) -> None:
        if not count:
            return
        check_copy(dst, dest_max, src, count, kind)
        if dst != src:
            queue_copy(dst, src, count, kind, stream_of(stream))

    body.__doc__ = doc
    checked = acl.call(f"acl.rt.{name}")(body)
    acl.serve(f"acl.rt.{name}", _quick(checked), checked)


def queue_copy(dst: int, src: int, count: int, kind: int, stream: AclStream) -> None:
    """Queue a copy whose arguments are checked; if an end is pageable, wait for the stream and copy."""
    refuse_far(dst, src, kind, waits=False)
    _refuse_kind(dst, src, kind)
    if _is_pageable(dst, src, count, count):
        stream.wait()
        with access_explained(dst, src):
            raw.copy(dst, src, count, direct=True)
    else:
        raw.copy(dst, src, count, stream=stream.neutral, direct=True)


def _quick(checked: Callable[..., object]) -> Callable[..., object]:
    """Return a copy that is queued at once if every argument is right; else the checks run in the vendor's order."""

    def copy(*args: Any) -> object:
        try:
            dst, dest_max, src, count, kind, stream = args
            context = machine.thread.context
            acl_stream = machine.resources[stream] if stream else context.default_stream
            to, source = machine.allocations.get(dst), machine.allocations.get(src)
            if (
                type(dst) is int
                and type(src) is int
                and type(count) is int
                and type(dest_max) is int
                and type(kind) is int
                and type(stream) is int
                and type(acl_stream) is AclStream
                and acl_stream.context is context
                and 0 < count <= dest_max
                and 0 <= kind <= 5
                and dst != src
                and (
                    (kind, to.device is not None, source.device is not None) in _QUEUED
                    if to and source
                    else _can_wait(dst, src, count, kind)
                )
                and not context.node.is_closed
                and not machine.far
            ):
                quick_submit(acl_stream.neutral, dst, src, count, True)
                return SUCCESS
        except (Refusal, Error, AttributeError, KeyError, TypeError, ValueError):
            pass  # nothing was queued: the checked call queues it, or refuses with the reason
        return checked(*args)

    return copy


_declare(
    "memcpy_async",
    """Queue a copy, as ``memcpy`` otherwise (facts/acl 2.7).

    Host to host is 207000; a stream of another context 107003.  A copy that fails when it starts, as without peer
    access, fails the next synchronization.  A kind that contradicts the addresses is 107000; with
    ``PEERLANE_ACL_POLICY=kinds=corrected`` the addresses decide (facts/acl 4.2).

    Refuses: as `memcpy`; 107000 a kind that contradicts the addresses; 107000, 107003 the stream; 207000 host to
        host
    Basis: S; R, D for the kind
    """,
)
_declare(
    "memcpy_async_with_condition",
    """Queue a copy, as ``memcpy_async`` (facts/acl 2.7).

    Refuses: as `memcpy_async`
    Basis: D
    """,
)


@acl.call("acl.rt.memset_async")
def memset_async(dev_ptr: Address, max_count: Word, value: Int32, count: Word, stream: Address) -> None:
    """Queue a fill, as ``memset`` otherwise (facts/acl 2.7).

    Refuses: as `memset`; 107000, 107003 the stream
    Basis: S
    """
    if not count:
        return
    check_fill(dev_ptr, max_count, count)
    acl_stream = stream_of(stream)
    refuse_ordinary(dev_ptr, count)
    raw.fill(dev_ptr, value & 0xFF, count=count, stream=acl_stream.neutral)


@acl.call("aclrtMemsetD32Async")
def memset_d32_async(ptr: Address, mem_size: Word, value: UInt32, n: Word, stream: Address) -> None:
    """Queue a fill, as ``aclrtMemsetD32`` otherwise.

    Refuses: as `aclrtMemsetD32`; 107000, 107003 the stream
    Basis: S
    """
    if not n:
        return
    check_words(ptr, mem_size, n)
    raw.fill(ptr, value, width=4, count=n, stream=stream_of(stream).neutral)


@acl.call("acl.rt.memcpy2d_async")
def memcpy2d_async(
    dst: Address,
    dpitch: Word,
    src: Address,
    spitch: Word,
    width: Word,
    height: Word,
    kind: Int32,
    stream: Address,
) -> None:
    """Queue a copy of rows, as ``memcpy2d`` otherwise; at most 5,000,000 bytes by 5,242,880 rows (facts/acl 2.7).

    Refuses: as `memcpy2d`; 107000 over 5,000,000 bytes by 5,242,880 rows; 107000, 107003 the stream; 207000 host to
        host
    Basis: D; C for the limits' code
    """
    if not (width and height):
        return
    check_rectangle(dst, dpitch, src, spitch, width, height, kind)
    if width > _WIDEST or height > _HIGHEST:
        raise Code.RT_PARAM_INVALID.refusal(
            f"{height:,} rows of {width:,} bytes are more than {_HIGHEST:,} of {_WIDEST:,}",
            "copy it in parts, or with acl.rt.memcpy2d",
        )
    acl_stream = stream_of(stream)
    rectangle = (dst, dpitch, src, spitch, width, height)
    refuse_far(dst, src, kind, waits=False)
    extents = ((height - 1) * pitch + width for pitch in (dpitch, spitch))
    with rectangle_explained(), access_explained(dst, src):
        if _is_pageable(dst, src, *extents):
            acl_stream.wait()
            raw.copy_2d(*rectangle, direct=True)
        else:
            raw.copy_2d(*rectangle, stream=acl_stream.neutral, direct=True)


def _can_wait(dst: int, src: int, count: int, kind: int) -> bool:
    """Tell whether a stream can queue the copy: its kind is right, and no end is pageable and not registered."""
    to, source = find(dst), find(src)
    if to is None or source is None:
        return (
            bool(machine.registrations)
            and not _is_pageable(dst, src, count, count)
            and (kind, *_on_devices(dst, src)) in _QUEUED
        )
    return (kind, bool(to[0]), bool(source[0])) in _QUEUED  # 0 is the host


def _on_devices(dst: int, src: int) -> tuple[bool, bool]:
    return raw.locate(dst).kind is Kind.DEVICE, raw.locate(src).kind is Kind.DEVICE


def _refuse_kind(dst: int, src: int, kind: int) -> None:
    """Refuse a kind that contradicts the addresses: 107000."""
    ends = _on_devices(dst, src)
    if kind == _BY_ADDRESS or _ON_DEVICES[kind] == ends or corrects_kinds():
        return
    to, source = _ON_DEVICES[kind]
    right = next(each for each, are in _ON_DEVICES.items() if are == ends)
    remedy = f"pass kind {right} ({KINDS[right]}), or {_BY_ADDRESS} to let the addresses decide"
    if not any(ends):
        remedy = "copy on the host with acl.rt.memcpy, Python or numpy"
    raise Code.RT_PARAM_INVALID.refusal(
        f"kind {kind} ({KINDS[kind]}) copies from {_NAMES[source]} to {_NAMES[to]}, but src is {_NAMES[ends[1]]} "
        f"({machine.describe(src)}) and dst is {_NAMES[ends[0]]} ({machine.describe(dst)})",
        f"{remedy}; a newer CANN corrects the kind, as {VARIABLE}={CORRECTED} does",
    )


def _is_pageable(dst: int, src: int, to_bytes: int, from_bytes: int) -> bool:
    """Tell whether an end is pageable and not registered; 207000 if both ends are host memory."""
    kinds = raw.locate(dst).kind, raw.locate(src).kind
    if Kind.DEVICE not in kinds:
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"{machine.describe(dst)} and {machine.describe(src)} are both host memory; streams do not copy that",
            "copy on the host with acl.rt.memcpy, Python or numpy",
        )
    if Kind.PAGEABLE not in kinds:
        return False
    end = (dst, to_bytes) if kinds[0] is Kind.PAGEABLE else (src, from_bytes)
    return machine.registrations.around(*end) is None

"""``acl.rt``: copies and fills on streams (facts/acl 2.7, 4.2).

Pageable host memory cannot wait, unless it is registered: such a copy waits for the stream, and is then made at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane import Kind
from peerlane.dialects._shared.call import Address, Int32, Refusal, UInt32, Word
from peerlane.dialects.acl._codes import SUCCESS, Code
from peerlane.dialects.acl._copy import (
    access_explained,
    check_copy,
    check_fill,
    check_rectangle,
    check_words,
    rectangle_explained,
    refuse_far,
    refuse_ordinary,
)
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import AclStream, stream_of
from peerlane.errors import Error
from peerlane.memory import raw
from peerlane.memory.raw import find, quick_submit

_WIDEST, _HIGHEST = 5_000_000, 5_242_880


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
    """Queue a copy whose arguments are checked, or make it at once if an end is pageable."""
    refuse_far(dst, src, kind, waits=False)
    if _is_pageable(dst, src, count, count):
        stream.wait()
        with access_explained(dst, src):
            raw.copy(dst, src, count, direct=True)
    else:
        raw.copy(dst, src, count, stream=stream.neutral, direct=True)


def _quick(checked: Callable[..., object]) -> Callable[..., object]:
    """Queue at once if every argument is right; other calls go to the checks in the vendor's order."""

    def copy(*args: Any) -> object:
        try:
            dst, dest_max, src, count, kind, stream = args
            context = machine.here.context
            found = machine.things[stream] if stream else context.default_stream
            to, source = machine.allocations.get(dst), machine.allocations.get(src)
            if (
                type(dst) is int
                and type(src) is int
                and type(count) is int
                and type(dest_max) is int
                and type(kind) is int
                and type(stream) is int
                and type(found) is AclStream
                and found.context is context
                and 0 < count <= dest_max
                and 0 <= kind <= 5
                and dst != src
                and (
                    ((to.device or source.device) if to and source else _can_wait(dst, src))
                    or (machine.registrations and not _is_pageable(dst, src, count, count))
                )
                and not context.node.is_closed
                and not machine.far
            ):
                quick_submit(found.neutral, dst, src, count, True)
                return SUCCESS
        except (Refusal, Error, AttributeError, KeyError, TypeError, ValueError):
            pass  # nothing was queued: the other path does it, or gives the reason
        return checked(*args)

    return copy


_declare(
    "memcpy_async",
    """Queue a copy, as ``memcpy`` otherwise (facts/acl 2.7).

    Between two places of the host 207000; a stream of another context 107003.  What fails when it starts, such
    as a copy without peer access, is told by the next synchronization.

    Refuses: as `memcpy`; 107000, 107003 the stream; 207000 host to host
    Basis: S
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
    found = stream_of(stream)
    refuse_ordinary(dev_ptr, count)
    raw.fill(dev_ptr, value & 0xFF, count=count, stream=found.neutral)


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
        raise Refusal(
            Code.RT_PARAM_INVALID,
            f"{height:,} rows of {width:,} bytes are more than {_HIGHEST:,} of {_WIDEST:,}",
            "copy it in parts, or with acl.rt.memcpy2d",
        )
    found = stream_of(stream)
    rectangle = (dst, dpitch, src, spitch, width, height)
    refuse_far(dst, src, kind, waits=False)
    extents = ((height - 1) * pitch + width for pitch in (dpitch, spitch))
    with rectangle_explained(), access_explained(dst, src):
        if _is_pageable(dst, src, *extents):
            found.wait()
            raw.copy_2d(*rectangle, direct=True)
        else:
            raw.copy_2d(*rectangle, stream=found.neutral, direct=True)


def _can_wait(dst: int, src: int) -> bool:
    """Tell whether no end is pageable and one at least is device memory; errors as ``raw.locate``."""
    to, source = find(dst), find(src)
    return to is not None and source is not None and bool(to[0] or source[0])  # 0 is the host


def _is_pageable(dst: int, src: int, to_bytes: int, from_bytes: int) -> bool:
    """Tell whether an end is pageable, and not registered; 207000 if both are the host's."""
    kinds = raw.locate(dst).kind, raw.locate(src).kind
    if Kind.DEVICE not in kinds:
        raise Refusal(
            Code.RT_FEATURE_NOT_SUPPORT,
            f"{machine.describe(dst)} and {machine.describe(src)} are both host memory; streams do not copy that",
            "copy on the host with acl.rt.memcpy, Python or numpy",
        )
    if Kind.PAGEABLE not in kinds:
        return False
    end = (dst, to_bytes) if kinds[0] is Kind.PAGEABLE else (src, from_bytes)
    return machine.registrations.around(*end) is None

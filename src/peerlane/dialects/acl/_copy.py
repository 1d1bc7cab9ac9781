"""``acl.rt``: copies and fills (facts/acl 2.7, 4.2).  The addresses decide how bytes move; ``kind`` is a hint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from peerlane import Kind
from peerlane.diagnostics.memory import allocations
from peerlane.diagnostics.memory.addresses import is_mapped
from peerlane.dialects._shared.call import Address, Check, Int32, UInt32, Word
from peerlane.dialects.acl._checks import null, one_of
from peerlane.dialects.acl._codes import REMEDIES, SUCCESS, Code
from peerlane.dialects.acl._device import without_access
from peerlane.dialects.acl._state import acl, explain, machine
from peerlane.errors import AccessDenied, BadAddress, Error, Fault
from peerlane.memory import raw
from peerlane.memory.raw import quick_copy

KINDS = {0: "H2H", 1: "H2D", 2: "D2H", 3: "D2D", 4: "DEFAULT", 5: "H2BUF2D"}
_GUESSED = 4
_WORD_BYTES = 4
_END = 1 << 64
_ENDS, _TARGET = null("dst", "src"), null("dev_ptr")


def _kind_of(*valid: int) -> Check:
    listed = ", ".join(f"{each} {KINDS[each]}" for each in valid)
    return one_of(
        "kind",
        valid,
        "pass 4 to let the addresses decide",
        code=Code.INVALID_PARAM,
        shown=lambda kind: f"{kind}; valid here are {listed}",
    )


_KIND, _KIND_2D = _kind_of(*KINDS), _kind_of(1, 2, 3, 4)


@acl.call("acl.rt.memcpy")
def _memcpy(dst: Address, dest_max: Word, src: Address, count: Word, kind: Int32) -> None:
    """Copy ``count`` bytes; complete on return (facts/acl 2.7).

    In this order: ``count`` 0 does nothing; NULL 100000; kind beyond 0..5 100000; ``dest_max`` 107000;
    ``dst == src`` does nothing; no device in this thread 107002.  Between devices both directions of peer
    access must be enabled, else 507899.

    Refuses: 100000 NULL, kind; 107000 `dest_max`, addresses; 107002; 507899 no peer access,
        imported for another device
    Basis: S, D; C for the last
    """
    if not count:
        return
    check_copy(dst, dest_max, src, count, kind)
    copy_now(dst, src, count, kind)


def copy_now(dst: int, src: int, count: int, kind: int) -> None:
    """Copy; the arguments are checked already."""
    if dst == src:
        return
    machine.context()
    refuse_far(dst, src, kind, waits=True)
    with access_explained(dst, src):
        raw.copy(dst, src, count, direct=True)


def memcpy(*args: object) -> object:
    """Copy at once if every argument is right; else the checks run in the vendor's order."""
    try:
        dst, dest_max, src, count, kind = args
        if (
            type(dst) is int
            and type(src) is int
            and type(count) is int
            and type(dest_max) is int
            and type(kind) is int
            and 0 < count <= dest_max
            and 0 <= kind <= 5
            and dst != src
            and dst
            and src
            and not machine.thread.context.node.is_closed
            and not machine.far
        ):
            quick_copy(dst, src, count, True)
            return SUCCESS
    except BadAddress as error:  # the checks would let these arguments pass
        return acl.failed("acl.rt.memcpy", error, args)
    except (Error, TypeError, ValueError):
        pass  # nothing was written: the checks give the reason
    return _memcpy(*args)


acl.serve("acl.rt.memcpy", memcpy, _memcpy)


@acl.call("acl.rt.memset")
def memset(dev_ptr: Address, max_count: Word, value: Int32, count: Word) -> None:
    """Set ``count`` bytes to the low byte of ``value`` (facts/acl 2.7); host memory must be acl's own.

    Refuses: 100000 NULL; 107000 `max_count`, addresses, ordinary host memory; 107002
    Basis: S; C for host memory's code
    """
    if not count:
        return
    check_fill(dev_ptr, max_count, count)
    machine.context()
    refuse_ordinary(dev_ptr, count)
    raw.fill(dev_ptr, value & 0xFF, count=count)


@acl.call("aclrtMemsetD32")
def memset_d32(ptr: Address, mem_size: Word, value: UInt32, n: Word) -> None:
    """Set ``n`` words of 32 bits to ``value`` (facts/acl 6); host memory must be acl's own.

    Refuses: 100000 NULL, no multiple of 4, more than `mem_size`, ordinary host memory; 107000 addresses; 107002
    Basis: S
    """
    if not n:
        return
    check_words(ptr, mem_size, n)
    machine.context()
    raw.fill(ptr, value, width=4, count=n)


@acl.call("acl.rt.memcpy2d")
def memcpy2d(
    dst: Address, dpitch: Word, src: Address, spitch: Word, width: Word, height: Word, kind: Int32
) -> None:
    """Copy ``height`` rows of ``width`` bytes whose starts lie a pitch apart (facts/acl 2.7).

    Refuses: 100000 NULL, pitch, kind not 1 to 4; 107000 addresses; 107002; 507899
    Basis: S; C for kinds 0 and 5
    """
    if not (width and height):
        return
    check_rectangle(dst, dpitch, src, spitch, width, height, kind)
    machine.context()
    refuse_far(dst, src, kind, waits=True)
    with rectangle_explained(), access_explained(dst, src):
        raw.copy_2d(dst, dpitch, src, spitch, width, height, direct=True)


def check_copy(dst: int, dest_max: int, src: int, count: int, kind: int) -> None:
    """Refuse wrong arguments of a copy, without a look at memory."""
    _ENDS(dst, src)
    _KIND(kind)
    refuse_beyond("dest_max", dest_max, count)


def check_fill(dev_ptr: int, max_count: int, count: int) -> None:
    """Refuse wrong arguments of a fill, without a look at memory."""
    _TARGET(dev_ptr)
    refuse_beyond("max_count", max_count, count)


def check_rectangle(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> None:
    """Refuse wrong arguments of a copy of rows, without a look at memory."""
    _ENDS(dst, src)
    if width > dpitch or width > spitch:
        raise Code.INVALID_PARAM.refusal(
            f"width {width:,} is more than a pitch: dpitch is {dpitch:,}, spitch {spitch:,}",
            "a pitch is the distance between the starts of two rows, at least width",
        )
    _KIND_2D(kind)
    for name, pointer, pitch in (("dst", dst, dpitch), ("src", src, spitch)):
        if pointer + (height - 1) * pitch + width > _END:
            raise Code.RT_PARAM_INVALID.refusal(
                f"{height:,} rows that lie {name[0]}pitch = {pitch:,} bytes apart reach from {name} {pointer:#x} "
                "beyond the 64-bit address space",
                "pass the pitch and the height of the rectangle; a negative one wraps round to a large one",
            )


def check_words(ptr: int, mem_size: int, n: int) -> None:
    """Refuse what the vendor's upper layer refuses of setting words: 100000."""
    null("ptr")(ptr)
    if ptr % _WORD_BYTES:
        cause, remedy = f"ptr {ptr:#x} is not a multiple of 4", "pass the address of a word"
    elif n * _WORD_BYTES > mem_size:
        cause = f"{n:,} words of 4 bytes are more than mem_size, which is {mem_size:,}"
        remedy = "pass the bytes of the destination as mem_size, and set no more"
    elif ptr not in machine.allocations and raw.locate(ptr).kind is Kind.PAGEABLE:
        cause = f"{ptr:#x} is host memory that acl.rt.malloc_host did not allocate"
        remedy = "pass an address that acl.rt.malloc or acl.rt.malloc_host returned"
    else:
        return
    raise Code.INVALID_PARAM.refusal(cause, remedy)


def refuse_ordinary(dev_ptr: int, count: int) -> None:
    """Refuse to fill host memory that acl neither allocated nor registered."""
    if dev_ptr in machine.allocations or raw.locate(dev_ptr).kind is not Kind.PAGEABLE:
        return
    if machine.registrations.around(dev_ptr, count) is not None:
        return
    if not is_mapped(dev_ptr):
        raise Code.RT_PARAM_INVALID.refusal(
            f"{dev_ptr:#x} is not an address: nothing is mapped there",
            "pass an address that acl.rt.malloc or acl.rt.malloc_host returned",
        )
    raise Code.RT_PARAM_INVALID.refusal(
        f"{dev_ptr:#x} is host memory that acl.rt.malloc_host did not allocate",
        "set ordinary host memory with Python or numpy, or allocate it with acl.rt.malloc_host",
    )


def refuse_beyond(name: str, limit: int, count: int) -> None:
    """Refuse more bytes than the caller's limit: 107000."""
    if not 0 < count <= limit:
        raise Code.RT_PARAM_INVALID.refusal(
            f"count {count:,} is more than {name}, which is {limit:,}",
            f"{name} is the size of the destination from its pointer on; pass it, and copy no more",
        )


def refuse_far(dst: int, src: int, kind: int, *, waits: bool) -> None:
    """Refuse copies that memory imported with another device set does not support: 507899."""
    for buffer, home in list(machine.far.values()):
        for pointer, other in ((dst, src), (src, dst)):
            if buffer.is_closed or not 0 <= pointer - buffer.last_address < buffer.size:
                continue
            location = raw.locate(other)
            if location.kind is not Kind.DEVICE:
                cause = "is not copied to or from the host"
                remedy = "copy it to memory of acl.rt.malloc first, with acl.rt.memcpy_async and kind 3"
            elif kind == _GUESSED:
                cause, remedy = "is not copied with kind 4, a guess", "pass kind 3"
            elif waits and location.ordinal == home.ordinal:
                cause = "is not copied within its device by a call that waits"
                remedy = "use acl.rt.memcpy_async"
            else:
                continue
            raise Code.RT_DRV_INTERNAL_ERROR.refusal(
                f"{pointer:#x} is memory of device {machine.number_of(home)} that was imported with another device "
                f"set, and {cause}",
                f"{remedy}, or import it with acl.rt.set_device({machine.number_of(home)}) called before",
            )


@contextlib.contextmanager
def access_explained(dst: int, src: int) -> Iterator[None]:
    """Refuse a copy without peer access with the access that is missing: 507899."""
    try:
        yield
    except AccessDenied as error:
        _refuse_access(error, dst, src)


@contextlib.contextmanager
def rectangle_explained() -> Iterator[None]:
    """Refuse rows that reach beyond memory with the arguments to make smaller: 107000."""
    try:
        yield
    except BadAddress as error:
        cause, remedy = explain(error)
        if remedy != REMEDIES[Fault.OUT_OF_BOUNDS]:
            raise
        raise Code.RT_PARAM_INVALID.refusal(
            cause, "pass a smaller width or height, or the pitch with which the memory was allocated"
        ) from None


def _refuse_access(error: AccessDenied, dst: int, src: int) -> NoReturn:
    ends = {"dst": raw.locate(dst), "src": raw.locate(src)}
    if any(end.kind is not Kind.DEVICE for end in ends.values()):
        raise error
    present = machine.devices()
    a, b = present[ends["dst"].ordinal], present[ends["src"].ordinal]
    private = [
        f"{name} ({allocations.record_of(end.allocation) or hex(end.base)})"
        for name, end in ends.items()
        if not machine.is_for_peers(end.base)
    ]
    raise without_access(error, a, b, private) from None

"""Whether bytes are memory, asked before the first byte of a transfer moves."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from peerlane import Kind
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.moves import ranks
from peerlane.dialects.mooncake._failures import refused
from peerlane.errors import Error
from peerlane.memory import raw

Range = tuple[int, int]  # address and bytes
_MOST_PROBED = 4096  # pages, of which a probe of each costs less than the list of a process's mappings
_MOST_ASKED = 1 << 16  # pages of a call
_LAST = 1 << 64
_mincore = ctypes.CDLL(None, use_errno=True).mincore
_mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p


def check(name: str, ranges: Sequence[Range]) -> None:
    """Raise a ``Refusal`` or an ``Error`` unless all bytes of ranges are memory of this process.

    Parameters
    ----------
    name : str
        The engine whose memory they are.
    ranges : sequence of (int, int)
    """
    pageable = []
    for address, size in ranges:
        at = address
        while at < address + size:
            located = raw.locate(at)
            if located.kind is Kind.PAGEABLE:
                break
            at = located.base + located.size
        if at == address:
            pageable.append((address, size))
        elif at < address + size:
            raise _missing(name, [(address, size)])
    ends = [(at, 1) for address, size in pageable for at in (address, address + size - 1)]
    is_missing = ranks().check_pages(os.getpid(), ends) == errno.EFAULT if ends else False
    if is_missing or not all(_is_mapped(*each) for each in pageable):
        raise _missing(name, pageable)


def check_pages(name: str, pid: int, ranges: Sequence[Range]) -> None:
    """Raise a ``Refusal`` unless all pages of ranges are memory of another process.

    Another failure, as of a process that has ended, is left to the copy.
    """
    if sum(size for _, size in ranges) <= _MOST_PROBED * mmap.PAGESIZE:
        is_missing = bool(ranges) and ranks().check_pages(pid, ranges) == errno.EFAULT
    else:
        mapped = _mapped(pid)
        is_missing = mapped is not None and not all(_is_within(mapped, *each) for each in ranges)
    if is_missing:
        raise _missing(name, ranges)


def _is_mapped(address: int, size: int) -> bool:
    at = address - address % mmap.PAGESIZE
    while at < address + size:
        part = min(address + size - at, _MOST_ASKED * mmap.PAGESIZE)
        if _mincore(at, part, ctypes.create_string_buffer(-(-part // mmap.PAGESIZE))):
            return ctypes.get_errno() != errno.ENOMEM
        at += part
    return True


def _mapped(pid: int) -> list[list[int]] | None:
    """Return the first and the last address of each part of a process's readable memory; None if they are unknown."""
    try:
        content = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return None
    parts: list[list[int]] = []
    for line in content.splitlines():
        extent, rights = line.split(maxsplit=2)[:2]
        if not rights.startswith(b"r"):
            continue
        first, _, end = extent.partition(b"-")
        if parts and parts[-1][1] == int(first, 16) - 1:
            parts[-1][1] = int(end, 16) - 1
        else:
            parts.append([int(first, 16), int(end, 16) - 1])
    return parts


def _is_within(parts: list[list[int]], address: int, size: int) -> bool:
    at = bisect_right(parts, [address, _LAST]) - 1
    return at >= 0 and address + size - 1 <= parts[at][1]


def _missing(name: str, ranges: Sequence[Range]) -> Refusal:
    some = ", ".join(f"{size:,} bytes at {address:#x}" for address, size in ranges[:8])
    return refused(
        f"not all of {some}{', ...' if len(ranges) > 8 else ''} of {name!r} is memory",
        "pass memory that lives, and unregister memory before it is freed",
    )


def allocation_of(address: int) -> int | None:
    """Return the number of the allocation at an address; None for other memory, or no memory."""
    try:
        located = raw.locate(address)
    except Error:
        return None
    return None if located.kind is Kind.PAGEABLE else located.allocation

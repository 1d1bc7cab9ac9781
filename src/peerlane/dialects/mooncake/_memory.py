"""Whether bytes are memory, asked before the first byte of a transfer moves."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from peerlane import Kind
from peerlane.backend.ranks import ProcessMemory
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.moves import ranks
from peerlane.dialects.mooncake._failures import refused
from peerlane.errors import Error
from peerlane.memory import raw

Range = tuple[int, int]  # address and bytes
_own: tuple[int, ProcessMemory] | None = None  # with the process, of which a fork's child is another one


def check(name: str, ranges: Sequence[Range], *, writes: bool) -> None:
    """Raise a ``Refusal`` or an ``Error`` unless all bytes of ranges are memory of this process.

    ``name``: the engine whose memory they are.
    ``writes``: whether they are to be written, else read.
    """
    global _own
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
            raise _missing(name, [(address, size)], writes)
    if not pageable:
        return
    own = _own
    if own is None or own[0] != os.getpid():
        own = _own = os.getpid(), ranks().process_memory(os.getpid())
    check_of(own[1], name, pageable, writes=writes)


def check_of(memory: ProcessMemory, name: str, ranges: Sequence[Range], *, writes: bool) -> None:
    """Raise a ``Refusal`` unless all bytes of ranges are memory of a process.

    Another failure, as of a process that has ended, is left to the copy.
    """
    if memory.check(ranges, writes) == errno.EFAULT:
        raise _missing(name, ranges, writes)


def _missing(name: str, ranges: Sequence[Range], writes: bool) -> Refusal:
    some = ", ".join(f"{size:,} bytes at {address:#x}" for address, size in ranges[:8])
    more, done = ", ..." if len(ranges) > 8 else "", "written" if writes else "read"
    return refused(
        f"not all of {some}{more} of {name!r} is memory that can be {done}",
        "pass memory that lives, and unregister memory before it is freed",
    )


def allocation_of(address: int) -> int | None:
    """Return the number of the allocation at an address; None for other memory, or no memory."""
    try:
        located = raw.locate(address)
    except Error:
        return None
    return None if located.kind is Kind.PAGEABLE else located.allocation

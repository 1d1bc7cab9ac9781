"""
The virtual machine's hardware: address windows, blocks, copies.  No policy, no texts.
"""

from collections.abc import Callable
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


def set_refusal_hook(hook: Callable[..., BaseException]) -> None:
    """
    Set hook(why, role, address, size, base, extent_size, id, fault_address, errno, device, other_device) -> exception.
    """

def configure(window_bytes: int, cache_bytes: int, poison: bool) -> None:
    """
    Reserve the address windows (the first call only) and set the cache bound and poisoning.
    """

class Ledger:
    """One process's slot in a node's shared account of device memory."""

    def __init__(self, fd: int, devices: int, slots: int, slot: int) -> None: ...

    def used(self, device: int) -> int:
        """Bytes of `device` held by all processes of the node."""

def add_device(capacity: int, host_access: bool, routes_peer_memory_only: bool, ledger: Ledger, index: int) -> int:
    """Return the number of a new device."""

def close_device(number: int) -> None:
    """Let every allocation of a device die."""

def free_bytes(number: int) -> int: ...

def live_allocations(number: int) -> int: ...

def set_route(origin: int, target: int, open: bool) -> None: ...

def route_open(a: int, b: int) -> bool: ...

def trim() -> int:
    """Give cached blocks back to the system; return their bytes."""

def interpreter_exits() -> None:
    """
    Let threads that come back for the GIL from now on wait for the end of the process.
    """

def check_usable() -> None:
    """Refuse in a forked child."""

def window_offset(address: int) -> int | None:
    """
    Return the place of an address in its window (guard or shadow), None outside of both.
    """

def cached_bytes() -> int: ...

class Memory:
    """
    An allocation, a part of one, or foreign host memory; exports its bytes to the host.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...

    @overload
    def __init__(self, device: int, size: int, peer: bool) -> None: ...

    @overload
    def __init__(self, whole: Memory, offset: int, size: int) -> None: ...

    @overload
    def __init__(self, address: int, size: int, read_only: bool, host_view: bool) -> None: ...

    @property
    def address(self) -> int:
        """The address; raises when the memory is closed."""

    @property
    def writable_address(self) -> int:
        """The address; raises when it may not be written."""

    @property
    def last_address(self) -> int:
        """The address it has or had."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def id(self) -> int:
        """The allocation's number, unique in the process; 0 for foreign memory."""

    @property
    def is_live(self) -> bool: ...

    @property
    def is_read_only(self) -> bool: ...

    @property
    def is_peer(self) -> bool:
        """Whether it was allocated for peer access."""

    def close(self) -> None:
        """
        End this object; an owner's memory goes back when the last use of it ends.
        """

def locate(address: int) -> tuple[int, int, int, int] | None:
    """Return (device, base, size, id), or None for pageable host memory."""

def host_pointer(address: int, size: int) -> int:
    """Return where the host may touch the range while its allocation lives."""

def nearest(address: int) -> tuple[int, int, int, int] | None:
    """
    Return (device, address, size, id) of the live allocation nearest to a window address.
    """

def copy(dst: int, src: int, size: int, direct: bool = False) -> None:
    """Copy between any two addresses; the GIL is released above 256 KiB."""

def copy_memory(dst: Memory, src: Memory) -> None:
    """Copy all of `src` to `dst`, which must be as large."""

def copy_memory_2d(dst: Memory, dst_pitch: int, src: Memory, src_pitch: int, width: int, height: int) -> None: ...

def fill_memory(dst: Memory, value: int, width: int) -> None:
    """Fill all of `dst`, a multiple of `width` bytes."""

def copy_2d(dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int, direct: bool = False) -> None: ...

def fill(dst: int, value: int, width: int, count: int) -> None: ...

def time_reference_copy(dst: int, src: int, size: int, streaming: bool, threads: int, rounds: int) -> float:
    """
    Seconds of one plain or streaming copy between two host addresses, without any check.
    """

def time_lookups(addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)], rounds: int) -> float:
    """Seconds of one look-up, over the whole list in order."""

def cores() -> int:
    """Cores that this process may use."""

def has_stream_copy() -> bool:
    """Whether this processor has non-temporal copies."""

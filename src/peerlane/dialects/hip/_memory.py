"""``hip``: device and host memory (spec hip 1.3, 1.4)."""

from __future__ import annotations

from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._results import device_array, pointer
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import null_stream
from peerlane.dialects.hip._types import DeviceArray, Pointer

_PORTABLE, _MAPPED, _WRITE_COMBINED, _NUMA_USER = 1, 2, 4, 0x2000_0000
_COHERENT, _NON_COHERENT = 0x4000_0000, 0x8000_0000
_HOST_FLAGS = _PORTABLE | _MAPPED | _WRITE_COMBINED | _NUMA_USER | _COHERENT | _NON_COHERENT


def allocate(nbytes: int) -> int:
    """Allocate memory of the current device and return its address; errors as ``machine.give``."""
    found = machine.allocate(machine.context(), nbytes, peer=True)
    if found is None:
        raise machine.reset_meanwhile(machine.ordinal)
    return found


@calls.call("hipMalloc")
def hipMalloc(size: int) -> DeviceArray | None:
    """Allocate memory of the current device; of size 0 it is None (spec hip 1.3).

    Gives: DeviceArray of bytes
    Refuses: hipErrorOutOfMemory
    Basis: S
    """
    return device_array(allocate(size), size) if size else None


@calls.call("hipFree")
def hipFree(ptr: int) -> None:
    """Wait for the device of the memory, and free it; NULL does nothing.

    Refuses: hipErrorInvalidValue for what was not allocated, or was freed
    Basis: S
    """
    free(ptr, "hipFree")


@calls.call("hipHostMalloc")
def hipHostMalloc(size: int, flags: int) -> Pointer | None:
    """Allocate pinned host memory; of size 0 it is None.

    Gives: Pointer
    Refuses: hipErrorInvalidValue flags; hipErrorOutOfMemory
    Basis: S
    """
    return _host(size, flags)


@calls.call("hipHostAlloc")
def hipHostAlloc(size: int, flags: int) -> Pointer | None:
    """Do what hipHostMalloc does.

    Gives: Pointer
    Refuses: as `hipHostMalloc`
    Basis: S
    """
    return _host(size, flags)


def _host(nbytes: int, flags: int) -> Pointer | None:
    both = _COHERENT | _NON_COHERENT
    if flags & ~_HOST_FLAGS or flags & both == both:
        raise refusal(
            "hipErrorInvalidValue",
            f"flags are {flags:#x}; valid are the bits of {_HOST_FLAGS:#x}, coherent or not but not both",
            "pass hipHostMallocDefault, 0",
        )
    return pointer(machine.allocate_host(nbytes)) if nbytes else None


@calls.call("hipHostFree")
def hipHostFree(ptr: int) -> None:
    """Free what hipHostMalloc gave; NULL does nothing.

    Refuses: hipErrorInvalidValue for what was not allocated, or was freed
    Basis: S
    """
    free(ptr, "hipHostFree")


def free(address: int, call: str) -> None:
    """Free what was allocated at exactly this address, once its device is idle."""
    if not address:
        return
    buffer = machine.owned(address, host=False)
    if buffer is None and machine.owned(address, host=True) is None:
        raise refusal(
            "hipErrorInvalidValue",
            f"nothing that HIP allocated begins there: {machine.describe(address)}",
            "free what hipMalloc or hipHostMalloc returned, once",
        )
    if buffer is not None:
        null_stream(machine.context_of(buffer.device.ordinal)).wait()  # type: ignore[union-attr]
    machine.free(address, host=buffer is None, call=call)

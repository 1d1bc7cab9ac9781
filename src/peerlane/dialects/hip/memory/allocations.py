"""``hip``: device and host memory (facts/hip 1.3, 1.4)."""

from __future__ import annotations

from typing import Annotated, Any

from peerlane.dialects.hip.binding import numbers
from peerlane.dialects.hip.binding.checks import required
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.results import device_array, pointer, struct
from peerlane.dialects.hip.binding.types import DeviceArray, Pointer
from peerlane.dialects.hip.state import calls, gpu, machine

_PORTABLE, _MAPPED, _WRITE_COMBINED, _NUMA_USER, _COHERENT, _NON_COHERENT = numbers(
    *(
        f"hipHostMalloc{each}"
        for each in ("Portable", "Mapped", "WriteCombined", "NumaUser", "Coherent", "NonCoherent")
    )
)
_UNCACHED = 0x1000_0000  # a macro of the C header, which the wheel lacks
_HOST_FLAGS = _PORTABLE | _MAPPED | _WRITE_COMBINED | _NUMA_USER | _COHERENT | _NON_COHERENT | _UNCACHED
_ALLOC_FLAGS = _PORTABLE | _MAPPED | _WRITE_COMBINED | _UNCACHED
(_SIGNAL,) = numbers("hipMallocSignalMemory")
_EXT_FLAGS = range(5)  # default, fine-grained, signal, uncached, contiguous: the wheel lacks the last two
_SIGNAL_BYTES = 8
_ATTACH_GLOBAL, _ATTACH_HOST = numbers("hipMemAttachGlobal", "hipMemAttachHost")


memory = gpu.memory


@calls.call("hipMalloc")
def hipMalloc(size: int) -> DeviceArray | None:
    """Allocate memory of the current device; of size 0 it is None (facts/hip 1.3).

    Gives: DeviceArray of bytes
    Refuses: hipErrorOutOfMemory
    Basis: S
    """
    return device_array(memory.allocate(size), size) if size else None


@calls.call("hipExtMallocWithFlags")
def hipExtMallocWithFlags(sizeBytes: int, flags: int) -> DeviceArray | None:
    """Allocate as hipMalloc does; the flags change nothing but hipMallocSignalMemory, which is memory of the host.

    Gives: DeviceArray of bytes
    Refuses: hipErrorInvalidValue flags, signal memory of another size than 8 bytes; hipErrorOutOfMemory
    Basis: S, D for flags
    """
    if flags not in _EXT_FLAGS:
        raise invalid(
            f"flags are {flags:#x}; valid are 0 to {_EXT_FLAGS.stop - 1}, one of them",
            "pass hipDeviceMallocDefault, 0",
        )
    if flags == _SIGNAL:
        if sizeBytes != _SIGNAL_BYTES:
            raise invalid(
                f"signal memory of {sizeBytes:,} bytes is asked for; it has {_SIGNAL_BYTES}",
                f"pass {_SIGNAL_BYTES}",
            )
        return device_array(memory.allocate_host(sizeBytes, flags), sizeBytes)
    return device_array(memory.allocate(sizeBytes, flags), sizeBytes) if sizeBytes else None


@calls.call("hipMallocManaged")
def hipMallocManaged(size: int, flags: int) -> DeviceArray | None:
    """Allocate memory that the host and all devices reach: pinned memory of the host, which never moves.

    Gives: DeviceArray of bytes
    Refuses: hipErrorInvalidValue size 0, flags other than hipMemAttachGlobal 1 or hipMemAttachHost 2;
        hipErrorOutOfMemory
    Basis: S, D for the refusals; C: it stays on the host
    """
    if not size:
        raise invalid("size is 0", "ask for at least 1 byte")
    if flags not in (_ATTACH_GLOBAL, _ATTACH_HOST):
        raise invalid(
            f"flags are {flags:#x}; valid are {_ATTACH_GLOBAL} and {_ATTACH_HOST}",
            "pass hipMemAttachGlobal, 1",
        )
    return device_array(memory.allocate_host(size, flags, is_managed=True), size)


@calls.call("hipHostMalloc")
def hipHostMalloc(size: int, flags: int) -> Pointer | None:
    """Allocate pinned host memory; of size 0 it is None.

    Gives: Pointer
    Refuses: hipErrorInvalidValue flags; hipErrorOutOfMemory
    Basis: S
    """
    return _host(size, flags, _HOST_FLAGS)


@calls.call("hipHostAlloc")
def hipHostAlloc(size: int, flags: int) -> Pointer | None:
    """Do what hipHostMalloc does, with fewer flags: portable 1, mapped 2, write-combined 4, uncached.

    Gives: Pointer
    Refuses: as `hipHostMalloc`
    Basis: S, D for flags
    """
    return _host(size, flags, _ALLOC_FLAGS)


@calls.call("hipMallocHost")
def hipMallocHost(size: int) -> Pointer | None:
    """Do what hipHostMalloc does without flags.

    Gives: Pointer
    Refuses: hipErrorOutOfMemory
    Basis: S
    """
    return _host(size, 0, 0)


calls.declare_alias(
    "hipMemAllocHost", "hipMallocHost", basis="S", does="Do what hipHostMalloc does without flags."
)


def _host(nbytes: int, flags: int, valid: int) -> Pointer | None:
    together = _COHERENT | _NON_COHERENT
    alone = _UNCACHED if flags & _UNCACHED else 0
    if flags & ~valid or flags & together == together or (alone and flags & together):
        raise invalid(
            f"flags are {flags:#x}; valid are the bits of {valid:#x}, of coherent {_COHERENT:#x}, not coherent "
            f"{_NON_COHERENT:#x} and uncached {_UNCACHED:#x} one at most",
            "pass hipHostMallocDefault, 0",
        )
    return pointer(memory.allocate_host(nbytes, flags)) if nbytes else None


@calls.call("hipHostGetFlags")
def hipHostGetFlags(hostPtr: int) -> int:
    """Return the flags that memory of hipHostMalloc was asked for with; also of an address inside.

    Gives: flags
    Refuses: hipErrorInvalidValue NULL, memory of a device, registered memory, memory that HIP does not know
    Basis: S, D for registered memory
    """
    region = gpu.regions.required_at("hostPtr", hostPtr)
    if region.is_device or region.is_registered:
        raise invalid(
            f"hostPtr is not memory of hipHostMalloc: {machine.describe(hostPtr)}",
            "pass what hipHostMalloc returned",
        )
    return region.flags


@calls.call("hipMallocPitch")
def hipMallocPitch(width: int, height: int) -> tuple[Pointer | None, int]:
    """Allocate rows of ``width`` bytes on the current device, which begin at multiples of 256; None for none.

    Gives: Pointer, pitch in bytes
    Refuses: hipErrorInvalidValue a width beyond the address space; hipErrorOutOfMemory
    Basis: S, D for 256
    """
    address, pitch = memory.allocate_rows(width, height, 1)
    return pointer(address), pitch


@calls.call("hipMemAllocPitch")
def hipMemAllocPitch(widthInBytes: int, height: int, elementSizeBytes: int) -> tuple[Pointer | None, int]:
    """Do what hipMallocPitch does.

    Gives: Pointer, pitch in bytes
    Refuses: hipErrorInvalidValue no bytes, elements of another size than 4, 8 or 16 bytes; hipErrorOutOfMemory
    Basis: S, D for the refusals
    """
    if not widthInBytes or not height:
        raise invalid(f"{height:,} rows of {widthInBytes:,} bytes are none", "ask for some")
    if elementSizeBytes not in (4, 8, 16):
        raise invalid(
            f"elements have {elementSizeBytes} bytes; valid are 4, 8 and 16",
            "pass 4; the pitch is the same for all",
        )
    address, pitch = memory.allocate_rows(widthInBytes, height, 1)
    return pointer(address), pitch


@calls.call("hipMalloc3D")
def hipMalloc3D(extent: Annotated[Any, required("hipExtent")]) -> object:
    """Allocate ``depth`` times ``height`` rows of ``width`` bytes, which begin at multiples of 256.

    Gives: hipPitchedPtr; its ptr is NULL where there is nothing to allocate
    Refuses: hipErrorInvalidValue NULL, a width beyond the address space; hipErrorOutOfMemory
    Basis: S, D for 256
    """
    address, pitch = memory.allocate_rows(extent.width, extent.height, extent.depth)
    return struct("hipPitchedPtr")(pointer(address), pitch, extent.width, extent.height)


@calls.call("hipFree")
def hipFree(ptr: int) -> None:
    """Wait for all streams of the device, and free memory of a device or of the host; NULL does nothing.

    Failures of the streams are left for their own synchronization.

    Refuses: hipErrorInvalidValue memory that was not allocated, was freed, or an address inside it
    Basis: S, D; C for addresses inside, and for registered memory, which is refused
    """
    memory.free(ptr, "hipFree")


@calls.call("hipHostFree")
def hipHostFree(ptr: int) -> None:
    """Do what hipFree does.

    Refuses: as `hipFree`
    Basis: S, D
    """
    memory.free(ptr, "hipHostFree")


@calls.call("hipFreeHost")
def hipFreeHost(ptr: int) -> None:
    """Do what hipFree does.

    Refuses: as `hipFree`
    Basis: S, D
    """
    memory.free(ptr, "hipFreeHost")

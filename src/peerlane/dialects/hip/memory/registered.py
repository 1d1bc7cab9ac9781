"""``hip``: host memory that a program registers, so that copies on streams need not wait (facts/hip 1.4)."""

from __future__ import annotations

from peerlane.dialects.hip.binding import numbers
from peerlane.dialects.hip.binding.checks import NoFlags, NotNull, refuse_bits
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.results import pointer
from peerlane.dialects.hip.binding.types import Pointer
from peerlane.dialects.hip.state import calls, gpu

_UNCACHED = 0x8000_0000  # a macro of the C header, which the wheel lacks
_FLAGS = _UNCACHED | sum(
    numbers(
        *(f"hipHostRegister{each}" for each in ("Portable", "Mapped", "IoMemory")),
        "hipExtHostRegisterCoarseGrained",
    )
)


@calls.call("hipHostRegister")
def hipHostRegister(hostPtr: NotNull, sizeBytes: int, flags: int) -> None:
    """Let devices use memory of the host: a copy with it on a stream need not be complete on return.

    The program keeps the memory until hipHostUnregister.  Registrations may overlap.  An address that is registered
    keeps its first size and flags: registered twice, it is unregistered once (facts/hip 3.11).

    Refuses: hipErrorInvalidValue NULL, no bytes, flags, not all of it memory of the host;
        hipErrorHostMemoryAlreadyRegistered memory that HIP allocated
    Basis: D; C for memory that is not there, and for memory that HIP allocated
    """
    if not sizeBytes:
        raise invalid("sizeBytes is 0", "register at least 1 byte")
    refuse_bits(_FLAGS, "flags", flags)
    gpu.memory.register(hostPtr, sizeBytes, flags)


@calls.call("hipHostUnregister")
def hipHostUnregister(hostPtr: NotNull) -> None:
    """End a registration, once no stream uses it.

    It waits for the streams of the device that was current at hipHostRegister, and of those whose streams use
    words of the memory.

    Refuses: hipErrorInvalidValue NULL; hipErrorHostMemoryNotRegistered not the start of a registration
    Basis: D; C for addresses inside, and for the devices of words
    """
    gpu.memory.unregister(hostPtr)


@calls.call("hipHostGetDevicePointer", first=("flags",))
def hipHostGetDevicePointer(hstPtr: int, flags: NoFlags) -> Pointer | None:
    """Return the address of host memory for devices, which is the host's own; also of an address inside.

    Gives: Pointer
    Refuses: hipErrorInvalidValue flags not 0, NULL, memory that HIP does not know
    Basis: S, D for the refusals
    """
    gpu.regions.required_at("hstPtr", hstPtr)
    return pointer(hstPtr)

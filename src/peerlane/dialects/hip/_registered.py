"""``hip``: host memory that a program registers, so that copies on streams need not wait (facts/hip 1.4)."""

from __future__ import annotations

from peerlane import Kind
from peerlane.diagnostics.addresses import is_mapped
from peerlane.dialects.hip._checks import NoFlags, NotNull, refuse_bits
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._places import known, refuse_beyond
from peerlane.dialects.hip._results import pointer
from peerlane.dialects.hip._state import HostMemory, Made, calls, machine
from peerlane.dialects.hip._stream import await_device
from peerlane.dialects.hip._types import Pointer
from peerlane.memory import raw

_FLAGS = 0x1 | 0x2 | 0x4 | 0x8 | 0x8000_0000  # portable, mapped, I/O memory, coarse-grained, uncached
_END = 1 << 64


@calls.call("hipHostRegister")
def hipHostRegister(hostPtr: NotNull, sizeBytes: int, flags: int) -> None:
    """Let devices use memory of the host: copies on streams do not wait for their turn in the call then.

    The program keeps the memory until hipHostUnregister.  Registrations may overlap.  An address that is registered
    keeps its first size and flags: registered twice, it is unregistered once (facts/hip 3.11).

    Refuses: hipErrorInvalidValue NULL, no bytes, flags, not all of it memory of the host;
        hipErrorHostMemoryAlreadyRegistered memory that HIP allocated
    Basis: D; C for memory that is not there, and for memory that HIP allocated
    """
    if not sizeBytes:
        raise invalid("sizeBytes is 0", "register at least 1 byte")
    refuse_bits(_FLAGS, "flags", flags)
    made = Made(flags, machine.context().device.ordinal)
    _refuse_unknown(hostPtr, sizeBytes)
    with machine.lock:
        if not machine.registrations.begins(hostPtr):
            machine.registrations.add(HostMemory(hostPtr, sizeBytes, made))


def _refuse_unknown(address: int, nbytes: int) -> None:
    refuse_beyond(nbytes, hostPtr=address)
    last = address + nbytes - 1
    if last >= _END:
        raise invalid(
            f"{nbytes:,} bytes from {address:#x} on reach beyond the address space",
            "pass the size of the memory",
        )
    for end in (address, last):
        if raw.locate(end).kind is not Kind.PAGEABLE:
            raise refusal(
                "hipErrorHostMemoryAlreadyRegistered",
                f"HIP allocated it: {machine.describe(end)}",
                "register memory that HIP did not allocate",
            )
        if not is_mapped(end):
            raise invalid(
                f"{address:#x} to {last:#x} is not all memory of the host",
                "pass memory that lives, and its size",
            )


@calls.call("hipHostUnregister")
def hipHostUnregister(hostPtr: NotNull) -> None:
    """End a registration, once no stream uses it.

    It waits for the streams of the device that was current at hipHostRegister, and of those whose streams were given
    words of the memory.

    Refuses: hipErrorInvalidValue NULL; hipErrorHostMemoryNotRegistered not the start of a registration
    Basis: D; C for addresses inside, and for the devices of words
    """
    found = machine.registrations.around(hostPtr)
    if found is None or found.start != hostPtr:
        inside = f"; the {found.size:,} bytes at {found.start:#x} are" if found else ""
        raise refusal(
            "hipErrorHostMemoryNotRegistered",
            f"{hostPtr:#x} is not registered{inside}",
            "pass what hipHostRegister was given, once",
        )
    _await_users(found)
    with machine.lock:
        machine.registrations.remove(hostPtr)
        machine.advised.pop(-hostPtr, None)
    _await_users(found)  # for work that another thread queued meanwhile


def _await_users(memory: HostMemory) -> None:
    for ordinal in sorted({memory.made.ordinal, *memory.users}):
        await_device(machine.context_of(ordinal))


@calls.call("hipHostGetDevicePointer", first=("flags",))
def hipHostGetDevicePointer(hstPtr: int, flags: NoFlags) -> Pointer | None:
    """Return where devices find memory of the host, which is where the host does; also of an address inside.

    Gives: Pointer
    Refuses: hipErrorInvalidValue flags not 0, NULL, memory that HIP does not know
    Basis: S, D for the refusals
    """
    known("hstPtr", hstPtr)
    return pointer(hstPtr)

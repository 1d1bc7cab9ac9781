"""Memory of this rank: what a call moves, and what the program allocates for that."""

from __future__ import annotations

from peerlane import Buffer, Host
from peerlane.dialects.cuda.nccl.codes import INVALID_ARGUMENT, invalid, of_driver
from peerlane.dialects.cuda.nccl.communicator import Communicator, Named
from peerlane.dialects.cuda.nccl.state import call
from peerlane.dialects.cuda.runtime.table import current
from peerlane.dialects.cuda.state import gpu, machine
from peerlane.errors import BadAddress
from peerlane.memory import raw

_KEPT = 64  # parts of memory that are found without a look at what they are
_REMEDY = "pass memory of the communicator's device, of cuMemAlloc or ncclMemAlloc, that is large enough"


def memory(communicator: Communicator, name: str, address: int, nbytes: int) -> Buffer:
    """Return bytes at an address of this rank; the address of 0 bytes may be anything.

    Memory of another device, and pageable memory of the host, are refused.
    """
    known = communicator.named.get((address, nbytes))
    if known is not None:
        owner = machine.allocations.get(known.start)
        if owner is not None and owner.buffer is known.whole:
            return known.part
    if not nbytes:
        return communicator.group.window[:0]
    if not address:
        raise invalid(f"{name} is NULL, and {nbytes:,} bytes of it are meant", f"pass {name}")
    machine.devices()
    try:
        located = raw.find(address)
    except BadAddress as error:
        raise invalid(f"{name}: {error}", _REMEDY) from None
    if located is None:
        raise invalid(f"{name} is {machine.describe(address)}, which no device reaches", _REMEDY)
    owner = machine.allocations.get(located[1])
    if owner is None:
        try:
            buffer = raw.buffer(address, nbytes)
        except BadAddress as error:
            raise invalid(f"{name}: {error}", _REMEDY) from None
    else:
        first = address - located[1]
        if first + nbytes > owner.buffer.size:
            raise invalid(
                f"{name}: {nbytes:,} bytes at {address:#x} end {first + nbytes - owner.buffer.size:,} bytes "
                f"beyond {machine.describe(address)}",
                _REMEDY,
            )
        buffer = owner.buffer[first : first + nbytes]
    device = communicator.context.device
    if buffer.device is not device and not isinstance(buffer.device, Host):
        raise invalid(
            f"{name} is memory of device {machine.id_of(buffer.device.ordinal)}, and {communicator} is on device "
            f"{machine.id_of(device.ordinal)}",
            _REMEDY,
        )
    if owner is not None:
        if len(communicator.named) >= _KEPT:
            communicator.named.clear()
        communicator.named[address, nbytes] = Named(located[1], owner.buffer, buffer)
    return buffer


@call
def ncclMemAlloc(size: int) -> int:
    """Allocate memory of the current device; windows may be made of it."""
    if not size:
        raise invalid("0 bytes are asked for", "ask for 1 or more")
    with of_driver():
        current.enter()
        address = gpu.memory.allocate(size)
    machine.table(_ForWindows).add(machine.allocations[address].buffer.id)
    return address


class _ForWindows(set[int]):
    """The numbers of the allocations of ncclMemAlloc."""


def is_for_windows(address: int) -> bool:
    """Tell whether windows may be made of memory: that of ncclMemAlloc, and mapped physical memory."""
    located = raw.find(address)
    owner = machine.allocations.get(located[1]) if located is not None else None
    return owner is None or owner.buffer.id in machine.table(_ForWindows)


@call
def ncclMemFree(ptr: int) -> None:
    """Free memory of ncclMemAlloc; NULL does nothing."""
    with of_driver(INVALID_ARGUMENT):
        gpu.memory.free(ptr, "ncclMemFree")


@call
def ncclCommRegister(comm: Communicator, buff: int, size: int) -> int:
    """Note that collectives will use some memory: they are no faster by that here."""
    memory(comm, "buff", buff, size)
    with comm.guard:
        handle = max(comm.registered, default=0) + 1
        comm.registered[handle] = buff, size
    return handle


@call
def ncclCommDeregister(comm: Communicator, handle: int) -> None:
    with comm.guard:
        if handle and comm.registered.pop(handle, None) is None:
            raise invalid(
                f"{handle:#x} is not a registration of {comm}", "pass what ncclCommRegister returned"
            )

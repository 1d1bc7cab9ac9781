"""What an address points at, as HIP tells it."""

from __future__ import annotations

from peerlane import Kind
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hip._arguments import HostAddress
from peerlane.dialects.hip._checks import refuse_null
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._state import Made, machine
from peerlane.errors import Error
from peerlane.memory import raw
from peerlane.support.records import dataclass

CPU = -1  # hipCpuDeviceId
_PLAIN = Made(0, 0)


@dataclass(frozen=True, slots=True)
class Place:
    """Memory that HIP knows: allocated, mapped, opened or registered.

    Attributes
    ----------
    is_device : bool
        Whether it lies on a device.
    is_managed, is_registered : bool
        Memory of the host that hipMallocManaged made, or that hipHostRegister was given.
    ordinal : int
        Of its device; of memory of the host, the device that was current when it was made.
    base, size : int
        All of it.
    allocation : int
        Its number; of registered memory its address, negative.
    flags : int
        The flags that it was made with.
    """

    is_device: bool
    is_managed: bool
    is_registered: bool
    ordinal: int
    base: int
    size: int
    allocation: int
    flags: int

    def left(self, address: int) -> int:
        """Return how many bytes there are from an address on."""
        return self.base + self.size - address


def place_of(address: int) -> Place | None:
    """Return the allocation at an address; None for ordinary memory of the host.

    Raises
    ------
    BadAddress
        An address of a device where nothing is.
    """
    found = raw.locate(address)
    if found.kind is Kind.PAGEABLE:
        known = machine.registrations.around(address)
        if known is None:
            return None
        made = known.made
        return Place(False, False, True, made.ordinal, known.start, known.size, -known.start, made.flags)
    made = machine.made.get(found.allocation, _PLAIN)
    is_device = found.kind is Kind.DEVICE
    ordinal = found.ordinal if is_device else made.ordinal
    return Place(
        is_device, made.is_managed, False, ordinal, found.base, found.size, found.allocation, made.flags
    )


def knows(address: int) -> object:
    """Return something of memory that HIP knows, None for ordinary memory of the host; errors as `place_of`.

    It asks less than `place_of`.
    """
    return raw.find(address) or machine.registrations.around(address)


def known(name: str, address: int, code: str = "hipErrorInvalidValue") -> Place:
    """Return the allocation at an address; ``code`` for ordinary memory of the host, and where there is none."""
    refuse_null(name, address)
    try:
        found = place_of(address)
    except Error:
        found = None
    if found is None:
        raise refusal(
            code,
            f"{name} is not memory of HIP: {machine.describe(address)}",
            "pass what hipMalloc, hipHostMalloc or hipHostRegister made known",
        )
    return found


def refuse_beyond(nbytes: int, **pointers: int) -> None:
    """Refuse more bytes than a host object has, or a registration, from each pointer on.

    Hardware would overwrite what lies behind.  The copy itself refuses it for allocations.
    """
    for name, pointer in pointers.items():
        if isinstance(pointer, HostAddress) and nbytes > pointer.nbytes:
            raise invalid(
                f"{name} is a host object of {pointer.nbytes:,} bytes, and {nbytes:,} are asked for",
                "ask for fewer bytes, or pass a larger object",
            )
        registered = machine.registrations.around(pointer)
        if registered is not None and pointer + nbytes > registered.end:
            raise _too_short(name, pointer, registered.end - pointer, nbytes)


def refuse_outside(nbytes: int, **pointers: int) -> None:
    """Refuse more bytes than there are from each pointer on; addresses of ordinary host memory have no bound."""
    for name, pointer in pointers.items():
        inside(name, pointer, nbytes)


def inside(name: str, pointer: int, nbytes: int) -> Place | None:
    """Return the allocation at a pointer as `place_of` does; refuse more bytes than it has from there on."""
    if isinstance(pointer, HostAddress):
        refuse_beyond(nbytes, **{name: pointer})
    place = place_of(pointer)
    if place is None or nbytes <= place.left(pointer):
        return place
    end = place.base + place.size
    while end < pointer + nbytes:
        try:
            beyond = None if place.is_registered else raw.locate(end)  # mappings may lie side by side
        except Error:
            beyond = None
        if beyond is None or beyond.kind is Kind.PAGEABLE:
            raise _too_short(name, pointer, end - pointer, nbytes)
        end = beyond.base + beyond.size
    return place


def _too_short(name: str, pointer: int, left: int, nbytes: int) -> Refusal:
    return invalid(
        f"{name} has {left:,} bytes from {pointer:#x} on, and {nbytes:,} are asked for: {machine.describe(pointer)}",
        "ask for fewer bytes, or allocate more",
    )

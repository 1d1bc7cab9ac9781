"""``acl``: data buffers, an address and a size under one number (facts/acl 2.1)."""

from __future__ import annotations

from peerlane.dialects._shared.call import Address, Refusal, Word
from peerlane.dialects._shared.machine import Thing
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine


class AclDataBuffer(Thing):
    """An address and a size, which nobody checks: the memory is the program's."""

    __slots__ = ("address", "size")

    name = "data buffer"
    needs_device = False

    def __init__(self, address: int, size: int) -> None:
        super().__init__(machine.process())
        self.address, self.size = address, size


def _none(code: int) -> int:
    return 0


@acl.value("acl.create_data_buffer", failed=_none)
def create_data_buffer(data: Address, size: Word) -> int:
    """Return the number of a new data buffer; it needs no device, and outlives resets.

    Gives: bare int, 0 in a forked child
    Basis: S
    """
    machine.devices()
    return machine.give(AclDataBuffer(data, size))


@acl.call("acl.destroy_data_buffer")
def destroy_data_buffer(data_buffer: Address) -> None:
    """Destroy a data buffer, not its memory; 0 is nothing to do.

    Refuses: 100000 no data buffer, or destroyed
    Basis: S; C for 100000
    """
    if data_buffer:
        found = _of(data_buffer)
        if not machine.drop(found, "acl.destroy_data_buffer"):
            raise _no_buffer(data_buffer)


@acl.value("acl.get_data_buffer_addr", failed=_none)
def get_data_buffer_addr(data_buffer: Address) -> int:
    """Return the address.

    Gives: bare int, 0 for what is none
    Basis: S
    """
    return _of(data_buffer).address


@acl.value("acl.get_data_buffer_size", failed=_none)
def get_data_buffer_size(data_buffer: Address) -> int:
    """Return the low 32 bits of the size: the vendor's older call.

    Gives: bare int, 0 for what is none
    Basis: S
    """
    return _of(data_buffer).size & 0xFFFF_FFFF


@acl.value("acl.get_data_buffer_size_v2", failed=_none)
def get_data_buffer_size_v2(data_buffer: Address) -> int:
    """Return the size.

    Gives: bare int, 0 for what is none
    Basis: S
    """
    return _of(data_buffer).size


@acl.call("acl.update_data_buffer")
def update_data_buffer(data_buffer: Address, data: Address, size: Word) -> None:
    """Give a data buffer another address and size.

    Refuses: 100000 no data buffer
    Basis: S; C for what was destroyed
    """
    found = _of(data_buffer)
    found.address, found.size = data, size


def _of(number: int) -> AclDataBuffer:
    machine.devices()
    found = machine.things.get(number)
    if not isinstance(found, AclDataBuffer):
        raise _no_buffer(number)
    return found


def _no_buffer(number: int) -> Refusal:
    found = "NULL (0)" if not number else f"{number:#x}, which is no data buffer or was destroyed"
    return Refusal(
        Code.INVALID_PARAM,
        f"the data buffer is {found}",
        "pass what acl.create_data_buffer returned, until it is destroyed",
    )

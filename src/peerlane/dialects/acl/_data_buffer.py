"""``acl``: data buffers, an address and a size under one number (facts/acl 2.1)."""

from __future__ import annotations

from collections.abc import Callable

from peerlane.dialects._shared.call import Address, Word
from peerlane.dialects._shared.machine import Resource
from peerlane.dialects.acl._state import acl, machine

_CREATE = "acl.create_data_buffer"


class AclDataBuffer(Resource):
    """An address and a size, which are not checked: the memory is the program's."""

    __slots__ = ("address", "size")

    name = "data buffer"
    needs_device = False

    def __init__(self, address: int, size: int) -> None:
        super().__init__(machine.process())
        self.address, self.size = address, size


@acl.value(_CREATE, failed=lambda _: 0)
def create_data_buffer(data: Address, size: Word) -> int:
    """Return the handle of a new data buffer; it needs no device, and outlives resets.

    Gives: bare int, 0 in a forked child
    Basis: S
    """
    machine.devices()
    return machine.issue(AclDataBuffer(data, size))


@acl.call("acl.destroy_data_buffer")
def destroy_data_buffer(data_buffer: Address) -> None:
    """Destroy a data buffer, not its memory; 0 is nothing to do.

    Refuses: 100000 no data buffer, or destroyed
    Basis: S; C for 100000
    """
    if data_buffer:
        machine.end_deviceless(data_buffer, AclDataBuffer, _CREATE, "acl.destroy_data_buffer")


def _getter(name: str, summary: str, of: Callable[[AclDataBuffer], int]) -> None:
    def get(data_buffer: Address) -> int:
        return of(_of(data_buffer))

    get.__doc__ = f"""Return {summary}.

    Gives: bare int, 0 for other numbers
    Basis: S
    """
    acl.value(f"acl.get_data_buffer_{name}", failed=lambda _: 0)(get)


_getter("addr", "the address", lambda each: each.address)
_getter("size", "the low 32 bits of the size: the vendor's older call", lambda each: each.size & 0xFFFF_FFFF)
_getter("size_v2", "the size", lambda each: each.size)


@acl.call("acl.update_data_buffer")
def update_data_buffer(data_buffer: Address, data: Address, size: Word) -> None:
    """Set the address and the size of a data buffer.

    Refuses: 100000 no data buffer
    Basis: S; C for a destroyed one
    """
    buffer = _of(data_buffer)
    buffer.address, buffer.size = data, size


def _of(number: int) -> AclDataBuffer:
    return machine.deviceless(number, AclDataBuffer, _CREATE)

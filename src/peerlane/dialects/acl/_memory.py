"""``acl.rt``: allocating and freeing memory (spec acl 2.7)."""

from __future__ import annotations

from typing import NoReturn

from peerlane import Kind, memory, raw
from peerlane.dialects._call import Address, Int32, Refusal, Word
from peerlane.dialects.acl._codes import REMEDIES, Code
from peerlane.dialects.acl._state import acl, machine
from peerlane.errors import Error, OutOfMemory

_P2P_POLICIES = frozenset({3, 4, 5, 7})
_PADDING = 64
_WORD = 1 << 64
_LARGEST = (1 << 63) - 1
_DDR_CHIPS = ("Ascend310",)
_DDR_ATTRIBUTES = frozenset({0, 2, 3, 6, 7})
_ATTRIBUTES = range(18)


@acl.call("acl.rt.malloc", out=1)
def malloc(size: Word, policy: Int32) -> int:
    """Allocate memory of this thread's device (spec acl 2.7 [S]).

    Policies 3, 4, 5 and 7 allocate for peer access; an unknown one means default pages.  The bounds are the
    requested size, without the padding that the vendor adds.

    Gives: pointer
    Refuses: 100000 size 0 or not to be padded; 107002; 207001
    Basis: S
    """
    _refuse_size(size)
    if size + _PADDING > _WORD:
        raise Refusal(
            Code.INVALID_PARAM,
            f"size {size:,} does not fit 64 bits once it is padded",
            "pass a size that was not negative",
        )
    context = machine.context()
    _refuse_enormous(size, f"device {context.device.ordinal}", context.device.total_bytes)
    address = machine.allocate(context, size, peer=policy in _P2P_POLICIES)
    if address is None:
        raise machine.reset_meanwhile(context)
    return address


@acl.call("acl.rt.malloc_host", out=1)
def malloc_host(size: Word) -> int:
    """Allocate pinned host memory, which outlives resets of devices (spec acl 2.7).

    Gives: pointer
    Refuses: 100000; 107002; 207001 whatever the host ran out of
    Basis: S
    """
    _refuse_size(size)
    machine.context()
    _refuse_enormous(size, "the host", _LARGEST)
    try:
        return machine.allocate_host(size)
    except OutOfMemory as error:  # whatever the host ran out of
        raise Refusal(Code.RT_MEMORY_ALLOCATION, str(error), REMEDIES[error.fault]) from None


@acl.call("acl.rt.free")
def free(dev_ptr: Address) -> None:
    """Free what ``malloc`` returned, from any thread, with or without a device (spec acl 2.7).

    Refuses: 100000 NULL; 107000 anything that `malloc` did not return, or freed
    Basis: S, X
    """
    _free(dev_ptr, host=False)


@acl.call("acl.rt.free_host")
def free_host(host_ptr: Address) -> None:
    """Free what ``malloc_host`` returned (spec acl 2.7).

    Refuses: as `free`
    Basis: S, X
    """
    _free(host_ptr, host=True)


@acl.call("acl.rt.get_mem_info", out=2)
def get_mem_info(attr: Int32) -> tuple[int, int]:
    """Return free and total bytes of this thread's device; 0, 0 for memory it does not have (spec acl 2.7).

    A query for HBM on a device with DDR answers for the DDR.

    Gives: free, total
    Refuses: 107002
    Basis: D
    """
    device = machine.context().device
    is_ddr = device.info.name.startswith(_DDR_CHIPS)
    if attr not in _ATTRIBUTES or (attr in _DDR_ATTRIBUTES and not is_ddr):
        return 0, 0
    return device.free_bytes, device.total_bytes


def _refuse_size(size: int) -> None:
    if not size:
        raise Refusal(Code.INVALID_PARAM, "size is 0", "pass a size of at least 1 byte")


def _refuse_enormous(size: int, where: str, total: int) -> None:
    if size > _LARGEST:
        raise Refusal(
            Code.RT_MEMORY_ALLOCATION,
            f"{where} cannot allocate {size:,} bytes: it has {total:,}",
            "pass a smaller size; a negative one wraps round to this",
        )


def _free(address: int, *, host: bool) -> None:
    call = "acl.rt.free_host" if host else "acl.rt.free"
    if not address:
        raise Refusal(
            Code.INVALID_PARAM, "the pointer is NULL (0)", f"pass only what acl.rt.{_maker(host)} gave"
        )
    if not machine.free(address, host=host, call=call):
        _refuse_foreign(address, host=host)


def _maker(host: bool) -> str:
    return "malloc_host" if host else "malloc"


def _refuse_foreign(address: int, *, host: bool) -> NoReturn:
    """Say what an address is that this call cannot free."""
    remedy = f"pass each pointer that acl.rt.{_maker(host)} returned once, unchanged"
    try:
        place = raw.locate(address)
    except Error as error:
        raise Refusal(Code.RT_PARAM_INVALID, str(error), remedy) from None
    record = memory.record_of(place.allocation) or f"the {place.size:,} bytes at {place.base:#x}"
    if machine.owned(address, host=not host) is not None:
        cause = f"{address:#x} is memory of acl.rt.{_maker(not host)}: {record}"
        remedy = f"free it with acl.rt.{'free' if host else 'free_host'}"
    elif place.kind is Kind.PAGEABLE and not machine.is_mapped(address):
        cause = f"{address:#x} is no address: nothing is mapped there"
    elif place.kind is Kind.PAGEABLE:
        cause = f"{address:#x} is ordinary host memory, which acl.rt did not allocate"
    elif place.base in machine.allocations:
        cause = (
            f"{address:#x} is {address - place.base:,} bytes inside {record}, not its start {place.base:#x}"
        )
    else:
        cause = f"{address:#x} was not allocated by acl.rt.{_maker(host)}: {record}"
        remedy = "end a mapping with acl.rt.unmap_mem, and imported memory with acl.rt.ipc_mem_close"
    raise Refusal(Code.RT_PARAM_INVALID, cause, remedy)

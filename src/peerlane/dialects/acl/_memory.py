"""``acl.rt``: allocating and freeing memory (facts/acl 2.7)."""

from __future__ import annotations

from typing import Any, NoReturn

from peerlane import Kind
from peerlane.diagnostics.memory import allocations
from peerlane.diagnostics.memory.addresses import is_mapped
from peerlane.dialects._shared.call import Address, Dict, Int32, Word
from peerlane.dialects.acl._checks import null, zero
from peerlane.dialects.acl._codes import REMEDIES, Code
from peerlane.dialects.acl._malloc_config import read_attributes, refuse_attributes
from peerlane.dialects.acl._state import acl, explain, machine
from peerlane.dialects.acl._stream import wait_for_all_of_thread
from peerlane.errors import Error, OutOfMemory
from peerlane.memory import raw

_P2P_POLICIES = frozenset({3, 4, 5, 7})
_CACHED_POLICIES = frozenset({0, 1, 2, 6})
_MEMORY_TYPES = 0x100 | 0x1000 | 0x10_0000
_PADDING = 64
_WORD = 1 << 64
_LARGEST = (1 << 63) - 1
_DDR_CHIPS = ("Ascend310",)
_DDR_ATTRIBUTES = frozenset({0, 2, 3, 6, 7})
_ATTRIBUTES = range(18)
_SIZE = zero("size")


@acl.call("acl.rt.malloc", out=1)
def malloc(size: Word, policy: Int32) -> int:
    """Allocate memory of this thread's device (facts/acl 2.7).

    Policies 3, 4, 5 and 7 allocate for peer access; an unknown one means default pages.  The bounds are the
    requested size, without the padding that the vendor adds.

    Gives: pointer
    Refuses: 100000 size 0 or not to be padded; 107002; 207001
    Basis: S
    """
    return allocate(size, policy)


@acl.call("acl.rt.malloc_align32", out=1)
def malloc_align32(size: Word, policy: Int32) -> int:
    """Allocate as ``malloc``: the padding in which the vendor's differ is not given here (facts/acl 2.7).

    Gives: pointer
    Refuses: as `malloc`
    Basis: S
    """
    return allocate(size, policy)


@acl.call("acl.rt.malloc_cached", out=1)
def malloc_cached(size: Word, policy: Int32) -> int:
    """Allocate memory behind a cache; policies other than 0, 1, 2 and 6 mean default pages.

    The memory is never for peer access.

    Gives: pointer
    Refuses: as `malloc`
    Basis: S
    """
    return allocate(size, policy if policy in _CACHED_POLICIES else 0)


@acl.call("acl.rt.malloc_with_cfg", out=1)
def malloc_with_cfg(size: Word, policy: Int32, cfg: Dict) -> int:
    """Allocate as ``malloc``; types of memory (0x100, 0x1000, 0x100000) may be added to the policy (facts/acl 2.7).

    In ``cfg``, attribute 1 (module) is for the vendor's own statistics, 2 names a device.

    Gives: pointer
    Refuses: as `malloc`; 107000 another device than this thread's, no attribute; `KeyError`, `TypeError`,
        `ValueError` for `cfg`
    Basis: S; C for 107000
    """
    return allocate_configured(size, policy, cfg, "acl.rt.malloc_with_cfg")


@acl.call("acl.rt.malloc_for_task_scheduler", out=1)
def malloc_for_task_scheduler(size: Word, policy: Int32, cfg: Dict) -> int:
    """Allocate as ``malloc_with_cfg``: the scheduler of virtual devices reads all memory (facts/acl 2.7).

    Gives: pointer
    Refuses: as `malloc_with_cfg`
    Basis: S; C for 107000
    """
    return allocate_configured(size, policy, cfg, "acl.rt.malloc_for_task_scheduler")


@acl.call("acl.rt.malloc_host_with_cfg", out=1)
def malloc_host_with_cfg(size: Word, cfg: Dict) -> int:
    """Allocate as ``malloc_host``, with ``cfg`` as in ``malloc_with_cfg`` (facts/acl 2.7).

    Gives: pointer
    Refuses: as `malloc_host`, and for `cfg` as `malloc_with_cfg`
    Basis: S; C for 107000
    """
    attributes = read_attributes("acl.rt.malloc_host_with_cfg", cfg)
    _SIZE(size)
    refuse_attributes(attributes, machine.context().number)
    return _allocate_host(size)


@acl.call("acl.rt.malloc_host", out=1, checks=[_SIZE])
def malloc_host(size: Word) -> int:
    """Allocate pinned host memory, which outlives resets of devices (facts/acl 2.7).

    Gives: pointer
    Refuses: 100000; 107002; 207001 whatever the host ran out of
    Basis: S
    """
    machine.context()
    return _allocate_host(size)


@acl.call("acl.rt.free", checks=[null("dev_ptr", remedy="pass only what acl.rt.malloc gave")])
def free(dev_ptr: Address) -> None:
    """Free memory of ``malloc`` and its like, from any thread, with or without a device (facts/acl 2.7).

    A second free of the same memory does nothing and succeeds, as was reported twice of a 910C.

    Refuses: 100000 NULL; 107000 anything that `malloc` did not return
    Basis: S, X; R for memory that was freed before
    """
    _free(dev_ptr, "acl.rt.free", host=False, may_repeat=True)


@acl.call("acl.rt.free_host", checks=[null("host_ptr", remedy="pass only what acl.rt.malloc_host gave")])
def free_host(host_ptr: Address) -> None:
    """Free memory of ``malloc_host`` (facts/acl 2.7).

    Refuses: as `free`; 107000 also freed memory
    Basis: S, X
    """
    _free(host_ptr, "acl.rt.free_host", host=True)


@acl.call("aclrtFreeWithDevSync", checks=[null("dev_ptr", remedy="pass only what acl.rt.malloc gave")])
def free_with_dev_sync(dev_ptr: Address) -> None:
    """Wait for the streams of this thread's device, then free as ``free`` (facts/acl 6).

    Nothing is freed if their work failed.

    Refuses: as `free`; 107002; as `synchronize_device`
    Basis: S; C for work that failed
    """
    wait_for_all_of_thread()
    _free(dev_ptr, "aclrtFreeWithDevSync", host=False, may_repeat=True)


@acl.call(
    "aclrtFreeHostWithDevSync", checks=[null("host_ptr", remedy="pass only what acl.rt.malloc_host gave")]
)
def free_host_with_dev_sync(host_ptr: Address) -> None:
    """Wait for the streams of this thread's device, then free as ``free_host`` (facts/acl 6).

    Refuses: as `free_host`; 107002; as `synchronize_device`
    Basis: S; C for work that failed
    """
    wait_for_all_of_thread()
    _free(host_ptr, "aclrtFreeHostWithDevSync", host=True)


@acl.call("acl.rt.get_mem_info", out=2)
def get_mem_info(attr: Int32) -> tuple[int, int]:
    """Return free and total bytes of this thread's device; 0, 0 for memory it does not have (facts/acl 2.7).

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


@acl.call("acl.rt.mem_flush", checks=[null("dev_ptr"), _SIZE])
def mem_flush(dev_ptr: Address, size: Word) -> None:
    """Write a device's cache back to its memory: nothing to do, there is no cache (facts/acl 2.7).

    Refuses: 100000 NULL, size 0; 107002; 107000 not that much device memory
    Basis: S; C for 107000
    """
    _check_cached(dev_ptr, size)


@acl.call("acl.rt.mem_invalidate", checks=[null("dev_ptr"), _SIZE])
def mem_invalidate(dev_ptr: Address, size: Word) -> None:
    """Drop the contents of a device's cache: nothing to do, there is no cache (facts/acl 2.7).

    Refuses: as `mem_flush`
    Basis: S; C for 107000
    """
    _check_cached(dev_ptr, size)


def allocate(size: int, policy: int) -> int:
    """Allocate memory of this thread's device; refuses as ``acl.rt.malloc``."""
    _SIZE(size)
    if size + _PADDING > _WORD:
        raise Code.INVALID_PARAM.refusal(
            f"size {size:,} does not fit 64 bits once it is padded", "pass a size that was not negative"
        )
    context = machine.context()
    _refuse_enormous(size, f"device {context.number}", context.device.total_bytes)
    address = machine.allocate(context, size, peer=policy in _P2P_POLICIES)
    if address is None:
        raise machine.reset_meanwhile(context)
    return address


def free_device(dev_ptr: int, call: str) -> None:
    """Free device memory; refuses as ``acl.rt.free``."""
    _free(dev_ptr, call, host=False)


def allocate_configured(size: int, policy: int, cfg: dict[Any, Any], call: str) -> int:
    """Allocate device memory for a call with ``cfg``; refuses as ``acl.rt.malloc_with_cfg``."""
    attributes = read_attributes(call, cfg)
    _SIZE(size)
    refuse_attributes(attributes, machine.context().number)
    return allocate(size, policy & ~_MEMORY_TYPES)


def _allocate_host(size: int) -> int:
    _refuse_enormous(size, "the host", _LARGEST)
    try:
        return machine.allocate_host(size)
    except OutOfMemory as error:  # whatever the host ran out of
        raise Code.RT_MEMORY_ALLOCATION.refusal(str(error), REMEDIES[error.fault]) from None


def _check_cached(dev_ptr: int, size: int) -> None:
    machine.context()
    location = raw.locate(dev_ptr)
    if location.kind is not Kind.DEVICE or dev_ptr + size > location.base + location.size:
        raise Code.RT_PARAM_INVALID.refusal(
            f"{machine.describe(dev_ptr)} and {size:,} bytes from there on are not all one piece of device memory",
            "pass what acl.rt.malloc returned, and at most its size",
        )


def _refuse_enormous(size: int, where: str, total: int) -> None:
    if size > _LARGEST:
        raise Code.RT_MEMORY_ALLOCATION.refusal(
            f"{where} cannot allocate {size:,} bytes: it has {total:,}",
            "pass a smaller size; a negative one wraps round to this",
        )


def _free(address: int, call: str, *, host: bool, may_repeat: bool = False) -> None:
    if not machine.free(address, host=host, call=call) and not (may_repeat and _was_freed(address)):
        _refuse_foreign(address, host=host)


def _was_freed(address: int) -> bool:
    """Tell whether the program freed the memory at exactly this address, and none is there now."""
    allocation = machine.freed.get(address)
    if allocation is None:
        return False
    try:
        return raw.locate(address).allocation == allocation  # another thread is about to end it
    except Error:
        return not machine.reservations.is_hole(address)


def _maker(host: bool) -> str:
    return "malloc_host" if host else "malloc"


def _refuse_foreign(address: int, *, host: bool) -> NoReturn:
    """Refuse an address that this call cannot free, with the memory that is there."""
    remedy = f"pass each pointer that acl.rt.{_maker(host)} returned once, unchanged"
    try:
        location = raw.locate(address)
    except Error as error:
        raise Code.RT_PARAM_INVALID.refusal(explain(error)[0], remedy) from None
    record = (
        allocations.record_of(location.allocation) or f"the {location.size:,} bytes at {location.base:#x}"
    )
    if machine.owned(address, host=not host) is not None:
        cause = f"{address:#x} is memory of acl.rt.{_maker(not host)}: {record}"
        remedy = f"free it with acl.rt.{'free' if host else 'free_host'}"
    elif location.kind is Kind.PAGEABLE and not is_mapped(address):
        cause = f"{address:#x} is not an address: nothing is mapped there"
    elif location.kind is Kind.PAGEABLE:
        cause = f"{address:#x} is ordinary host memory, which acl.rt did not allocate"
    elif location.base in machine.allocations:
        cause = f"{address:#x} is {address - location.base:,} bytes inside {record}, not its start {location.base:#x}"
    else:
        cause = f"{address:#x} was not allocated by acl.rt.{_maker(host)}: {record}"
        remedy = "end a mapping with acl.rt.unmap_mem, and imported memory with acl.rt.ipc_mem_close"
    raise Code.RT_PARAM_INVALID.refusal(cause, remedy)

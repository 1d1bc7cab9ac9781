"""``acl.rt``: memory of ``malloc`` that other processes import by the text of a key (facts/acl 2.9, 4.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from peerlane import Buffer, Device
from peerlane.backend import host
from peerlane.dialects._shared.call import Address, Object, Refusal, Text, Word
from peerlane.dialects._shared.machine import close_for
from peerlane.dialects.acl._checks import null, one_of, zero
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._device import add_reference, drop_reference
from peerlane.dialects.acl._exporting import (
    as_no_key,
    let_in,
    pids_of,
    refuse_export_flags,
    refuse_long,
    refuse_short,
    text_of,
)
from peerlane.dialects.acl._state import acl, explain, is_key_over, machine
from peerlane.errors import Closed, Error
from peerlane.memory import raw

_SET_PID = "acl.rt.ipc_mem_set_import_pid"
_MOST_PIDS = 31
_FOR_ALL = 1
_MEMORY = "pass what acl.rt.malloc returned, and its size"


@dataclass(slots=True)
class _Imported:
    """Imported memory; ``direction`` has the devices between which the import enabled access."""

    buffer: Buffer
    direction: tuple[Device, Device] | None
    references: int = 1


@acl.call("acl.rt.ipc_mem_get_export_key", out=1, blank=("",))
def ipc_mem_get_export_key(dev_ptr: Address, size: Word, len: Word, flags: Word) -> str:
    """Return the key by which other processes import the first ``size`` bytes of memory (facts/acl 2.9).

    ``len`` is the room for the key, 65 at least.  ``flags`` 0: processes of ``ipc_mem_set_import_pid``; 1: any.

    Gives: key, 64 characters
    Refuses: `ValueError` `len` 1,024 or more; 100000 NULL, size 0; 107000 `len` below 65, `flags` beyond 1, not from
        `malloc`; 507899 imported, reserved, no P2P policy where it is needed
    Basis: S, X; C for 100000
    """
    refuse_long("acl.rt.ipc_mem_get_export_key", len)
    null("dev_ptr", remedy=_MEMORY)(dev_ptr)
    zero("size", remedy=_MEMORY)(size)
    refuse_short(len)
    everyone = refuse_export_flags(flags, _FOR_ALL)
    buffer = _exportable(dev_ptr, size)
    handle = buffer[:size].export(allow="user" if everyone else ())
    key = text_of(handle)
    with machine.lock:
        machine.exported_keys.add(key, (handle, buffer))
    return key


@acl.call(_SET_PID)
def ipc_mem_set_import_pid(key: Text, pids: Object) -> None:
    """List at most 31 processes that may import; only the exporting process may list them (facts/acl 2.9).

    Refuses: `ValueError` no list of ints; 107000 empty, over 31, no pid; 507899 no key of this process, or over;
        207006 exported with flags 1
    Basis: S, X; C for over 31
    """
    wanted = pids_of(_SET_PID, pids)
    if len(wanted) > _MOST_PIDS:
        raise Code.RT_PARAM_INVALID.refusal(
            f"the list has {len(wanted)} processes; {_MOST_PIDS} are the most for one call",
            "call again for the others",
        )
    machine.devices()
    export = machine.exported_keys.get(key)
    if export is None or is_key_over(export):
        raise _no_key("this process exported no such key, or closed it, or freed the memory")
    try:
        let_in(export[0], wanted)
    except Closed:
        raise _no_key("the key is over: its memory was freed") from None


@acl.call(
    "acl.rt.ipc_mem_import_by_key",
    out=1,
    checks=[one_of("flags", (0, 1), "pass 0, or 1 to enable peer access")],
)
def ipc_mem_import_by_key(key: Text, flags: Word) -> int:
    """Import memory that another process exported, and return its address here (facts/acl 2.9, 4.6).

    The same key gives the same address, to be closed as often.  ``flags`` 1 enables peer access from this thread's
    device to the memory's, until the last close.

    Gives: pointer
    Refuses: 107000 `flags` beyond 1; 107002; 507899 no key, over, closed, not listed, own; 207000 unreachable;
        507057, 107019 as for handles
    Basis: X; C for the last three
    """
    device = machine.context().device

    def opening() -> Buffer:
        with as_no_key():
            return Buffer.open(key, device=device)

    def keeping(buffer: Buffer) -> _Imported:
        home = machine.devices()[raw.locate(buffer.address).ordinal]
        direction = (device, home) if flags and home is not device else None
        if direction is not None:
            add_reference(*direction)
        if home is not device:
            machine.far[key] = buffer, home
            host.forget_c_threads()
        return _Imported(buffer, direction)

    def again(known: _Imported) -> None:
        if key in machine.far and machine.far[key][1] is device:
            del machine.far[key]

    entry: _Imported = machine.imported_keys.open(key, opening, keeping, again=again)
    return entry.buffer.address


@acl.call("acl.rt.ipc_mem_close")
def ipc_mem_close(key: Text) -> None:
    """Close imported memory, or end a key of this process (facts/acl 2.9).

    Processes that have imported the memory keep it.

    Refuses: 507899 no key, or over, or closed as often as imported
    Basis: X
    """
    with machine.lock:
        machine.devices()
        if machine.imported_keys.get(key) is not None:
            last: _Imported | None = machine.imported_keys.release(key)
            if last is not None:
                machine.far.pop(key, None)
                if last.direction is not None:
                    drop_reference(*last.direction)
                close_for(last.buffer, "acl.rt.ipc_mem_close")
            return
        export = machine.exported_keys.pop(key)
    if export is None or is_key_over(export):
        raise _no_key(
            "this process has no such key: it was closed, its memory was freed, or it was neither exported nor "
            "imported here"
        )
    export[0].close()


def _exportable(dev_ptr: int, size: int) -> Buffer:
    """Return the memory of ``malloc`` that begins at an address and has at least ``size`` bytes."""
    buffer = machine.owned(dev_ptr, host=False)
    if buffer is None:
        _refuse_foreign(dev_ptr)
    if size > buffer.size:
        raise Code.RT_PARAM_INVALID.refusal(
            f"size is {size:,}, and {machine.describe(dev_ptr)} has {buffer.size:,}",
            "pass the size that acl.rt.malloc was given, or less",
        )
    assert isinstance(buffer.device, Device)
    if buffer.device.info.routes_peer_memory_only and not machine.is_for_peers(dev_ptr):
        raise Code.RT_DRV_INTERNAL_ERROR.refusal(
            f"{buffer.device.info.name} shares only memory that was allocated with a P2P policy, and "
            f"{machine.describe(dev_ptr)} was not",
            "allocate with acl.rt.malloc(size, policy) and policy 3, 4, 5 or 7",
        )
    return buffer


def _refuse_foreign(dev_ptr: int) -> NoReturn:
    remedy = "pass what acl.rt.malloc returned, unchanged"
    try:
        location = raw.locate(dev_ptr)
    except Error as error:
        raise Code.RT_PARAM_INVALID.refusal(explain(error)[0], remedy) from None
    code = Code.RT_PARAM_INVALID
    cause = f"{machine.describe(dev_ptr)} was not allocated by acl.rt.malloc"
    if location.base in machine.allocations:
        cause = f"{machine.describe(dev_ptr)} is not where an allocation begins"
    elif any(0 <= dev_ptr - each.buffer.last_address < each.buffer.size for each in machine.imported_keys):
        code, cause = Code.RT_DRV_INTERNAL_ERROR, f"{dev_ptr:#x} was imported, and only its maker exports it"
    elif machine.reservations.around(dev_ptr) is not None:
        code = Code.RT_DRV_INTERNAL_ERROR
        cause = f"{dev_ptr:#x} is a reserved address; memory that is mapped there is shared by its handle"
        remedy = "use acl.rt.mem_export_to_shareable_handle"
    raise Refusal(code, cause, remedy)


def _no_key(cause: str) -> Refusal:
    return Code.RT_DRV_INTERNAL_ERROR.refusal(
        cause, "pass the text that acl.rt.ipc_mem_get_export_key returned, unchanged"
    )

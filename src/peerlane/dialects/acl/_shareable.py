"""``acl.rt``: physical memory that other processes import by a number (facts/acl 2.8, 4.4, 4.5)."""

from __future__ import annotations

import os

from peerlane import Device, Physical
from peerlane.dialects._shared.call import Address, Int32, Object, Refusal, Word
from peerlane.dialects.acl._checks import reserved
from peerlane.dialects.acl._codes import REMEDIES, Code
from peerlane.dialects.acl._exporting import let_in, pids_of, refuse_export_flags
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._virtual import AclPhysical, physical_of
from peerlane.errors import BadHandle, Closed, Fault

_FOR_ALL = 1
_SET_PID = "acl.rt.mem_set_pid_to_shareable_handle"


@acl.call("acl.rt.device_get_bare_tgid", out=1)
def device_get_bare_tgid() -> int:
    """Return the number by which other processes list this one (facts/acl 2.2).

    Gives: pid
    Basis: D
    """
    return os.getpid()


@acl.call("acl.rt.mem_export_to_shareable_handle", out=1)
def mem_export_to_shareable_handle(handle: Address, handle_type: Int32, flags: Word) -> int:
    """Return the number by which other processes import this memory (facts/acl 2.8, 4.4).

    ``flags`` 0: processes of ``mem_set_pid_to_shareable_handle``; 1: any.  A handle is exported once.

    Gives: number
    Refuses: 100000 NULL, `handle_type`; 107000 `flags` beyond 1, no handle; 507899 exported before, imported, no P2P
        attribute where it is needed
    Basis: S, D; C for 507899
    """
    found = physical_of(handle)
    reserved("handle_type")(handle_type)
    everyone = refuse_export_flags(flags, _FOR_ALL)
    with machine.lock:
        _refuse_export(found)
        given = found.handle_given = found.neutral.export(allow="user" if everyone else ())
        machine.exported_memory.add(int(given), found)
    return int(given)


@acl.call(_SET_PID)
def mem_set_pid_to_shareable_handle(shareable_handle: Word, pids: Object) -> None:
    """List processes that may import; only the one that exported may, once they run (facts/acl 4.5).

    A number 0 in the list is skipped.

    Refuses: `ValueError` no list of ints; 107000 empty, no pid; 107017 unknown or over; 507899 another process's;
        207006 exported with flags 1
    Basis: S, X
    """
    wanted = pids_of(_SET_PID, pids)
    machine.devices()
    found = machine.exported_memory.get(shareable_handle)
    if found is None:
        raise _not_exported_here(shareable_handle)
    try:
        let_in(found.handle_given, [pid for pid in wanted if pid])
    except Closed:
        raise _is_over(
            f"{shareable_handle} is over: its memory was freed with acl.rt.free_physical"
        ) from None


@acl.call("acl.rt.mem_import_from_shareable_handle", out=1)
def mem_import_from_shareable_handle(shareable_handle: Word, device_id: Int32) -> int:
    """Have memory that another process exported, for a device of this one (facts/acl 4.4).

    Importing it again for the same device gives the same handle, to be freed as often.

    Gives: handle
    Refuses: 107001; 107002; 107017 unknown or over; 507899 not listed, listed before it started, own; 207000
        unreachable; 507057 the maker has ended; 107019 it does not answer
    Basis: S, X; C for the last three
    """
    device = machine.device(device_id)
    machine.context()
    key = shareable_handle, device_id

    def keeping(opened: Physical) -> AclPhysical:
        made = AclPhysical(opened, device.ordinal, granularity=device.info.granularity, import_key=key)
        machine.give(made)
        return made

    found: AclPhysical = machine.imported_memory.open(key, lambda: _opened(shareable_handle, device), keeping)
    return found.handle


def _opened(shareable_handle: int, device: Device) -> Physical:
    try:
        return Physical.open(shareable_handle, device=device)
    except BadHandle as error:
        if error.fault is not Fault.NODE_MISMATCH:
            raise
        raise Refusal(Code.RT_INVALID_HANDLE, str(error), REMEDIES[Fault.BAD_HANDLE]) from None


def _refuse_export(found: AclPhysical) -> None:
    info = found.neutral.device.info
    if found.import_key is not None:
        cause = "the memory was imported, and only the process that made it exports it"
        remedy = "let every process import from the one that called acl.rt.malloc_physical"
    elif found.handle_given is not None:
        cause = f"the handle was exported already, as {int(found.handle_given)}; it has one shareable handle"
        remedy = "send that number to all processes, and list each of them"
    elif info.routes_peer_memory_only and not found.for_peers:
        cause = f"{info.name} shares only memory that was allocated with a P2P attribute, and this was not"
        remedy = "allocate with memAttr 8, 9, 11, 15, 16 or 17"
    else:
        return
    raise Refusal(Code.RT_DRV_INTERNAL_ERROR, cause, remedy)


def _not_exported_here(shareable_handle: int) -> Refusal:
    try:
        maker = machine.devices()[0].backend.maker_of(shareable_handle)
    except BadHandle as error:
        return Refusal(Code.RT_INVALID_HANDLE, str(error), REMEDIES[Fault.BAD_HANDLE])
    if maker == os.getpid():
        return _is_over(f"{shareable_handle} is not a shareable handle of this process, or it is over")
    if maker is None:
        return _is_over(f"the process that made {shareable_handle} has ended")
    return Refusal(
        Code.RT_DRV_INTERNAL_ERROR,
        f"process {maker} made {shareable_handle}, and only that process lists the importers",
        "call this in the process that exported",
    )


def _is_over(cause: str) -> Refusal:
    return Refusal(Code.RT_INVALID_HANDLE, cause, REMEDIES[Fault.STALE_HANDLE])

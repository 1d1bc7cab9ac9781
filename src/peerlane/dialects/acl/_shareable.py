"""``acl.rt``: physical memory that other processes import by a number (facts/acl 2.8, 4.4, 4.5)."""

from __future__ import annotations

import os

from peerlane import Device, Physical
from peerlane.dialects._shared.call import Address, Int32, Object, Refusal, Word
from peerlane.dialects.acl._checks import one_of, reserved
from peerlane.dialects.acl._codes import REMEDIES, Code
from peerlane.dialects.acl._exporting import let_in, pids_of, refuse_export_flags
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._virtual import AclPhysical, physical_of
from peerlane.errors import BadHandle, Closed, Fault

_FOR_ALL = 1
_HBM_HUGE = 4
_SET_PID = "acl.rt.mem_set_pid_to_shareable_handle"
_SET_PID_V2 = "aclrtMemSetPidToShareableHandleV2"
_NUMBER_BYTES = 8
#: Bytes of a handle by its type: a number of 64 bits, and one of a fabric.
SHARE_BYTES = {1: 8, 2: 128}
_SHARE_TYPE = one_of("share_type", SHARE_BYTES, "pass 1 (DEFAULT) or 2 (FABRIC)")


@acl.call("acl.rt.device_get_bare_tgid", out=1)
def device_get_bare_tgid() -> int:
    """Return the number by which other processes list this process (facts/acl 2.2).

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
    physical = physical_of(handle)
    reserved("handle_type")(handle_type)
    return _export(physical, flags)


@acl.call("aclrtMemExportToShareableHandleV2", out=1)
def export_v2(handle: Address, flags: Word, share_type: Int32) -> int:
    """Export as ``mem_export_to_shareable_handle``; C gets 8 bytes (type 1) or 128 of a fabric (type 2), which mean
    the same number.

    Gives: number
    Refuses: as `mem_export_to_shareable_handle`; 107000 `share_type`
    Basis: S, D; C for the bytes of type 2
    """
    physical = physical_of(handle)
    _SHARE_TYPE(share_type)
    return _export(physical, flags)


def _export(physical: AclPhysical, flags: int) -> int:
    everyone = refuse_export_flags(flags, _FOR_ALL)
    with machine.lock:
        _refuse_export(physical)
        handle = physical.exported_handle = physical.neutral.export(allow="user" if everyone else ())
        machine.exported_memory.add(int(handle), physical)
    return int(handle)


@acl.call(_SET_PID)
def mem_set_pid_to_shareable_handle(shareable_handle: Word, pids: Object) -> None:
    """List processes that may import, once they run; only the exporting process may list them (facts/acl 4.5).

    A number 0 in the list is skipped.

    Refuses: `ValueError` no list of ints; 107000 empty, no pid; 107017 unknown or over; 507899 another process's;
        207006 exported with flags 1
    Basis: S, X
    """
    _let_in(shareable_handle, pids_of(_SET_PID, pids))


@acl.call(_SET_PID_V2)
def set_pid_v2(shareable_handle: Object, share_type: Int32, pids: Object) -> None:
    """List processes as ``mem_set_pid_to_shareable_handle``; the handle is the bytes that the export wrote.

    Refuses: as `mem_set_pid_to_shareable_handle`; 107000 `share_type`
    Basis: S, X
    """
    _SHARE_TYPE(share_type)
    _let_in(_number_of(_SET_PID_V2, shareable_handle), pids_of(_SET_PID_V2, pids))


def _let_in(shareable_handle: int, wanted: list[int]) -> None:
    machine.devices()
    physical = machine.exported_memory.get(shareable_handle)
    if physical is None:
        raise _not_exported_by_process(shareable_handle)
    try:
        let_in(physical.exported_handle, [pid for pid in wanted if pid])
    except Closed:
        raise _is_over(
            f"{shareable_handle} is over: its memory was freed with acl.rt.free_physical"
        ) from None


@acl.call("acl.rt.mem_import_from_shareable_handle", out=1)
def mem_import_from_shareable_handle(shareable_handle: Word, device_id: Int32) -> int:
    """Import memory that another process exported, for a device (facts/acl 4.4).

    Another import for the same device gives the same handle, to be freed as often.

    Gives: handle
    Refuses: 107001; 107002; 107017 unknown or over; 507899 not listed, listed before it started, own; 207000
        unreachable; 507057 the maker has ended; 107019 it does not answer
    Basis: S, X; C for the last three
    """
    return _import(shareable_handle, device_id)


@acl.call("aclrtMemImportFromShareableHandleV2", out=1)
def import_v2(shareable_handle: Object, share_type: Int32, flags: Word) -> int:
    """Import as ``mem_import_from_shareable_handle``, for this thread's device, from the bytes that the export wrote.

    Gives: handle
    Refuses: as `mem_import_from_shareable_handle`; 100000 `flags`; 107000 `share_type`
    Basis: S, X
    """
    reserved("flags")(flags)
    device_id = machine.context().number
    _SHARE_TYPE(share_type)
    return _import(_number_of("aclrtMemImportFromShareableHandleV2", shareable_handle), device_id)


def _number_of(call: str, content: object) -> int:
    """Return the number in the first bytes of a handle, of either type."""
    if not isinstance(content, bytes) or len(content) < _NUMBER_BYTES:
        raise ValueError(f"{call}: needs the {_NUMBER_BYTES} or more bytes of a shareable handle")
    return int.from_bytes(content[:_NUMBER_BYTES], "little")


def _import(shareable_handle: int, device_id: int) -> int:
    device = machine.device(device_id)
    machine.context()
    key = shareable_handle, device_id

    def keeping(opened: Physical) -> AclPhysical:
        physical = AclPhysical(
            opened, device.ordinal, granularity=device.info.granularity, attribute=_HBM_HUGE, import_key=key
        )
        machine.issue(physical)
        return physical

    physical: AclPhysical = machine.imported_memory.open(
        key, lambda: _opened(shareable_handle, device), keeping
    )
    return physical.handle


def _opened(shareable_handle: int, device: Device) -> Physical:
    try:
        return Physical.open(shareable_handle, device=device)
    except BadHandle as error:
        if error.fault is not Fault.NODE_MISMATCH:
            raise
        raise Code.RT_INVALID_HANDLE.refusal(str(error), REMEDIES[Fault.BAD_HANDLE]) from None


def _refuse_export(physical: AclPhysical) -> None:
    info = physical.neutral.device.info
    if physical.import_key is not None:
        cause = "the memory was imported, and only the process that made it exports it"
        remedy = "let every process import from the one that called acl.rt.malloc_physical"
    elif physical.exported_handle is not None:
        cause = f"the handle was exported already, as {int(physical.exported_handle)}; it has one shareable handle"
        remedy = "send that number to all processes, and list each of them"
    elif info.routes_peer_memory_only and not physical.for_peers:
        cause = f"{info.name} shares only memory that was allocated with a P2P attribute, and this was not"
        remedy = "allocate with memAttr 8, 9, 11, 15, 16 or 17"
    else:
        return
    raise Code.RT_DRV_INTERNAL_ERROR.refusal(cause, remedy)


def _not_exported_by_process(shareable_handle: int) -> Refusal:
    try:
        maker = machine.devices()[0].backend.maker_of(shareable_handle)
    except BadHandle as error:
        return Code.RT_INVALID_HANDLE.refusal(str(error), REMEDIES[Fault.BAD_HANDLE])
    if maker == os.getpid():
        return _is_over(f"{shareable_handle} is not a shareable handle of this process, or it is over")
    if maker is None:
        return _is_over(f"the process that made {shareable_handle} has ended")
    return Code.RT_DRV_INTERNAL_ERROR.refusal(
        f"process {maker} made {shareable_handle}, and only that process lists the importers",
        "call this in the process that exported",
    )


def _is_over(cause: str) -> Refusal:
    return Code.RT_INVALID_HANDLE.refusal(cause, REMEDIES[Fault.STALE_HANDLE])

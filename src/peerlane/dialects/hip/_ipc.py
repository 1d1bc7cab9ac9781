"""``hip``: IPC memory (facts/hip 3.5).

A handle is what the neutral one says, as bytes and not as text: like the vendor's it has NULs, at the first of which
hip-python before 10.0 ends it, so that a program that would lose the rest on hardware loses it here.
"""

from __future__ import annotations

import base64
from typing import Any

from peerlane import Buffer, Device, Handle, Kind
from peerlane.dialects._shared.exchange import Exports, Imports
from peerlane.dialects._shared.machine import Context, Thing
from peerlane.dialects.gpu.regions import Region
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._pool import Pools
from peerlane.dialects.hip._results import pointer, put, struct
from peerlane.dialects.hip._state import calls, gpu, machine, warn
from peerlane.dialects.hip._stream import streams
from peerlane.dialects.hip._types import Pointer
from peerlane.errors import AccessDenied, BadHandle, Fault, PeerLost, WaitTimeout
from peerlane.memory import raw

HANDLE_SIZE = 64
_LAZY_PEER_ACCESS = 1
_SAID = 48  # bytes of a handle that name an allocation
_OFFSET = 8  # behind them: bytes that tell where in it the pointer was, and that nothing reads


class _Opened(Thing):
    """Memory of another process; closed with its device's reset.

    Attributes
    ----------
    devices : set of Device
        The devices that were current when it was opened: hipIpcMemLazyEnablePeerAccess gives them access.
    """

    __slots__ = ("address", "buffer", "devices", "key", "references")

    name = "memory of another process"
    is_counted = False
    is_given = False  # the buffer is
    has_addresses = True

    def __init__(self, context: Context, key: bytes, buffer: Buffer) -> None:
        super().__init__(context)
        self.key, self.address, self.buffer, self.references = key, buffer.address, buffer, 1
        self.devices = {context.device}

    def abandon(self) -> None:
        """Let go of it."""
        machine.table(Ipc).forget(self)
        self.buffer.close()

    end = abandon


class Ipc:
    """The memory that this process exported and imported.

    Attributes
    ----------
    given : Exports
        By address: the allocation that begins there, and its handle.
    opened : Imports
        By handle.
    by_address : dict
        What is open, too.
    """

    def __init__(self) -> None:
        self.given = Exports[int, tuple[Buffer, Handle]](lambda given: given[0].is_closed)
        self.opened = Imports[bytes, _Opened](machine)
        self.by_address: dict[int, _Opened] = {}

    def forget(self, opened: _Opened) -> None:
        """Take out opened memory."""
        self.opened.forget(opened.key)
        self.by_address.pop(opened.address, None)

    def exported_by(self, key: bytes) -> Buffer | None:
        """Return this process's own memory that a handle names; None for memory of others, and freed memory."""
        for _, (buffer, handle) in self.given.items():
            if bytes(handle) == key and not buffer.is_closed:
                return buffer
        return None

    def is_given(self, buffer: Buffer) -> bool:
        """Tell whether a handle of this memory was given out."""
        return any(each is buffer for _, (each, _) in self.given.items())


def _opened(device: Device, address: int, region: Region) -> str:
    memory = range(region.base, region.base + region.size)
    known = machine.table(Ipc).by_address.items()
    return "rw" if any(at in memory and device in each.devices for at, each in known) else "none"


gpu.peers.add_grant(_opened)


@calls.call("hipIpcGetMemHandle")
def hipIpcGetMemHandle(devPtr: int) -> Any:
    """Return the 64 bytes by which other processes of this user open memory of hipMalloc (facts/hip 3.5).

    The handle of a pointer into it has other bytes, and opens at the start of the allocation all the same: send the
    offset too.  `explain` and ``AMD_LOG_LEVEL=2`` say so.  Asked again for the same pointer it gives the same bytes,
    until the memory is freed.  Memory below 2 MiB moves first, at the same address, to have no neighbours.

    Gives: hipIpcMemHandle_t
    Refuses: hipErrorInvalidValue NULL, freed, not from hipMalloc, of a pool; hipErrorIllegalState it has to move and
        a view of it lives
    Basis: S; D for memory of a pool; C for the same bytes and hipErrorIllegalState
    """
    buffer = _allocated(devPtr)
    if machine.table(Pools).holding(buffer) is not None:
        raise invalid(
            f"{machine.describe(devPtr)} is memory of a pool",
            "share it by hipMemPoolExportToShareableHandle and hipMemPoolExportPointer, or allocate by hipMalloc",
        )
    made = struct("hipIpcMemHandle_st")()
    put(made, "reserved", _exported(devPtr, buffer))
    if devPtr != buffer.address:
        warn(
            f"hipIpcGetMemHandle: {machine.describe(devPtr)} is inside its allocation, and the handle names the "
            f"whole of it. hipIpcOpenMemHandle gives the address of byte 0: send {devPtr - buffer.address:,} along, "
            "and add it there"
        )
    return made


def exported(address: int) -> bytes:
    """Return the handle of memory that this process allocated; of an address inside it has the offset, too."""
    return _exported(address, _allocated(address))


def _exported(address: int, buffer: Buffer) -> bytes:
    given = machine.table(Ipc).given
    known = given.get(buffer.address)
    if known is None or known[0] is not buffer:
        # Not under the lock: it may wait for a callback that wants it.
        made = buffer.export(allow="user")
        with machine.lock:
            known = given.get(buffer.address)
            if known is None or known[0] is not buffer:
                known = buffer, made
                given.add(buffer.address, known)
        if known[1] is not made:
            made.close()  # another thread was quicker
    offset = (address - buffer.address).to_bytes(_OFFSET, "little")
    return (base64.urlsafe_b64decode(bytes(known[1])) + offset).ljust(HANDLE_SIZE, b"\0")


def _as_text(given: bytes) -> bytes:
    """Return the handle of the neutral API; such a handle is taken as well."""
    return given if any(given[_SAID + _OFFSET :]) else base64.urlsafe_b64encode(given[:_SAID])


def _allocated(address: int) -> Buffer:
    machine.devices()
    place = raw.locate(address) if address else None
    buffer = None if place is None or place.kind is not Kind.DEVICE else machine.owned(place.base, host=False)
    if buffer is None or buffer.is_imported:
        raise invalid(
            f"{machine.describe(address)} is not memory that hipMalloc gave this process",
            "pass what hipMalloc returned; mapped memory is shared with hipMemExportToShareableHandle",
        )
    return buffer


def bytes_of(made: Any, name: str) -> bytes:
    """Return the neutral handle that a struct holds; hipErrorInvalidValue for NULL, too few bytes, and all 0."""
    try:
        found = b"" if made is None else made._read(0, 0, HANDLE_SIZE)
    except IndexError:
        found = made._read(0, 0, made._nbytes or 0)
    if len(found) == HANDLE_SIZE and any(found):
        return _as_text(bytes(found))
    what = (
        "is NULL" if made is None else f"has {len(found)} bytes" if len(found) < HANDLE_SIZE else "is all 0"
    )
    raise invalid(
        f"{name} {what}",
        f"pass all {HANDLE_SIZE} bytes that the other process got; hip-python before 10.0 ends `reserved` at the "
        f"first NUL: send ctypes.string_at(int(handle), {HANDLE_SIZE})",
    )


@calls.call("hipIpcOpenMemHandle")
def hipIpcOpenMemHandle(handle: Any, flags: int) -> Pointer | None:
    """Have memory that another process exported, at an address of this one (facts/hip 3.5, 3.8).

    Opened again it is the same address, to be closed as often.  The current device may be another one than the
    memory's, if it can reach that.  Where the vendor's binding ends the interpreter, for None, this refuses.

    Gives: Pointer
    Refuses: hipErrorInvalidValue `flags` other than 1, NULL, all 0; hipErrorInvalidContext made by this process;
        hipErrorInvalidDevicePointer no handle, over, of memory that was freed, out of the current device's reach, its
        maker has ended or does not answer
    Basis: S
    """
    if flags != _LAZY_PEER_ACCESS:
        raise invalid(
            f"flags are {flags:#x}; the only valid value is hipIpcMemLazyEnablePeerAccess, 1",
            "pass hipIpcMemLazyEnablePeerAccess",
        )
    key, ipc, context = bytes_of(handle, "handle"), machine.table(Ipc), machine.context()

    def keeping(buffer: Buffer) -> _Opened:
        made = _Opened(context, key, buffer)
        machine.give(made)
        ipc.by_address[made.address] = made
        return made

    found = ipc.opened.open(
        key,
        lambda: attached(key, context.device),
        keeping,
        again=lambda known: known.devices.add(context.device),
    )
    return pointer(found.address)


def attached(key: bytes, device: Device | None = None) -> Buffer:
    """Open memory of another process; hipErrorInvalidDevicePointer for whatever is in the way, but an own handle."""
    try:
        return Buffer.open(key, device=device)
    except (AccessDenied, BadHandle, PeerLost, WaitTimeout) as error:
        if error.fault is Fault.OWN_HANDLE:
            raise
        raise refusal("hipErrorInvalidDevicePointer", str(error), gpu.vendor.explain(error)[1]) from None


@calls.call("hipIpcCloseMemHandle")
def hipIpcCloseMemHandle(devPtr: int) -> None:
    """Let go of what hipIpcOpenMemHandle gave, once for each time; the memory of its maker goes on (facts/hip 3.5).

    It waits for the null stream of the current device, then for all streams of the devices that were current when the
    memory was opened [D: the code].  What their work failed with is left for their own synchronization.

    Refuses: hipErrorInvalidValue NULL, memory of this process, closed as often as opened
    Basis: S, D for the waiting
    """
    ipc = machine.table(Ipc)
    streams.await_stream(streams.null(machine.context()))
    # Not under the lock: host functions that are waited for may want it.
    for device in tuple(_opened_at(ipc, devPtr).devices):
        streams.await_device(machine.context_of(device.ordinal))
    with machine.lock:
        found = ipc.opened.release(_opened_at(ipc, devPtr).key)
        if found is None:
            return
        ipc.forget(found)
        machine.drop(found, "hipIpcCloseMemHandle")
    found.buffer.close()


def _opened_at(ipc: Ipc, address: int) -> _Opened:
    found = ipc.by_address.get(address)
    if found is None:
        raise invalid(
            f"{machine.describe(address)} is not what hipIpcOpenMemHandle gave, or was closed as often",
            "close what hipIpcOpenMemHandle returned, once for each time",
        )
    return found

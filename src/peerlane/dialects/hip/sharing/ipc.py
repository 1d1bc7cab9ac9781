"""``hip``: memory and events of other processes (facts/hip 3.5)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.gpu.ipc import HANDLE_SIZE, LAZY_PEER_ACCESS
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.binding.results import pointer, put, struct
from peerlane.dialects.hip.binding.types import Pointer
from peerlane.dialects.hip.state import calls, gpu, machine, warn

ipc = gpu.ipc
_SHORT = (
    "; hip-python before 10.0 ends `reserved` at the first NUL: send "
    f"ctypes.string_at(int(handle), {HANDLE_SIZE})"
)


@calls.call("hipIpcGetMemHandle")
def hipIpcGetMemHandle(devPtr: int) -> Any:
    """Return the 64 bytes by which other processes of this user open memory of hipMalloc (facts/hip 3.5).

    The handle of a pointer into it has other bytes, and opens at the start of the allocation nevertheless: send the
    offset too.  `explain` and ``AMD_LOG_LEVEL=2`` say so.  Asked again for the same pointer it gives the same bytes,
    until the memory is freed.  Memory below 2 MiB moves first, at the same address, to have no neighbours.

    Gives: hipIpcMemHandle_t
    Refuses: hipErrorInvalidValue NULL, freed, not from hipMalloc, of a pool; hipErrorIllegalState it has to move and
        a view of it lives
    Basis: S; D for memory of a pool; C for the same bytes and hipErrorIllegalState
    """
    handle, offset = ipc.export(devPtr)
    ipc_handle = struct("hipIpcMemHandle_st")()
    put(ipc_handle, "reserved", handle)
    if offset:
        warn(
            f"hipIpcGetMemHandle: {machine.describe(devPtr)} is inside its allocation, and the handle names the "
            f"whole of it. hipIpcOpenMemHandle gives the address of byte 0: send {offset:,} along, "
            "and add it there"
        )
    return ipc_handle


def key_of(name: str, struct: Any) -> bytes:
    """Return the neutral handle that a struct holds; hipErrorInvalidValue for NULL, too few bytes, and all 0."""
    try:
        data = None if struct is None else bytes(struct._read(0, 0, HANDLE_SIZE))
    except IndexError:
        data = bytes(struct._read(0, 0, struct._nbytes or 0))
    return ipc.key(name, data, _SHORT)


@calls.call("hipIpcOpenMemHandle")
def hipIpcOpenMemHandle(handle: Any, flags: int) -> Pointer | None:
    """Map memory that another process exported, and return its address (facts/hip 3.5, 3.8).

    Opened again it is the same address, to be closed as often.  The current device may be another one than the
    memory's, if it can reach that.  Where the vendor's binding ends the interpreter, for None, this refuses.

    Gives: Pointer
    Refuses: hipErrorInvalidValue `flags` other than 1, NULL, all 0; hipErrorInvalidContext made by this process;
        hipErrorInvalidDevicePointer no handle, over, of memory that was freed, out of the current device's reach, its
        maker has ended or does not answer
    Basis: S
    """
    if flags != LAZY_PEER_ACCESS:
        raise invalid(
            f"flags are {flags:#x}; the only valid value is hipIpcMemLazyEnablePeerAccess, 1",
            "pass hipIpcMemLazyEnablePeerAccess",
        )
    return pointer(ipc.open(key_of("handle", handle)))


@calls.call("hipIpcCloseMemHandle")
def hipIpcCloseMemHandle(devPtr: int) -> None:
    """Close memory of hipIpcOpenMemHandle, once for each time; its exporter keeps the memory (facts/hip 3.5).

    It waits for the null stream of the current device, then for all streams of the devices that were current when the
    memory was opened [D: the code].  What their work failed with is left for their own synchronization.

    Refuses: hipErrorInvalidValue NULL, memory of this process, closed as often as opened
    Basis: S, D for the waiting
    """
    ipc.close(devPtr, "hipIpcCloseMemHandle")


@calls.call("hipIpcGetEventHandle")
def hipIpcGetEventHandle(event: int) -> Any:
    """Return the 64 bytes by which other processes of this user open an event: text without a NUL.

    The same at each call.  hip-python 7.2 passed a struct to fill, which is taken too.

    Gives: hipIpcEventHandle_t
    Refuses: hipErrorInvalidValue NULL; hipErrorInvalidHandle not an event; hipErrorInvalidConfiguration one
        without hipEventInterprocess
    Basis: S
    """
    if not event:
        raise invalid("the event is NULL", "pass what hipEventCreateWithFlags returned")
    exported = gpu.ipc.export_event(gpu.events.of(event))
    ipc_handle = struct("hipIpcEventHandle_st")()
    put(ipc_handle, "reserved", exported)
    return ipc_handle


@calls.call("hipIpcOpenEventHandle")
def hipIpcOpenEventHandle(handle: Any) -> Any:
    """Return the event of another process as an event of this thread's device.

    Both processes record it and wait for it: each record is one of both.

    Gives: event
    Refuses: hipErrorInvalidValue NULL, no handle, an event that was destroyed; hipErrorInvalidContext its maker;
        hipErrorMapFailed its maker has ended
    Basis: S; C for the last
    """
    if handle is None:
        raise gpu.ipc.no_event("the handle is NULL")
    try:
        data = bytes(handle.reserved)
    except IndexError as error:
        raise gpu.ipc.no_event(str(error)) from None
    return handle_of("ihipEvent_t", gpu.ipc.open_event(data))

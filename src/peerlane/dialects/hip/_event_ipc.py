"""``hip``: events that other processes have too (facts/hip 3.5)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip._convention import invalid
from peerlane.dialects.hip._results import handle as handle_of
from peerlane.dialects.hip._results import put, struct
from peerlane.dialects.hip._state import calls, gpu


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
    made = struct("hipIpcEventHandle_st")()
    put(made, "reserved", exported)
    return made


@calls.call("hipIpcOpenEventHandle")
def hipIpcOpenEventHandle(handle: Any) -> Any:
    """Have the event of another process, as one of this thread's device: wait for its records, and record it too.

    A record of either process is one of both.

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

"""``hip``: events that other processes have too (facts/hip 3.5)."""

from __future__ import annotations

from typing import Any

from peerlane import Event
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.events import DISABLE_TIMING, INTERPROCESS, GpuEvent
from peerlane.dialects.hip._convention import code_of, invalid, refusal
from peerlane.dialects.hip._results import handle as handle_of
from peerlane.dialects.hip._results import put, struct
from peerlane.dialects.hip._state import calls, gpu, machine
from peerlane.errors import Error


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
    found = gpu.events.of(event)
    if not found.flags & INTERPROCESS:
        raise refusal(
            "hipErrorInvalidConfiguration",
            f"event {event:#x} was created without hipEventInterprocess",
            "create it with hipEventCreateWithFlags(hipEventInterprocess | hipEventDisableTiming)",
        )
    with machine.lock:
        if found.exported is None:
            found.exported = found.neutral.export(allow="user")
    made = struct("hipIpcEventHandle_st")()
    put(made, "reserved", bytes(found.exported))
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
    text = _text_of(handle)
    context = machine.context()
    try:
        neutral = Event.open(text, device=context.device)
    except Error as error:
        if code_of(error) == "hipErrorInvalidDevicePointer":
            raise _no_event(str(error)) from None
        raise
    return handle_of("ihipEvent_t", machine.give(GpuEvent(context, INTERPROCESS | DISABLE_TIMING, neutral)))


def _text_of(handle: Any) -> bytes:
    if handle is None:
        raise _no_event("the handle is NULL")
    try:
        text = bytes(handle.reserved)
    except IndexError as error:
        raise _no_event(str(error)) from None
    if not text.strip(b"\0"):
        raise _no_event("the handle is all zeros")
    return text


def _no_event(cause: str) -> Refusal:
    return invalid(
        cause,
        "pass the 64 bytes that hipIpcGetEventHandle gave in this run, unchanged, while the event lives",
    )

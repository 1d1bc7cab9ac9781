"""``hip``: contexts, which are the devices themselves; deprecated by the vendor (facts/hip 4).

A context of HIP is the primary one of its device: making another gives the same.  Each thread has a stack of them.
"""

from __future__ import annotations

import threading
from typing import Any

from peerlane import Device
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._peer import DeviceId
from peerlane.dialects.hip._results import struct
from peerlane.dialects.hip._state import calls, machine


class _Stack(threading.local):
    """The devices whose contexts a thread pushed, the newest last."""

    def __init__(self) -> None:
        self.node: object = None
        self.devices: list[Device] = []


_FIRST, _STEP = 1 << 61, 64  # no address, and no number of anything else
_stack = _Stack()


def _pushed() -> list[Device]:
    node = machine.devices()
    if _stack.node is not node:
        _stack.node, _stack.devices = node, []
    return _stack.devices


def _push(device: Device) -> None:
    _pushed().append(device)
    machine.use(device.ordinal)


def context_handle(ordinal: int) -> int:
    """Return the number by which programs know a device's context."""
    return _FIRST + _STEP * ordinal


def _context(device: Device) -> Any:
    return struct("ihipCtx_t").fromObj(context_handle(device.ordinal))


def _known(ctx: int, code: str) -> Device:
    ordinal, rest = divmod(ctx - _FIRST, _STEP)
    devices = machine.devices()
    if rest or not 0 <= ordinal < len(devices):
        cause = f"{ctx:#x} is not a context" if ctx else "the context is NULL"
        raise refusal(code, cause, "pass what hipCtxCreate returned")
    return devices[ordinal]


@calls.call("hipCtxCreate")
def hipCtxCreate(flags: int, device: int) -> Any:
    """Return the context of a device, make it current and push it.

    Gives: context
    Refuses: hipErrorInvalidValue for no device
    Basis: D
    """
    shown = machine.shown()
    if not 0 <= device < len(shown):
        raise invalid(f"there is no device {device}; {len(shown)} are visible", "pass the id of one")
    found = shown[device]
    machine.flags[found.ordinal] = flags
    _push(found)
    return _context(found)


@calls.call("hipCtxDestroy")
def hipCtxDestroy(ctx: int) -> None:
    """Pop a context if it is the newest; the device goes on.

    Refuses: hipErrorInvalidValue for no context
    Basis: D
    """
    device = _known(ctx, "hipErrorInvalidValue")
    if _pushed() and _pushed()[-1] is device:
        _pushed().pop()


@calls.call("hipCtxPushCurrent")
def hipCtxPushCurrent(ctx: int) -> None:
    """Make a context current and push it.

    Refuses: hipErrorInvalidContext
    Basis: D
    """
    _push(_known(ctx, "hipErrorInvalidContext"))


@calls.call("hipCtxPopCurrent")
def hipCtxPopCurrent() -> Any:
    """Pop the newest context and return it; the one below becomes current.

    Gives: context
    Refuses: hipErrorInvalidContext for an empty stack
    Basis: D
    """
    stack = _pushed()
    if not stack:
        raise refusal("hipErrorInvalidContext", "this thread pushed no context", "push one before")
    device = stack.pop()
    if stack:
        machine.use(stack[-1].ordinal)
    return _context(device)


@calls.call("hipCtxSetCurrent")
def hipCtxSetCurrent(ctx: int) -> None:
    """Put a context in the place of the newest and make it current; NULL pops.

    Refuses: hipErrorInvalidContext
    Basis: D
    """
    stack = _pushed()
    if not ctx:
        del stack[-1:]
        return
    device = _known(ctx, "hipErrorInvalidContext")
    stack[-1:] = [device]
    machine.use(device.ordinal)


@calls.call("hipCtxGetCurrent")
def hipCtxGetCurrent() -> Any:
    """Return the newest context of this thread, or that of its device.

    Gives: context
    Basis: D
    """
    stack = _pushed()
    return _context(stack[-1] if stack else machine.context().device)


@calls.call("hipCtxGetDevice")
def hipCtxGetDevice() -> int:
    """Return the device of the current context.

    Gives: its id
    Basis: D
    """
    return machine.id_of(machine.context().device.ordinal)


def _refuse_as_the_vendor(call: str, gives: str = "") -> None:
    """Declare a call that the vendor's runtime refuses, whatever its documentation says."""

    def refuse(*_: Any) -> Any:
        raise refusal(
            "hipErrorNotSupported",
            f"the vendor's runtime gives this for every {call}, whatever its documentation says",
            "call hipDeviceSynchronize or hipGetDeviceFlags",
        )

    given = f"Gives: {gives}\n" if gives else ""
    doc = f"Refuse, as the vendor's runtime does.\n\n{given}Refuses: hipErrorNotSupported\nBasis: D"
    calls.made(call, refuse, doc, __name__)


_refuse_as_the_vendor("hipCtxSynchronize")
_refuse_as_the_vendor("hipCtxGetFlags", "flags")
_refuse_as_the_vendor("hipCtxSetCacheConfig")
_refuse_as_the_vendor("hipCtxGetCacheConfig", "cacheConfig")
_refuse_as_the_vendor("hipCtxSetSharedMemConfig")
_refuse_as_the_vendor("hipCtxGetApiVersion", "apiVersion")


@calls.call("hipDevicePrimaryCtxRetain")
def hipDevicePrimaryCtxRetain(dev: DeviceId) -> Any:
    """Return the context of a device.

    Gives: context
    Refuses: hipErrorInvalidDevice
    Basis: D
    """
    return _context(dev)


@calls.call("hipDevicePrimaryCtxRelease")
def hipDevicePrimaryCtxRelease(dev: DeviceId) -> None:
    """Do nothing, as the device goes on.

    Refuses: hipErrorInvalidDevice
    Basis: D
    """


@calls.call("hipDevicePrimaryCtxReset")
def hipDevicePrimaryCtxReset(dev: DeviceId) -> None:
    """Do nothing, as the vendor does; hipDeviceReset ends the objects of a device.

    Refuses: hipErrorInvalidDevice
    Basis: D
    """


@calls.call("hipDevicePrimaryCtxSetFlags")
def hipDevicePrimaryCtxSetFlags(dev: DeviceId, flags: int) -> None:
    """Refuse, as the vendor's runtime does: the context of a device is in use from the start.

    Refuses: hipErrorInvalidDevice; hipErrorContextAlreadyInUse for every device
    Basis: D
    """
    raise refusal(
        "hipErrorContextAlreadyInUse",
        f"the context of device {machine.id_of(dev.ordinal)} is in use from the start",
        "set flags with hipSetDeviceFlags",
    )


@calls.call("hipDevicePrimaryCtxGetState")
def hipDevicePrimaryCtxGetState(dev: DeviceId) -> tuple[int, int]:
    """Return the flags of a device's context and whether it is this thread's.

    Gives: flags, 1 or 0
    Refuses: hipErrorInvalidDevice
    Basis: D
    """
    return 0, int(dev.ordinal == machine.ordinal)

"""``hip``: contexts, which are the devices themselves; deprecated by the vendor (facts/hip 4).

A context of HIP is the primary one of its device: making another gives the same.  Each thread has a stack of them.
"""

from __future__ import annotations

from typing import Any

from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding.convention import invalid, refusal
from peerlane.dialects.hip.binding.results import struct
from peerlane.dialects.hip.devices.peers import DeviceId
from peerlane.dialects.hip.state import calls, gpu, machine

contexts = gpu.contexts


def _handle(handle: int) -> Any:
    return struct("ihipCtx_t").fromObj(handle)


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
    return _handle(contexts.create(shown[device], flags).handle)


@calls.call("hipCtxDestroy")
def hipCtxDestroy(ctx: int) -> None:
    """Pop a context if it is the newest; the device stays as it is.

    Refuses: hipErrorInvalidValue for no context
    Basis: D
    """
    contexts.destroy(contexts.of(ctx, Reason.INVALID_VALUE), "hipCtxDestroy")


@calls.call("hipCtxPushCurrent")
def hipCtxPushCurrent(ctx: int) -> None:
    """Make a context current and push it.

    Refuses: hipErrorInvalidContext
    Basis: D
    """
    contexts.push(contexts.of(ctx))


@calls.call("hipCtxPopCurrent")
def hipCtxPopCurrent() -> Any:
    """Pop the newest context and return it; the one below becomes current.

    Gives: context
    Refuses: hipErrorInvalidContext for an empty stack
    Basis: D
    """
    return _handle(contexts.pop())


@calls.call("hipCtxSetCurrent")
def hipCtxSetCurrent(ctx: int) -> None:
    """Replace the newest context and make the new one current; NULL pops.

    Refuses: hipErrorInvalidContext
    Basis: D
    """
    contexts.replace(contexts.of(ctx) if ctx else None)


@calls.call("hipCtxGetCurrent")
def hipCtxGetCurrent() -> Any:
    """Return the newest context of this thread, or that of its device.

    Gives: context
    Basis: D
    """
    return _handle(contexts.newest())


@calls.call("hipCtxGetDevice")
def hipCtxGetDevice() -> int:
    """Return the device of the current context.

    Gives: its id
    Basis: D
    """
    return machine.id_of(machine.context().device.ordinal)


def _refuse_as_the_vendor(call: str, gives: str = "") -> None:
    """Declare a call that the vendor's runtime refuses, against its documentation."""

    def refuse(*_: Any) -> Any:
        raise refusal(
            "hipErrorNotSupported",
            f"the vendor's runtime gives this for every {call}, whatever its documentation says",
            "call hipDeviceSynchronize or hipGetDeviceFlags",
        )

    outputs = f"Gives: {gives}\n" if gives else ""
    doc = f"Refuse, as the vendor's runtime does.\n\n{outputs}Refuses: hipErrorNotSupported\nBasis: D"
    calls.declare(call, refuse, doc, __name__)


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
    return _handle(machine.context_of(dev.ordinal).handle)


@calls.call("hipDevicePrimaryCtxRelease")
def hipDevicePrimaryCtxRelease(dev: DeviceId) -> None:
    """Do nothing: the device stays as it is.

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

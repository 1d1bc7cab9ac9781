"""``acl.rt``: contexts, and the current one of a thread (facts/acl 2.3, 4.1)."""

from __future__ import annotations

from peerlane.dialects._shared.call import Address, Int32
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import stream_of


@acl.call("acl.rt.create_context", out=1)
def create_context(device_id: Int32) -> int:
    """Create a context with its own default stream, and make it current in this thread (facts/acl 2.3).

    The device stays in use until the context is destroyed, even after resets.

    Gives: context
    Refuses: 107001
    Basis: S
    """
    return machine.create_context(device_id).handle


@acl.call("acl.rt.destroy_context")
def destroy_context(context: Address) -> None:
    """Wait for the work of its streams and end them, with its events and notifies (facts/acl 2.3).

    A failure of that work gives the code.  Memory belongs to the device and stays until no context uses the device.

    Refuses: 100000 NULL; 107002 no context, a device's own; 507007 being destroyed; what its work failed with
    Basis: S; C for the last
    """
    target = _context_of(context)
    if target.is_primary:
        raise Code.RT_CONTEXT_NULL.refusal(
            f"{context:#x} is the context of device {target.number} that acl.rt.set_device made",
            f"acl.rt.reset_device({target.number}) ends it, called as often as the device was set",
        )
    if not machine.end_context(target, "acl.rt.destroy_context"):
        raise Code.RT_CONTEXT_RELEASE_ERROR.refusal(
            f"another thread is destroying context {context:#x}", "destroy a context once, from one thread"
        )


@acl.call("acl.rt.set_context")
def set_context(context: Address) -> None:
    """Make a context current in this thread, and with it its device (facts/acl 2.3).

    Refuses: 100000 NULL; 107002 no context
    Basis: S
    """
    machine.thread.context = _context_of(context)


@acl.call("acl.rt.get_context", out=1)
def get_context() -> int:
    """Return the handle of this thread's context, the device's own included (facts/acl 2.3).

    Gives: context
    Refuses: 107002
    Basis: S
    """
    context = machine.context()
    with machine.lock:
        return context.handle or machine.issue(context)


@acl.call("acl.rt.ctx_get_current_default_stream", out=1)
def ctx_get_current_default_stream() -> int:
    """Return the handle of the stream that 0 means in this thread (facts/acl 2.3).

    Gives: stream
    Refuses: 107002
    Basis: S
    """
    return stream_of(0).handle


def _context_of(handle: int) -> Context:
    """Return a live context: 100000 for NULL, 107002 for other numbers and destroyed contexts."""
    machine.devices()
    if not handle:
        raise Code.INVALID_PARAM.refusal(
            "the context is NULL (0)", "pass what acl.rt.create_context or get_context returned"
        )
    context = machine.resources.get(handle)
    if isinstance(context, Context) and context.is_live:
        return context
    refusal = machine.unknown(handle, Context.name)
    raise Code.RT_CONTEXT_NULL.refusal(str(refusal), refusal.remedy)


@acl.call("acl.rt.get_primary_ctx_state", out=2)
def get_primary_ctx_state(device_id: Int32) -> tuple[int, int]:
    """Return whether this process has the context of ``set_device`` for a device, and its flags, which are 0.

    Gives: 0 or 1, 0
    Refuses: 107001
    Basis: S, R
    """
    return int(machine.is_set(machine.device(device_id))), 0

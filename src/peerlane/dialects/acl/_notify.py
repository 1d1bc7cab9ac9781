"""``acl.rt``: notifies within a process (spec acl 2.6, 4 "Events/notifies")."""

from __future__ import annotations

from peerlane.dialects._call import Address, Object, Refusal, StrictUInt32, Word, int_list
from peerlane.dialects._machine import Context, Thing
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import stream_of

_FLAGS = (0, 1)


class AclNotify(Thing):
    """A notify of a context."""

    __slots__ = ("neutral",)

    name = "notify"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.neutral = context.device.create_notify()


@acl.call("acl.rt.create_notify", out=1)
def create_notify(flag: Word) -> int:
    """Create a notify of the current device; flag 0, or DEVICE_USE_ONLY 1 (spec acl 2.6)."""
    if flag not in _FLAGS:
        raise Refusal(Code.RT_PARAM_INVALID, f"flag is {flag:#x}", "pass 0, or 1 for a device's own use")
    context = machine.context()
    info = context.device.info
    with machine.lock:
        if context.counts[AclNotify] >= info.max_notifies:
            raise Refusal(
                Code.RT_NO_NOTIFY_RESOURCE,
                f"device {info.ordinal} has {info.max_notifies:,} notifies of this process, the most for {info.name}",
                "destroy notifies that are not needed any more",
            )
        return machine.give(AclNotify(context))


@acl.call("acl.rt.destroy_notify")
def destroy_notify(notify: Address) -> None:
    """Destroy; what is queued already goes on (spec acl 2.6)."""
    machine.remove(notify, AclNotify)


@acl.call("acl.rt.record_notify")
def record_notify(notify: Address, stream: Address) -> None:
    """Set the notify when all that was submitted to the stream so far is over (spec acl 2.6).

    The stream may be of another device.
    """
    machine.context()
    found = machine.thing(notify, AclNotify)
    stream_of(stream).neutral.notify(found.neutral)


@acl.call("acl.rt.wait_and_reset_notify")
def wait_and_reset_notify(notify: Address, stream: Address, timeout: StrictUInt32) -> None:
    """Let what follows in the stream wait until the notify is set, and unset it (spec acl 2.6).

    ``timeout`` in seconds, 0 for ever; when it is over, the next synchronization returns 107019.
    """
    context = machine.context()
    found = machine.thing(notify, AclNotify)
    waiting = stream_of(stream)
    machine.refuse_foreign(
        found, context, "wait on the device where the notify was created; record it on any"
    )
    waiting.neutral.wait(found.neutral, timeout=timeout or None)


@acl.call("acl.rt.get_notify_id", out=1)
def get_notify_id(notify: Address) -> int:
    """Return a small number, unique in the process (spec acl 2.6)."""
    machine.context()
    return machine.thing(notify, AclNotify).neutral.id


@acl.call("acl.rt.notify_batch_reset")
def notify_batch_reset(notifies: Object) -> None:
    """Unset every notify of a list, at once; none if one of them is wrong (spec acl 2.6)."""
    handles = int_list("acl.rt.notify_batch_reset", notifies)
    if not handles:
        raise Refusal(Code.RT_PARAM_INVALID, "the list is empty", "pass at least one notify")
    machine.context()
    for notify in [machine.thing(handle, AclNotify) for handle in handles]:
        notify.neutral.reset()

"""``acl.rt``: notifies, in a process and between processes (facts/acl 2.6, 4.7)."""

from __future__ import annotations

from peerlane import Device, Handle, Notify
from peerlane.dialects._shared.call import Address, Object, Refusal, StrictUInt32, Text, Word, int_list
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.acl._checks import one_of
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._device import add_reference, drop_reference, refuse_unreachable
from peerlane.dialects.acl._exporting import (
    as_no_key,
    let_in,
    pids_of,
    refuse_export_flags,
    refuse_long,
    refuse_short,
    text_of,
)
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import stream_of

_FLAG = one_of("flag", (0, 1), "pass 0, or 1 for a device's own use", shown=hex)
_EXPORT_KEY, _SET_PID = "acl.rt.notify_get_export_key", "acl.rt.notify_set_import_pid"
_FOR_ALL = 2
_WITH_PEER = 2


class AclNotify(Resource):
    """A notify of a context."""

    __slots__ = ("direction", "exported", "is_imported", "neutral")

    name = "notify"

    def __init__(self, context: Context, imported: Notify | None = None) -> None:
        super().__init__(context)
        self.is_imported = imported is not None
        #: An imported notify too has the device where it was created.
        self.neutral = imported or context.device.create_notify()
        self.exported: Handle | None = None  #: its export, once there is one
        #: The device and the peer between which the import enabled access.
        self.direction: tuple[Device, Device] | None = None

    def abandon(self) -> None:
        """End it and its key; queued operations go on."""
        with machine.lock:
            handle, self.exported = self.exported, None
            direction, self.direction = self.direction, None
            if direction is not None:
                drop_reference(*direction)
        if handle is not None:
            handle.close()
        self.neutral.close()


@acl.call("acl.rt.create_notify", out=1, checks=[_FLAG])
def create_notify(flag: Word) -> int:
    """Create a notify of the current device; flag 0, or DEVICE_USE_ONLY 1 (facts/acl 2.6).

    Gives: notify
    Refuses: 107000 flag; 107002; 207009 too many
    Basis: S; C for the flag's code
    """
    context = machine.context()
    with machine.lock:
        _refuse_one_more(context)
        return machine.issue(AclNotify(context))


@acl.call("acl.rt.destroy_notify")
def destroy_notify(notify: Address) -> None:
    """Destroy a notify; queued operations go on, and so do the processes that imported it (facts/acl 2.6).

    The key of an exported notify becomes invalid.

    Refuses: 100000; 107002; 107000
    Basis: S
    """
    machine.remove(notify, AclNotify, "acl.rt.destroy_notify").abandon()


@acl.call("acl.rt.record_notify")
def record_notify(notify: Address, stream: Address) -> None:
    """Set the notify when all work submitted to the stream so far is over (facts/acl 2.6).

    The stream may be of another device.

    Refuses: 100000; 107002; 107000 notify, stream; 107003 the stream
    Basis: S
    """
    machine.context()
    acl_notify = machine.resource(notify, AclNotify)
    stream_of(stream).neutral.notify(acl_notify.neutral)


@acl.call("acl.rt.wait_and_reset_notify")
def wait_and_reset_notify(notify: Address, stream: Address, timeout: StrictUInt32) -> None:
    """Let later operations of the stream wait until the notify is set, and unset it (facts/acl 2.6).

    ``timeout`` is in seconds, 0 for ever; after it, the next synchronization returns 107019.

    Refuses: as `record_notify`; 107003 also the notify; `TypeError` for a timeout beyond 32 bits
    Basis: S; C for the notify
    """
    context = machine.context()
    acl_notify = machine.resource(notify, AclNotify)
    waiting = stream_of(stream)
    machine.refuse_foreign(
        acl_notify, context, "wait on the device where the notify was created; record it on any"
    )
    if acl_notify.neutral.device is not context.device:
        raise Code.RT_PARAM_INVALID.refusal(
            f"the notify was created on device {machine.number_of(acl_notify.neutral.device)} by another process, "
            f"and imported for device {context.number}",
            "set the device where it was created, import it there and wait there; it is recorded on any",
        )
    waiting.neutral.wait(acl_notify.neutral, timeout=timeout or None)


@acl.call("acl.rt.get_notify_id", out=1)
def get_notify_id(notify: Address) -> int:
    """Return a small number, unique in the process (facts/acl 2.6).

    Gives: number
    Refuses: 100000; 107002; 107000
    Basis: D
    """
    machine.context()
    return machine.resource(notify, AclNotify).neutral.id


@acl.call("acl.rt.notify_batch_reset")
def notify_batch_reset(notifies: Object) -> None:
    """Unset every notify of a list, at once; none if one of them is wrong (facts/acl 2.6).

    Refuses: `ValueError` no list of ints; 107000 empty, no notify; 100000 a 0 in it; 107002
    Basis: S; C for empty
    """
    handles = int_list("acl.rt.notify_batch_reset", notifies)
    if not handles:
        raise Code.RT_PARAM_INVALID.refusal("the list is empty", "pass at least one notify")
    machine.context()
    for notify in [machine.resource(handle, AclNotify) for handle in handles]:
        notify.neutral.reset()


@acl.call(_EXPORT_KEY, out=1, blank=("",))
def notify_get_export_key(notify: Address, len: Word, flags: Word) -> str:
    """Return the key by which other processes import the notify, once (facts/acl 2.6).

    ``len`` is the room for the key, 65 at least.  ``flags`` 0: processes of ``notify_set_import_pid``; 2: any.

    Gives: key, 64 characters
    Refuses: `ValueError` `len` 1,024 or more; 100000; 107002; 107000 notify, `len` below 65, `flags` not 0 or 2;
        507899 exported before, imported
    Basis: S; C for `flags` and 507899
    """
    refuse_long(_EXPORT_KEY, len)
    machine.context()
    with machine.lock:  # the key of a notify that is destroyed meanwhile would never end
        acl_notify = machine.resource(notify, AclNotify)
        refuse_short(len)
        everyone = refuse_export_flags(flags, _FOR_ALL)
        if acl_notify.is_imported:
            raise _not_twice("the notify was imported, and only its maker exports it")
        if acl_notify.exported is not None:
            raise _not_twice("the notify was exported already; it has one key")
        handle = acl_notify.exported = acl_notify.neutral.export(allow="user" if everyone else ())
    return text_of(handle)


@acl.call(_SET_PID)
def notify_set_import_pid(notify: Address, pids: Object) -> None:
    """List processes that may import; only the exporting process may list them (facts/acl 2.6, 4.5).

    Refuses: `ValueError` no list of ints; 100000; 107002; 107000 notify, empty, no pid; 507899 not exported here;
        207006 exported with flags 2
    Basis: S; C for the codes
    """
    wanted = pids_of(_SET_PID, pids)
    machine.context()
    with machine.lock:
        handle = machine.resource(notify, AclNotify).exported
        if handle is None:
            raise Code.RT_DRV_INTERNAL_ERROR.refusal(
                f"notify {notify:#x} was not exported by this process",
                f"call {_EXPORT_KEY} first, in the process that created it",
            )
        let_in(handle, wanted)


@acl.call(
    "acl.rt.notify_import_by_key",
    out=1,
    checks=[one_of("flags", (0, _WITH_PEER), f"pass 0, or {_WITH_PEER} to enable peer access")],
)
def notify_import_by_key(key: Text, flags: Word) -> int:
    """Import a notify that another process exported; each import is destroyed separately (facts/acl 2.6).

    ``flags`` 2 enables peer access from this thread's device to the notify's, until the import is destroyed.

    Gives: notify
    Refuses: 107000 `flags` not 0 or 2; 107002; 207009 too many; 207005 too many peers; 507899 no key, over, not
        listed, own; 207000 unreachable; 507057, 107019 as for handles
    Basis: S; C for the codes
    """
    context = machine.context()
    with as_no_key():
        acl_notify = AclNotify(context, Notify.open(key))
    ends = context.device, acl_notify.neutral.device
    try:
        refuse_unreachable(*ends)
        with machine.lock:
            _refuse_one_more(context)
            if flags and ends[0] is not ends[1]:
                add_reference(*ends)
                acl_notify.direction = ends
            return machine.issue(acl_notify)
    except BaseException:
        acl_notify.abandon()
        raise


def _refuse_one_more(context: Context) -> None:
    info = context.device.info
    if machine.count(context.device, AclNotify) >= info.max_notifies:
        raise Code.RT_NO_NOTIFY_RESOURCE.refusal(
            f"device {context.number} has {info.max_notifies:,} notifies of this process, the most for {info.name}",
            "destroy notifies that are not needed any more",
        )


def _not_twice(cause: str) -> Refusal:
    return Code.RT_DRV_INTERNAL_ERROR.refusal(
        cause, "send the first key to all processes, and list each of them"
    )

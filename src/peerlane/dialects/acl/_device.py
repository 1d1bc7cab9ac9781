"""``acl.rt``: devices and peer access (facts/acl 2.2, 4.1, 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peerlane import Device
from peerlane.backend import registry
from peerlane.dialects._shared import checks, message
from peerlane.dialects._shared.call import Int32, Refusal, UInt32
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._policy import NODE, VARIABLE
from peerlane.dialects.acl._state import acl, machine
from peerlane.errors import AccessDenied, Error, Fault

_HOST_RUN_MODE = 1


@acl.call("acl.rt.set_device")
def set_device(device_id: Int32) -> None:
    """Make a device current in this thread; each call needs one ``reset_device`` (facts/acl 2.2).

    Refuses: 107001; 507033 for a broken node configuration
    Basis: S, D
    """
    machine.select(device_id)


@acl.call("acl.rt.reset_device")
def reset_device(device_id: Int32) -> None:
    """Drop one reference; the last one waits for the device's work of this process, ends its streams, events and
    notifies, and frees its memory (facts/acl 2.2).  The code of a failure of that work is returned.

    Refuses: 107001; 507007 without a reference; what its work failed with
    Basis: S, R; C for the last
    """
    if not machine.release(device_id):
        raise _no_reference(device_id)


@acl.call("acl.rt.reset_device_force")
def reset_device_force(device_id: Int32) -> None:
    """Drop all references at once, as ``reset_device`` does with the last one (facts/acl 2.2).

    Refuses: as `reset_device`
    Basis: D
    """
    if not machine.release(device_id, all_references=True):
        raise _no_reference(device_id)


@acl.call("acl.rt.get_device", out=1)
def get_device() -> int:
    """Return this thread's device; 107002 if it has none (facts/acl 2.2).

    Gives: device
    Refuses: 107002
    Basis: S
    """
    return machine.context().number


@acl.call("acl.rt.get_device_count", out=1)
def get_device_count() -> int:
    """Return how many devices the program sees (facts/acl 2.2): the devices of ASCEND_RT_VISIBLE_DEVICES, or all.

    Gives: count
    Refuses: 507033; 207004 none is visible
    Basis: S, D
    """
    shown = machine.visible()
    if not shown:
        raise Code.RT_NO_DEVICE.refusal(machine.describe_visible(), "correct the variable, or unset it")
    return len(shown)


@acl.call("acl.rt.get_run_mode", out=1)
def get_run_mode() -> int:
    """Return 1, ACL_HOST: programs run beside the devices (facts/acl 2.2).

    Gives: 1 (host)
    Basis: D
    """
    return _HOST_RUN_MODE


@acl.call("acl.rt.device_can_access_peer", out=1)
def device_can_access_peer(device_id: Int32, peer_device_id: Int32) -> int:
    """Return 1 if ``device_enable_peer_access`` is possible from the first to the second (facts/acl 2.2).

    Gives: 0 or 1
    Refuses: 100000 itself; 107001
    Basis: S
    """
    _refuse_self(device_id, peer_device_id)
    return int(machine.device(device_id).can_access(machine.device(peer_device_id)))


@acl.call("acl.rt.device_enable_peer_access", checks=[checks.reserved(Code.FEATURE_UNSUPPORTED, "flags")])
def device_enable_peer_access(peer_device_id: Int32, flags: UInt32) -> None:
    """Add a reference to the direction current device to peer (facts/acl 2.2, 4.3).

    Copies between the two devices work once both directions have a reference.

    Refuses: 200006 flags; 107002; 100000 itself; 107001; 207000 unreachable; 207005 too many peers
    Basis: S; C for across switches and the last
    """
    context = machine.context()
    _refuse_self(context.number, peer_device_id)
    add_reference(context.device, machine.device(peer_device_id))


@acl.call("acl.rt.device_disable_peer_access")
def device_disable_peer_access(peer_device_id: Int32) -> None:
    """Drop a reference of the direction current device to peer; 507899 without one (facts/acl 2.2).

    Refuses: 107002; 100000 itself; 107001; 507899 not enabled
    Basis: S, X
    """
    context = machine.context()
    _refuse_self(context.number, peer_device_id)
    peer = machine.device(peer_device_id)
    if not drop_reference(context.device, peer):
        raise Code.RT_DRV_INTERNAL_ERROR.refusal(
            f"peer access from device {context.number} to device {peer_device_id} is not enabled by this process",
            "disable it once for each acl.rt.device_enable_peer_access, with the same device set",
        )


@acl.call("acl.rt.device_peer_access_status", out=1)
def device_peer_access_status(device_id: Int32, peer_device_id: Int32) -> int:
    """Return 1 if both directions are enabled; 0 for one device (facts/acl 2.2).

    Gives: 0 or 1
    Refuses: 107000 no such device
    Basis: S, D
    """
    count = len(machine.visible())
    if not (0 <= device_id < count and 0 <= peer_device_id < count):
        raise Code.RT_PARAM_INVALID.refusal(
            f"there is no device {device_id if not 0 <= device_id < count else peer_device_id}; the valid ones are "
            f"numbered 0 to {count - 1}",
            "pass two of them",
        )
    if device_id == peer_device_id:
        return 0
    return int(not _not_enabled(machine.device(device_id), machine.device(peer_device_id)))


def _no_reference(device_id: int) -> Refusal:
    return Code.RT_CONTEXT_RELEASE_ERROR.refusal(
        f"device {device_id} has no reference left in this process: every acl.rt.set_device({device_id}) "
        "was already reset, or there was none",
        "reset a device once for each time it was set",
    )


def refuse_unreachable(device: Device, peer: Device) -> None:
    """Refuse two devices that no route joins: 207000."""
    if device is not peer and not device.can_access(peer):
        own, other = machine.number_of(device), machine.number_of(peer)
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"device {own} cannot reach device {other}: {device.why_not(peer)}",
            "copy through host memory, or choose devices for which acl.rt.device_can_access_peer gives 1 "
            "(`peerlane topo` shows them)",
        )


def add_reference(device: Device, peer: Device) -> None:
    """Add a reference to the direction from ``device`` to ``peer``: 207000 if it cannot be, 207005 over the limit."""
    refuse_unreachable(device, peer)
    forth, back = (device.ordinal, peer.ordinal), (peer.ordinal, device.ordinal)
    with machine.lock:
        references = machine.peer_references
        if forth not in references:
            _refuse_too_many(device, peer)
            device.backend.announce_peer(*forth, True)
        if forth not in references and back in references:
            # Each copy looks up access that another process enabled; access in device.peers needs no look-up.
            try:
                device.peers.add(peer)
                peer.peers.add(device)
            except Error:
                device.peers.discard(peer)
                device.backend.announce_peer(*forth, False)
                raise
        references[forth] = references.get(forth, 0) + 1


def drop_reference(device: Device, peer: Device) -> bool:
    """Drop a reference of the direction from ``device`` to ``peer``; False if there is none."""
    forth, back = (device.ordinal, peer.ordinal), (peer.ordinal, device.ordinal)
    with machine.lock:
        references = machine.peer_references
        if forth not in references:
            return False
        references[forth] -= 1
        if not references[forth]:
            del references[forth]
            if back in references:
                device.peers.discard(peer)
                peer.peers.discard(device)
            device.backend.announce_peer(*forth, False)
    return True


def _not_enabled(a: Device, b: Device) -> list[tuple[Device, Device]]:
    """Return which of the two directions neither this process nor one that counts here has enabled."""
    return [
        (own, peer)
        for own, peer in ((a, b), (b, a))
        if not own.backend.is_announced(own.ordinal, peer.ordinal)
    ]


def without_access(
    error: AccessDenied, a: Device, b: Device, private: Sequence[str]
) -> Refusal | AccessDenied:
    """Return the refusal of a copy between two devices, with the enabling calls that are missing.

    ``private`` has the descriptions of the ends that were allocated without a P2P policy.
    """
    if error.fault is not Fault.PEER_NOT_ENABLED:
        return error
    both = f"devices {machine.number_of(a)} and {machine.number_of(b)}"
    apart = a.why_not(b) or b.why_not(a)
    if apart:
        return Code.RT_DRV_INTERNAL_ERROR.refusal(
            f"{both} have no peer access and cannot get it: {apart}",
            "copy to host memory, and from there to the other device",
        )
    lacking = _not_enabled(a, b)
    missing = [
        f"acl.rt.device_enable_peer_access({machine.number_of(peer)}, 0) while device {machine.number_of(own)} is set"
        for own, peer in lacking
    ]
    if not missing and private:
        return Code.RT_DRV_INTERNAL_ERROR.refusal(
            f"{a.info.name} copies between devices only memory that was allocated with a P2P policy, and this was "
            f"not: {' and '.join(private)}",
            "allocate both ends with acl.rt.malloc(size, policy) and policy 3, 4, 5 or 7",
        )
    if not missing:
        return error
    cause = (
        f"{both} have no effective peer access, which needs both directions; missing: {' and '.join(missing)}"
    )
    remedy = "make the missing call, then copy; or copy through host memory"
    others = {pid for own, peer in lacking for pid in own.backend.announcers(own.ordinal, peer.ordinal)}
    if others:
        cause += f"; process {_listed(others)} made it, which shares no handle with this one"
        remedy += f"; under {VARIABLE}={NODE} the calls of all processes count"
    return Code.RT_DRV_INTERNAL_ERROR.refusal(cause, remedy)


def _listed(pids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(pids)))


def _relied_on() -> str:
    """Return which processes enabled the peer access of copies that this process had not enabled itself."""
    pids = registry.current().relied_on() if registry.is_entered() else ()
    text = (
        "copies between devices passed by peer access that this process had not enabled itself, but process"
    )
    return f"{text} {_listed(pids)}, which shares handles with it or counts by {VARIABLE}" if pids else ""


message.at_end.append(_relied_on)


def _refuse_too_many(device: Device, peer: Device) -> None:
    enabled = sorted(
        machine.number_at(other) for own, other in machine.peer_references if own == device.ordinal
    )
    if len(enabled) >= device.info.max_peers:
        raise Code.RT_RESOURCE_ALLOC_FAIL.refusal(
            f"device {machine.number_of(device)} has peer access to devices {', '.join(map(str, enabled))}, and "
            f"{device.info.max_peers} are the most for {device.info.name}; device {machine.number_of(peer)} would be "
            "one more",
            "call acl.rt.device_disable_peer_access(peer) for one of them first, as often as it was enabled",
        )


def _refuse_self(device_id: int, peer_device_id: int) -> None:
    if device_id == peer_device_id:
        raise Code.INVALID_PARAM.refusal(
            f"the device and its peer are both {device_id}; a device is not its own peer",
            "pass two different devices; within one device nothing needs enabling",
        )

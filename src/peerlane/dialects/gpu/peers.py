"""Which device may use the memory of another one, and copies that ask for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peerlane import Device
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.regions import Region, Regions
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.vendor import Reason

#: Returns the access that a device was given to memory at an address, of a region: "none", "r" or "rw".
Grant = Callable[[Device, int, Region], str]


class _Enabled(dict[int, set[int]]):
    """By device number: those whose access was enabled while it was current."""


class Peers:
    """The peer access of a vendor's program."""

    def __init__(self, machine: GpuMachine, regions: Regions) -> None:
        self._machine, self._regions = machine, regions
        self._grants: list[Grant] = [self._by_peers]
        self._left_out: list[Callable[[Region], bool]] = []

    def enable(self, peer: Device) -> None:
        """Let this thread's device reach the memory of another, one direction; ``PEER_ENABLED`` for a second time."""
        device, machine = self._reachable(peer), self._machine
        with machine.lock:
            enabled = machine.table(_Enabled).setdefault(device.ordinal, set())
            if peer.ordinal in enabled:
                its, other = machine.ids(device, peer)
                raise machine.vendor.refusal(
                    Reason.PEER_ENABLED,
                    f"access from device {its} to device {other} is enabled already",
                    "enable it once, or ignore this code",
                )
            device.peers.add(peer)
            enabled.add(peer.ordinal)

    def disable(self, peer: Device) -> None:
        """End what :meth:`enable` began on this thread's device; ``PEER_NOT_ENABLED`` if nothing did."""
        device, machine = self._reachable(peer), self._machine
        with machine.lock:
            enabled = machine.table(_Enabled).setdefault(device.ordinal, set())
            if peer.ordinal not in enabled:
                its, other = machine.ids(device, peer)
                raise machine.vendor.refusal(
                    Reason.PEER_NOT_ENABLED,
                    f"access from device {its} to device {other} is not enabled",
                    f"make device {its} current, and enable access to device {other} with {{enable_peer}}",
                )
            device.peers.discard(peer)
            enabled.discard(peer.ordinal)

    def _reachable(self, peer: Device) -> Device:
        """Return this thread's device; refuse a peer that it cannot reach, and itself."""
        machine = self._machine
        device = machine.context().device
        why = "a device is not its own peer" if device is peer else device.why_not(peer)
        if why:
            its, other = machine.ids(device, peer)
            raise machine.vendor.refusal(
                Reason.PEER_SELF if device is peer else Reason.PEER_UNREACHABLE,
                f"device {its} cannot access device {other}: {why}",
                "choose a device for which {can_access_peer} gives 1",
            )
        return device

    def forget(self, ordinal: int) -> None:
        """End the access that a device was given, as its reset does."""
        machine = self._machine
        with machine.lock:
            for peer in machine.table(_Enabled).pop(ordinal, ()):
                machine.device(ordinal).peers.discard(machine.device(peer))

    def add_grant(self, grant: Grant) -> None:
        """Add a function that returns the access it granted."""
        self._grants.append(grant)

    def leave_out(self, is_left_out: Callable[[Region], bool]) -> None:
        """Add a function that returns whether enabled access leaves a region out."""
        self._left_out.append(is_left_out)

    def _by_peers(self, device: Device, address: int, region: Region) -> str:
        enabled = self._machine.table(_Enabled).get(device.ordinal, ())
        if region.ordinal not in enabled or any(each(region) for each in self._left_out):
            return "none"
        return "rw"

    def refuse_out_of_reach(self, by: AnyStream | Device, *needs: tuple[str, Region | None, str]) -> None:
        """Refuse memory that enabled access leaves out, and to which a device was not given access, by the policy.

        ``by``: the stream that uses it, whose device or the current one has the access (facts/cuda 4.5); or the
            device of the node of a graph.
        ``*needs``: what it uses: the argument's name, the region, and the right that it needs, "r" or "rw".
        Raises Refusal: ``INVALID_VALUE``.
        """
        if self._machine.vendor.policy.pool_access != "own":
            return
        device = by if isinstance(by, Device) else by.context.device
        lacks = self._lacking(device, needs)
        if lacks is None:
            return
        machine = self._machine
        current = None if by is device else machine.current()
        if current is not None and self._lacking(current.device, needs) is None:
            return
        name, region, _ = lacks
        its, other = machine.ids(device, machine.device(region.ordinal))
        raise machine.vendor.invalid(
            f"device {its} has no access to {name}, which is memory of a pool or a graph of device {other}",
            f"give device {its} access with {{set_pool_access}}, or in the parameters of the graph's node, or use a "
            f"stream of device {other}",
        )

    def _lacking(
        self, device: Device, needs: Sequence[tuple[str, Region | None, str]]
    ) -> tuple[str, Region, str] | None:
        """Return the first of several needs for which a device lacks access; None if it has it to all."""
        for name, region, right in needs:
            if region is None or not region.is_device or region.ordinal == device.ordinal:
                continue
            if not any(each(region) for each in self._left_out):
                continue
            with self._machine.lock:
                if not any(each(device, region.base, region).startswith(right) for each in self._grants):
                    return name, region, right
        return None

    def refuse_without_access(self, dst: int, src: int, nbytes: int) -> None:
        """Refuse a copy between two devices of which none may use the other's memory.

        Of mappings that lie side by side each is looked at.
        """
        end = dst + nbytes
        while True:
            to, source = self._regions.at(dst), self._regions.at(src)
            if to is None or source is None:
                return
            if to.is_device and source.is_device and to.ordinal != source.ordinal:
                self._refuse_regions(dst, to, src, source)
            step = min(to.bytes_from(dst), source.bytes_from(src))
            dst, src = dst + step, src + step
            if dst >= end:
                return

    def _refuse_regions(self, dst: int, to: Region, src: int, source: Region) -> None:
        devices = self._machine.devices()
        reader, writer = devices[to.ordinal], devices[source.ordinal]
        with self._machine.lock:
            can_read = any(each(reader, src, source) != "none" for each in self._grants)
            can_write = any(each(writer, dst, to) == "rw" for each in self._grants)
        if not (can_read or can_write):
            raise self._not_enabled(self._machine.id_of(to.ordinal), self._machine.id_of(source.ordinal))

    def _not_enabled(self, to: int, source: int) -> Refusal:
        return self._machine.vendor.refusal(
            Reason.PEER_NOT_ENABLED,
            f"devices {to} and {source} have no peer access enabled, nor access to this memory of each other, and "
            "peer_copies=strict asks for it",
            f"call {{enable_peer}} for device {source} while device {to} is current, or the reverse; for mapped "
            "memory {set_access}, for pools {set_pool_access}",
        )

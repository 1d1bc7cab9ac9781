"""The topology of a node: its switches, the links between its devices, and which device may reach which."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from peerlane.errors import BadArgument, Fault, InvalidValue


class LinkKind(enum.Enum):
    """The kind of a link.  ``peerlane topo`` prints its value, and configurations contain it."""

    SELF = "X"
    SYS = "SYS"
    NODE = "NODE"
    PHB = "PHB"
    PXB = "PXB"
    PIX = "PIX"
    NV = "NV"
    XGMI = "XGMI"
    HCCS = "HCCS"
    UB = "UB"

    @property
    def legend(self) -> str:
        """A short description of the kind."""
        return _LEGENDS[self]


_LEGENDS = {
    LinkKind.SELF: "the device itself",
    LinkKind.SYS: "PCIe and the interconnect between NUMA nodes (QPI, UPI, Infinity Fabric)",
    LinkKind.NODE: "PCIe and the interconnect between host bridges within a NUMA node",
    LinkKind.PHB: "PCIe and a host bridge, which is usually the CPU",
    LinkKind.PXB: "several PCIe bridges, without crossing a host bridge",
    LinkKind.PIX: "at most one PCIe bridge or switch",
    LinkKind.NV: "NVLink, direct or through NVSwitch",
    LinkKind.XGMI: "AMD Infinity Fabric between accelerators (XGMI)",
    LinkKind.HCCS: "Huawei Cache Coherence System between accelerators",
    LinkKind.UB: "Unified Bus between accelerators",
}


@dataclass(frozen=True, slots=True)
class Topology:
    """The topology of a node; each query takes constant time.

    ``devices``: the number of devices; they are numbered from 0.
    ``switch_of``: the switch of each device.
    ``inside``, ``across``: the link between two devices of one switch, and of two switches.
    ``peer_access``: whether the chip can do peer access at all.
    ``links``: links that differ, by the ordered pair ``(lower, higher)``; they change kinds of links, not which
        device reaches which.
    ``p2p``: a rule that overrides switches and chip: ``p2p[a][b]`` is 1 if ``a`` may reach ``b``.
    """

    devices: int
    switch_of: tuple[int, ...]
    inside: LinkKind = LinkKind.PIX
    across: LinkKind = LinkKind.SYS
    peer_access: bool = True
    links: Mapping[tuple[int, int], LinkKind] = field(default_factory=dict, hash=False)
    p2p: tuple[bytes, ...] | None = field(default=None, repr=False)

    def switch(self, device: int) -> int:
        """Return the switch that ``device`` is on."""
        self._check(device)
        return self.switch_of[device]

    def link(self, a: int, b: int) -> LinkKind:
        """Return the kind of link between two devices; it is the same in both directions."""
        self._check(a, b)
        if a == b:
            return LinkKind.SELF
        return self.links.get((min(a, b), max(a, b))) or self._between(self.switch_of[a], self.switch_of[b])

    def link_rows(self) -> list[list[str]]:
        """Return for each device the values of its links to all devices, much faster than a query for each pair."""
        of_switch = {
            own: [self._between(own, other).value for other in self.switch_of] for own in set(self.switch_of)
        }
        rows = [of_switch[switch].copy() for switch in self.switch_of]
        for device, row in enumerate(rows):
            row[device] = LinkKind.SELF.value
        for (a, b), kind in self.links.items():
            rows[a][b] = rows[b][a] = kind.value
        return rows

    def _between(self, switch: int, other: int) -> LinkKind:
        return self.inside if switch == other else self.across

    def reachable(self, a: int, b: int) -> bool:
        """Tell whether ``a`` may be given access to the memory of ``b``; a device is not its own peer."""
        self._check(a, b)
        if a == b:
            return False
        if self.p2p is not None:
            return bool(self.p2p[a][b])
        return self._is_within_reach(self.switch_of[a], self.switch_of[b])

    def reach_rows(self) -> list[list[bool]]:
        """Return for each device which devices it may reach, much faster than a query for each pair."""
        if self.p2p is not None:
            rows = [[bool(each) for each in row] for row in self.p2p]
        else:
            of_switch = {
                own: [self._is_within_reach(own, other) for other in self.switch_of]
                for own in set(self.switch_of)
            }
            rows = [of_switch[switch].copy() for switch in self.switch_of]
        for device, row in enumerate(rows):
            row[device] = False
        return rows

    def _is_within_reach(self, switch: int, other: int) -> bool:
        return self.peer_access and switch == other

    def reason(self, a: int, b: int) -> str:
        """Return the reason, in words, why ``a`` may not reach ``b``; empty if it may."""
        if self.reachable(a, b):
            return ""
        if a == b:
            return f"virtual:{a} is the device itself; peer access needs two devices"
        if self.p2p is not None:
            return f"the node's p2p matrix says so: p2p[{a}][{b}], from virtual:{a} to virtual:{b}, is 0"
        if not self.peer_access:
            return "this chip has no peer access"
        return (
            f"virtual:{a} is on switch {self.switch_of[a]}, virtual:{b} on switch {self.switch_of[b]}; "
            "peer access needs one switch"
        )

    def _check(self, *devices: int) -> None:
        # A negative index would silently count from the end.
        for device in devices:
            if not 0 <= device < self.devices:
                raise InvalidValue(
                    f"device {device} does not exist: this node has {self.devices}, numbered "
                    f"0 to {self.devices - 1}",
                    fault=Fault.INVALID_DEVICE,
                    detail=BadArgument("device", device, least=0, most=self.devices - 1),
                )

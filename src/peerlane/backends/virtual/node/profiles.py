"""Profiles: the differences between real machines, as named sets of facts that a virtual node can have.

``docs/reference/node.md`` has the source of each figure, and says which are our own choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from peerlane.backend.facts import MAX_DEVICES
from peerlane.support.sizes import UNITS

from .topology import LinkKind

GRANULARITY = 2 * UNITS["MiB"]
HOST_ACCESS = ("guard", "map")

_ANY_PEER = MAX_DEVICES - 1
_PLENTY = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of machine."""

    name: str  #: ``name``, ``description``: the key in :data:`PROFILES`, and one line for people
    description: str
    device_name: str  #: the device's own name; for Ascend the SoC name
    devices: int  #: the default number of devices of a node
    islands: int = 1  #: the default number of switches over which a node's devices are spread
    memory: int  #: the default bytes of a device
    #: ``"guard"``: touching a device address on the host faults; ``"map"``: the host may (large BAR).
    host_access: str = "guard"
    granularity: int = GRANULARITY  #: bytes of which sizes of physical memory and of mappings are multiples
    link: LinkKind  #: the link between two devices of one switch
    peer_access: bool = True  #: whether the chip can do peer access at all
    max_peers: int = _ANY_PEER  #: peers that one device may have enabled at a time
    #: Whether cross-device copies and IPC need memory allocated with a P2P policy.
    p2p_policy_required: bool = False
    max_streams: int = _PLENTY  #: ``max_streams``, ``max_notifies``: streams and notifies that one device has
    max_notifies: int = _PLENTY

    @property
    def switch(self) -> int:
        """Devices per switch when the node has the profile's own number of devices."""
        return self.switch_for(self.devices)

    def switch_for(self, devices: int) -> int:
        """Return the default number of devices on a switch, in a node of ``devices``."""
        return -(-devices // self.islands)


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="default",
            description="two devices on one switch, no vendor's limits",
            device_name="Virtual",
            devices=2,
            memory=16 * UNITS["GiB"],
            link=LinkKind.PIX,
        ),
        Profile(
            name="ascend-a2",
            description="Ascend 910B server: peer access with ordinary memory, both directions enabled",
            device_name="Ascend910B1",
            devices=8,
            memory=64 * UNITS["GiB"],
            link=LinkKind.HCCS,
            max_peers=8,
            max_streams=1984,
            max_notifies=8192,
        ),
        Profile(
            name="ascend-950",
            description="Ascend 950 server: unified bus, 16 peers",
            device_name="Ascend950PR_9589",
            devices=8,
            memory=128 * UNITS["GiB"],
            link=LinkKind.UB,
            max_peers=16,
            max_streams=1984,
            max_notifies=65_535,
        ),
        Profile(
            name="ascend-310p",
            description="Atlas inference cards: cross-device copies and IPC need a P2P allocation policy",
            device_name="Ascend310P3",
            devices=4,
            memory=24 * UNITS["GiB"],
            link=LinkKind.PIX,
            max_peers=8,
            p2p_policy_required=True,
            max_streams=1024,
            max_notifies=1024,
        ),
        Profile(
            name="mi300x",
            description="eight MI300X, all connected, device memory mapped into the host (large BAR)",
            device_name="Virtual MI300X",
            devices=8,
            memory=192 * UNITS["GiB"],
            host_access="map",
            link=LinkKind.XGMI,
        ),
        Profile(
            name="two-islands",
            description="devices spread over two switches, no peer access across",
            device_name="Virtual",
            devices=8,
            islands=2,
            memory=16 * UNITS["GiB"],
            link=LinkKind.PIX,
        ),
        Profile(
            name="hgx",
            description="eight devices, all connected by NVLink",
            device_name="Virtual HGX",
            devices=8,
            memory=80 * UNITS["GiB"],
            link=LinkKind.NV,
        ),
        Profile(
            name="h100-8",
            description="eight H100 with SXM, all connected by NVLink through switches",
            device_name="NVIDIA H100 80GB HBM3",
            devices=8,
            memory=81_558 * UNITS["MiB"],
            link=LinkKind.NV,
        ),
        Profile(
            name="h200-8",
            description="eight H200 with SXM, all connected by NVLink through switches",
            device_name="NVIDIA H200",
            devices=8,
            memory=143_770 * UNITS["MiB"],
            link=LinkKind.NV,
        ),
        Profile(
            name="gb200-4",
            description="a tray of four GB200, all connected by NVLink through switches",
            device_name="NVIDIA GB200",
            devices=4,
            memory=189_470 * UNITS["MiB"],
            link=LinkKind.NV,
        ),
        Profile(
            name="rtx4090-2",
            description="two GeForce RTX 4090, without peer access",
            device_name="NVIDIA GeForce RTX 4090",
            devices=2,
            memory=24_564 * UNITS["MiB"],
            link=LinkKind.PHB,
            peer_access=False,
        ),
    )
}

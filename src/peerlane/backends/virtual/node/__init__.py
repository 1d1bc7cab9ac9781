"""The virtual node: which devices there are, how they are joined, and what all processes agree on."""

from .config import NodeConfig
from .profiles import PROFILES, Profile
from .topology import LinkKind, Topology

__all__ = ["PROFILES", "LinkKind", "NodeConfig", "Profile", "Topology"]

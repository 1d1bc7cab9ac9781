"""The virtual node: its devices, their links, and the state that its processes share."""

from .config import NodeConfig
from .profiles import PROFILES, Profile
from .topology import LinkKind, Topology

__all__ = ["PROFILES", "LinkKind", "NodeConfig", "Profile", "Topology"]

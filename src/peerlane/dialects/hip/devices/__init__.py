"""Devices, what they are able to do, peer access, and contexts: ``hipSetDevice``, ``hipDeviceEnablePeerAccess``."""

from peerlane.dialects.hip.devices import choose, contexts, device, limits, peers  # noqa: F401 - they declare calls

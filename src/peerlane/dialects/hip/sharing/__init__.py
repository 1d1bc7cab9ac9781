"""Memory, events and pools of other processes: ``hipIpcGetMemHandle``, ``hipMemPoolExportPointer``."""

from peerlane.dialects.hip.sharing import ipc, pools  # noqa: F401 - they declare calls

"""A plugin of pytest: private names that NVIDIA's tests import from where an earlier cuda.core had them."""

from __future__ import annotations

import cuda.core._memory as memory
from cuda.core._memory import _ipc

for name in ("IPCAllocationHandle", "IPCBufferDescriptor"):
    if not hasattr(memory, name):
        setattr(memory, name, getattr(_ipc, name))

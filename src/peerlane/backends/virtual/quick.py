"""Sets the fast native functions in ``backend/host``, where the neutral API finds them."""

from __future__ import annotations

import atexit

from peerlane import _core
from peerlane.backend import host

for _name in host.__annotations__:
    setattr(host, _name, getattr(_core, _name))

# Exit handlers run in reverse order: that of the device module, which is imported later, leaves the node before this.
atexit.register(_core.interpreter_exits)

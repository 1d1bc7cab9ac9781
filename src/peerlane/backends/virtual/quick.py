"""The quick ways of native code, put where the neutral API looks for them when this module is imported."""

from __future__ import annotations

import atexit

from peerlane import _core
from peerlane.backend import host

for _name in host.__annotations__:
    setattr(host, _name, getattr(_core, _name))

# Exit handlers run from the last to the first: the device module, which is imported later, leaves the node before.
atexit.register(_core.interpreter_exits)

"""Virtual devices: memory files behind guarded addresses, native streams, and sharing between processes.

The import sets the native functions that modules of the neutral API find in ``backend/host``.
"""

from __future__ import annotations

from typing import Any

from peerlane import _core
from peerlane.backend import host
from peerlane.support import exits

for _name in host.__annotations__:
    setattr(host, _name, getattr(_core, _name))


def _explain(reason: str, **facts: Any) -> BaseException:
    from peerlane.backends.virtual.messages.streams import explain  # its import replaces this hook

    return explain(reason, **facts)


_core.set_refusal_hook(_explain)
exits.handlers.insert(
    0, _core.interpreter_exits
)  # handlers run from the last one on: it runs after the node is left

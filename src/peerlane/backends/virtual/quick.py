"""Sets the fast native functions in ``backend/host``, where the neutral API finds them."""

from __future__ import annotations

from typing import Any

from peerlane import _core
from peerlane.backend import host
from peerlane.support import exits

for _name in host.__annotations__:
    setattr(host, _name, getattr(_core, _name))


def _explain(why: str, **facts: Any) -> BaseException:
    from peerlane.backends.virtual.messages.streams import (
        explain,  # whose module sets it in the place of this one
    )

    return explain(why, **facts)


_core.set_refusal_hook(_explain)
exits.handlers.insert(0, _core.interpreter_exits)  # after the node was left

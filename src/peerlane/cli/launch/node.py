"""What killed ranks leave in the runtime directory."""

from __future__ import annotations

import contextlib

from peerlane.backends.virtual.node import NodeConfig
from peerlane.backends.virtual.node.state import tidy
from peerlane.errors import Error


def tidy_node() -> None:
    """Remove it; a failure does not change the exit code."""
    with contextlib.suppress(Error, OSError):
        tidy(NodeConfig.from_environment())

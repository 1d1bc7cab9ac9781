"""The variables besides its rank that each rank gets, as ``torchrun`` would set them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

_OURS = "PEERLANE_MASTER_PORT"  # the port that this launch chose, so that a launch inside it chooses another


def of_all_ranks(size: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all ranks get; a MASTER_ADDR or MASTER_PORT that the user set stays."""
    made = {"LOCAL_WORLD_SIZE": str(size), "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}
    if not environ.get("MASTER_ADDR"):
        made["MASTER_ADDR"] = "127.0.0.1"
    if not environ.get("MASTER_PORT") or environ["MASTER_PORT"] == environ.get(_OURS):
        # Nothing listens there now. The ranks will, so the port cannot be kept open for them.
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", 0))
            made["MASTER_PORT"] = made[_OURS] = str(probe.getsockname()[1])
    return made

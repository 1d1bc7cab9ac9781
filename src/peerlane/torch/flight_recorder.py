"""torch's flight recorder, which cannot record a process group of Python (facts/torch 4.10)."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


def leave_out(kind: type[dist.ProcessGroup]) -> None:
    """Let the recorder of torch 2.15 leave out groups of a class, which it would fail to record."""
    attach = getattr(c10d, "_maybe_attach_flight_recorder", None)
    if attach is None:
        return

    def attach_to_others(group: dist.ProcessGroup, *arguments: Any) -> None:
        if not isinstance(group, kind):
            attach(group, *arguments)

    vars(c10d)["_maybe_attach_flight_recorder"] = attach_to_others

"""The back-end ``nccl`` of ``torch.distributed`` under ``--torch-cuda``: peerlane's process group by that name."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d as c10d

import peerlane.torch  # noqa: F401 - it registers the device and the back-end
from peerlane.torch.process_group import PeerlaneGroup

_NCCL = "nccl"
_TIMEOUT = timedelta(minutes=10)  # torch's for NCCL, which is in builds with NCCL alone


class ProcessGroupNCCL(PeerlaneGroup):
    """What torch makes for ``nccl``: it takes tensors on ``cuda``, and on the processor if the program names one.

    torch uses one process group for all kinds of devices if a back-end makes one.  So with ``cpu:gloo,cuda:nccl`` it
    serves tensors of the processor, too.

    Parameters
    ----------
    store : Store
    rank, size : int
    options : ProcessGroupNCCL.Options
    """

    class Options(_distributed_c10d.Backend.Options):
        """The options of a process group; those that tune NCCL change nothing."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            super().__init__(_NCCL)
            self.is_high_priority_stream = is_high_priority_stream
            self.config = SimpleNamespace()

        @property
        def timeout(self) -> timedelta:
            """The time-out of the group, which torch sets."""
            set_by_torch: timedelta = self._timeout
            return set_by_torch

    def __init__(self, store: dist.Store, rank: int, size: int, options: Options) -> None:
        super().__init__(
            *(store, rank, size, options.timeout),
            name=str(options.group_name),
            ranks=options.global_ranks_in_group,
            kinds=["cuda"],
        )
        self._has_asked = False

    @property
    def _kinds(self) -> Sequence[str]:
        if not self._has_asked:  # torch notes the back-ends of a group after it has made them
            config = c10d._world.pg_backend_config.get(self)
            if config is not None:
                self._own_kinds = list(c10d.BackendConfig(c10d.Backend(config)).get_device_backend_map())
                self._has_asked = True
        return self._own_kinds

    def getBackendName(self) -> str:
        """Return ``"nccl"``."""
        return _NCCL

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: the groups of peerlane count their calls themselves."""

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)


def _hash_tensors(tensors: Sequence[torch.Tensor]) -> int:
    """Return a hash of bytes, which ``torch.distributed`` logs if TORCH_DISTRIBUTED_DEBUG is DETAIL."""
    number = 0
    for tensor in tensors:
        number = zlib.crc32(
            bytes(tensor.detach().cpu().contiguous().view(torch.uint8).flatten().tolist()), number
        )
    return number


def serve() -> None:
    """Let ``torch.distributed`` have NCCL."""
    names: dict[str, Any] = {"ProcessGroupNCCL": ProcessGroupNCCL, "_hash_tensors": _hash_tensors}
    vars(_distributed_c10d).update(names)
    vars(c10d).update(names, _NCCL_AVAILABLE=True, default_pg_nccl_timeout=_TIMEOUT)
    vars(torch.distributed.constants)["default_pg_nccl_timeout"] = _TIMEOUT
    vars(torch.distributed).update(names)

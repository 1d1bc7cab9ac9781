"""One rank of ``bench torch``: torch's collectives on a back-end, run as a file as the ranks of rivals are.

``python torch_rank.py peerlane|gloo TASK,... SIZE:TIMES ...``, with torchrun's variables.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

from peerlane.cli.bench import rival_rank
from peerlane.cli.bench.rival_rank import Call


class Torch:
    """A rank of a process group; each rank has a tensor of the size."""

    def __init__(self, backend: str, most: int) -> None:
        self._torch, self._ranks = (
            importlib.import_module("torch"),
            importlib.import_module("torch.distributed"),
        )
        self._torch.set_num_threads(1)
        importlib.import_module("peerlane.torch")
        self._ranks.init_process_group(backend)
        self.rank: int = self._ranks.get_rank()
        self._own = self._torch.zeros(most // 4)
        self._all = self._torch.zeros(self._ranks.get_world_size() * (most // 4))

    def together(self) -> None:
        self._ranks.barrier()

    def slowest(self, seconds: float) -> float:
        found = self._torch.tensor([seconds], dtype=self._torch.float64)
        self._ranks.all_reduce(found, op=self._ranks.ReduceOp.MAX)
        return float(found)

    @contextlib.contextmanager
    def all_reduce(self, nbytes: int) -> Iterator[Call]:
        """Sum float32, in place."""
        own = self._own[: nbytes // 4]
        yield lambda: self._ranks.all_reduce(own)

    @contextlib.contextmanager
    def all_gather(self, nbytes: int) -> Iterator[Call]:
        """Gather in a list of tensors that lie side by side."""
        count = nbytes // 4
        own, parts = self._own[:count], list(self._all[: count * self._ranks.get_world_size()].split(count))
        yield lambda: self._ranks.all_gather(parts, own)

    @contextlib.contextmanager
    def broadcast(self, nbytes: int) -> Iterator[Call]:
        """Send from rank 0."""
        own = self._own[: nbytes // 4]
        yield lambda: self._ranks.broadcast(own, 0)

    def close(self) -> None:
        self._ranks.destroy_process_group()


if __name__ == "__main__":
    rival_rank.main(
        {"peerlane": lambda most: Torch("peerlane", most), "gloo": lambda most: Torch("gloo", most)}
    )

"""One rank of the rival gloo of ``bench collective``; ``torchrun``'s variables say which, as for :mod:`.mpi_rank`."""

from __future__ import annotations

import importlib
import json
import sys
import time


def main() -> None:
    """Measure the sizes that the command line names."""
    torch, ranks = importlib.import_module("torch"), importlib.import_module("torch.distributed")
    torch.set_num_threads(1)
    ranks.init_process_group("gloo")
    found = []
    for word in sys.argv[1:]:
        nbytes, times = map(int, word.split(":"))
        elements = torch.zeros(nbytes // 4, dtype=torch.float32)
        seconds = 0.0
        for count in (max(1, times // 4), times):  # the first does not count
            ranks.barrier()
            began = time.perf_counter()
            for _ in range(count):
                ranks.all_reduce(elements)
            seconds = (time.perf_counter() - began) / count
        slowest = torch.tensor([seconds], dtype=torch.float64)
        ranks.all_reduce(slowest, op=ranks.ReduceOp.MAX)
        found.append(float(slowest))
    if ranks.get_rank() == 0:
        print(json.dumps(found), flush=True)
    ranks.destroy_process_group()


if __name__ == "__main__":
    main()

"""One rank of the MPI rivals of ``bench collective``.

``mpiexec -n N python -m peerlane.cli.bench.mpi_rank SIZE:TIMES ...`` prints, at rank 0, the seconds of one all-reduce
of each size, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

import numpy as np


def main() -> None:
    """Measure the sizes that the command line names."""
    mpi = importlib.import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD
    found = []
    for word in sys.argv[1:]:
        nbytes, times = map(int, word.split(":"))
        elements = np.zeros(nbytes // 4, np.float32)
        seconds = 0.0
        for count in (max(1, times // 4), times):  # the first does not count
            world.Barrier()
            began = time.perf_counter()
            for _ in range(count):
                world.Allreduce(mpi.IN_PLACE, elements)
            seconds = (time.perf_counter() - began) / count
        found.append(world.allreduce(seconds, op=mpi.MAX))
    if world.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

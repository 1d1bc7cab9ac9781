"""A ring all-reduce, and five mistakes in it: run it with `peerlane launch -n 4 examples/collective_check.py`.

`CollectiveCheck` makes inputs by which each element of the result tells which ranks contributed, how often and from
where.  So it names the chunk and the rank of a mistake.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import peerlane as pl
from peerlane.testing import CollectiveCheck

COUNT = 64
MISTAKES = (
    "one step too few",
    "adds its own part twice",
    "copies where it should add",
    "passes the wrong chunk on",
    "writes one element too far",
)


def ring(group: pl.Group, stream: pl.Stream, dst: Any, src: Any, mistake: str) -> None:
    """Add the arrays of all ranks, chunk by chunk around the ring, and pass the sums around it once more."""
    rank, size = group.rank, group.size
    right, left = (rank + 1) % size, (rank - 1) % size
    dst[:] = src
    chunks = dst.reshape(size, -1)
    received = np.empty_like(chunks[0])

    def exchange(sent: int) -> None:
        group.send(chunks[sent % size].copy(), right, stream=stream)
        group.recv(received, left)
        stream.sync(timeout=30)

    is_wrong = rank == 1  # rank 1 alone makes the mistake
    for step in range(size - 1):
        exchange(rank - step)
        target = chunks[(rank - step - 1) % size]
        if is_wrong and mistake == "one step too few" and step == size - 2:
            continue
        if is_wrong and mistake == "copies where it should add" and step == 0:
            target[:] = received
            continue
        target += received
        if is_wrong and mistake == "adds its own part twice" and step == 0:
            target += src.reshape(size, -1)[(rank - step - 1) % size]
    for step in range(size - 1):
        exchange(rank + 1 - step - (is_wrong and mistake == "passes the wrong chunk on" and step == 0))
        target = chunks[(rank - step) % size]
        if is_wrong and mistake == "writes one element too far" and step == 0:
            target[1:] = received[:-1]
        else:
            target[:] = received


def main() -> None:
    with pl.Group() as group, group.device.create_stream() as stream:
        for mistake in ("", *MISTAKES):
            check = CollectiveCheck("all_reduce", group.rank, group.size, COUNT)
            for src, dst in check:
                ring(group, stream, dst, src, mistake)
            report = check.report()
            if mistake and report:
                print(f"{mistake}: {report}")
            elif not mistake and not report:
                print("the ring is right")
            group.barrier()


if __name__ == "__main__":
    main()

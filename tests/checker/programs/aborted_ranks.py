"""Two ranks that give up operations between ranks, and then use their memory again: ``aborted_ranks.py racy|right``.

The second access of each kind has its name at the end of its line.
"""

import contextlib
import sys

import numpy as np

import peerlane as pl

SIZE = 4 << 20


def end(stream, is_known):
    stream.abort()
    if is_known:
        with contextlib.suppress(pl.Error):  # it tells of the end, also where it raises
            stream.sync(timeout=20)


def give_up(group, is_known):
    device = group.device
    link = group.channel(1 - group.rank, notifies=2)
    source, stream = device.allocate(SIZE), device.create_stream()
    source.fill(1)
    group.barrier()
    if group.rank == 0:
        link.write(source, at=0, stream=stream)
        end(stream, is_known)
        source.fill(2)  # written
        reads = device.create_stream()
        target = device.allocate(SIZE)
        link.read(target, at=SIZE, stream=reads)
        end(reads, is_known)
        target.fill(2)  # read
    group.barrier()


def give_up_collectives(group, is_known):
    device = group.device
    reduced, reduces = device.allocate(SIZE), device.create_stream()
    reduced.fill(1)
    group.all_reduce(reduced, dtype=np.int32, stream=reduces)
    end(reduces, is_known)
    reduced.fill(2)  # reduced


if __name__ == "__main__":
    right = sys.argv[1] == "right"
    with pl.Group(window=2 * SIZE) as joined:
        give_up(joined, right)
    with pl.Group(name="collectives", window=4096) as joined, contextlib.suppress(pl.Error):
        give_up_collectives(joined, right)

"""Rank 1 lends a buffer to rank 0, which writes it twice; rank 1 reads what came first.

A file, named by the first word, tells rank 1 that rank 0 has written all; rank 1 looks at it without the checker's
knowledge.  Else it could end the memory before the second write, which would be refused.
"""

import posix
import sys
import time
from pathlib import Path

import peerlane as pl

SIZE, FIRST, SECOND, SECONDS = 1 << 14, 0, 1, 60


def await_file():
    """Wait for the file that rank 0 makes."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            return posix.stat(sys.argv[1])
        except FileNotFoundError:
            time.sleep(0.001)
    raise SystemExit("rank 0 does not answer")


with pl.Group(window=SIZE) as group:
    channel = group.channel(1 - group.rank, notifies=2)
    if group.rank == 0:
        with group.device.allocate(SIZE) as block, group.device.create_stream() as stream:
            block.fill(3, stream=stream)
            channel.write(block[: SIZE // 2], stream=stream)
            channel.notify(FIRST, stream=stream)
            channel.write(block[SIZE // 2 :], at=SIZE // 2, stream=stream)
            channel.notify(SECOND, stream=stream)
            stream.sync(timeout=20)
            Path(sys.argv[1]).touch()
    else:
        channel.wait(FIRST, timeout=20)
        total = group.window[: SIZE // 2].view().sum()
        await_file()

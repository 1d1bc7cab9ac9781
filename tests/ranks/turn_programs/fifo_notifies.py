"""Several records of one notify are on their way at once."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=4096, notifies="fifo") as group:
    others = [each for each in range(group.size) if each != group.rank]
    channels = group.channels(others)
    group.window.fill(0)
    group.barrier()
    s, t = group.device.create_stream(), group.device.create_stream()
    for turn in range(4):
        for channel in channels:
            at = 256 * group.rank + 64 * turn
            channel.write(
                np.full(64, 16 * turn + group.rank, np.uint8), at=at, notify=turn, stream=s if turn % 2 else t
            )
            s.wait(t)
            t.wait(s)
    for turn in range(4):
        for channel in channels:
            channel.wait(turn, timeout=20)
    show(group.window.view()[: 256 * group.size])
    s.sync()
    t.sync()

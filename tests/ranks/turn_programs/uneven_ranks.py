"""One rank makes hundreds of calls while the others wait in a barrier with work queued."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    others = [each for each in range(group.size) if each != group.rank]
    channels, stream = group.channels(others), group.device.create_stream()
    group.window.fill(0)
    group.barrier()
    for channel in channels:
        channel.write(np.full(64, 1 + group.rank, np.uint8), at=64 * group.rank, notify=0, stream=stream)
    if group.rank == 0:
        mine = group.device.allocate(64)
        for turn in range(300):
            mine.fill(turn % 256)
    group.barrier()
    for channel in channels:
        channel.wait(0, timeout=20)
    show(group.window.view()[: 64 * group.size])
    stream.sync()

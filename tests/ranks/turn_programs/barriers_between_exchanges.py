"""Each round ends at a barrier of the group, with the streams not synchronized."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=1 << 16) as group:
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    for turn in range(4):
        channel.write(np.full(512, turn + group.rank, np.uint8), at=512 * turn, notify=turn, stream=stream)
        channel.wait(turn, timeout=20)
        show(group.window.view()[: 512 * (turn + 1)])
        group.barrier()
    stream.sync()

"""A stream waits for a word of memory that the peer writes."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    group.window.fill(0)
    group.barrier()
    for turn in range(3):
        channel.write(np.full(64, turn + group.rank, np.uint8), at=64, stream=stream)
        channel.notify(0, stream=stream)
        channel.wait(0, stream=stream, timeout=20)
        stream.sync()
        show(group.window.view()[64:128])
        group.barrier()

"""Both ranks add into their peer's window, and read the sum when the peer has answered."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    group.window.fill(1)
    group.barrier()
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    for turn in range(4):
        channel.write_reduce(np.full(64, turn + 1, np.uint32), dtype="u4", at=0, stream=stream)
        channel.notify(turn, stream=stream)
        channel.wait(turn, timeout=20)
        show(group.window.view()[:256])
        group.barrier()
    stream.sync()

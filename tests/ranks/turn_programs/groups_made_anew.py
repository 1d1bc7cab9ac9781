"""A group is closed with work queued, and another one is made."""

import numpy as np
from showing import show

import peerlane as pl

for turn in range(3):
    with pl.Group(window=4096, name=f"group {turn}") as group:
        channel, stream = group.channel(1 - group.rank), group.device.create_stream()
        channel.write(np.full(64, turn + group.rank, np.uint8), at=0, notify=0, stream=stream)
        channel.wait(0, timeout=20)
        show(group.window.view()[:64])
        stream.sync()
        group.barrier()

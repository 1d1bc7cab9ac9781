"""Memory besides the window, which is registered, used and deregistered."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    more = group.device.allocate(4096)
    group.register(more, "more")
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    for turn in range(3):
        channel.write(
            np.full(128, turn + 5 * group.rank, np.uint8),
            memory="more",
            at=128 * turn,
            notify=turn,
            stream=stream,
        )
    for turn in range(3):
        channel.wait(turn, timeout=20)
    show(more.view()[:384])
    stream.sync()
    group.barrier()
    group.deregister("more")
    group.barrier()

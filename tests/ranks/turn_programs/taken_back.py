"""A rank takes memory back as soon as its peer has synchronized the stream that wrote there."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    more = group.device.allocate(1024)
    more.fill(0)
    group.register(more, "more")
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    if group.rank == 1:
        for turn in range(4):
            channel.write(np.full(256, turn + 1, np.uint8), memory="more", at=256 * turn, stream=stream)
        stream.sync()
    group.barrier()
    group.deregister("more")
    if group.rank == 0:
        assert bytes(more.view()) == b"".join(bytes([turn + 1]) * 256 for turn in range(4))
        show(more.view())
    group.barrier()
    channel.close()

"""Unordered writes, ordered by a fence before their notify."""

from showing import show

import peerlane as pl

with pl.Group(window=1 << 14) as group:
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    group.window.fill(0)
    group.barrier()
    source = group.device.allocate(1 << 12)
    for turn in range(3):
        source.fill(1 + turn + group.rank)
        for at in range(4):
            channel.write(source[1024 * at : 1024 * at + 1024], at=2048 * at, nonblocking=True)
        channel.fence(stream=stream)
        channel.notify(turn, stream=stream)
        channel.wait(turn, timeout=20)
        show(group.window.view())
        stream.sync()
        group.barrier()

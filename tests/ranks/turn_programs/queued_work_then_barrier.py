"""The writer's operations are still queued when it comes to the barrier, and its peer waits for them."""

from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    if group.rank == 0:
        block = group.device.allocate(1024)
        block.fill(7)
        channel.write(block, at=0, notify=0, stream=stream)
    else:
        channel.wait(0, stream=stream, timeout=20)
        stream.sync()
        show(group.window.view()[:1024])
    group.barrier()

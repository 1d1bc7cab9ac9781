"""Rank 1 lends a buffer to rank 0, which writes it twice; rank 1 reads what came first."""

import peerlane as pl

SIZE, FIRST, SECOND = 1 << 14, 0, 1

with pl.Group(window=SIZE) as group:
    channel = group.channel(1 - group.rank, notifies=2)
    if group.rank == 0:
        device = group.device
        with device.allocate(SIZE) as block, device.create_stream() as stream, device.create_notify() as go:
            stream.wait(go)  # until all is submitted: a write that is submitted behind the end is refused
            block.fill(3, stream=stream)
            channel.write(block[: SIZE // 2], stream=stream)
            channel.notify(FIRST, stream=stream)
            channel.write(block[SIZE // 2 :], at=SIZE // 2, stream=stream)
            channel.notify(SECOND, stream=stream)
            go.record()
            stream.sync(timeout=20)
    else:
        channel.wait(FIRST, timeout=20)
        total = group.window[: SIZE // 2].view().sum()

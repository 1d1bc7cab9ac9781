"""Ranks 1 to 3 send their parts to rank 0, which adds them up."""

import peerlane as pl

PART, READY = 1 << 18, 0

with pl.Group(window=4 * PART) as group:
    if group.rank == 0:
        channels = [group.channel(peer, notifies=1) for peer in range(1, group.size)]
        for channel in channels:
            channel.wait(READY, timeout=20)
        total = 0
        for part in range(1, group.size):
            total += int(group.window[part * PART : (part + 1) * PART].view().sum())
    else:
        channel = group.channel(0, notifies=1)
        with group.device.allocate(PART) as block, group.device.create_stream() as stream:
            block.fill(group.rank, stream=stream)
            at = group.rank * PART if group.rank < 3 else (group.rank - 1) * PART
            channel.write(block, at=at, stream=stream)
            channel.notify(READY, stream=stream)
            stream.sync(timeout=20)
    group.barrier()

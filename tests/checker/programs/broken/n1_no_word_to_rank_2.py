"""Rank 0 sends a table to each of the other ranks, and each counts its entries."""

import numpy as np

import peerlane as pl

SIZE, READY = 1 << 14, 0

with pl.Group(window=SIZE) as group:
    if group.rank == 0:
        channels = {peer: group.channel(peer, notifies=1) for peer in range(1, group.size)}
        with group.device.allocate(SIZE) as table, group.device.create_stream() as stream:
            table.fill(7, stream=stream)
            for peer, channel in channels.items():
                channel.write(table, stream=stream)
                if peer % 2:
                    channel.notify(READY, stream=stream)
            stream.sync(timeout=20)
    else:
        channel = group.channel(0, notifies=1)
        if group.rank % 2:
            channel.wait(READY, timeout=20)
        entries = np.count_nonzero(group.window.view())
    group.barrier()

"""Rank 0 sends the result of each step to rank 1, from one buffer."""

import numpy as np

import peerlane as pl

SIZE, STEPS, READY = 1 << 13, 5, 0

with pl.Group(window=STEPS * SIZE) as group:
    channel = group.channel(1 - group.rank, notifies=STEPS)
    if group.rank == 0:
        with group.device.allocate(SIZE) as result, group.device.create_stream() as stream:
            for step in range(STEPS):
                result.view()[:] = np.full(SIZE, step, dtype=np.uint8)
                channel.write(result, at=step * SIZE, stream=stream)
                channel.notify(READY + step, stream=stream)
            stream.sync(timeout=20)
    else:
        for step in range(STEPS):
            channel.wait(READY + step, timeout=20)
            total = group.window[step * SIZE : (step + 1) * SIZE].view().sum()
    group.barrier()

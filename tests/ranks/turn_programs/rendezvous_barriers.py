"""Queued work, and a barrier of the rendezvous that has no time-out."""

import numpy as np
from showing import show

import peerlane as pl
from peerlane.rendezvous import Rendezvous

with Rendezvous.from_environment() as line, pl.Group(rendezvous=line, window=8192) as group:
    others = [each for each in range(group.size) if each != group.rank]
    channels, stream = group.channels(others), group.device.create_stream()
    group.window.fill(0)
    line.barrier("filled")
    for turn in range(3):
        for channel in channels:
            channel.write(
                np.full(64, 8 * turn + group.rank, np.uint8), at=64 * group.rank, notify=turn, stream=stream
            )
        if group.rank == turn:
            line.barrier()
        for channel in channels:
            channel.wait(turn, timeout=20)
        show(group.window.view()[: 64 * group.size])
        if group.rank != turn:
            line.barrier()
        stream.sync()
        line.barrier("read")

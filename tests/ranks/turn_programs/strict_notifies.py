"""Strict notifies in calls: each record is answered."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=4096, notifies="strict") as group:
    channel = group.channel(1 - group.rank)
    for turn in range(6):
        if group.rank == turn % 2:
            channel.write(np.full(64, turn, np.uint8), at=0, notify=0)
            channel.wait(1, timeout=20)
        else:
            channel.wait(0, timeout=20)
            show(group.window.view()[:64])
            channel.notify(1)
    group.barrier()

"""Each collective once in calls and once on a stream."""

from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    size, rank = group.size, group.rank
    stream = group.device.create_stream()
    for on in (None, stream):
        mine = group.device.allocate(64)
        mine.fill(rank + 1)
        whole, summed = group.device.allocate(64 * size), group.device.allocate(64)
        group.all_gather(whole, mine, stream=on)
        group.all_reduce(summed, mine, dtype="u1", stream=on)
        group.broadcast(mine, 1, stream=on)
        group.barrier(stream=on)
        swapped = group.device.allocate(64 * size)
        group.all_to_all(swapped, whole, stream=on)
        if on is not None:
            on.sync()
        for each in (mine, whole, summed, swapped):
            show(each.view())

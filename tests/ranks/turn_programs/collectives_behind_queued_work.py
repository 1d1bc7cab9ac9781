"""The parts of a reduction are computed on one stream, and the result is used on another one."""

from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    a, b = group.device.create_stream(), group.device.create_stream()
    part, total = group.device.allocate(256), group.device.allocate(256)
    for turn in range(4):
        part.fill(group.rank + turn, stream=a)
        b.wait(a)
        group.all_reduce(total, part, dtype="u1", stream=b)
        a.wait(b)
        if turn % 2:
            b.sync()
            show(total.view())
    group.barrier()
    a.sync()
    show(part.view())

"""Each rank sends to its right and receives from its left; the sizes grow beyond one slot."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=4096, workspace=1 << 16) as group:
    right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    stream = group.device.create_stream()
    for turn, nbytes in enumerate((8, 1000, 70_000)):
        got = np.zeros(nbytes, np.uint8)
        if turn % 2:
            sent, kept = group.device.allocate(nbytes), group.device.allocate(nbytes)
            sent.fill(group.rank + turn)
            group.send(sent, right, stream=stream)
            group.recv(kept, left, stream=stream)
            stream.sync()
            got[:] = kept.view()
        elif group.rank % 2:
            group.recv(got, left)
            group.send(np.full(nbytes, group.rank + turn, np.uint8), right)
        else:
            group.send(np.full(nbytes, group.rank + turn, np.uint8), right)
            group.recv(got, left)
        show(got)

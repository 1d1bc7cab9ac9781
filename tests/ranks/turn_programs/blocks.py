"""Many small blocks, written and read, with an answer before the next ones."""

import numpy as np
from showing import show

import peerlane as pl

with pl.Group(window=1 << 15) as group:
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    source, back = group.device.allocate(1 << 14), group.device.allocate(1 << 14)
    table = [(at * 128, (7 * at % 16) * 64, 64) for at in range(16)]
    for turn in range(3):
        stream.sync()
        source.view()[:] = np.arange(1 << 14, dtype=np.uint32).astype(np.uint8) + turn
        channel.write_blocks(source, table, stream=stream)
        channel.notify(0, stream=stream)
        channel.wait(0, stream=stream)
        channel.read_blocks(back, [(to, at, size) for at, to, size in table], stream=stream)
        stream.sync()
        show(back.view()[:1024])
        channel.notify(1)
        channel.wait(1, timeout=20)
    group.barrier()

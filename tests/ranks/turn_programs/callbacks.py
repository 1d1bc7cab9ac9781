"""Functions of the host run between the operations of a stream, and write what the peer sends next."""

from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    source, seen = group.device.allocate(64), []
    for turn in range(4):
        stream.launch_callback(lambda turn=turn: source.fill(turn + 10 * group.rank))
        channel.write(source, at=64 * turn, notify=turn, stream=stream)
        channel.wait(turn, stream=stream, timeout=20)
        stream.launch_callback(
            lambda turn=turn: seen.append(bytes(group.window.view()[64 * turn : 64 * turn + 64]))
        )
    group.barrier()
    stream.sync()
    show(b"".join(seen))

"""Tasks of each rank's event loop wait for notifies and streams; the order in which they go on is the seed's."""

import asyncio

from showing import show

import peerlane as pl

with pl.Group(window=4096) as group:
    channel, order = group.channel(1 - group.rank, notifies=8), []

    async def task(index: int) -> None:
        with group.device.create_stream() as stream, group.device.allocate(64) as block:
            for turn in range(6):
                line = 2 * index + turn % 2  # the peer may be one turn ahead
                block.fill(turn, stream=stream)
                channel.write(block, at=64 * line, notify=line, stream=stream)
                await channel.notified(line, timeout=20)
                await stream
                order.append(index)

    async def work() -> None:
        await asyncio.gather(*(task(index) for index in range(4)))

    asyncio.run(work())
    group.barrier()
    show([*order, *group.window.view()[:512]])

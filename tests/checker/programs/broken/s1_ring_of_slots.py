"""Rank 0 sends twelve messages to rank 1 through four slots."""

import peerlane as pl

SLOTS, SIZE, MESSAGES = 4, 1 << 12, 12

with pl.Group(window=SLOTS * SIZE) as group:
    channel = group.channel(1 - group.rank, notifies=2 * SLOTS)
    with group.device.allocate(SIZE) as message, group.device.create_stream() as stream:
        for number in range(MESSAGES):
            slot = number % SLOTS
            full, empty = slot, SLOTS + slot
            if group.rank == 0:
                if number > SLOTS:
                    channel.wait(empty, timeout=20)
                message.fill(number, stream=stream)
                channel.write(message, at=slot * SIZE, stream=stream)
                channel.notify(full, stream=stream)
                stream.sync(timeout=20)
            else:
                channel.wait(full, timeout=20)
                total = group.window[slot * SIZE : (slot + 1) * SIZE].view().sum()
                if number + SLOTS < MESSAGES:
                    channel.notify(empty)
    group.barrier()

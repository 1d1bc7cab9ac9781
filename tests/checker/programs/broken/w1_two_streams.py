"""Each of four ranks computes on one stream, and sends to the next one by another."""

import peerlane as pl

SIZE, ROUNDS, FULL, FREE = 1 << 15, 2, 0, 1

with pl.Group(window=SIZE) as group:
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    peers = sorted({after, before})
    channels = dict(zip(peers, group.channels(peers, notifies=2), strict=True))
    device = group.device
    with device.create_stream() as compute, device.create_stream() as copies:
        block, result = device.allocate(SIZE), device.allocate(SIZE)
        for number in range(ROUNDS):
            if number > 0:
                channels[after].wait(FREE, stream=copies, timeout=20)
                compute.wait(sent)  # noqa: F821 - of the last round
            block.fill(number, stream=compute)
            copies.wait(compute.record())
            channels[after].write(block, stream=copies)
            channels[after].notify(FULL, stream=compute)
            sent = copies.record()
            channels[before].wait(FULL, stream=compute, timeout=20)
            result.copy_from(group.window, stream=compute)
            if number + 1 < ROUNDS:
                channels[before].notify(FREE, stream=compute)
        compute.sync(timeout=20)
        copies.sync(timeout=20)
    group.barrier()

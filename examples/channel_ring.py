"""A ring of ranks that write into each other's memory: run it with `peerlane launch -n 4 examples/channel_ring.py`.

Each rank writes its block into its right neighbour's window and tells it so with a notify.  The neighbour passes on
what it got, until every block has been everywhere: an all-gather made of one-sided writes.
"""

from __future__ import annotations

import numpy as np

import peerlane as pl

BLOCK = 1 << 20
# Two places, and two notifies for each: one bit can tell of one block only, and the next may come before it is seen.
FULL, EMPTY = (0, 1), (2, 3)


def main() -> None:
    with pl.Group(window=2 * BLOCK, notifies="strict") as group:
        right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        # Between two ranks both are channels to the same peer: names tell which end meets which.
        names = [f"{group.rank} to {right}", f"{left} to {group.rank}"]
        to_right, from_left = group.channels([right, left], notifies=4, names=names)
        mine = np.full(BLOCK, group.rank, np.uint8)
        collected = {group.rank: mine.tobytes()}
        block = group.device.allocate(BLOCK)
        block.copy_from(mine)
        with group.device.create_stream() as stream:
            for step in range(group.size - 1):
                turn = step % 2
                offset = turn * BLOCK
                if step >= 2:
                    to_right.wait(EMPTY[turn], stream=stream)  # the program goes on; the stream waits
                to_right.write(block, at=offset, notify=FULL[turn], stream=stream)
                from_left.wait(FULL[turn], stream=stream)
                block.copy_from(group.window[offset : offset + BLOCK], stream=stream)
                if step < group.size - 3:
                    from_left.notify(EMPTY[turn], stream=stream)
                stream.sync(timeout=30)
                collected[(left - step) % group.size] = bytes(block.view())
        for rank in range(group.size):
            assert collected[rank] == bytes([rank]) * BLOCK
        group.barrier()
        print(f"rank {group.rank} of {group.size}: {len(collected)} blocks")


if __name__ == "__main__":
    main()

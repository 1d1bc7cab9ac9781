"""Prefill hands the KV cache of each request to decode: run it with `peerlane launch -n 2 examples/kv_transfer.py`.

Rank 0 computes the blocks of a request and writes them into pages of rank 1, wherever these lie; one notify says that
all are there.  Rank 1 reads the pages and answers that they are free.  There are two sets of pages, so the blocks of
one request travel while the request before is being read.
`docs/guides/checking.md` breaks this program in five ways, and shows what `peerlane check` says.
"""

from __future__ import annotations

import numpy as np

import peerlane as pl

BLOCK = 4096
BLOCKS = 8  # of a request
SETS = 2
REQUESTS = 6
READY, FREE = (0, 1), (2, 3)  # a notify is one bit: each set of pages has its own


def pages(request: int) -> list[int]:
    """Return where the blocks of a request lie in the window of rank 1, in bytes."""
    first = request % SETS * BLOCKS
    order = np.random.default_rng(request).permutation(BLOCKS)
    return [(first + int(page)) * BLOCK for page in order]


def computed(request: int) -> np.ndarray:
    """Return the bytes that the model would compute."""
    return np.random.default_rng(100 + request).integers(0, 256, (BLOCKS, BLOCK), dtype=np.uint8)


def prefill(group: pl.Group, channel: pl.Channel) -> None:
    """Compute the blocks of each request, and write them into the peer's pages."""
    with group.device.allocate(BLOCKS * BLOCK) as cache, group.device.create_stream() as stream:
        for request in range(REQUESTS):
            stream.sync(timeout=30)  # until then the writes of the request before read the cache
            cache.view(np.uint8, (BLOCKS, BLOCK))[:] = computed(request)
            if request >= SETS:
                channel.wait(FREE[request % SETS], stream=stream)
            blocks = [(to, number * BLOCK, BLOCK) for number, to in enumerate(pages(request))]
            channel.write_blocks(cache, blocks, stream=stream)
            channel.notify(READY[request % SETS], stream=stream)
        stream.sync(timeout=30)


def decode(group: pl.Group, channel: pl.Channel) -> int:
    """Read the blocks of each request, tell the peer that their pages are free, and count the wrong blocks."""
    wrong = 0
    for request in range(REQUESTS):
        channel.wait(READY[request % SETS], timeout=30)
        for block, at in zip(computed(request), pages(request), strict=True):
            wrong += not np.array_equal(group.window[at : at + BLOCK].view(), block)
        if request + SETS < REQUESTS:
            channel.notify(FREE[request % SETS])
    return wrong


def main() -> None:
    """Run the part of this rank."""
    with pl.Group(window=SETS * BLOCKS * BLOCK) as group:
        channel = group.channel(1 - group.rank, notifies=4)
        if group.rank == 0:
            prefill(group, channel)
        else:
            wrong = decode(group, channel)
            print(f"{REQUESTS} requests of {BLOCKS} blocks came, {wrong} blocks are wrong")
        group.barrier()


if __name__ == "__main__":
    main()

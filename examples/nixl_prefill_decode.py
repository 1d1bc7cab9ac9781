"""Prefill hands the KV cache of each request to decode with NIXL: `peerlane run examples/nixl_prefill_decode.py`.

Two processes have an agent and a cache of pages each, on devices 0 and 1.  Decode says which of its pages are for a
request.  Prefill computes the blocks, writes them into these pages in one transfer, and one notification a request
tells decode that all are there.  `docs/guides/kv-connectors.md` explains the calls.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import numpy as np
from nixl._api import nixl_agent

import peerlane as pl

PAGE = 16 << 10
PAGES = 32
BLOCKS = 8  # of a request
REQUESTS = 4


class Worker:
    """One process's agent and its cache; pages are named by their numbers."""

    def __init__(self, name: str, number: int) -> None:
        self.agent = nixl_agent(name)
        self.cache = pl.devices()[number].allocate(PAGES * PAGE)
        self.registered = self.agent.register_memory(
            [(self.cache.address, self.cache.size, number, "")], "VRAM"
        )
        self.mine = self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", self.pages(), "VRAM")

    def pages(self) -> list[tuple[int, int, int]]:
        """Return the descriptors of all pages."""
        return [(self.cache.address + at * PAGE, PAGE, self.cache.device.ordinal) for at in range(PAGES)]

    def page(self, number: int) -> np.ndarray:
        """Return a page's bytes, as the host sees them."""
        return self.cache[number * PAGE : (number + 1) * PAGE].view()


def blocks_of(request: int) -> np.ndarray:
    """Return the bytes that a model would compute."""
    return np.random.default_rng(request).integers(0, 256, (BLOCKS, PAGE), dtype=np.uint8)


def decode(pipe: Connection) -> None:
    """Give out pages for each request, wait for its notification, and count the right blocks."""
    worker = Worker("decode", 1)
    pipe.send((worker.agent.get_agent_metadata(), worker.pages()))
    right = 0
    for request in range(REQUESTS):
        wanted = np.random.default_rng(7 + request).permutation(PAGES)[:BLOCKS].tolist()
        pipe.send(wanted)
        while not worker.agent.check_remote_xfer_done("prefill", b"request %d" % request):
            pass
        right += sum(
            bool((worker.page(page) == block).all())
            for page, block in zip(wanted, blocks_of(request), strict=True)
        )
    pipe.send(right)
    pipe.recv()


def prefill() -> None:
    """Compute each request, write its blocks, and wait until the pages may be used again."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    other = context.Process(target=decode, args=(theirs,))
    other.start()
    worker = Worker("prefill", 0)
    metadata, pages = pipe.recv()
    name = worker.agent.add_remote_agent(metadata).decode()
    far = worker.agent.prep_xfer_dlist(name, pages, "VRAM")
    for request in range(REQUESTS):
        wanted = pipe.recv()
        used = list(range(BLOCKS))
        for page, block in zip(used, blocks_of(request), strict=True):
            worker.page(page)[:] = block
        message = b"request %d" % request
        handle = worker.agent.make_prepped_xfer("WRITE", worker.mine, used, far, wanted, message)
        state = worker.agent.transfer(handle)
        while state == "PROC":  # until then the transfer reads the pages
            state = worker.agent.check_xfer_state(handle)
        worker.agent.release_xfer_handle(handle)
    print(f"{REQUESTS} requests, {pipe.recv()} of {REQUESTS * BLOCKS} blocks right in the other process")
    pipe.send("over")
    other.join()


if __name__ == "__main__":
    prefill()

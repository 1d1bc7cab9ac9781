"""Prefill hands the KV cache to decode with Mooncake: `peerlane run examples/mooncake_prefill_decode.py`.

Two processes have an engine and a cache of pages each, on devices 0 and 1.  Decode says which of its pages are for a
request.  Prefill computes the blocks and writes them into these pages in one batch; a notify follows the bytes.
`docs/guides/kv-connectors.md` explains the calls.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import numpy as np
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

import peerlane as pl

PAGE = 16 << 10
PAGES = 32
BLOCKS = 8  # of a request
REQUESTS = 4


def started(number: int) -> tuple[TransferEngine, pl.Buffer]:
    """Return an engine, and the cache on a device that it has registered."""
    engine, cache = TransferEngine(), pl.devices()[number].allocate(PAGES * PAGE)
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", ""):
        raise RuntimeError("the engine was not initialized")
    if engine.register_memory(cache.address, cache.size):
        raise RuntimeError("the cache was not registered")
    return engine, cache


def blocks_of(request: int) -> np.ndarray:
    """Return the bytes that a model would compute."""
    return np.random.default_rng(request).integers(0, 256, (BLOCKS, PAGE), dtype=np.uint8)


def decode(pipe: Connection) -> None:
    """Give out pages for each request, wait for its notify, and count the right blocks."""
    engine, cache = started(1)
    pipe.send((f"127.0.0.1:{engine.get_rpc_port()}", cache.address))
    right = 0
    for request in range(REQUESTS):
        wanted = np.random.default_rng(7 + request).permutation(PAGES)[:BLOCKS].tolist()
        pipe.send(wanted)
        while not any(each.name == f"request {request}" for each in engine.get_notifies()):
            pass
        pages = cache.view().reshape(PAGES, PAGE)
        right += int((pages[wanted] == blocks_of(request)).all(axis=1).sum())
    pipe.send(right)
    pipe.recv()


def prefill() -> None:
    """Compute each request, and write its blocks; the pages may be used again when the call returns."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    other = context.Process(target=decode, args=(theirs,))
    other.start()
    engine, cache = started(0)
    there, base = pipe.recv()
    for request in range(REQUESTS):
        wanted = pipe.recv()
        cache.view()[: BLOCKS * PAGE] = blocks_of(request).reshape(-1)
        code = engine.batch_transfer_sync(
            there,
            [cache.address + at * PAGE for at in range(BLOCKS)],
            [base + page * PAGE for page in wanted],
            [PAGE] * BLOCKS,
            TransferOpcode.Write,
            TransferNotify(f"request {request}", "written"),
        )
        if code:
            raise RuntimeError(f"request {request} was not written: {code}")
    print(f"{REQUESTS} requests, {pipe.recv()} of {REQUESTS * BLOCKS} blocks right in the other process")
    pipe.send("over")
    other.join()


if __name__ == "__main__":
    prefill()

"""A parent frees memory, and a child that opened its handle goes on using it."""

from __future__ import annotations

import multiprocessing
from typing import Any

import peerlane as pl

SECONDS = 60


def use(handle: bytes, end: Any) -> None:
    """Open the memory, and write to it once the parent has freed it."""
    with pl.Buffer.open(handle) as memory:
        end.send(None)
        end.recv()
        memory.fill(3)
        memory.view()[:8] = 4
        end.send(None)


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    owned = pl.devices()[0].allocate(4096)
    owned.fill(0)
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=use, args=(bytes(owned.export(allow="user")), theirs))
    child.start()
    assert ours.poll(SECONDS)
    ours.recv()
    owned.close()
    ours.send(None)
    assert ours.poll(SECONDS)
    ours.recv()
    child.join(SECONDS)
    assert child.exitcode == 0

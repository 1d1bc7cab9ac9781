"""Transfers of NIXL from and to DRAM, whose memory the program uses again before it has asked for DONE, or after.

``python nixl_host_memory.py right`` asks first, and ``racy`` does not.
"""

from __future__ import annotations

import sys

import numpy as np
from nixl._api import nixl_agent

import peerlane as pl

SIZE = 256 << 10


class Pair:
    """An agent with NumPy memory, and one with memory of a device."""

    def __init__(self) -> None:
        self.array = np.zeros(SIZE, np.uint8)
        self.buffer = pl.devices()[0].allocate(SIZE)
        self.buffer.fill(3)
        self.near, self.there = nixl_agent("here"), nixl_agent("there")
        self.near = self.near.register_memory([(self.array.ctypes.data, SIZE, 0, "")], "DRAM").trim()
        self.far = self.there.register_memory([(self.buffer.address, SIZE, 0, "")], "VRAM").trim()
        self.near.add_remote_agent(self.there.get_agent_metadata())

    def started(self, verb: str) -> object:
        handle = self.near.initialize_xfer(verb, self.near, self.far, "there")
        self.near.transfer(handle)
        return handle

    def wait(self, handle: object) -> None:
        while self.near.check_xfer_state(handle) != "DONE":
            pass


def read_into_memory(pair: Pair, waits: bool) -> None:
    handle = pair.started("READ")
    if waits:
        pair.wait(handle)
    int(pair.array.sum())
    pair.wait(handle)


def write_from_memory(pair: Pair, waits: bool) -> None:
    handle = pair.started("WRITE")
    if waits:
        pair.wait(handle)
    pair.array[:] = 7
    pair.wait(handle)


KINDS = [read_into_memory, write_from_memory]


def main(which: str) -> None:
    """Run both kinds."""
    pair = Pair()
    for kind in KINDS:
        kind(pair, which == "right")


if __name__ == "__main__":
    main(sys.argv[1])

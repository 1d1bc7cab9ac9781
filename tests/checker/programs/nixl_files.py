"""Moves blocks to a file and back; the arguments are "right" or a mistake, and "DRAM", "VRAM" or "view"."""

import sys
import tempfile
from pathlib import Path

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config

import peerlane as pl

MODE, KIND = sys.argv[1:]
SIZE = 1 << 20

buffer = pl.devices()[0].allocate(SIZE)
buffer.fill(1)
blocks = np.ones(SIZE, np.uint8) if KIND == "DRAM" else buffer.view()
address = buffer.address if KIND == "VRAM" else int(blocks.__array_interface__["data"][0])
mem = "VRAM" if KIND == "VRAM" else "DRAM"

agent = nixl_agent("a", nixl_agent_config(backends=["POSIX"]))
agent.register_memory([(address, SIZE, 0, "")], mem)
with tempfile.TemporaryDirectory() as folder:
    agent.register_memory([(0, 0, 1, f"rw,create:{folder}/blocks")], "FILE")
    near, far = agent.get_xfer_descs([(address, SIZE, 0)], mem), agent.get_xfer_descs([(0, SIZE, 1)], "FILE")

    def move(operation: str) -> object:
        """Begin a transfer."""
        handle = agent.initialize_xfer(operation, near, far, "a")
        agent.transfer(handle)  # the transfer
        return handle

    def wait(handle: object) -> None:
        """Wait for the end of a transfer."""
        while agent.check_xfer_state(handle) != "DONE":
            pass

    out = move("WRITE")
    if MODE == "changed":
        blocks[4096:8192] = 2  # the change
    wait(out)
    blocks[:] = 0
    back = move("READ")
    if MODE == "early":
        print(blocks[4096:8192].sum())  # the early read
    if MODE == "released":
        agent.release_xfer_handle(back)
        print(blocks[4096:8192].sum())  # the read behind a release
        sys.exit()
    wait(back)
    print(Path(folder, "blocks").stat().st_size, int(blocks[:SIZE].sum()))

"""Rank 0 writes 8 blocks to rank 1, a notification each; the word is a folder by which the ranks find each other."""

import os
import sys
import time
from pathlib import Path

from nixl._api import nixl_agent
from nixl._bindings import nixlBackendError, nixlRemoteDisconnectError

import peerlane as pl

SIZE, BLOCKS, SECONDS = 1 << 16, 8, 60
rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
deadline = time.monotonic() + SECONDS


def until(poll):
    while not poll():
        assert time.monotonic() < deadline, "the other rank does not answer"


def write(near, far):
    for at in range(BLOCKS):
        block, target = (agent.get_xfer_descs([each[at]], "VRAM") for each in (near, far))
        handle = agent.initialize_xfer("WRITE", block, target, "rank 1", b"block %d" % at)
        agent.transfer(handle)  # the write
        until(lambda handle=handle: agent.check_xfer_state(handle) == "DONE")
    until(lambda: agent.check_remote_xfer_done("rank 1", b"all"))
    print("written", flush=True)


def read():
    for at in range(BLOCKS):
        while not agent.check_remote_xfer_done("rank 0", b"block %d" % at):  # the notification
            assert time.monotonic() < deadline, "rank 0 does not answer"
        with memory[at * SIZE : at * SIZE + SIZE].reading() as block:
            assert (block == 1).all()
    agent.send_notif("rank 0", b"all")
    print("read", flush=True)


agent = nixl_agent(f"rank {rank}")
memory = pl.devices()[rank].allocate(BLOCKS * SIZE)
memory.fill(1 - rank)
rows = [(memory.address + at * SIZE, SIZE, rank) for at in range(BLOCKS)]
agent.register_memory([(memory.address, memory.size, rank, "")], "VRAM")
mine = folder / f"{rank}.new"
mine.write_bytes(agent.get_serialized_descs((agent.get_agent_metadata(), rows)))
mine.rename(folder / f"{rank}")
until((folder / f"{1 - rank}").exists)
metadata, there = agent.deserialize_descs((folder / f"{1 - rank}").read_bytes())
try:
    agent.add_remote_agent(metadata)
    if rank == 0:
        write(rows, there)
    else:
        read()
except (nixlBackendError, nixlRemoteDisconnectError) as error:
    print(f"told: {error}", flush=True)
    until(lambda: False)  # the launcher ends this rank

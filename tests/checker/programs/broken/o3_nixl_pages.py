"""Ranks 0 and 1 write four pages each to rank 2 by NIXL, which adds them up when all have come."""

import time

from nixl._api import nixl_agent

import peerlane as pl
from peerlane.rendezvous import Rendezvous

PAGE, REQUESTS, SECONDS = 1 << 14, 4, 60


def until(came):
    """Ask again and again, as NIXL has no call that waits."""
    deadline = time.monotonic() + SECONDS
    while not came():
        if time.monotonic() > deadline:
            raise SystemExit("the other rank does not answer")


line = Rendezvous.from_environment()
agent = nixl_agent(f"rank {line.rank}")
memory = pl.devices()[line.rank].allocate(2 * REQUESTS * PAGE)
agent.register_memory([(memory.address, memory.size, line.rank, "")], "VRAM")
rows = [(memory.address + at * PAGE, PAGE, line.rank) for at in range(2 * REQUESTS)]
gathered = line.gather("agents", agent.get_serialized_descs((agent.get_agent_metadata(), rows)))
for peer in (2,) if line.rank < 2 else (0, 1):
    metadata, descriptors = agent.deserialize_descs(gathered[peer])
    agent.add_remote_agent(metadata)
if line.rank < 2:
    memory.fill(7 + line.rank)
    for request in range(REQUESTS):
        page = line.rank * REQUESTS + request - (line.rank == 1 and request == 2)
        mine, theirs = (agent.get_xfer_descs([each], "VRAM") for each in (rows[request], descriptors[page]))
        handle = agent.initialize_xfer("WRITE", mine, theirs, "rank 2", b"request %d" % request)
        agent.transfer(handle)
        until(lambda handle=handle: agent.check_xfer_state(handle) == "DONE")
        agent.release_xfer_handle(handle)
else:
    total = 0
    for request in range(REQUESTS):
        for peer in range(2):
            text = b"request %d" % request
            until(lambda name=f"rank {peer}", text=text: agent.check_remote_xfer_done(name, text))
    for page in range(2 * REQUESTS):
        total += int(memory[page * PAGE : (page + 1) * PAGE].view().sum())
line.barrier("end")

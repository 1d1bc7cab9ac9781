"""Rank 0 writes the page of each request to rank 1 by NIXL, from one page of its own."""

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
memory = pl.devices()[line.rank].allocate(REQUESTS * PAGE)
agent.register_memory([(memory.address, memory.size, line.rank, "")], "VRAM")
rows = [(memory.address + at * PAGE, PAGE, line.rank) for at in range(REQUESTS)]
gathered = line.gather("agents", agent.get_serialized_descs((agent.get_agent_metadata(), rows)))
metadata, descriptors = agent.deserialize_descs(gathered[1 - line.rank])
agent.add_remote_agent(metadata)
if line.rank == 0:
    handles = []
    for request in range(REQUESTS):
        memory.view()[:PAGE] = request
        mine, theirs = (agent.get_xfer_descs([each], "VRAM") for each in (rows[0], descriptors[request]))
        handles.append(agent.initialize_xfer("WRITE", mine, theirs, "rank 1", b"request %d" % request))
        agent.transfer(handles[-1])
    for handle in handles:
        until(lambda handle=handle: agent.check_xfer_state(handle) == "DONE")
        agent.release_xfer_handle(handle)
else:
    total = 0
    for request in range(REQUESTS):
        until(lambda request=request: agent.check_remote_xfer_done("rank 0", b"request %d" % request))
        total += int(memory[request * PAGE : (request + 1) * PAGE].view().sum())
line.barrier("end")

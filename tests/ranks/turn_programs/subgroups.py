"""All ranks are in one group, and pairs of them in another; each group has barriers of its own."""

import numpy as np
from showing import show

import peerlane as pl
from peerlane.rendezvous import Rendezvous, RendezvousServer

with Rendezvous.from_environment() as line, pl.Group(rendezvous=line, window=4096) as world:
    lower = world.rank < 2
    rank, name = world.rank % 2, "lower" if lower else "upper"
    server = RendezvousServer(2) if rank == 0 else None
    if server is not None:
        line.put(name, server.address.encode())
    meeting = Rendezvous(line.get(name, timeout=20).decode(), rank, 2)
    with pl.Group(rank, 2, rendezvous=meeting, window=4096, name=name) as pair:
        stream, channel = pair.device.create_stream(), pair.channel(1 - rank)
        for turn in range(3):
            channel.write(np.full(32, turn + world.rank, np.uint8), at=0, notify=turn, stream=stream)
            pair.barrier()
            channel.wait(turn, timeout=20)
            show(pair.window.view()[:32])
            meeting.barrier()
        world.barrier()
        stream.sync()
        mine = np.full(4, world.rank, np.uint8)
        whole = np.zeros(16, np.uint8)
        world.all_gather(whole, mine)
        show(whole)
    meeting.close()
    line.barrier("end")
    if server is not None:
        server.close()

"""The ranks are threads of one process."""

import threading

import numpy as np
from showing import show_of

import peerlane as pl
from peerlane.rendezvous import Rendezvous, RendezvousServer

RANKS = 3


def run(rank, address):
    with (
        Rendezvous(address, rank, RANKS) as line,
        pl.Group(rank=rank, size=RANKS, rendezvous=line, window=4096) as group,
    ):
        others = [each for each in range(RANKS) if each != rank]
        channels, stream = group.channels(others), group.device.create_stream()
        group.window.fill(0)
        line.barrier()
        for turn in range(4):
            for channel in channels:
                channel.write(
                    np.full(64, 8 * turn + rank, np.uint8), at=64 * rank, notify=turn, stream=stream
                )
            if turn % 2:
                group.barrier()
            for channel in channels:
                channel.wait(turn, timeout=20)
            show_of(rank, group.window.view()[: 64 * RANKS])
            stream.sync()
            line.barrier()


with RendezvousServer(RANKS) as server:
    threads = [threading.Thread(target=run, args=(rank, server.address)) for rank in range(RANKS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

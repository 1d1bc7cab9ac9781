"""A second thread of each rank waits at the rendezvous while the first one takes its turns."""

import threading

import numpy as np
from showing import show

import peerlane as pl
from peerlane.rendezvous import Rendezvous

with Rendezvous.from_environment() as line, pl.Group(rendezvous=line, window=4096) as group:
    channel, stream = group.channel(1 - group.rank), group.device.create_stream()
    waits = threading.Thread(target=lambda: line.barrier("of threads"))
    waits.start()
    for turn in range(3):
        channel.write(np.full(64, turn + group.rank, np.uint8), at=64 * turn, notify=turn, stream=stream)
        channel.wait(turn, timeout=20)
    show(group.window.view()[:192])
    waits.join()
    stream.sync()
    group.barrier()

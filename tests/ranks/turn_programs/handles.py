"""Memory, an event and a notify that rank 0 exports, and the others open."""

import os

from showing import show

import peerlane as pl
from peerlane.rendezvous import Rendezvous

with Rendezvous.from_environment() as line, pl.Group(rendezvous=line, window=4096) as group:
    pids = [int(pid) for pid in line.gather("pids", b"%d" % os.getpid())]
    stream = group.device.create_stream()
    if group.rank == 0:
        memory = group.device.allocate(4096)
        notify = group.device.create_notify()
        line.put("memory", bytes(memory.export(allow=pids[1:])))
        line.put("notify", bytes(notify.export(allow=pids[1:])))
        memory.fill(3, stream=stream)
        stream.notify(notify)
        line.barrier("recorded")
    else:
        memory = pl.Buffer.open(line.get("memory", timeout=20))
        notify = pl.Notify.open(line.get("notify", timeout=20))
        if group.rank == 1:
            stream.wait(notify, timeout=20)
            stream.sync()
            show(memory.view()[:64])
        line.barrier("recorded")
    line.barrier("read")
    if group.rank == 0:
        stream.sync()

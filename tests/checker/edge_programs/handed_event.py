"""Rank 0 hands the descriptor of an event to rank 1, which waits for it and reads: ``handed_event.py right``.

In ``early`` the event comes before what it reads.
"""

from __future__ import annotations

import os
import select
import socket
import sys

import peerlane as pl
from peerlane.rendezvous import Rendezvous

SIZE = 4 << 20


def owner(meeting: Rendezvous, mode: str, processes: list[int]) -> None:
    device = pl.devices()[0]
    with device.allocate(SIZE) as own, device.create_stream() as stream:
        meeting.put("memory", bytes(own.export(allow=processes)))
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(meeting.get("listens"))
            if mode == "right":
                own.fill(5, stream=stream)
            done = stream.record()
            socket.send_fds(end, [b"."], [done.fileno()])
            if mode == "early":
                own.fill(5, stream=stream)
            assert end.recv(1) == b"r"
            stream.sync(30)


def reader(meeting: Rendezvous, mode: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("")  # the system draws a name
        server.listen()
        with pl.Buffer.open(meeting.get("memory")) as lent:
            meeting.put("listens", server.getsockname())
            end = server.accept()[0]
            fd = socket.recv_fds(end, 1, 1)[1][0]
            assert select.select([fd], [], [], 30)[0]
            is_there = (lent.view() == 5).all()
            assert is_there or mode == "early"
            end.send(b"r")
            end.close()
            os.close(fd)


def main(mode: str) -> None:
    with Rendezvous.from_environment() as meeting:
        processes = [int(each) for each in meeting.gather("process", b"%d" % os.getpid())]
        if meeting.rank == 0:
            owner(meeting, mode, processes)
        else:
            reader(meeting, mode)
        meeting.barrier()


if __name__ == "__main__":
    main(sys.argv[1])

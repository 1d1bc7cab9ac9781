"""Rank 1 waits for a word of rank 0's memory by copies, or in code without source: ``copied_words.py MEANS MODE``.

In ``right`` rank 0's stream writes the data before the word, in ``early`` behind it.  Then it logs
nothing for a while.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import peerlane as pl
from peerlane.rendezvous import Rendezvous

SECONDS = 30
DATA, WORD = 4096, slice(4096, 4160)


def by_view(target: pl.Buffer) -> None:
    view = target.view()
    while view[WORD.start] != 1:
        time.sleep(0)


def by_copies_on_a_stream(target: pl.Buffer) -> None:
    host = pl.Host().allocate(64)
    with pl.devices()[1].create_stream() as stream:
        while True:
            host.copy_from(target[WORD], stream=stream)
            stream.sync(SECONDS)
            if host.view()[0] == 1:
                return


def by_a_helper_that_copies(target: pl.Buffer) -> None:
    host = pl.Host().allocate(64)

    def first(stream: pl.Stream) -> int:
        host.copy_from(target[WORD], stream=stream)
        stream.sync(SECONDS)
        return int(host.view()[0])

    with pl.devices()[1].create_stream() as stream:
        while first(stream) != 1:
            time.sleep(0)


def by_a_view_without_source(target: pl.Buffer) -> None:
    exec("while view[4096] != 1: time.sleep(0)", {"view": target.view(), "time": time})


def by_copies_without_source(target: pl.Buffer) -> None:
    exec("while not held[0]: word.copy_to(held)", {"word": target[4096:4104], "held": bytearray(8)})


MEANS: dict[str, Callable[[pl.Buffer], None]] = {
    "view": by_view,
    "stream": by_copies_on_a_stream,
    "helper": by_a_helper_that_copies,
    "view without source": by_a_view_without_source,
    "copies without source": by_copies_without_source,
}


def writer(meeting: Rendezvous, processes: list[int], mode: str) -> None:
    device = pl.devices()[0]
    with device.allocate(2 * DATA) as target, device.create_stream() as stream:
        target.fill(0)
        meeting.put("target", bytes(target.export(allow=processes)))
        meeting.barrier()
        word, data = device.allocate(64), device.allocate(DATA)
        word.fill(1)
        data.fill(7)
        if mode == "right":
            target[:DATA].copy_from(data, stream=stream)
        target[WORD].copy_from(word, stream=stream)
        stream.sync(SECONDS)
        time.sleep(0.4)  # in `early` the accesses have an order in time, not by the program
        if mode == "early":
            target[:DATA].copy_from(data, stream=stream)
            stream.sync(SECONDS)
        meeting.barrier()


def reader(meeting: Rendezvous, means: str, mode: str) -> None:
    with pl.Buffer.open(meeting.get("target")) as target:
        meeting.barrier()
        MEANS[means](target)
        received = bytearray(DATA)
        target[:DATA].copy_to(received)
        assert mode == "early" or received == b"\x07" * DATA
        meeting.barrier()


def main(means: str, mode: str) -> None:
    with Rendezvous.from_environment() as meeting:
        processes = [int(each) for each in meeting.gather("process", b"%d" % os.getpid())]
        if meeting.rank == 0:
            writer(meeting, processes, mode)
        else:
            reader(meeting, means, mode)


if __name__ == "__main__":
    main(*sys.argv[1:])

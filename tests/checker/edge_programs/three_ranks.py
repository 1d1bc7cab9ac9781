"""Rank 0 tells rank 2, and rank 2 tells rank 1; of both hops peerlane sees one.

``three_ranks.py ORDER HOP USE MODE FOLDER``: in ``right`` they tell that rank 0's access is over, in ``early`` rank 0
tells before it, and in ``late`` rank 2 tells before it hears.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import peerlane as pl
from checker.edge_programs.two_ranks import memory, until
from peerlane.rendezvous import Rendezvous, RendezvousServer

SECONDS, SIZE = 30, 4096
WRITER, USER, RELAY = 0, 1, 2
#: What the one does to tell, and the other to hear: on a stream, if it is given one.
Hop = tuple[Callable[[], object], Callable[[pl.Stream | None], object]]


def nothing(_: object = None) -> None:
    """Do what a rank does that has no part in a hop."""


class Hops:
    """The hops from one rank to another one; all ranks make each."""

    def __init__(self, meeting: Rendezvous, group: pl.Group, folder: Path) -> None:
        self.meeting, self.group, self.folder = meeting, group, folder

    def socket(self, teller: int, hearer: int) -> Hop:
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(SECONDS)
        if self.meeting.rank == hearer:
            end.bind(str(self.folder / "s"))
            end.listen()
        self.meeting.barrier()
        if self.meeting.rank == teller:
            end.connect(str(self.folder / "s"))
        heard = end.accept()[0] if self.meeting.rank == hearer else end
        return lambda: end.send(b"."), lambda _: heard.recv(1)

    def mapped(self, teller: int, hearer: int) -> Hop:
        if self.meeting.rank == teller:
            (self.folder / "m").write_bytes(bytes(4096))
        self.meeting.barrier()
        if self.meeting.rank not in (teller, hearer):
            return nothing, nothing
        with (self.folder / "m").open("r+b") as file:
            flag = mmap.mmap(file.fileno(), 4096)
        return lambda: flag.__setitem__(0, 1), lambda _: until(lambda: flag[0])

    def rendezvous(self, teller: int, hearer: int) -> Hop:
        return lambda: self.meeting.put("told", b""), lambda _: self.meeting.get("told")

    def barrier(self, teller: int, hearer: int) -> Hop:
        """Meet in a rendezvous of these two ranks only."""
        if self.meeting.rank == teller:
            self.meeting.put("of two", RendezvousServer(2).address.encode())
        if self.meeting.rank not in (teller, hearer):
            return nothing, nothing
        line = Rendezvous(self.meeting.get("of two").decode(), int(self.meeting.rank == hearer), 2)
        return line.barrier, lambda _: line.barrier()

    def notify(self, teller: int, hearer: int) -> Hop:
        if self.meeting.rank not in (teller, hearer):
            return nothing, nothing
        end = self.group.channel(hearer if self.meeting.rank == teller else teller)
        return lambda: end.notify(0), lambda stream: end.wait(0, stream=stream, timeout=SECONDS)

    def message(self, teller: int, hearer: int) -> Hop:
        block = self.group.device.allocate(64)
        block.fill(0)
        return lambda: self.group.send(block, hearer), lambda _: self.group.recv(block, teller)

    def event(self, teller: int, hearer: int) -> Hop:
        processes = [int(each) for each in self.meeting.gather("events", b"%d" % os.getpid())]
        stream = self.group.device.create_stream()
        if self.meeting.rank == teller:
            event = self.group.device.create_event()
            self.meeting.put("event", bytes(event.export(allow=processes)))
        else:
            event = pl.Event.open(self.meeting.get("event"))

        def hear(_: pl.Stream | None) -> None:
            until(lambda: event.is_recorded)
            event.sync(SECONDS)

        return lambda: stream.record(event), hear


LOGGED = ("rendezvous", "barrier", "notify", "message", "event")


class Read:
    """Rank 0 writes memory, and rank 1 reads it."""

    stream: pl.Stream | None = None

    def __init__(self, group: pl.Group, shared: pl.Buffer) -> None:
        self.group, self.shared = group, shared

    def write(self) -> None:
        self.shared.view()[:8] = 7

    def use(self) -> None:
        self.shared.view()[:8].sum()


class StreamedRead(Read):
    """The same by streams; the read is submitted first, behind a wait."""

    def __init__(self, group: pl.Group, shared: pl.Buffer) -> None:
        super().__init__(group, shared)
        self.stream: pl.Stream = group.device.create_stream()
        self.own = group.device.allocate(64)

    def write(self) -> None:
        self.shared.fill(7, stream=self.stream)
        self.stream.sync(SECONDS)

    def use(self) -> None:
        self.own.copy_from(self.shared[:64], stream=self.stream)


class Deregistered(Read):
    """Rank 0 writes over a channel and waits for that, and rank 1 takes its memory back."""

    def __init__(self, group: pl.Group, shared: pl.Buffer) -> None:
        super().__init__(group, shared)
        self.block = group.device.allocate(64)
        self.block.fill(group.rank)
        if group.rank == USER:
            group.register(self.block, "kv")
        if group.rank != RELAY:
            link = group.channel(USER if group.rank == WRITER else WRITER)
        if group.rank == WRITER:  # a write that is submitted behind the end is refused
            self.writes, self.begin = group.device.create_stream(), group.device.create_notify()
            self.writes.wait(self.begin)
            link.write(self.block, memory="kv", stream=self.writes)

    def write(self) -> None:
        self.begin.record()
        self.writes.sync(SECONDS)

    def use(self) -> None:
        self.group.deregister("kv")


USES = {each.__name__: each for each in (Read, StreamedRead, Deregistered)}


def by_ranks(meeting: Rendezvous, shared_use: Read, mode: str, to_relay: Hop, to_user: Hop) -> None:
    """Let the ranks act, each its part."""
    if shared_use.stream and meeting.rank != USER:
        meeting.barrier("submitted")
    if meeting.rank == WRITER:
        if mode == "early":
            to_relay[0]()
        with suppress(*() if mode == "right" else (pl.Error,)):  # of a write whose memory has ended
            shared_use.write()
        if mode != "early":
            to_relay[0]()
    elif meeting.rank == RELAY:
        if mode == "late":
            to_user[0]()
        to_relay[1](None)
        if mode != "late":
            to_user[0]()
    else:
        to_user[1](shared_use.stream)
        if mode != "right" and not shared_use.stream:
            time.sleep(0.3)  # so that the accesses have an order in time, not by the program
        shared_use.use()
        if shared_use.stream:
            meeting.barrier("submitted")
            shared_use.stream.sync(SECONDS)


def main(order: str, hop: str, use: str, mode: str, folder: Path) -> None:
    with (
        Rendezvous.from_environment() as meeting,
        pl.Group(rank=meeting.rank, size=3, rendezvous=meeting, window=SIZE) as group,
        memory(meeting) as shared,
    ):
        shared_use, hops = USES[use](group, shared), Hops(meeting, group, folder)
        first, second = order.split("-")
        to_relay = getattr(hops, hop if first == "seen" else first)(WRITER, RELAY)
        to_user = getattr(hops, hop if second == "seen" else second)(RELAY, USER)
        meeting.barrier()
        by_ranks(meeting, shared_use, mode, to_relay, to_user)
        meeting.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:5], Path(sys.argv[5]))

"""A thread tells another one of its rank by a variable, and that one tells rank 1 by an order of peerlane.

``threads_signal.py TELLER HOP USE MODE FOLDER``: the threads are those of rank 0 (``writer``), or of rank 2, which
hears from rank 0 (``relay``).  In ``right`` they tell that rank 0's access is over, in ``early`` they tell before it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import peerlane as pl
from checker.edge_programs.three_ranks import RELAY, SECONDS, SIZE, USER, USES, WRITER, Hop, Hops, Read
from checker.edge_programs.two_ranks import memory, until
from peerlane.rendezvous import Rendezvous


def in_threads(first: Callable[[], object], then: Callable[[], object]) -> None:
    """Let a thread do the first, and this one the second as soon as a variable says that the first is done."""
    done: list[bool] = []

    def work() -> None:
        first()
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: bool(done))
    then()
    thread.join()


def by_ranks(rank: int, used: Read, teller: str, mode: str, hops: list[Hop]) -> None:
    """Let the ranks act, each its part."""
    (signal, hear), (signal_user, hear_of) = hops[0], hops[-1]
    if rank == WRITER:

        def write() -> None:
            with suppress(*() if mode == "right" else (pl.Error,)):  # of a write whose memory has ended
                used.write()

        first, then = (signal, write) if mode == "early" else (write, signal)
        if teller == "writer":
            in_threads(first, then)
        else:
            first()
            then()
    elif rank == USER:
        hear_of(used.stream)
        if mode != "right":
            time.sleep(0.3)  # so that the accesses have an order in time, not by the program
        used.use()
        if used.stream:
            used.stream.sync(SECONDS)
    elif teller == "relay":
        in_threads(lambda: hear(None), signal_user)


def main(teller: str, hop: str, use: str, mode: str, folder: Path) -> None:
    with (
        Rendezvous.from_environment() as meeting,
        pl.Group(rank=meeting.rank, size=3, rendezvous=meeting, window=SIZE) as group,
        memory(meeting) as shared,
    ):
        used, all_hops = USES[use](group, shared), Hops(meeting, group, folder)
        if teller == "writer":
            hops = [getattr(all_hops, hop)(WRITER, USER)]
        else:
            hops = [
                getattr(all_hops, hop)(WRITER, RELAY),
                getattr(all_hops, "notify" if hop == "rendezvous" else "rendezvous")(RELAY, USER),
            ]
        meeting.barrier()
        by_ranks(meeting.rank, used, teller, mode, hops)
        meeting.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:5], Path(sys.argv[5]))

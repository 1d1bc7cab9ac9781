"""Rank 0 uses memory that rank 1 registered, and rank 1 ends it: ``memory_ends.py WAY FOLDER``.

In the racy ways, a file makes rank 1 end it after the use was submitted, and rank 1 looks at it without the checker's
knowledge: else the finding would be uncertain.
"""

from __future__ import annotations

import gc
import posix
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import peerlane as pl
from peerlane.rendezvous import Rendezvous, RendezvousServer

SECONDS, SIZE = 30.0, 1 << 16

#: What rank 0 does, and what rank 1 does.
Case = tuple[Callable[[], object], Callable[[], object]]


def cases(group: pl.Group, folder: Path) -> dict[str, Case]:
    """Return the ways, by name; rank 1 registers its memory and both make their channel first."""
    device, is_owner = group.device, group.rank == 1
    mine = device.allocate(SIZE)
    mine.fill(group.rank)
    if is_owner:
        group.register(mine, "kv")
    link = group.channel(1 - group.rank, notifies=2)
    stream = device.create_stream()
    owned = [mine]

    def notify_owner() -> None:
        (folder / "used").touch()

    def is_used() -> bool:
        try:
            posix.stat(str(folder / "used"))
        except FileNotFoundError:
            return False
        return True

    def await_file() -> None:
        until = time.monotonic() + SECONDS
        while not is_used():
            assert time.monotonic() < until
            time.sleep(0.001)

    def read() -> None:
        link.read(mine, memory="kv")

    def write() -> None:
        link.write(mine, memory="kv")

    def read_in_stream() -> None:
        link.read(mine, memory="kv", stream=stream)

    def write_in_stream() -> None:
        link.write(mine, memory="kv", stream=stream)

    def write_nonblocking() -> None:
        link.write(mine, memory="kv", nonblocking=True)

    def wait() -> None:
        link.wait(0, timeout=SECONDS)

    def deregister() -> None:
        group.deregister("kv")

    def collect() -> None:
        getattr(group, "_registered").pop("kv")  # noqa: B009
        owned.clear()
        gc.collect()

    def replace() -> None:
        wait()
        mine.close()
        with device.allocate(SIZE) as other:  # the same bytes
            group.register(other, "other")
            deregister()

    def queued() -> None:
        wait()
        other = device.allocate(SIZE, stream=stream)
        other.fill(1, stream=stream)
        other.close()
        mine.fill(1, stream=stream)
        mine.close()
        stream.sync()

    def all_of(*steps: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for step in steps:
                step()

        return run

    def notify() -> None:
        link.notify(0)

    def with_block() -> None:
        await_file()
        with mine:
            pass

    if is_owner:
        ends: dict[str, Callable[[], object]] = {
            "close": mine.close,
            "deregister": deregister,
            "with": with_block,
            "collect": collect,
        }
    else:
        ends = dict.fromkeys(("close", "deregister", "with", "collect"), notify_owner)
    cases_by_name: dict[str, Case] = {}
    for use in (read, write):
        for name, end in ends.items():
            cases_by_name[f"racy {use.__name__} {name}"] = (
                all_of(use, notify_owner),
                all_of(await_file, end),
            )
            if name in {"close", "deregister"}:
                cases_by_name[f"notified {use.__name__} {name}"] = (all_of(use, notify), all_of(wait, end))
    then_barrier = all_of(group.barrier, ends["close"])
    cases_by_name["barrier read"] = (all_of(read_in_stream, stream.sync, group.barrier), then_barrier)
    cases_by_name["barrier write"] = (all_of(write_in_stream, stream.sync, group.barrier), then_barrier)
    cases_by_name["barrier drain"] = (all_of(write_nonblocking, link.drain, group.barrier), then_barrier)
    cases_by_name["racy barrier"] = (all_of(write_in_stream, group.barrier), then_barrier)
    cases_by_name["racy stream"] = (all_of(read_in_stream, notify_owner), all_of(await_file, ends["close"]))
    cases_by_name["barrier write, read back"] = (
        all_of(write_in_stream, stream.sync, group.barrier),
        all_of(group.barrier, ends["deregister"], lambda: bytes(mine)),
    )
    cases_by_name["racy write, read back"] = (
        all_of(write_in_stream, stream.sync, notify_owner),
        all_of(await_file, lambda: bytes(mine), ends["deregister"]),
    )
    cases_by_name["replaced"] = (all_of(read, notify), replace)
    cases_by_name["queued"] = (all_of(read, notify), queued)
    return cases_by_name


def run(group: pl.Group, case: str, folder: Path) -> None:
    """Run this rank's part."""
    cases(group, folder)[case][group.rank]()
    group.barrier()


def in_threads(case: str, folder: Path) -> None:
    """Let two threads of this process be the ranks."""

    def be(rank: int, address: str) -> None:
        with (
            Rendezvous(address, rank, 2) as line,
            pl.Group(rank=rank, size=2, rendezvous=line, window=4096) as group,
        ):
            run(group, case, folder)

    with RendezvousServer(2) as server:
        threads = [threading.Thread(target=be, args=(rank, server.address)) for rank in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(SECONDS)


if __name__ == "__main__":
    if sys.argv[3:] == ["threads"]:
        in_threads(sys.argv[1], Path(sys.argv[2]))
    else:
        with pl.Group(window=4096) as joined:
            run(joined, sys.argv[1], Path(sys.argv[2]))

"""A rendezvous server may run for months: it keeps only what a rank may still ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.rendezvous import Rendezvous, RendezvousServer, frames, reports

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

RANKS = 3


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    with RendezvousServer(RANKS) as it:
        yield it


@pytest.fixture
def lines(server: RendezvousServer) -> Iterator[list[Rendezvous]]:
    it = [Rendezvous(server.address, rank, RANKS) for rank in range(RANKS)]
    yield it
    for line in it:
        line.close()


def kept(server: RendezvousServer) -> tuple[list[str], int]:
    """Return the keys that the server keeps, and the bytes that ranks are charged with."""
    meeting = server._loop.meeting
    keys = [key for folder in meeting._folders.values() for key in folder]
    return sorted(keys), sum(rank.charged for rank in meeting._ranks)


def at_once(lines: list[Rendezvous], work: Callable[[Rendezvous], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(lines)) as pool:
        return [one.result(200) for one in [pool.submit(work, line) for line in lines]]


@pytest.mark.parametrize("rounds", [300, pytest.param(10_000 // RANKS, marks=pytest.mark.soak)])
def test_rendezvous_server_after_many_rounds_keeps_latest_values_only(
    server: RendezvousServer, lines: list[Rendezvous], rounds: int
) -> None:

    def work(line: Rendezvous) -> None:
        for number in range(rounds):
            line.put(f"latest of {line.rank}", b"%d" % number)
            line.barrier(f"step {number}")  # another name each time
            value = b"%d" % (number * 10 + line.rank)
            assert line.gather(f"sum {number}", value)[line.rank] == value

    at_once(lines, work)
    assert (server._loop.meeting._rounds, server._loop.meeting._wanted) == ({}, {})
    assert kept(server)[0] == [f"latest of {rank}" for rank in range(RANKS)]
    assert kept(server)[1] < RANKS * 1000


def test_rendezvous_delete_removes_value_and_frees_its_room(
    server: RendezvousServer, lines: list[Rendezvous]
) -> None:
    big = bytes(16 << 20)
    for number in range(10):  # a rank has room for three of them
        lines[0].put(f"step/{number}", big)
        assert lines[1].get(f"step/{number}") == big
        lines[2].delete(f"step/{number}", "was never there")  # a rank may delete another rank's value
        with pytest.raises(pl.WaitTimeout, match="nobody has put 'step/"):
            lines[1].get(f"step/{number}", timeout=0)
    assert kept(server) == ([], 0)
    lines[0].put("step/1", b"anew")
    assert lines[1].get("step/1") == b"anew"


def test_rendezvous_delete_of_600_keys_in_one_call_removes_all(
    server: RendezvousServer, lines: list[Rendezvous]
) -> None:
    keys = [f"{number:0255}" for number in range(600)]  # more keys than one request takes
    for key in keys:
        lines[1].put(key, b"")
    lines[0].delete()
    lines[0].delete(*keys[1:])
    assert kept(server)[0] == [keys[0]]


def test_rendezvous_get_of_deleted_key_waits_for_next_value(lines: list[Rendezvous]) -> None:
    lines[0].put("k", b"first")
    lines[0].delete("k")
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(lines[1].get, "k", timeout=20)
        lines[2].delete("k")  # the key is not there, and the wait goes on
        lines[2].put("k", b"second")
        assert wait.result(20) == b"second"


def test_rendezvous_server_after_forty_groups_keeps_nothing(
    server: RendezvousServer, lines: list[Rendezvous], node: Node
) -> None:
    node("devices=3")
    lines[0].put("of the program", b"")
    before = kept(server)

    def work(line: Rendezvous) -> None:
        for number in range(40):
            with pl.Group(rendezvous=line, window=4096, workspace=1 << 16) as group:
                if number % 3 == 0:
                    group.barrier()
                if number % 2 == 0:
                    others = [peer for peer in range(RANKS) if peer != line.rank]
                    group.channels(others, names=["a/b"] * len(others))
                # A broadcast leaves channels that one rank offered and no rank made.
                part = group.device.allocate(64)
                group.broadcast(part, root=0)
                line.barrier(timeout=60)  # a rank that left earlier would end the others' work

    at_once(lines, work)
    assert kept(server) == before


def test_rendezvous_server_after_channels_of_live_group_keeps_nothing(
    server: RendezvousServer, lines: list[Rendezvous], node: Node
) -> None:
    node("devices=3")
    growths: list[tuple[list[str], int]] = []

    def work(line: Rendezvous) -> None:
        with pl.Group(rendezvous=line, window=4096) as group:
            for number in range(60):
                for channel in group.channels([peer for peer in range(RANKS) if peer != line.rank]):
                    channel.close()
                line.barrier("made", timeout=60)
                if line.rank == 0 and number % 20 == 19:
                    growths.append(kept(server))
                line.barrier("looked", timeout=60)

    at_once(lines, work)
    assert growths == [([], 0)] * 3
    assert kept(server) == ([], 0)


def test_rendezvous_server_late_rank_meets_next_try_and_nothing_is_kept(
    server: RendezvousServer, lines: list[Rendezvous], node: Node
) -> None:
    """The tries that rank 0 gave up stay on the server until the late rank has read them, and no longer."""
    node("devices=3")

    def work(line: Rendezvous) -> None:
        with pl.Group(rendezvous=line, window=4096) as group:
            if line.rank == 0:
                for _ in range(5):
                    with pytest.raises(pl.WaitTimeout):
                        group.channel(1, timeout=0.01)
            line.barrier("gave up", timeout=60)
            if line.rank < 2:
                channel = group.channel(1 - line.rank, timeout=30)
                channel.notify(0)
                channel.wait(0, timeout=30)
            line.barrier("met", timeout=60)
            if line.rank == 2:
                assert kept(server) == ([], 0)
            line.barrier("looked", timeout=60)

    at_once(lines, work)


def test_rendezvous_server_reports_to_launcher_are_passed_on_not_kept(
    server: RendezvousServer, lines: list[Rendezvous]
) -> None:
    shown: list[bytes] = []
    lost: list[tuple[str, int, int]] = []
    hears = server._loop.meeting.reports
    hears.show, hears.lose = shown.append, lambda *loss: lost.append(loss)
    for number in range(100):
        for line in lines:
            line.put(f"{reports.SHOWN_KEY}{number}", b"a text %d" % number)
    assert shown == [b"a text %d" % number for number in range(100)]
    for value in (b"17 18", b"17", b"", b"17 18 19", b"-1 2", b"\xff 2", b"1" * 40 + b" 2", b" "):
        lines[0].put(reports.LOST_KEY, value)
    assert lost == [("", 17, 18)]
    assert kept(server) == ([], 0)


def test_frame_keys_cut_anywhere_are_read_whole_or_refused() -> None:
    keys = ["", "a", "k" * 255, "é" * 127, "/", "a/b"]
    (value,) = frames.encode_keys([key.encode() for key in keys])
    assert frames.decode_keys(value) == keys
    for cut in range(len(value)):
        try:
            assert frames.decode_keys(value[:cut]) == keys[: len(frames.decode_keys(value[:cut]))]
        except frames.BadFrame as error:
            assert str(error) in ("the last of the keys is cut short", "a key is not UTF-8")
    with pytest.raises(frames.BadFrame, match="not UTF-8"):
        frames.decode_keys(b"\x02\xff\xfe")

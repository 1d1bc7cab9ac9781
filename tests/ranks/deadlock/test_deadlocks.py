"""Ranks that wait for one another: each gets ``Deadlock`` long before its own wait would time out."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.launched import Run
from helpers.peers import Peer, PeerError, peer
from helpers.rank_peers import ask_all, ranks
from peerlane.rendezvous import RendezvousServer

SECONDS = 2.0  # promised in docs/errors.md
LOADED = 5 * SECONDS
PATIENCE = 60.0

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]


def deadlock_texts(peers: Sequence[Peer], code: str, *, kind: str = "Deadlock") -> list[str]:
    """Let all peers run code that ends in a deadlock; return the text that each got."""
    began = time.monotonic()
    for each in peers:
        each.send(code)
    texts = [deadlock(each, began, kind) for each in peers]
    print(f"told after {time.monotonic() - began:.2f} s")
    return texts


def deadlock(peer: Peer, began: float, kind: str = "Deadlock") -> str:
    with pytest.raises(PeerError) as refused:
        peer.receive(PATIENCE)
    assert time.monotonic() - began < LOADED
    assert refused.value.kind == kind, str(refused.value)
    return str(refused.value)


def line_of(text: str, rank: int, peers: Sequence[Peer]) -> str:
    """Return what the text of a deadlock says of a rank."""
    (refused,) = re.findall(rf"^  rank {rank} \(process {peers[rank].pid}\): (.*)$", text, re.MULTILINE)
    return str(refused)


@pytest.mark.parametrize("timeout", ["", ", timeout=30"])
def test_deadlock_of_two_ranks_names_both_waits(timeout: str) -> None:
    with ranks(2) as peers:
        for text in deadlock_texts(peers, f"\nch[1 - grp.rank].wait(2{timeout})"):
            assert "a deadlock: ranks 0 and 1 wait in vain, and nothing there can run." in text
            for rank in (0, 1):
                reported = line_of(text, rank, peers)
                assert "MainThread at peer:2 waits for notify 2 from" in reported
                assert f"from rank {1 - rank} to rank {rank}, which rank {1 - rank} should record" in reported


def test_deadlock_of_fifo_waits_names_rank_that_should_record() -> None:
    with ranks(2, options="notifies='fifo'") as peers:
        for text in deadlock_texts(peers, "ch[1 - grp.rank].wait(2)"):
            assert "waits for notify 2 from rank 1 to rank 0, which rank 1 should record" in line_of(
                text, 0, peers
            )


def test_deadlock_after_stream_failed_names_failure_as_cause() -> None:
    code = """
me = 1 - grp.rank
if grp.rank == 0:
    s, t = grp.device.create_stream(), grp.device.create_stream()
    doubled = grp.device.create_notify("strict")
    s.notify(doubled)
    s.notify(doubled)
    ch[1].notify(1, stream=s)
ch[me].wait(1)
"""
    with ranks(2) as peers:
        for text in deadlock_texts(peers, code):
            assert re.search(
                r"stream \d+ failed before, and nobody synchronized it: operation 2 \(notify\)", text
            )
            assert "submitted at peer:7, failed: notify " in text
            assert "is strict and was recorded again" in text


def test_deadlock_of_three_ranks_on_streams_names_each_wait() -> None:
    with ranks(3) as peers:
        code = """
a, b = (grp.device.create_stream() for _ in range(2))
before, after = (grp.rank - 1) % 3, (grp.rank + 1) % 3
ch[before].wait(1, stream=a, timeout=60)
b.wait(a)
ch[after].notify(1, stream=b)
b.sync()
"""
        for text in deadlock_texts(
            peers, code, kind="Cancelled"
        ):  # its cause is the wait, as after a time-out
            assert "ranks 0, 1 and 2 wait in vain" in text
            for rank in range(3):
                reported = line_of(text, rank, peers)
                assert re.search(
                    r"MainThread at peer:7 waits for notify 1 .*\(stream \d+, operation \d+", reported
                )
                assert "submitted at peer:4" in reported
                assert f"which rank {(rank - 1) % 3} should record" in reported


def test_deadlock_rank_does_not_call_collective_names_all_ranks() -> None:
    with ranks(3) as peers:
        code = """
src = grp.device.allocate(1 << 16)
if grp.rank == 2:
    ch[0].wait(3)
else:
    grp.all_reduce(src, src, dtype="float32")
"""
        for text in deadlock_texts(peers, code):
            assert "ranks 0, 1 and 2 wait in vain" in text
            assert "MainThread at peer:4 waits for notify 3 from rank 0" in line_of(text, 2, peers)
            for rank in (0, 1):
                assert "MainThread at peer:6 waits in Group.all_reduce for rank " in line_of(
                    text, rank, peers
                )


def test_deadlock_of_two_ranks_leaves_other_ranks_alone() -> None:
    with ranks(4) as peers:
        peers[3].send("ch[2].wait(0, timeout=30)")
        for text in deadlock_texts(peers[:2], "ch[1 - grp.rank].wait(0)"):
            assert "ranks 0 and 1 wait in vain" in text
        assert peers[2].run("ch[3].notify(0); result = 1") == 1
        assert peers[3].receive() is None


def test_group_after_deadlock_goes_on() -> None:
    with ranks(2) as peers:
        for _ in range(2):
            deadlock_texts(peers, "ch[1 - grp.rank].wait(0)")
        code = "ch[1 - grp.rank].notify(0); ch[1 - grp.rank].wait(0, timeout=30); grp.barrier(); result = 1"
        assert ask_all(peers, code) == [1, 1]


def test_rank_that_has_raised_and_waits_again_gets_no_deadlock_with_one_that_raises_late() -> None:
    with ranks(2) as peers:
        peers[0].run(
            "from peerlane.diagnostics.waits import progress\nprogress.STARVED_NOTICE_NS = 200_000_000"
        )
        peers[1].run(
            """
import time
from peerlane.ranks.deadlock import detect
graph_of = detect._graph
def starved(group, board):  # until rank 0 has raised and waits again
    spell, until = board.spell(0), time.monotonic() + 30
    while board.spell(0) == spell and time.monotonic() < until:
        time.sleep(0.01)
    return graph_of(group, board)
detect._graph = starved
"""
        )
        peers[1].send("ch[0].wait(0)")
        with pytest.raises(PeerError) as first:
            peers[0].run("ch[1].wait(0)")
        peers[0].send("ch[1].wait(0)")
        with pytest.raises(PeerError) as late:
            peers[1].receive(PATIENCE)
        assert (first.value.kind, late.value.kind) == ("Deadlock", "Deadlock")
        peers[1].run("ch[0].notify(0)")
        assert peers[0].receive(PATIENCE) is None


_JOINED = """
import threading
def work(other):
    try:
        ch[other].wait(0)
    except pl.Error as error:
        told.append(error)
told = []
threads = [threading.Thread(target=work, args=[1 - grp.rank]) for _ in range(2)]
threads[0].start(); threads[1].start()
for each in threads:
    each.join(60)
raise told[0]
"""


def test_deadlock_main_thread_joins_waiters_names_waiting_threads() -> None:
    with ranks(2) as peers:
        for text in deadlock_texts(peers, _JOINED):
            assert re.search(r"Thread-\d+ \(work\) at peer:5 waits for notify 0 from rank 1", text)


_THREADS = """
import sys, threading
sys.path.insert(0, {tests!r})
from helpers.threads_as_ranks import run_ranks
def work(grp):
    after, before = grp.channels([(grp.rank + 1) % 3, (grp.rank - 1) % 3])
    if grp.rank != {absent}:
        before.wait(0, timeout=60)
    after.notify(0)
    before.wait(0, timeout=60)
run_ranks(3, work, ends_together=False)
"""


def test_deadlock_of_ranks_as_threads_names_each_rank() -> None:
    with peer("name=deadlocks,devices=4") as one:
        (text,) = deadlock_texts([one], _THREADS.format(tests=str(Path(__file__).parents[2]), absent=9))
        assert "ranks 0, 1 and 2 of group 'ranks0' wait in vain" in text
        for rank in range(3):
            assert re.search(rf"rank {rank} \(process {one.pid}\): .* at peer:8 waits for notify 0", text), (
                text
            )


def test_deadlock_of_threads_of_two_processes_names_each_rank() -> None:
    code = """
import threading
from peerlane.rendezvous import Rendezvous
told = []
def work(rank):
    with pl.Group(rank, 3, rendezvous=Rendezvous({address!r}, rank, 3)) as grp:
        channel = grp.channels([(rank + 1) % 3, (rank - 1) % 3])[1]
        try:
            channel.wait(0)
        except pl.Error as error:
            told.append(error)
        grp.barrier()
threads = [threading.Thread(target=work, args=[rank]) for rank in {mine}]
for each in threads:
    each.start()
for each in threads:
    each.join()
raise told[0]
"""
    node = "name=deadlocks-mixed,devices=4"
    with RendezvousServer(3) as server, peer(node) as one, peer(node) as two:
        began = time.monotonic()
        one.send(code.format(address=server.address, mine=[0, 1]))
        two.send(code.format(address=server.address, mine=[2]))
        for text in (deadlock(one, began), deadlock(two, began)):
            for rank, pid in ((0, one.pid), (1, one.pid), (2, two.pid)):
                assert f"rank {rank} (process {pid}): " in text
                assert f"waits for notify 0 from rank {(rank - 1) % 3} to rank {rank}" in text


_PROGRAM = """
import peerlane as pl
with pl.Group() as group:
    channels = group.channels([(group.rank - 1) % group.size, (group.rank + 1) % group.size])
    channels[0].wait(0, timeout=60)
    channels[1].notify(0)
"""


@pytest.mark.any_schedule  # no variable of peerlane reaches these ranks
def test_launch_ranks_in_deadlock_shows_it_once(run: Run, cwd: Path) -> None:
    (cwd / "ring.py").write_text(textwrap.dedent(_PROGRAM))
    done = run("-n", "3", "ring.py")
    assert done.returncode == 1
    (start,) = re.findall(
        "^peerlane launch: a deadlock: ranks 0, 1 and 2 wait in vain.*$", done.stderr, re.MULTILINE
    )
    shown = done.stderr.partition(start)[2].splitlines()[1:4]
    for rank, line in enumerate(shown):
        assert re.match(
            rf"  rank {rank} \(process \d+\): MainThread at ring\.py:5 waits for notify 0 from rank", line
        )
        # Each rank describes only itself.
        assert done.stderr.count(line.partition("): ")[2]) <= 3
    assert "peerlane.errors.Deadlock: " in done.stderr


_WORD = """
import peerlane as pl

with pl.Group(window=4096) as group:
    other = group.channel(1 - group.rank)
    with group.device.create_stream() as stream:
        word = group.device.allocate(8)
        word.fill(0)
        if group.rank == 0:
            pl.raw.wait_value(word.address, 1, stream=stream)
            stream.sync()
        other.wait(0)
"""


@pytest.mark.any_schedule  # no variable of peerlane reaches these ranks
def test_launch_rank_waits_for_its_own_word_is_named_with_the_wait(run: Run, cwd: Path) -> None:
    (cwd / "word.py").write_text(_WORD)
    done = run("-n", "2", "word.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    first = next(i for i, line in enumerate(lines) if "a deadlock: ranks 0 and 1 wait in vain" in line)
    assert re.fullmatch(
        r"  rank 0 \(process \d+\): MainThread at word\.py:11 waits for a word of memory"
        r" \(stream \d+, operation \d+, submitted at word\.py:10\)",
        lines[first + 1],
    )
    assert re.match(
        r"  rank 1 \(process \d+\): MainThread at word\.py:12 waits for notify 0 from rank 0",
        lines[first + 2],
    )


def test_deadlock_text_of_lying_rank_is_cleaned_and_bounded() -> None:
    with ranks(2) as (liar, deceived):
        code = r"""
import time
board = grp._membership.board
board.begin(time.monotonic_ns(), [1], b"\x1b[31mred\xff\x00" + b"\n" * 3000)
end = time.monotonic() + 15
while time.monotonic() < end:
    board.renew(time.monotonic_ns()); time.sleep(0.02)
    if board.is_condemned:
        board.acknowledge()
        end = min(end, time.monotonic() + 2)
"""
        began = time.monotonic()
        deceived.send("ch[0].wait(0, timeout=60)")
        liar.send(code)
        text = deadlock(deceived, began)
        assert "?[31mred\N{REPLACEMENT CHARACTER}?" in text
        assert "\x1b" not in text
        assert len(text) < 4000
        liar.receive()

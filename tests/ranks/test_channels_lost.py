"""Channels between processes: bytes, notifies, and what a rank gets when another rank dies or leaves."""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from os import kill

import pytest

from helpers.peers import Peer, PeerError
from helpers.promised import overdue
from helpers.rank_peers import ask_all, ranks

LOST_SECONDS = 0.5

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


def test_channel_writes_between_processes_arrive_in_both_directions() -> None:
    with ranks(2, options="window=3 << 20") as peers:
        code = """
me, other = grp.rank, 1 - grp.rank
with grp.device.create_stream() as s:
    for number, nbytes in enumerate((1, 8, 4096, 70_000, 3 << 20)):
        src = grp.device.allocate(nbytes); src.fill(10 * number + me)
        ch[other].write(src, notify=0, stream=s)
        ch[other].wait(0, timeout=30)
        assert bytes(grp.window.view()[:nbytes]) == bytes([10 * number + other]) * nbytes
        ch[other].notify(1, stream=s); ch[other].wait(1, stream=s, timeout=30); s.sync()
result = [each.pid for each in grp.members]
"""
        assert ask_all(peers, code) == [[peer.pid for peer in peers]] * 2


def test_channel_write_reduce_of_two_ranks_in_turn_adds_both() -> None:
    with ranks(3) as peers:
        code = """
import numpy as np
me = grp.rank
if me:
    ch[0].wait(0, timeout=30)
    ch[0].write_reduce(np.full(1000, me + 0.5, np.float32), dtype="float32", notify=1)
else:
    grp.window.fill(0)
    for peer in (1, 2):
        ch[peer].notify(0); ch[peer].wait(1, timeout=30)
    assert (grp.window[:4000].view("float32") == 4.0).all()
result = True
"""
        assert ask_all(peers, code) == [True] * 3


def test_channel_window_of_another_process_is_imported_memory() -> None:
    with ranks(2) as (first, second):
        first.run("grp.window.fill(9)")
        code = "out = bytearray(1 << 20); ch[0].read(out); result = set(out) == {9}"
        assert second.run(code)
        assert second.run("result = ch[0].window.is_imported and ch[0].window.size")
        assert first.run("result = grp.window.size") == 1 << 20


def lost(peer: Peer, began: float) -> tuple[str, float]:
    """Return the text of the ``PeerLost`` that a rank got, and after how many seconds it came."""
    with pytest.raises(PeerError) as refused:
        peer.receive()
    assert (refused.value.kind, refused.value.fault) == ("PeerLost", "PEER_LOST"), str(refused.value)
    return str(refused.value), time.monotonic() - began


@pytest.mark.parametrize("streamed", [False, True])
def test_channel_wait_peer_killed_raises_peer_lost_in_time(streamed: bool) -> None:
    with ranks(2) as (waiting, dying):
        waiting.send(
            "s = grp.device.create_stream(); ch[1].wait(2, stream=s); s.sync()"
            if streamed
            else "ch[1].wait(2)"
        )
        time.sleep(0.2)  # most likely it waits by now; if not, it gets the same error
        began = time.monotonic()
        kill(dying.pid, signal.SIGKILL)
        text, seconds = lost(waiting, began)
        assert f"rank 1 (process {dying.pid}) has died" in text
        assert "notify 2 from rank 1 to rank 0" in text
        assert seconds < overdue(LOST_SECONDS)


def test_channel_wait_other_rank_killed_raises_peer_lost_naming_it() -> None:
    with ranks(4) as (a, b, dying, c):
        a.send("ch[1].wait(0)")
        b.send("ch[3].wait(3)")
        c.send("ch[0].wait(1)")
        began = time.monotonic()
        kill(dying.pid, signal.SIGKILL)
        for waiting, awaited in (
            (a, "0 from rank 1 to rank 0"),
            (b, "3 from rank 3 to rank 1"),
            (c, "1 from rank 0"),
        ):
            text, seconds = lost(waiting, began)
            assert f"rank 2 (process {dying.pid}) has died" in text
            assert f"notify {awaited}" in text
            assert seconds < overdue(LOST_SECONDS)


def test_channel_wait_notify_recorded_before_death_is_satisfied() -> None:
    with ranks(2) as (waiting, dying):
        dying.run("ch[0].write(b'last words', notify=1)")
        kill(dying.pid, signal.SIGKILL)
        assert (
            waiting.run("ch[1].wait(1, timeout=10); result = bytes(grp.window.view()[:10]).decode()")
            == "last words"
        )
        waiting.send("ch[1].wait(1)")
        lost(waiting, time.monotonic())


def test_channel_wait_peer_process_closed_its_end_raises_peer_lost() -> None:
    with ranks(3) as (a, b, c):
        a.send("ch[1].wait(0)")
        b.run("ch[0].close()")
        text, _ = lost(a, time.monotonic())
        assert f"rank 1 (process {b.pid}) has closed its end of the channel" in text
        assert c.run("ch[1].notify(0); result = 1") == 1
        b.run("ch[2].wait(0, timeout=10)")


def test_channel_wait_other_rank_left_cleanly_goes_on() -> None:
    with ranks(3) as (a, b, leaving):
        a.send("ch[1].wait(0)")
        leaving.run("grp.close()")
        leaving.close()
        with pytest.raises(PeerError) as refused:
            b.run("ch[2].wait(0)")
        assert f"rank 2 (process {leaving.pid})" in str(refused.value)
        b.run("ch[0].notify(0)")
        a.receive()


def test_channel_wait_other_rank_exited_without_close_goes_on() -> None:
    with ranks(3) as (a, b, leaving):
        a.send("ch[1].wait(0)")
        leaving.close()  # the process ends when its standard input ends
        b.run("ch[0].notify(0)")
        a.receive()


_RING = """
import time
right, left = (grp.rank + 1) % grp.size, (grp.rank - 1) % grp.size
src = grp.device.allocate(64)
s = grp.device.create_stream()
while True:
    ch[right].write(src, notify=0, stream=s)
    ch[left].wait(0, stream=s)
    s.sync()
    ch[left].notify(1)
    ch[right].wait(1)
"""


@pytest.mark.parametrize(
    "rounds", [6, pytest.param(300, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_channel_ring_rank_killed_at_random_survivors_raise_peer_lost(rounds: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    slowest = 0.0
    for _ in range(rounds):
        with ranks(4) as peers:
            for each in peers:
                each.send(_RING)
            threading.Event().wait(dice.random() * 0.05)
            victim = dice.randrange(4)
            began = time.monotonic()
            kill(peers[victim].pid, signal.SIGKILL)
            for number, each in enumerate(peers):
                if number == victim:
                    continue
                text, seconds = lost(each, began)
                slowest = max(slowest, seconds)
                assert re.search(rf"rank {victim} \(process {peers[victim].pid}\) has died", text), text
                assert re.search(r"notify [01] from rank \d to rank \d", text), text
                assert seconds < overdue(LOST_SECONDS)
    print(f"{rounds} rounds, the slowest survivor was told after {slowest:.3f} s")

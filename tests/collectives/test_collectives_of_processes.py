"""Collectives between processes: their results, and what the other ranks get when one dies."""

from __future__ import annotations

import signal
import time
from os import kill
from pathlib import Path

import pytest

from helpers.peers import PeerError
from helpers.promised import overdue
from helpers.rank_peers import ask_all, ranks

LOST_SECONDS = 0.5

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

_EVERYTHING = """
import numpy as np
me, n = grp.rank, grp.size
with grp.device.create_stream() as s:
    for stream in (None, s):
        for count in (2, 5_000, 1_500_000):
            own = [np.random.default_rng(rank).normal(1, 1, count).astype(np.float32) for rank in range(n)]
            want = own[0].copy()
            for each in own[1:]:
                want += each
            for algorithm in (None, "one-shot", "two-shot", "ring"):
                got = grp.device.allocate(4 * count)
                got.copy_from(own[me])
                grp.all_reduce(got, dtype="float32", algorithm=algorithm, stream=stream)
                s.sync()
                assert (got.view("float32") == want).all(), (count, algorithm)
                got.close()
            whole, part = np.zeros((n, count), np.float32), np.zeros(count // n, np.float32)
            grp.all_gather(whole, own[me], stream=stream)
            grp.reduce_scatter(part, own[me][: count // n * n], dtype="float32", stream=stream)
            root = own[me].copy()
            grp.broadcast(root, n - 1, stream=stream)
            swapped = np.zeros((n, count), np.float32)
            grp.all_to_all(swapped, np.stack([own[me] + to for to in range(n)]), stream=stream)
            grp.barrier(stream=stream)
            s.sync()
            assert (whole == np.stack(own)).all()
            assert (part == want[me * part.size : (me + 1) * part.size]).all()
            assert (root == own[n - 1]).all()
            assert (swapped == np.stack([each + me for each in own])).all()
result = True
"""


@pytest.mark.parametrize("options", ["notifies='strict'", "workspace=0"])
@pytest.mark.parametrize("size", [2, 3])
def test_collectives_between_processes_equal_numpy(size: int, options: str) -> None:
    with ranks(size, options=options) as peers:
        assert ask_all(peers, _EVERYTHING) == [True] * size


_HOST_BYTES = """
import numpy as np
me, n = grp.rank, grp.size
for part in BOUND - 8, BOUND, BOUND + 8:
    own = [np.random.default_rng(rank).integers(0, 256, n * part, np.uint8) for rank in range(n)]
    whole, swapped, part_of_last, last = (np.zeros_like(own[0]) for _ in range(4))
    for turn in range(2):  # the first finds out what the system allows
        grp.all_gather(whole, own[me][:part])
        grp.all_to_all(swapped, own[me])
        grp.scatter(part_of_last[:part], own[me] if me == n - 1 else None, n - 1)
        last[:] = own[me]
        grp.broadcast(last, n - 1)
        assert (whole == np.concatenate([each[:part] for each in own])).all(), (part, turn)
        assert (swapped == np.concatenate([each[me * part : (me + 1) * part] for each in own])).all(), (part, turn)
        assert (part_of_last[:part] == own[-1][me * part : (me + 1) * part]).all(), (part, turn)
        assert (last == own[-1]).all(), (part, turn)
        for each in whole, swapped, part_of_last, last:
            each[:] = 0
result = True
"""


@pytest.mark.parametrize(
    ("size", "bound"),
    [(2, 32 << 10), (2, 64 << 10), (2, 1 << 20), (2, 4 << 20), (3, 1 << 20), (5, 512 << 10)],
)
def test_host_bytes_around_the_size_that_is_read_in_place_arrive(size: int, bound: int) -> None:
    with ranks(size) as peers:
        assert ask_all(peers, _HOST_BYTES.replace("BOUND", str(bound))) == [True] * size


_LONG = """
import numpy as np
me, n = grp.rank, grp.size
count = each_part * n
random = np.random.default_rng(5)

def mapped():
    return [line for line in open("/proc/self/maps") if "r--s" in line and "memfd:peerlane" in line]

def data(rank, salt):
    return (np.arange(count, dtype=np.uint32) * (rank + 3) + salt).astype(np.float32)

def own(values, on_device, at=0):
    if not on_device:
        return values.copy()
    made = grp.device.allocate(values.nbytes + at)
    made[at:].copy_from(values)
    return made[at:]

def seen(buffer):
    return buffer if isinstance(buffer, np.ndarray) else buffer.view("float32")

with grp.device.create_stream() as s:
    for turn in range(6):
        stream = (None, s)[turn % 2]
        all_own = [data(rank, turn) for rank in range(n)]
        on_device = turn not in (2, 3) or bool(random.integers(2, size=n)[me])
        part, share = count // n, slice(me * (count // n), (me + 1) * (count // n))
        total = all_own[0].copy()
        for each in all_own[1:]:
            total += each
        src, dst = own(all_own[me], on_device, 64 * turn), own(np.zeros(count, np.float32), on_device)
        grp.all_reduce(dst, src, dtype="float32", stream=stream); s.sync()
        assert (seen(dst) == total).all() and (seen(src) == all_own[me]).all(), turn
        grp.all_reduce(src, dtype="float32", stream=stream); s.sync()
        assert (seen(src) == total).all(), turn
        mine = own(all_own[me], on_device)
        grp.reduce(dst if me == 1 else None, mine, 1, dtype="float32", stream=stream); s.sync()
        assert me != 1 or (seen(dst) == total).all(), turn
        grp.broadcast(mine, turn % n, stream=stream); s.sync()
        assert (seen(mine) == all_own[turn % n]).all(), turn
        rest = own(np.zeros(part, np.float32), on_device)
        grp.scatter(rest, mine if me == 0 else None, stream=stream); s.sync()
        assert (seen(rest) == all_own[turn % n][share]).all(), turn
        whole = own(all_own[me], on_device)
        grp.all_gather(dst, rest, stream=stream); s.sync()
        assert (seen(dst) == all_own[turn % n]).all(), turn
        grp.all_gather(whole, stream=stream); s.sync()
        parts = [each[k * part : (k + 1) * part] for k, each in enumerate(all_own)]
        assert (seen(whole) == np.concatenate(parts)).all(), turn
        again = own(all_own[me], on_device)
        grp.all_to_all(dst, again, stream=stream); s.sync()
        assert (seen(dst) == np.concatenate([each[share] for each in all_own])).all(), turn
        grp.reduce_scatter(rest, again, dtype="float32", stream=stream); s.sync()
        assert (seen(rest) == total[share]).all(), turn
        grp.barrier()
        for each in (src, dst, mine, rest, whole, again):
            if not isinstance(each, np.ndarray):
                each.close()
result = mapped()
"""


@pytest.mark.parametrize("each_part", [1_501, 9_001, 700_001])  # elements: some calls are short, few, none
@pytest.mark.parametrize("size", [2, 3])
def test_long_collectives_read_device_memory_where_it_lies(size: int, each_part: int) -> None:
    with ranks(size) as peers:
        assert all(ask_all(peers, f"each_part = {each_part}\n{_LONG}"))
        assert ask_all(peers, "grp.barrier(); grp.close(); result = mapped()") == [[]] * size


def test_recv_of_dead_rank_whose_channel_was_never_used_names_it() -> None:
    with ranks(2) as (waiting, dying):
        dying.run("from peerlane.collectives.duplicate import Duplicate; Duplicate(grp)")  # offers channels
        dying.kill()
        text = waiting.run(
            "import peerlane as pl\n"
            "from peerlane.collectives.duplicate import Duplicate\n"
            "try:\n"
            "    Duplicate(grp).recv(bytearray(8), 1)\n"
            "except pl.PeerLost as error:\n"
            "    result = str(error)\n"
        )
        assert text == f"rank 1 (process {dying.pid}) has died", text


@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("stream", ["None", "s"])
def test_long_broadcast_raises_peer_lost_when_one_rank_is_killed(
    killed: int, stream: str, tmp_path: Path
) -> None:
    code = """
import numpy as np
words = np.full(16 << 20, grp.rank, np.uint8)
s = grp.device.create_stream()
grp.broadcast(words)
open({path!r}, "w").close()
while True:
    grp.broadcast(words, stream={stream})
    s.sync()
"""
    with ranks(2) as peers:
        begun = [tmp_path / str(rank) for rank in range(2)]
        for each, path in zip(peers, begun, strict=True):
            each.send(code.format(path=str(path), stream=stream))
        deadline = time.monotonic() + 30
        while not all(path.exists() for path in begun):
            assert time.monotonic() < deadline
        began = time.monotonic()
        kill(peers[killed].pid, signal.SIGKILL)
        with pytest.raises(PeerError) as refused:
            peers[1 - killed].receive()
        assert refused.value.kind == "PeerLost", str(refused.value)
        assert time.monotonic() - began < overdue(LOST_SECONDS)


@pytest.mark.parametrize("algorithm", ["one-shot", "two-shot", "ring"])
@pytest.mark.parametrize("stream", ["None", "s"])
def test_all_reduce_rank_killed_raises_peer_lost_in_all_others(algorithm: str, stream: str) -> None:
    code = f"""
import numpy as np
word = np.ones(100_000, np.float32)
s = grp.device.create_stream()
grp.barrier()
while True:
    grp.all_reduce(word, dtype="float32", op="max", algorithm="{algorithm}", stream={stream})
    s.sync()
"""
    with ranks(4) as peers:
        for each in peers:
            each.send(code)
        time.sleep(0.5)  # most likely they are inside a collective by now; if not, they get the same error
        began = time.monotonic()
        kill(peers[2].pid, signal.SIGKILL)
        for each in (peers[0], peers[1], peers[3]):
            with pytest.raises(PeerError) as refused:
                each.receive()
            assert refused.value.kind == "PeerLost", str(refused.value)
        assert time.monotonic() - began < overdue(LOST_SECONDS)


def test_ranks_with_different_processors_take_the_same_rounds() -> None:
    code = """
import os
import numpy as np
if grp.rank == 0:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for count in (1_000, 6_000, 10_000, 100_000):
    word = np.full(count, grp.rank + 1.0, np.float32)
    grp.all_reduce(word, dtype="float32")
    assert (word == 3).all(), count
result = True
"""
    with ranks(2) as peers:
        assert ask_all(peers, code) == [True] * 2


_CREATED = """
import signal
import numpy as np
a = np.zeros(4)
grp.barrier()
grp.{}(a, {})
"""
_SOON = """
def handler(_signal, frame):
    while frame is not None and frame.f_code.co_name != "tried":
        frame = frame.f_back
    if frame is None or frame.f_lineno != frame.f_code.co_firstlineno + 2:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)  # the call has not begun: this process was held up
        return
    {}
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0003)  # before the call sleeps; the handler runs when it does
"""
_TRIED = """
def tried():
    try:
        {}
    except (KeyboardInterrupt, pl.Error) as error:
        return type(error).__name__
result = [tried(), tried()]
"""


@pytest.mark.parametrize(
    ("call", "other"), [("grp.barrier()", "grp.barrier()"), ("grp.recv(a, 1)", "grp.recv(a, 0)")]
)
def test_an_interrupt_before_a_call_sleeps_leaves_no_rank_waiting(call: str, other: str) -> None:
    with ranks(2) as (first, second):
        ask_all([first, second], "grp.barrier()")
        first.send(_CREATED.format("recv", 1))
        second.run(_CREATED.format("send", 0))
        first.receive()
        tried = first.run(_SOON.format("raise KeyboardInterrupt") + _TRIED.format(call))
        assert tried == ["KeyboardInterrupt", "Closed"]
        with pytest.raises(PeerError, match="PeerLost/"):
            second.run(f"{other}; {other}")  # of the first barrier it has been told


def test_a_call_whose_group_is_closed_before_it_sleeps_raises_closed() -> None:
    with ranks(2) as (first, second):
        first.send(_CREATED.format("recv", 1))
        second.run(_CREATED.format("send", 0))
        first.receive()
        first.send(_SOON.format("grp.close()") + _TRIED.format("grp.recv(a, 1)"))
        second.run("grp.close()")
        assert first.receive()[0] in ("Closed", "PeerLost")  # the second: it slept already


def test_a_barrier_in_a_forked_child_is_refused_and_does_not_reach_the_others() -> None:
    with ranks(2) as peers:
        ask_all(peers, "grp.barrier()")
        child = """
from os import _exit, fork, waitpid
if (pid := fork()) == 0:
    try:
        grp.barrier()
    except pl.Closed as error:
        _exit(7 if error.fault is pl.Fault.FORKED else 2)
    _exit(1)
result = waitpid(pid, 0)[1]
"""
        assert peers[0].run(child) == 7 << 8
        more = "import numpy as np; a = np.ones(3); grp.all_reduce(a, dtype='float64'); result = list(a)"
        assert ask_all(peers, more) == [[2.0] * 3] * 2


def test_a_forked_child_that_drops_the_group_keeps_its_own_mappings() -> None:
    created = """
import ctypes, gc
from os import _exit, fork, waitpid
def mapped():
    with open("/proc/self/maps") as lines:
        return {tuple(int(end, 16) for end in line.split()[0].split("-")) for line in lines}
before = mapped()
b = grp.device.allocate(G)
for _ in range(2):
    grp.all_reduce(b, dtype="uint8")
"""
    child = """
if (pid := fork()) == 0:
    mmap = ctypes.CDLL(None).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    fixed = 0x32 | 0x100000  # private and anonymous, nowhere else, and over nothing
    taken = mapped()
    free = [(at, to) for at, to in there if not any(first < to and at < last for first, last in taken)]
    held = [(at, to) for at, to in free if mmap(at, to - at, 3, fixed, -1, 0) == at]
    for each in (grp, ch):
        getattr(each, "__dict__", {}).clear()
    del grp, ch, each
    gc.collect()
    still = mapped()
    _exit(7 if held and all(any(first <= at and to <= last for first, last in still) for at, to in held) else 1)
result = waitpid(pid, 0)[1]
"""
    with ranks(2) as peers:
        ask_all(peers, created)
        assert peers[0].run("there = mapped() - before" + child) == 7 << 8

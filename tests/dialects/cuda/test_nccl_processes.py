"""NCCL between processes, one rank each: bytes, ranks that die, ranks that disagree, ranks that do not come."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dialects.cuda import nccl
from helpers.peers import Peer, peer
from helpers.rank_peers import ask_all

pytestmark = pytest.mark.schedules_in_turn

TESTS = Path(__file__).parents[2]
SECONDS = 10.0  # in which a failure of another rank is seen
_numbers = itertools.count()

BEGIN = f"""
import sys, time
sys.path.insert(0, {str(TESTS)!r})
import ctypes
import numpy as np
from dialects.cuda.nccl import *
driver, library = Driver(), Nccl()
driver.cuInit(0)
COUNT = 1000

def init(number, count, content):
    global me
    me = Rank(driver, number)
    comm = WORD()
    library.ncclCommInitRank(ctypes.byref(comm), count, UniqueId.from_buffer_copy(bytes.fromhex(content)), number)
    me.comm = comm.value
    me.memory = me.buffer(np.full(COUNT, number + 1, "i4"))

def reduce(count=COUNT, comm=None, op=0):
    return code_of(library.ncclAllReduce, me.memory, me.memory, count, 2, op, comm or me.comm, me.stream)

def state(seconds=10.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        is_over = not code_of(driver.cuStreamQuery, me.stream)
        found = library.ncclCommGetAsyncError(me.comm, INT)
        if found or is_over:
            return found
        time.sleep(0.01)
    return -1
"""

#: So often that native code queues the next one without Python, where the schedule lets it.
REPEATED = "[reduce() for _ in range(4)]; driver.cuStreamSynchronize(me.stream)"

Start = Callable[[int], "list[Peer]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the processes of a communicator, with ``me``, their rank."""
    with ExitStack() as ended:

        def make(count: int, *, ranks: int = 0) -> list[Peer]:
            spec = f"name=nccl-{os.getpid()}-{next(_numbers)},devices={count}"
            peers = [ended.enter_context(peer(spec)) for _ in range(count)]
            ask_all(peers, BEGIN)
            return peers

        yield make


def meet(peers: list[Peer], count: int = 0) -> None:
    content = peers[0].run("result = bytes(library.unique_id()).hex()")
    for number, each in enumerate(peers):
        each.send(f"init({number}, {count or len(peers)}, {content!r})")
    for each in peers:
        each.receive()


def test_collectives_and_messages_go_between_processes(start: Start) -> None:
    peers = start(3)
    meet(peers)
    assert (
        ask_all(peers, "result = [reduce(), me.read(me.memory, np.zeros(3, 'i4')).tolist()]")
        == [[0, [6] * 3]] * 3
    )
    exchanged = """
other = me.buffer(np.zeros(COUNT, "i4"))
with library.group():
    library.ncclSend(me.memory, COUNT, 2, (me.number + 1) % 3, me.comm, me.stream)
    library.ncclRecv(other, COUNT, 2, (me.number - 1) % 3, me.comm, me.stream)
result = me.read(other, np.zeros(3, "i4")).tolist()
"""
    ask_all(peers, "me.memory = me.buffer(np.full(COUNT, me.number, 'i4'))")
    assert ask_all(peers, exchanged) == [[2] * 3, [0] * 3, [1] * 3]
    ask_all(peers, "library.ncclCommFinalize(me.comm); library.ncclCommDestroy(me.comm)")


def test_windows_go_between_processes(start: Start) -> None:
    peers = start(2)
    meet(peers)
    ask_all(
        peers,
        """
memory = library.ncclMemAlloc(WORD, 8192)
driver.cuMemcpyHtoD_v2(memory, np.full(8192, me.number + 5, np.uint8).ctypes.data, 8192)
data = np.full(8192, me.number + 5, np.uint8)
driver.cuMemcpyHtoD_v2(memory, data.ctypes.data, 8192)
window = library.ncclCommWindowRegister(me.comm, memory, 8192, WORD, 0)
""",
    )
    put = """
for step in range(5):
    library.ncclPutSignal(memory, 64, 1, 1 - me.number, window, 4096 + 64 * step, 0, 0, 0, me.comm, me.stream)
descs = (WaitSignalDesc * 1)(WaitSignalDesc(5, 1 - me.number))
library.ncclWaitSignal(1, descs, me.comm, me.stream)
result = sorted(set(me.read(memory, data)[4096:4416].tolist()))
"""
    assert ask_all(peers, put) == [[6], [5]]
    ask_all(peers, "library.ncclCommWindowDeregister(me.comm, window); library.ncclCommDestroy(me.comm)")


def test_rank_that_dies_is_a_remote_error_of_those_that_wait(start: Start) -> None:
    peers = start(3)
    meet(peers)
    ask_all(peers, REPEATED)
    for each in peers[:2]:
        assert each.run("result = reduce()") == 0
    peers[2].kill()
    began = time.monotonic()
    assert ask_all(peers[:2], "result = state()") == [nccl.REMOTE_ERROR] * 2
    assert time.monotonic() - began < SECONDS
    assert "rank 2" in peers[0].run("result = library.last_error(me.comm)")
    assert peers[0].run("result = code_of(driver.cuStreamSynchronize, me.stream)")
    assert peers[0].run("result = reduce()") == nccl.REMOTE_ERROR
    ask_all(peers[:2], "library.ncclCommAbort(me.comm)")


@pytest.mark.parametrize("before", ["", REPEATED], ids=["first call", "repeated"])
@pytest.mark.parametrize("end", ["ncclCommFinalize", "ncclCommDestroy", "ncclCommAbort"])
def test_rank_that_has_ended_its_communicator_is_named(start: Start, end: str, before: str) -> None:
    peers = start(3)
    meet(peers)
    ask_all(peers, before)
    assert peers[0].run("result = reduce()") == 0
    peers[1].run(f"library.{end}(me.comm)")
    assert peers[2].run("result = reduce()") in (0, nccl.REMOTE_ERROR)
    others = [peers[0], peers[2]]
    began = time.monotonic()
    assert ask_all(others, "result = state()") == [nccl.REMOTE_ERROR] * 2
    assert time.monotonic() - began < SECONDS
    for text in ask_all(others, "result = library.last_error(me.comm)"):
        assert "rank 1 has finalized or ended the communicator" in text
    assert ask_all(others, "result = reduce()") == [nccl.REMOTE_ERROR] * 2
    for text in ask_all(others, "result = library.last_error(me.comm)"):
        assert "rank 1 has finalized or ended the communicator" in text


@pytest.mark.parametrize(
    "call",
    [
        "code_of(library.ncclSend, long, 1 << 20, 2, 1, me.comm, me.stream)",
        "code_of(library.ncclRecv, me.memory, COUNT, 2, 1, me.comm, me.stream)",
        "code_of(library.ncclWaitSignal, 1, (WaitSignalDesc * 1)(WaitSignalDesc(1, 1)), me.comm, me.stream)",
        "code_of(library.ncclPutSignal, memory, 64, 1, 1, window, 64, 0, 0, 0, me.comm, me.stream)",
        "code_of(library.ncclCommSplit, me.comm, 0, 0, ctypes.byref(WORD()), None)",
        "code_of(library.ncclCommWindowRegister, me.comm, memory + 4096, 4096, ctypes.byref(WORD()), 0)",
    ],
    ids=["send", "receive", "signal", "put", "split", "window"],
)
def test_call_for_a_rank_that_has_finalized_fails(start: Start, call: str) -> None:
    peers = start(2)
    meet(peers)
    ask_all(
        peers,
        "long = me.buffer(np.zeros(1 << 20, 'i4'))\n"  # a send of it waits for the receiver
        "memory = library.ncclMemAlloc(WORD, 8192)\n"
        "window = library.ncclCommWindowRegister(me.comm, memory, 4096, WORD, 0)",
    )
    peers[1].run("library.ncclCommFinalize(me.comm)")
    began = time.monotonic()
    assert peers[0].run(f"result = {call} or state()") == nccl.REMOTE_ERROR
    assert time.monotonic() - began < SECONDS
    assert "rank 1" in peers[0].run("result = library.last_error(me.comm)")
    peers[1].run("library.ncclCommWindowDeregister(me.comm, window); library.ncclCommDestroy(me.comm)")


def test_finalize_in_all_ranks_waits_for_none_that_still_runs_a_collective(start: Start) -> None:
    peers = start(3)
    meet(peers)
    for each in peers:
        each.send(
            "codes = [reduce(op=2) for _ in range(20)]; library.ncclCommFinalize(me.comm); result = codes"
        )
    assert [each.receive(SECONDS) for each in peers] == [[0] * 20] * 3
    read = "result = me.read(me.memory, np.zeros(1, 'i4')).tolist()"
    assert ask_all(peers, read) == [[3]] * 3
    assert ask_all(peers, "result = library.ncclCommGetAsyncError(me.comm, INT)") == [0] * 3
    ask_all(peers, "library.ncclCommDestroy(me.comm)")


def test_synchronization_of_a_stream_ends_when_a_rank_dies(start: Start) -> None:
    peers = start(2)
    meet(peers)
    ask_all(peers, REPEATED)
    peers[0].run("reduce()")
    peers[0].send("result = code_of(driver.cuStreamSynchronize, me.stream)")
    assert not peers[0].has_answered(0.3)
    peers[1].kill()
    assert peers[0].receive(SECONDS)
    assert peers[0].run("result = library.ncclCommGetAsyncError(me.comm, INT)") == nccl.REMOTE_ERROR


@pytest.mark.parametrize("dead", [0, 1])
def test_shrink_goes_on_without_a_rank_that_died(start: Start, dead: int) -> None:
    peers = start(3)
    meet(peers)
    left = [number for number in range(3) if number != dead]
    for number in left:
        peers[number].run("reduce()")
    peers[dead].kill()
    for number in left:
        assert peers[number].run("result = state()") == nccl.REMOTE_ERROR
    shrink = f"""
made, without = WORD(), (INT * 1)({dead})
library.ncclCommShrink(me.comm, without, 1, ctypes.byref(made), None, 1)
me.memory = me.buffer(np.full(COUNT, me.number + 1, "i4"))
result = [reduce(comm=made.value), me.read(me.memory, np.zeros(2, "i4")).tolist()]
library.ncclCommAbort(me.comm)
library.ncclCommDestroy(made.value)
"""
    survivors = [peers[number] for number in left]
    assert ask_all(survivors, shrink) == [[0, [sum(number + 1 for number in left)] * 2]] * 2


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            "reduce()",
            "reduce(count=999)",
            ("rank 0 calls all_reduce of 4,000", "rank 1 calls all_reduce of 3,996"),
        ),
        ("reduce()", "reduce(op=2)", ("sum of int32", "max of int32")),
        (
            "reduce()",
            "code_of(library.ncclBcast, me.memory, COUNT, 2, 0, me.comm, me.stream)",
            ("rank 0 calls all_reduce", "rank 1 calls broadcast"),
        ),
    ],
)
def test_ranks_that_disagree_get_an_error_that_names_both(
    start: Start, first: str, second: str, words: tuple[str, ...]
) -> None:
    peers = start(2)
    meet(peers)
    assert peers[0].run(f"result = {first}") == 0
    assert peers[1].run(f"result = {second}") == nccl.INVALID_USAGE
    text = peers[1].run("result = library.last_error(me.comm)")
    assert all(each in text for each in words), text
    assert peers[1].run("result = state()") == nccl.INVALID_USAGE
    assert peers[0].run("result = state()") == nccl.REMOTE_ERROR
    assert "rank 1" in peers[0].run("result = library.last_error(me.comm)")


def test_message_of_another_size_is_named(start: Start) -> None:
    peers = start(2)
    meet(peers)
    assert peers[0].run("result = code_of(library.ncclSend, me.memory, 10, 2, 1, me.comm, me.stream)") == 0
    code = peers[1].run("result = code_of(library.ncclRecv, me.memory, 11, 2, 0, me.comm, me.stream)")
    assert code == nccl.INVALID_USAGE
    text = peers[1].run("result = library.last_error(me.comm)")
    assert "sends 40 bytes" in text and "receives 44" in text


def test_rank_that_dies_before_it_comes_ends_the_others_init(start: Start) -> None:
    peers = start(3)
    content = peers[0].run("result = bytes(library.unique_id()).hex()")
    for number, each in enumerate(peers[:2]):
        each.send(f"result = code_of(init, {number}, 3, {content!r})")
    assert not peers[0].has_answered(0.3)
    peers[0].kill()
    assert peers[1].receive(SECONDS) in (nccl.REMOTE_ERROR, nccl.TIMEOUT)


def test_init_that_waits_for_a_rank_can_be_aborted(start: Start) -> None:
    peers = start(2)
    code = """
config, comm = Config(blocking=0), WORD()
unique_id = library.unique_id()
began = code_of(library.ncclCommInitRankConfig, ctypes.byref(comm), 2, unique_id, 0, ctypes.byref(config))
waiting = library.ncclCommGetAsyncError(comm.value, INT)
library.ncclCommAbort(comm.value)
result = [began, waiting]
"""
    driver = "driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(WORD, 0))"
    peers[0].run(driver)
    assert peers[0].run(code) == [nccl.IN_PROGRESS, nccl.IN_PROGRESS]

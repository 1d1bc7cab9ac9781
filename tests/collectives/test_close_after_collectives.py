"""A rank that closes its group leaves nobody without the bytes that its collectives have sent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import Peer
from helpers.rank_peers import ranks
from helpers.threads_as_ranks import run_ranks

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

QUIET = 0.5  # seconds in which a close that waits for nobody would have ended
SENT = "import numpy as np; sent = np.arange(64, dtype='int32'); "
GIVES = {
    "broadcast": "grp.broadcast(sent); ",
    "send": "grp.send(sent, 1); ",
    "broadcast on a stream": (
        "stream = grp.device.create_stream(); grp.broadcast(sent, stream=stream); stream.sync(); "
    ),
}
TAKES = "import numpy as np; taken = np.zeros(64, 'int32'); grp.{}; result = taken.tolist()"
#: The receiver waits, once it has offered its channels, and before it opens those of the sender.
WAITS = """
import os
from peerlane.collectives.peer_channels import Channels
opened = Channels._channel_to
def late(*words):
    Channels._channel_to = opened
    os.close(os.open({gate!r}, os.O_RDONLY))  # until the test opens it, too
    return opened(*words)
Channels._channel_to = late
result = None
"""


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """Return a pipe, at which the receiver waits."""
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    return path


def let_go(gate: str) -> None:
    os.close(os.open(gate, os.O_WRONLY))


def ask(peer: Peer, code: str) -> object:
    """Run code in a process and return its ``result``."""
    peer.send(code)
    return peer.receive()


def receiving(call: str) -> str:
    return TAKES.format("recv(taken, 0)" if call == "send" else "broadcast(taken)")


@pytest.mark.parametrize("call", GIVES)
def test_sender_closes_while_the_receiver_begins_and_the_bytes_arrive(call: str, gate: str) -> None:
    with ranks(2) as (sender, receiver):
        ask(receiver, WAITS.format(gate=gate))
        receiver.send(receiving(call))
        sender.send(SENT + GIVES[call] + "grp.close(); result = grp.is_closed")
        assert not sender.has_answered(QUIET)
        let_go(gate)
        assert receiver.receive() == list(range(64))
        assert sender.receive() is True


def test_close_does_not_wait_for_a_rank_that_dies_while_it_begins(gate: str) -> None:
    with ranks(2) as (sender, receiver):
        ask(receiver, WAITS.format(gate=gate))
        receiver.send(receiving("broadcast"))
        sender.send(SENT + GIVES["broadcast"] + "grp.close(); result = grp.is_closed")
        assert not sender.has_answered(QUIET)
        os.kill(receiver.pid, signal.SIGKILL)
        assert sender.receive() is True


def test_block_that_ends_with_an_error_waits_for_nobody(gate: str) -> None:
    code = (
        SENT
        + f"""
try:
    with grp:
        {GIVES["broadcast"]}
        raise KeyError("own")
except KeyError as error:
    result = grp.is_closed, str(error)
"""
    )
    with ranks(2) as (sender, receiver):
        ask(receiver, WAITS.format(gate=gate))
        receiver.send(receiving("broadcast"))
        assert ask(sender, code) == [True, "'own'"]
        let_go(gate)


@pytest.mark.parametrize("size", [2, 3])
def test_threads_that_broadcast_and_close_leave_the_bytes_for_the_others(size: int) -> None:
    def program(group: pl.Group) -> list[int]:
        numbers = np.arange(8) if group.rank == 0 else np.zeros(8, np.int64)
        group.broadcast(numbers)
        return numbers.tolist()

    for _ in range(10):
        assert run_ranks(size, program, ends_together=False) == [list(range(8))] * size

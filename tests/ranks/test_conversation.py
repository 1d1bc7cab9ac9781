"""Messages of a group's ranks: how a rank waits for one."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

import peerlane as pl
from peerlane.diagnostics.waits import store_waits
from peerlane.ranks.conversation import Conversation
from peerlane.ranks.deadlock import detect

pytestmark = pytest.mark.any_schedule


class Line:
    """A rendezvous at which a message never comes."""

    rank, size, address = 0, 2, "here"

    def __init__(self) -> None:
        self.asked: list[float] = []

    def get(self, _key: str, *, timeout: float) -> bytes:
        """Note the request; look once, as the client does while a request waits."""
        self.asked.append(timeout)
        detect.look_from_rendezvous(next(iter(store_waits.waiting.values())))
        raise pl.WaitTimeout("nobody has put it")


class Left:
    """The membership of a group that every other rank has closed."""

    local_ranks = frozenset((0, 1))

    def has_left(self, _rank: int) -> bool:
        """Return True."""
        return True


def session_at(line: Line, membership: Left | None = None) -> Any:
    """Return a session of two ranks, as rank 0."""
    return SimpleNamespace(
        _meeting=SimpleNamespace(rendezvous=line),
        _key="g.0",
        _membership=membership,
        _numbers=None,
        _check_open=lambda _call: None,
        members=[SimpleNamespace(pid_here=0)] * 2,
        name="g",
        rank=0,
        size=2,
    )


def test_receive_message_that_never_comes_is_one_request_of_whole_timeout() -> None:
    """Between two requests the server does not know that this rank waits, and would name no deadlock."""
    line = Line()
    with pytest.raises(pl.WaitTimeout, match=r"rank 1 did not come within (100|9\d(\.\d)?) s"):
        Conversation(session_at(line)).receive("Group", "hello", 1, time.monotonic() + 100)
    (timeout,) = line.asked
    assert 90 <= timeout <= 100


def test_receive_peer_that_has_left_asks_once_for_its_earlier_messages() -> None:
    line = Line()
    with pytest.raises(pl.PeerLost, match="rank 1 did not come: it has closed its group"):
        Conversation(session_at(line, Left())).receive("Group.channel", "invite.1", 1, time.monotonic() + 60)
    assert line.asked == [0]

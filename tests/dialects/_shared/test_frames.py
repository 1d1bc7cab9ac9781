"""Frames over TCP: a deadline of the whole frame."""

from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from helpers.promised import overdue
from peerlane.dialects._shared import frames

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]

MAGIC = b"pltest-1"


def test_frame_that_comes_in_time_is_received_and_leaves_the_time_out() -> None:
    one, other = socket.socketpair()
    with one, other:
        frames.send(other, MAGIC, "BODY", b"a" * 1000)
        assert frames.receive(one, MAGIC, 5.0) == (b"BODY", b"a" * 1000)
        assert one.gettimeout() == 5.0
        frames.send(other, MAGIC, "NONE")
        assert frames.receive(one, MAGIC, 4.0, may_idle=True) == (b"NONE", b"")


@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_frame_of_which_a_byte_comes_at_a_time_ends_at_its_deadline(pause: float) -> None:
    one, other = socket.socketpair()
    is_over = threading.Event()

    def dribble() -> None:
        other.sendall(struct.pack("<8s4sI", MAGIC, b"BODY", frames.MOST))
        while not is_over.wait(pause):
            try:
                other.sendall(b"b")
            except OSError:
                return

    thread = threading.Thread(target=dribble, daemon=True)
    with other:
        thread.start()
        begin = time.monotonic()
        with one, pytest.raises(TimeoutError):
            frames.receive(one, MAGIC, 0.5)
        is_over.set()
        thread.join(10)
    assert time.monotonic() - begin < overdue(0.5)

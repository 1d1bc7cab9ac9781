"""Ranks of a group, each a process that runs code for a test."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence

from helpers.peers import Peer, peer
from peerlane.rendezvous import RendezvousServer

QUIET = 3.5  # seconds in which a deadlock would have been told
_numbers = itertools.count()


def ask_all(peers: Sequence[Peer], code: str) -> list[object]:
    """Run code in all processes at the same time; return the ``result`` of each."""
    for each in peers:
        each.send(code)
    return [each.receive() for each in peers]


def wait_on(peers: Sequence[Peer], codes: Sequence[str]) -> None:
    """Let the processes run their code, whose waits are without time-out; check that all of them wait on."""
    for each, code in zip(peers, codes, strict=True):
        each.send(code)
    until = time.monotonic() + QUIET
    for each in peers:
        if each.has_answered(max(0.0, until - time.monotonic())):
            raise AssertionError(f"a wait has ended: {each.receive()}")


@contextlib.contextmanager
def ranks(size: int, *, options: str = "", spec: str = "devices=4") -> Iterator[list[Peer]]:
    """Start processes with ``grp``, their group, and ``ch``, the channels to the other ranks."""
    node = f"name=ranks-{os.getpid()}-{next(_numbers)},{spec}"
    with RendezvousServer(size) as server, contextlib.ExitStack() as ended:
        peers = [ended.enter_context(peer(node, **server.environment(rank))) for rank in range(size)]
        ask_all(peers, f"grp = pl.Group({options}); ch = grp.channels(range({size}), notifies=4)")
        yield peers

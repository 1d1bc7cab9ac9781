"""Ranks of a group, each a process that runs code for a test."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence

from helpers.peers import Peer, peer
from peerlane.rendezvous import RendezvousServer

_numbers = itertools.count()


def ask_all(peers: Sequence[Peer], code: str) -> list[object]:
    """Run code in all processes at the same time; return the ``result`` of each."""
    for each in peers:
        each.send(code)
    return [each.receive() for each in peers]


@contextlib.contextmanager
def ranks(size: int, *, options: str = "", spec: str = "devices=4") -> Iterator[list[Peer]]:
    """Start processes with ``grp``, their group, and ``ch``, the channels to the other ranks."""
    node = f"name=ranks-{os.getpid()}-{next(_numbers)},{spec}"
    with RendezvousServer(size) as server, contextlib.ExitStack() as ended:
        peers = [ended.enter_context(peer(node, **server.environment(rank))) for rank in range(size)]
        ask_all(peers, f"grp = pl.Group({options}); ch = grp.channels(range({size}), notifies=4)")
        yield peers

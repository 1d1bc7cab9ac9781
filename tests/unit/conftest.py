"""Two processes of one node, for whatever they share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import peerlane as pl
from helpers.peers import Peer, peer
from helpers.promises import Node


@pytest.fixture
def shared(node: Node) -> Iterator[tuple[pl.Device, pl.Device, Peer]]:
    """Enter a fresh node of two devices; the third is another process there."""
    spec = f"name=shared-{os.getpid()},devices=2"
    d0, d1 = node(spec)
    with peer(spec) as other:
        yield d0, d1, other


@pytest.fixture
def alone(node: Node) -> pl.Channel:
    """A channel of a rank to itself."""
    node("devices=2")
    group = pl.Group(0, 1, rendezvous=lambda value: [value], window=4096)
    return group.channel(0, notifies=4)

"""Texts of failures: whatever a program does, they are short, and name what came first."""

from __future__ import annotations

import itertools

import pytest

import peerlane as pl
from helpers.promises import Node, fails, parked

pytestmark = pytest.mark.timeout(60)


def test_a_failure_that_passed_thousands_of_streams_names_the_first(node: Node) -> None:
    d0, _ = node()
    streams = [d0.create_stream() for _ in range(3000)]
    parked(streams[0])
    for before, behind in itertools.pairwise(streams):
        behind.wait(before)
    last = streams[-1].record()
    streams[0].abort()
    for wait in (streams[-1].sync, last.sync):
        with pytest.raises(pl.Cancelled, match="the stream was aborted") as refused:
            wait(timeout=20)
        assert len(str(refused.value)) < 5000


def test_a_failure_handed_on_for_ever_stays_short(node: Node) -> None:
    d0, d1 = node()
    s, t = d0.create_stream(), d1.create_stream()
    fails(s)
    event = s.record()
    with pytest.raises(pl.BadAddress):
        s.sync(timeout=20)
    for _ in range(1000):
        s, t = t, s
        s.wait(event)
        event = s.record()
        with pytest.raises(pl.Cancelled, match="cannot be touched") as refused:
            s.sync(timeout=20)
        assert len(str(refused.value)) < 5000

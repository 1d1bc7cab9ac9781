"""Texts of failures stay short, and name the first cause, whatever a program does."""

from __future__ import annotations

import itertools

import pytest

import peerlane as pl
from helpers.promises import Node, fails, parked, timed_out

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(60)]


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Nameless:
    def __call__(self) -> None:
        raise ValueError("by hand")

    def __repr__(self) -> str:
        raise RuntimeError("no name")


def test_callback_with_failing_str_or_repr_is_still_reported(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()

    def raises() -> None:
        raise _Unspeakable

    s.launch_callback(raises)
    with pytest.raises(
        pl.DeviceFault, match=r"raises raised _Unspeakable \(its text raised RuntimeError"
    ) as failed:
        s.sync(timeout=20)
    assert isinstance(failed.value.__cause__, _Unspeakable)
    s.launch_callback(_Nameless())
    with pytest.raises(pl.DeviceFault, match="a _Nameless raised ValueError: by hand"):
        s.sync(timeout=20)


def test_failure_passed_through_3000_streams_names_first_cause(node: Node) -> None:
    d0, _ = node()
    streams = [d0.create_stream() for _ in range(3000)]
    parked(streams[0])
    for before, behind in itertools.pairwise(streams):
        behind.wait(before)
    last = streams[-1].record()
    streams[0].abort()
    for wait in (last.sync, *(stream.sync for stream in reversed(streams))):
        with pytest.raises(pl.Cancelled, match="the stream was aborted") as refused:
            wait(timeout=20)
        assert len(str(refused.value)) < 5000


def test_failure_passed_on_1000_times_keeps_text_short(node: Node) -> None:
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


def test_sync_timeout_among_500_streams_names_own_chain_first(node: Node) -> None:
    d0, _ = node()
    others = [d0.create_stream() for _ in range(500)]
    s, t, u = (d0.create_stream() for _ in range(3))
    gate = parked(*others, s)
    t.wait(s)
    u.wait(t)
    text = timed_out(lambda: u.sync(timeout=0.01))
    named = [text.find(f"stream {each.id} at operation 1 waits") for each in (u, t, s)]
    assert -1 not in named
    assert named == sorted(named)
    assert "and 487 more streams" in text
    for _ in range(501):
        gate.record()
    u.sync(timeout=20)

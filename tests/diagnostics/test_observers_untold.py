"""Operations happen also where the observer cannot be called."""

from __future__ import annotations

import gc

import pytest

import peerlane as pl
from helpers.promises import Node, parked
from peerlane import _core
from peerlane.diagnostics.log.observers import Recorder

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(60)]


def test_observer_removed_by_collection_during_submit_is_harmless(node: Node) -> None:
    """Making the observer's arguments may collect garbage, and its finalizer removes the observer."""
    d0, _ = node()
    a, b, s = d0.allocate(64), d0.allocate(64), d0.create_stream()

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            pl.set_observer(None)

    before, thresholds, began = gc.get_threshold(), range(1, 60), s.submitted
    gc.collect()
    gc.freeze()  # else each collection visits the objects of all tests
    try:
        for threshold in thresholds:
            gc.collect()
            pl.set_observer(Recorder())
            Garbage()
            gc.set_threshold(threshold)
            pl.copy(a, b, stream=s)
            pl.copy(a, b)
            gc.set_threshold(100_000)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
        gc.collect()
        pl.set_observer(None)
    assert s.submitted - began == len(thresholds)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_submit_without_memory_for_observer_raises_only_if_not_submitted(node: Node) -> None:
    """A call that raises has submitted nothing; a call that has submitted an operation does not raise."""
    testcapi = pytest.importorskip(
        "_testcapi", reason="this Python has no _testcapi, whose allocations can fail"
    )
    d0, _ = node()
    a, b, s = d0.allocate(1 << 20), d0.allocate(1 << 20), d0.create_stream()
    gate = parked(s)
    assert pl.set_observer(Recorder()) is None
    try:
        for last in range(40):
            before, has_raised = s.submitted, False
            testcapi.set_nomemory(last, last + 1)
            try:
                _core.submit_copy(s, a, b)
            except MemoryError:
                has_raised = True
            finally:
                testcapi.remove_mem_hooks()
            assert s.submitted - before == (0 if has_raised else 1), last
    finally:
        pl.set_observer(None)
        gate.record()
    s.sync(20)

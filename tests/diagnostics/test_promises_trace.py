"""The promises of docs/errors.md on traces."""

from __future__ import annotations

from pathlib import Path

import pytest

import peerlane as pl
from helpers.promises import Node, filled
from peerlane import trace


@pytest.mark.timeout(60)
def test_recording_twice_raises_busy_and_first_goes_on(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 8, 1), filled(d0, 8, 2)
    with trace.recording() as timeline:
        with pytest.raises(pl.Busy, match="end its block first"), trace.recording():
            raise AssertionError
        with d0.create_stream() as stream:
            pl.copy(b, a, stream=stream)
    assert len(timeline.operations) == 1


def test_trace_write_to_missing_folder_raises_os_error(tmp_path: Path) -> None:
    with trace.recording() as timeline:
        pass
    with pytest.raises(FileNotFoundError):
        timeline.write(tmp_path / "no" / "such.json")
    timeline.write(tmp_path / "such.json")

"""How fast the analysis is, and how much memory it takes."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from checker.load import measure, write

pytestmark = pytest.mark.any_schedule


def _measured(folder: Path, events: int) -> tuple[float, int, dict[str, int], int]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measure, write(folder, 4, events)).result(timeout=110)


def test_load_of_100_000_events_has_no_finding(tmp_path: Path) -> None:
    _, _, stats, found = _measured(tmp_path, 100_000)
    assert (stats["events"], stats["unexplained"], stats["waiting"], found) == (100_000, 0, 0, 0)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_load_of_ten_million_events_takes_30_seconds_and_a_gibibyte(tmp_path: Path) -> None:
    seconds, peak, stats, found = _measured(tmp_path, 10_000_000)
    print(f"{seconds:.1f} s of processor, {peak} MiB, {os.cpu_count()} processors, {stats}")
    assert (stats["events"], stats["forgotten"], found) == (10_000_000, 0, 0)
    assert seconds <= 30
    assert peak <= 1024

"""How fast the analysis is, and how much memory it takes."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from checker.load import grown, lives, measure, write, write_log

pytestmark = pytest.mark.any_schedule


def _measured(folder: Path, events: int, timeout: float = 110) -> tuple[float, int, dict[str, int], int]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measure, write(folder, 4, events)).result(timeout=timeout)


def test_load_of_100_000_events_has_no_finding(tmp_path: Path) -> None:
    _, _, stats, findings = _measured(tmp_path, 100_000)
    assert (stats["events"], stats["unexplained"], stats["waiting"], findings) == (100_000, 0, 0, 0)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_load_of_ten_million_events_takes_30_seconds_and_a_gibibyte(tmp_path: Path) -> None:
    seconds, peak, stats, findings = _measured(tmp_path, 10_000_000, timeout=550)
    print(f"{seconds:.1f} s of processor, {peak} MiB, {os.cpu_count()} processors, {stats}")
    assert (stats["events"], stats["forgotten"], findings) == (10_000_000, 0, 0)
    assert seconds <= 30
    assert peak <= 1024


def _grown(path: Path, count: int) -> tuple[list[int], dict[str, int], int]:
    events = lives(count)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(grown, write_log(path, 0, events), len(events), 6).result(timeout=500)


def test_threads_streams_memory_and_channels_that_have_gone_leave_no_actor(tmp_path: Path) -> None:
    _, stats, findings = _grown(tmp_path / "0.log", 10_000)
    assert (stats["unexplained"], stats["forgotten"], findings) == (0, 0, 0)
    assert stats["compactions"] > 1
    assert stats["actors"] < 10_000  # of 50,000


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_analysis_of_what_comes_and_goes_does_not_grow(tmp_path: Path) -> None:
    memory, stats, findings = _grown(tmp_path / "0.log", 600_000)
    print(f"{memory} MiB, {stats}")
    assert (stats["unexplained"], stats["forgotten"], findings) == (0, 0, 0)
    assert memory[-1] <= 1.25 * memory[1]

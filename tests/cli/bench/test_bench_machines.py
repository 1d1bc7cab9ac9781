"""``peerlane bench machines``: what it measures, where there are two networks and where there are not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.absent import needs_engine
from peerlane.cli import main
from peerlane.cli.bench import machines
from peerlane.cli.bench import rival_processes as rivals
from peerlane.cli.bench.networks import NoNetwork
from peerlane.cli.bench.rival_libraries import ALL_REDUCE, MESSAGE

pytestmark = [
    pytest.mark.any_schedule,
    pytest.mark.timeout(180),
    needs_engine,
]


@contextlib.contextmanager
def no_network() -> Iterator[None]:
    raise NoNetwork("this user is not root")
    yield


def test_loopback_serves_where_no_network_can_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rivals, "RIVALS", {})
    monkeypatch.setattr(machines, "other_network", no_network)
    monkeypatch.setattr(machines, "_MESSAGES", 20)
    monkeypatch.setattr(machines, "_STREAMS", (64 << 10, 1 << 20))
    said = tmp_path / "said.json"
    assert main(["bench", "machines", "--rounds", "1", "--json", str(said)]) == 0
    told = json.loads(said.read_text())
    assert [(each["case"], each["why"]) for each in told["skipped"]] == [
        ("two networks; the loopback instead", "this user is not root")
    ]
    assert [(each["contender"], each["reference"]) for each in told["figures"]] == [
        ("peerlane", "tcp"),
        ("peerlane", "tcp"),
        ("peerlane, 64 KiB at a time", "tcp"),
        ("peerlane, 64 KiB at a time", "peerlane, 1 MiB at a time"),
        ("peerlane, 1 MiB at a time", "tcp"),
    ]
    assert all(each["seconds"] > 0 for each in told["figures"])
    assert [each["id"] for each in told["bars"]] == ["machines", "machines"]


def test_ranks_of_all_reduce_lie_on_both_machines() -> None:
    sides = [machines._Machine("127.0.0.1", "lo")] * 2
    found = rivals.run_apart("peerlane", ALL_REDUCE, [(4096, 2)], machines._places(sides, 2))
    assert [len(each) for each in found.values()] == [1]


def test_contender_that_fails_is_skipped_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLANE_UCX", "/no/such/library.so")
    sides = [machines._Machine("127.0.0.1", "lo")] * 2
    with pytest.raises(rivals.RivalFailed, match=r"pip install peerlane\[ucx\]"):
        rivals.run_apart("peerlane", MESSAGE, [(8, 2)], machines._places(sides, 1))

"""``python -m benchmarks share``: its cases, and its check of the importer's bytes. No test depends on speed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import peerlane as pl
from benchmarks import bars, seams, shares
from peerlane.cli.bench import NODE, plan

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


@pytest.fixture
def devices() -> Iterator[tuple[pl.Device, ...]]:
    yield pl.enter_node(NODE)
    pl.leave_node()


@pytest.fixture
def importer(devices: tuple[pl.Device, ...]) -> Iterator[shares.Importer]:
    with ExitStack() as stack:
        yield shares.Importer(NODE, stack)


def quiet_plan() -> plan.Plan:
    return plan.Plan(sizes=(), rounds=1, show=lambda words: None)


def test_share_measures_each_size_idle_and_busy(
    devices: tuple[pl.Device, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shares._SIZES, "1 GiB", 4 << 20)
    figures, skips = shares.measure(quiet_plan(), devices, NODE, shares=1, blocks=4)
    assert not skips
    wanted = [(bar.case, bar.contender) for bar in bars.BARS if bar.id in ("P7", "P7b")]
    assert sorted((figure.case, figure.contender) for figure in figures) == sorted(wanted)
    assert {figure.reference for figure in figures if figure.kind == "time"} == {
        "raw memfd, SCM_RIGHTS, mmap"
    }
    assert all(figure.ratio > 0 for figure in figures)


def test_share_without_memory_skips_case_by_name(
    devices: tuple[pl.Device, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerlane.cli.machine.room", lambda: 1000)
    figures, skips = shares.measure(quiet_plan(), devices, NODE, shares=1)
    assert {figure.case for figure in figures} == {
        "share 8 GiB, sparse, exporter idle",
        "share 8 GiB, sparse, exporter busy",
    }
    cases = {bar.case for bar in bars.BARS if bar.id in ("P7", "P7b")}
    assert {skip.case for skip in skips} == cases - {figure.case for figure in figures}


@pytest.mark.parametrize("is_busy", [False, True])
def test_importer_check_finds_other_bytes_raises_device_fault(
    devices: tuple[pl.Device, ...], importer: shares.Importer, is_busy: bool
) -> None:
    with pl.Physical(devices[0], 2 << 20) as physical, physical.export(allow=[importer.pid]) as handle:
        importer.send(b"h" + bytes(handle))
        importer.acknowledged(is_busy)
        with pytest.raises(pl.DeviceFault, match=r"holds \(0, 2097152\), and 7 was written"):
            importer.check(7, 2 << 20)


@pytest.mark.parametrize("is_busy", [False, True])
def test_importer_error_is_raised_in_exporter(
    devices: tuple[pl.Device, ...], importer: shares.Importer, is_busy: bool
) -> None:
    with pl.Physical(devices[0], 2 << 20) as physical, physical.export() as handle:
        importer.send(b"h" + bytes(handle))
        with pytest.raises(pl.AccessDenied, match=f"does not let process {importer.pid} open"):
            importer.acknowledged(is_busy)


def test_seams_are_compared_with_one_allocation(devices: tuple[pl.Device, ...]) -> None:
    figures, skips = seams.measure(quiet_plan(), devices, blocks=6)
    assert not skips
    assert [(figure.contender, figure.reference) for figure in figures] == [
        ("peerlane", "the same in one allocation")
    ]

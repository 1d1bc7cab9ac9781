"""Host memory that a program reads or writes before an asynchronous operation has written it."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import checked_program, described
from checker.programs.host_destinations import KINDS, TOUCHES

PROGRAM = Path(__file__).parent / "programs" / "host_destinations.py"
NIXL = PROGRAM.with_name("nixl_host_memory.py")
WRITES = {"write_to_it", "write_to_few_bytes"}

pytestmark = [pytest.mark.any_schedule, pytest.mark.usefixtures("each_schedule")]


def test_each_kind_of_destination_that_is_touched_too_early_is_one_certain_race() -> None:
    run = checked_program(PROGRAM, "racy", devices=1)

    assert all(each["certain"] and each["kind"] == "race" for each in run.findings), described(run.findings)
    assert [each["sites"][0]["function"] for each in run.findings] == [kind.__name__ for kind in KINDS]
    touches = [TOUCHES.get(kind.__name__, kind.__name__) for kind in KINDS]
    assert [each["sites"][1]["function"] for each in run.findings] == touches
    did = ["write" if kind.__name__ in WRITES else "read" for kind in KINDS]
    assert [each["sites"][1]["access"] for each in run.findings] == did
    lines = [[site["line"] for site in each["sites"]] for each in run.findings]
    assert all(first < second for first, second in lines)
    assert run.code == 3


def test_destinations_that_a_wait_of_any_kind_releases_are_no_finding() -> None:
    run = checked_program(PROGRAM, "right", devices=1)

    assert not run.findings, described(run.findings)
    assert run.code == 0, run.output


def test_operations_whose_destination_is_too_small_to_watch_are_counted() -> None:
    run = checked_program(PROGRAM, "right", "write_to_few_bytes", devices=1)

    unseen = "not seen: whether the program looked too early at the host memory that 1 operation had to"
    assert unseen in " ".join(run.output.split())


def test_transfers_of_nixl_whose_dram_is_used_too_early_are_certain_races() -> None:
    run = checked_program(NIXL, "racy", devices=1)

    assert all(each["certain"] and each["kind"] == "race" for each in run.findings), described(run.findings)
    callers = [each["sites"][0]["callers"][0][2] for each in run.findings]
    assert callers == ["read_into_memory", "write_from_memory"]
    assert [each["sites"][1]["access"] for each in run.findings] == ["read", "write"]
    assert run.code == 3


def test_transfers_of_nixl_that_are_done_release_their_dram() -> None:
    run = checked_program(NIXL, "right", devices=1)

    assert (run.code, run.findings) == (0, ()), run.output


def test_arrays_on_buffers_without_recorded_accesses_are_counted(tmp_path: Path) -> None:
    program = tmp_path / "aliases.py"
    program.write_text(
        "import numpy as np, peerlane as pl\n"
        "buffer = pl.devices()[0].allocate(64)\n"
        "buffer.view().fill(1)\n"
        "assert bytes(buffer) == np.asarray(buffer).tobytes() == np.from_dlpack(buffer).tobytes()\n"
    )
    run = checked_program(program, devices=1)

    assert (run.code, run.findings) == (0, ()), run.output
    assert "not seen: what the program reads and writes through 2 arrays on buffers" in " ".join(
        run.output.split()
    )


def test_a_download_into_memory_that_may_run_leaves_it_so(tmp_path: Path) -> None:
    program = tmp_path / "loads_code.py"
    program.write_text(
        "import mmap, re, numpy as np, peerlane as pl\n"
        "code = mmap.mmap(-1, 65536, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "array = np.frombuffer(code, np.uint8)\n"
        "device = pl.devices()[0]\n"
        "buffer, stream = device.allocate(65536), device.create_stream()\n"
        "buffer.fill(7)\n"
        "buffer.copy_to(array, stream=stream)\n"
        "stream.sync(30)\n"
        "assert bytes(code) == bytes([7]) * 65536\n"
        "ranges = re.findall('(?m)^(\\\\w+)-(\\\\w+) (\\\\S+)', open('/proc/self/maps').read())\n"
        "at = array.ctypes.data\n"
        "assert all(rights == 'rwxp' or rights == 'rwxs' for low, high, rights in ranges\n"
        "           if int(low, 16) < at + 65536 and at < int(high, 16))\n"
    )
    run = checked_program(program, devices=1)

    assert (run.code, run.findings) == (0, ()), run.output

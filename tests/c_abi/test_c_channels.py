"""The other orders of calls that HCOMM's pages and samples show, in C++: what they move, refuse and say at an end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from helpers.c_programs import PEERLANE, Run, compiled, edited

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]
Compile: TypeAlias = "Callable[..., Path]"


@pytest.mark.parametrize("name", ["ends_of_channels", "basic_layer", "host_card"])
def test_program_gets_the_vendors_codes_and_every_byte(
    name: str, compiled_program: Compile, run: Run
) -> None:
    ended = run(
        *PEERLANE,
        "run",
        compiled_program(f"{name}.cpp", "hcomm"),
        PEERLANE_NODE="devices=2",
        HCCL_BUFFSIZE="1",
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("how", ["threads", "processes"])
def test_each_collective_answers_on_communicators_of_every_origin(
    how: str, compiled_program: Compile, run: Run, tmp_path: Path
) -> None:
    devices = [{"device_id": str(number), "rank_id": str(number)} for number in range(3)]
    servers = [{"server_id": "node_0", "device": devices}]
    table = {"version": "1.0", "status": "completed", "server_count": "1", "server_list": servers}
    (tmp_path / "table.json").write_text(json.dumps(table))
    start = ("launch", "-n", "3") if how == "processes" else ("run",)
    words = (*start, compiled_program("collectives.cpp", "hcomm"), "table.json")
    ended = run(*PEERLANE, *words, HCCL_BUFFSIZE="1", TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("done") == (3 if how == "processes" else 1)


@pytest.mark.any_schedule
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_check_finds_the_write_of_the_basic_layer_that_nobody_waits_for(
    schedule: str, run: Run, programs: Path, tmp_path: Path
) -> None:
    wait = "    OK(HcommChannelNotifyWaitOnThread(thread, channel, 1, kSeconds));\n    OK(HcommThreadJoin"
    source = edited(programs, (wait, "    OK(HcommThreadJoin")) / "basic_layer.cpp"
    program = compiled(programs, source, "hcomm")
    words = ("check", "--json", "report.json", program)
    ended = run(*PEERLANE, *words, PEERLANE_NODE="devices=2", PEERLANE_SCHEDULE=schedule)
    assert ended.returncode in (1, 3), ended.stderr
    findings = json.loads((tmp_path / "report.json").read_text())["findings"]
    assert "race" in {each["kind"] for each in findings}, ended.stderr

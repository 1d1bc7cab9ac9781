"""The other orders of calls that HCOMM's pages and samples show, in C++: what they move, refuse and say at an end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from helpers.c_programs import PEERLANE, Run, compiled, edited

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]
Made: TypeAlias = "Callable[..., Path]"


@pytest.mark.parametrize("name", ["ends_of_channels", "basic_layer", "host_card"])
def test_program_gets_the_vendors_codes_and_every_byte(name: str, made: Made, run: Run) -> None:
    said = run(*PEERLANE, "run", made(f"{name}.cpp", "hcomm"), PEERLANE_NODE="devices=2", HCCL_BUFFSIZE="1")
    assert (said.returncode, said.stdout, said.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("how", ["threads", "processes"])
def test_each_collective_answers_on_communicators_of_every_origin(
    how: str, made: Made, run: Run, tmp_path: Path
) -> None:
    devices = [{"device_id": str(number), "rank_id": str(number)} for number in range(3)]
    servers = [{"server_id": "node_0", "device": devices}]
    table = {"version": "1.0", "status": "completed", "server_count": "1", "server_list": servers}
    (tmp_path / "table.json").write_text(json.dumps(table))
    start = ("launch", "-n", "3") if how == "processes" else ("run",)
    words = (*start, made("collectives.cpp", "hcomm"), "table.json")
    said = run(*PEERLANE, *words, HCCL_BUFFSIZE="1", TMPDIR=str(tmp_path))
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("done") == (3 if how == "processes" else 1)


@pytest.mark.any_schedule
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_check_finds_the_write_of_the_basic_layer_that_nobody_waits_for(
    schedule: str, run: Run, programs: Path, tmp_path: Path
) -> None:
    wait = "    OK(HcommChannelNotifyWaitOnThread(thread, channel, 1, kSeconds));\n    OK(HcommThreadJoin"
    source = edited(programs, (wait, "    OK(HcommThreadJoin")) / "basic_layer.cpp"
    program = compiled(programs, source, "hcomm")
    words = ("check", "--json", "report.json", program)
    said = run(*PEERLANE, *words, PEERLANE_NODE="devices=2", PEERLANE_SCHEDULE=schedule)
    assert said.returncode in (1, 3), said.stderr
    found = json.loads((tmp_path / "report.json").read_text())["findings"]
    assert "race" in {each["kind"] for each in found}, said.stderr

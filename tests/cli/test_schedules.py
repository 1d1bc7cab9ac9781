"""The search for a failing schedule, and ``--fault``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane.backends.virtual.node import faults
from peerlane.backends.virtual.node.schedule import Reason, Schedule, parse
from peerlane.cli import schedules
from peerlane.errors import InvalidValue
from peerlane.testing.procs import Completed

# The first half brings its schedules along, and no program of the second has a stream.
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]


#: Rank 0 reads two counts of rank 1, and between them does other things.
_ORDER = """
import sys
import peerlane as pl
from peerlane.rendezvous import Rendezvous

with Rendezvous.from_environment() as line, pl.Group(rendezvous=line, window=4096) as group:
    if group.rank == 1:
        line.put("count", b"0")
        line.barrier()
        for count in range(10):
            line.put("count", b"%d" % (count + 1))
    else:
        line.barrier()
        for _ in range(10): group.window.view()
        first = int(line.get("count"))
        for _ in range(15): group.window.view()
        second = int(line.get("count"))
    line.barrier("end")
sys.exit(4 if group.rank == 0 and first == 0 and second == 10 else 0)
"""

#: Two ranks count to two, and no lock keeps one from losing the other's count.
_COUNTS = """
import sys
import peerlane as pl
from peerlane.rendezvous import Rendezvous

with Rendezvous.from_environment() as line, pl.Group(rendezvous=line, window=4096) as group:
    if group.rank == 0: line.put("count", b"0")
    line.barrier()
    for _ in range(3): line.put("count", b"%d" % (int(line.get("count")) + 1))
    line.barrier("end")
    sys.exit(int(line.get("count")) != 6)
"""

#: What a run says to which the load did something that its schedule does not draw.
_MAY_NOT_REPEAT = " may not repeat"


@pytest.mark.timeout(600)
def test_search_of_a_program_finds_its_order_with_the_fewest_changes(tmp_path: Path) -> None:
    script = tmp_path / "order.py"
    script.write_text(_ORDER)
    ran: list[str] = []
    was_disturbed = False

    def run(variables: Mapping[str, str]) -> bool:
        nonlocal was_disturbed
        ran.append(variables["PEERLANE_SCHEDULE"])
        done = run_python(
            ["-m", "peerlane", "launch", "-n", "2", str(script)], timeout=60, env=os.environ | variables
        )
        assert done.returncode in (0, 4), done.stderr
        was_disturbed = _MAY_NOT_REPEAT in done.stderr  # not while the search keeps the report
        return done.returncode == 4

    outcome = schedules.search(run, 60)
    assert outcome is not None, ran
    wanted = parse(outcome.schedule, "")
    if (
        not wanted.changes or outcome.reasons
    ):  # the uniform draws of the first run found it; or the load came between
        return
    fewer = [tuple(each for each in wanted.changes if each != step) for step in wanted.changes]
    for changes in fewer:
        assert not run({"PEERLANE_SCHEDULE": str(wanted._replace(changes=changes))}) or was_disturbed
    assert run(outcome.variables) or was_disturbed


@pytest.mark.timeout(300)
def test_schedules_of_check_print_a_command_that_repeats_the_failure(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(_COUNTS)
    words = ["-m", "peerlane", "check", "-n", "2", "--schedules", "40", "counts.py"]
    done = run_python(words, timeout=240, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (command,) = re.findall(r"^  (PEERLANE_SCHEDULE=\S+ peerlane check -n 2 counts.py)$", done.stderr, re.M)
    again = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    # The load may come between in either run; each says so.
    is_disturbed = _MAY_NOT_REPEAT in done.stderr + again.stderr
    assert again.returncode == 1 or is_disturbed, again.stdout + again.stderr


def _write_report(variables: Mapping[str, str], steps: int, why: str = "") -> None:
    line: dict[str, object] = {"pid": 1, "rank": 0, "steps": steps}
    line |= {"why": why, "about": 1} if why else {}
    Path(variables["PEERLANE_SCHEDULE_REPORT"]).write_text(json.dumps(line) + "\n")


def test_search_no_run_fails_returns_none() -> None:
    ran: list[str] = []

    def run(variables: Mapping[str, str]) -> bool:
        ran.append(variables["PEERLANE_SCHEDULE"])
        return False

    assert schedules.search(run, 7, first_seed=10) is None
    assert [each.split(":")[1] for each in ran] == [str(seed) for seed in range(10, 17)]


def test_search_change_at_two_steps_fails_keeps_these_two() -> None:
    def run(variables: Mapping[str, str]) -> bool:
        _write_report(variables, 30)
        changes = parse(variables["PEERLANE_SCHEDULE"], "").changes or ()
        return any(step < 10 for step in changes) and any(step > 20 for step in changes)

    outcome = schedules.search(run, 200, first_seed=1)
    assert outcome is not None
    assert outcome.changes is not None
    assert len(outcome.changes) == 2
    assert not outcome.reasons
    assert outcome.variables == {"PEERLANE_SCHEDULE": outcome.schedule}
    assert run(outcome.variables | {"PEERLANE_SCHEDULE_REPORT": "/dev/null"})
    assert outcome.command("peerlane run p.py") == f"PEERLANE_SCHEDULE={outcome.schedule} peerlane run p.py"


def test_search_first_run_fails_has_no_changes_and_explains_why_it_may_not_repeat() -> None:
    def run(variables: Mapping[str, str]) -> bool:
        _write_report(variables, 30, "rested")
        return True

    outcome = schedules.search(run, 5, first_seed=3)
    reason = Reason("rested", 1)
    assert outcome == schedules.Failing("seeded:3", {"PEERLANE_SCHEDULE": "seeded:3"}, None, 1, (reason,))
    assert str(reason) == "rank 1 made no call for 1 s, so its queued operations were run"


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("seeded:5", Schedule("seeded", 5)),
        ("seeded:5:0", Schedule("seeded", 5, ())),
        ("seeded:5:1,7,12", Schedule("seeded", 5, (1, 7, 12))),
    ],
)
def test_parse_schedule_text_comes_back(text: str, schedule: Schedule) -> None:
    assert parse(text, "here") == schedule
    assert str(schedule) == text


@pytest.mark.parametrize(
    "text", ["seeded:5:", "seeded:5:0,2", "seeded:5:3,2", "seeded:5:1,,2", "seeded:5:x", "lazy:1", "seeded:"]
)
def test_parse_wrong_schedule_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="here: "):
        parse(text, "here")


def test_parse_fault_same_seed_gives_same_fault() -> None:
    assert faults.parse("kill:rank=1,op=120", "", 4) == (1, 120, None)
    assert faults.parse("delay:op=7,rank=0,ms=50", "", 4) == (0, 7, 50)
    assert faults.parse("seed:5", "", 4) == faults.parse("seed:5", "", 4)
    assert len({faults.parse(f"seed:{seed}", "", 4) for seed in range(20)}) > 10


@pytest.mark.parametrize(
    "fault",
    [
        "",
        "kill",
        "kill:rank=1",
        "kill:rank=1,op=0",
        "kill:rank=x,op=1",
        "delay:rank=0,op=1",
        "drop:rank=0,op=1",
        "seed:",
    ],
)
@pytest.mark.parametrize("command", ["run", "launch", "check"])
def test_fault_bad_syntax_exits_2_and_shows_the_valid_syntax(command: str, fault: str) -> None:
    words = ["-n", "2"] if command == "launch" else []
    done = subprocess.run(
        [sys.executable, "-m", "peerlane", command, *words, "--fault", fault, "-c", "pass"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "valid are" in done.stderr
    assert done.stderr.count("--fault: ") == 1


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        (("run",), "rank 0 alone"),
        (("check",), "rank 0 alone"),
        (("check", "-n", "2"), "ranks 0 to 1"),
        (("launch", "-n", "2"), "ranks 0 to 1"),
    ],
)
def test_fault_of_a_rank_that_the_run_does_not_have_exits_2_and_runs_nothing(
    words: tuple[str, ...], ranks: str
) -> None:
    fault = "kill:rank=7,op=1"
    done = run_python(
        ["-m", "peerlane", *words, "--fault", fault, "-c", "print('ran')"],
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert f"--fault {fault}: there is no rank 7; this run has {ranks}\n" in done.stderr


#: Prints how many calls are over, and afterwards which call took longest, and how long.
_CALLS = """
import os, sys, time
import peerlane as pl
with pl.devices()[0].allocate(64) as memory:
    times = [time.monotonic()]
    for call in range(40):
        memory.fill(call)
        times.append(time.monotonic())
        print(call, flush=True)
spans = [after - before for before, after in zip(times, times[1:])]
print("longest", max(spans))
"""


def _under(tmp_path: Path, command: str, fault: str, ranks: int = 2) -> Completed:
    script = tmp_path / "calls.py"
    script.write_text(_CALLS)
    words = [] if command == "run" else ["-n", str(ranks)]
    return run_python(["-m", "peerlane", command, *words, "--fault", fault, str(script)], timeout=60)


@pytest.mark.parametrize("command", ["run", "launch", "check"])
def test_fault_kill_ends_the_rank_at_the_same_call_each_time(command: str, tmp_path: Path) -> None:
    rank = 0 if command == "run" else 1
    first, second, later = (_under(tmp_path, command, f"kill:rank={rank},op={op}") for op in (20, 20, 23))
    killed = -signal.SIGKILL if command == "run" else 128 + signal.SIGKILL
    assert {each.returncode for each in (first, second, later)} == {killed}

    def calls(done: Completed) -> int:
        mine = [line for line in done.stdout.splitlines() if command == "run" or line.startswith("[1]")]
        return len(mine)

    assert calls(later) - 3 == calls(first) == calls(second) > 0


@pytest.mark.parametrize("command", ["run", "launch", "check"])
def test_fault_delay_lets_the_rank_sleep_for_its_time(command: str, tmp_path: Path) -> None:
    done = _under(tmp_path, command, "delay:rank=0,op=7,ms=900")
    assert done.returncode == 0, done.stderr
    mine = "longest" if command == "run" else "[0] longest"
    (longest,) = (float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith(mine))
    assert longest >= 0.9


def test_fault_drawn_by_a_seed_is_the_one_that_was_drawn(tmp_path: Path) -> None:
    for seed in range(100):
        rank, op, ms = faults.parse(f"seed:{seed}", "", 2)
        if op < 20 and ms is None:
            break
    done = _under(tmp_path, "launch", f"seed:{seed}")
    assert done.returncode == 128 + signal.SIGKILL
    assert f"rank {rank} " in done.stderr
    assert f"peerlane launch: --fault seed:{seed} is kill:rank={rank},op={op}\n" in done.stderr


@pytest.mark.parametrize("command", ["launch", "check"])
def test_fault_kill_is_reported_as_such_and_not_as_a_crash(command: str, tmp_path: Path) -> None:
    done = _under(tmp_path, command, "kill:rank=1,op=20")
    reported = re.findall(r"peerlane launch: rank 1 \(pid \d+\) (was killed.*?)[;\n]", done.stderr)
    assert set(reported) == {"was killed by --fault kill:rank=1,op=20"}, done.stderr
    assert "[1] peerlane: --fault kill:rank=1,op=20 kills this process at its logged event 20" in done.stderr
    assert "SIGKILL;" not in done.stderr


def test_fault_kill_of_run_is_reported_before_the_end(tmp_path: Path) -> None:
    done = _under(tmp_path, "run", "kill:rank=0,op=20")
    assert "peerlane: --fault kill:rank=0,op=20 kills this process at its logged event 20" in done.stderr


@pytest.mark.parametrize("command", ["run", "launch", "check"])
def test_fault_that_did_not_strike_is_reported(command: str, tmp_path: Path) -> None:
    rank = 0 if command == "run" else 1
    fault = f"delay:rank={rank},op=5000,ms=1"
    done = _under(tmp_path, command, fault)
    assert done.returncode == 0, done.stderr
    (events,) = re.findall(
        rf"^peerlane {command}: --fault {fault} did not strike: rank {rank} logged (\d+) events$",
        done.stderr,
        re.M,
    )
    assert 40 <= int(events) < 5000


def test_fault_that_struck_is_not_reported_as_missing(tmp_path: Path) -> None:
    assert "--fault" not in _under(tmp_path, "launch", "delay:rank=1,op=20,ms=1").stderr


def test_fault_of_check_is_in_the_json(tmp_path: Path) -> None:
    script, outcome = tmp_path / "calls.py", tmp_path / "found.json"
    script.write_text(_CALLS)
    arguments = ["--fault", "delay:rank=0,op=3,ms=2", "--fault", "kill:rank=1,op=9000"]
    done = run_python(
        ["-m", "peerlane", "check", "-n", "2", "--json", str(outcome), *arguments, str(script)], timeout=60
    )
    assert done.returncode == 0, done.stderr
    struck, missing = json.loads(outcome.read_text())["faults"]
    assert {name: struck[name] for name in ("given", "fault", "rank", "op", "ms", "struck")} == {
        "given": arguments[1],
        "fault": arguments[1],
        "rank": 0,
        "op": 3,
        "ms": 2,
        "struck": True,
    }
    assert (missing["struck"], missing["ms"], missing["rank"], missing["op"]) == (False, None, 1, 9000)
    assert struck["events"] == missing["events"] >= 40

"""Under ``seeded`` the ranks of a group take turns: the same seed gives the same bytes, also between processes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.prepared import run_python
from helpers.promised import overdue

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

_SLEEP_SECONDS, _REST_SECONDS = 0.1, 1.0  # until a rank that sleeps gives up its turn; until a process rests

#: Ranks write to one another without all the waits that they need, and say what they saw.
_RACES = """
import hashlib, os, sys
import numpy as np
import peerlane as pl
from peerlane.rendezvous import Rendezvous

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with pl.Group(window=1 << 16, notifies="fifo") as group:
    me, seen = group.window, hashlib.sha256()
    me.fill(0)
    rendezvous = Rendezvous.from_environment()
    others = [each for each in range(size) if each != rank]
    channels = dict(zip(others, group.channels(others, notifies=2), strict=True))
    s, t = group.device.create_stream(), group.device.create_stream()
    rendezvous.barrier()
    for turn in range(6):
        source = np.full(512, 16 * rank + turn, np.uint8)
        for peer, channel in channels.items():
            channel.write(source, at=1024 * (turn % 3), stream=s if turn % 2 else t)  # all ranks, one place
            channel.notify(0, stream=s)
        for peer, channel in channels.items():
            channel.wait(0, timeout=30)
            seen.update(bytes(me.view()[:4096]))
    s.sync(); t.sync()
    rendezvous.barrier()
    seen.update(bytes(me.view()[:4096]))
    print("saw", rank, seen.hexdigest()[:16])
    {more}
"""


def _run(
    program: str, schedule: str, tmp_path: Path, ranks: int = 4
) -> tuple[list[str], list[dict[str, object]]]:
    seen, lines, _ = _run_reported(program, schedule, tmp_path, ranks)
    return seen, lines


def _run_reported(
    program: str, schedule: str, tmp_path: Path, ranks: int
) -> tuple[list[str], list[dict[str, object]], str]:
    """Run a program; return what its ranks saw, the lines of the report, and the standard error."""
    script, report = tmp_path / "races.py", tmp_path / "report.jsonl"
    script.write_text(program.replace("{more}", "pass"))
    report.unlink(missing_ok=True)
    environ = os.environ | {"PEERLANE_SCHEDULE": schedule, "PEERLANE_SCHEDULE_REPORT": str(report)}
    command = ["-m", "peerlane", "launch", "-n", str(ranks), str(script)]
    done = run_python(command, env=environ, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    seen = sorted(line.partition("saw ")[2] for line in done.stdout.splitlines() if "saw" in line)
    return seen, lines, done.stderr


def _reasons(lines: list[dict[str, object]]) -> set[tuple[object, object]]:
    return {(line["why"], line["about"]) for line in lines if "why" in line}


@pytest.mark.parametrize("runs", [3, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
@pytest.mark.parametrize("schedule", ["seeded:5", "seeded:6:40,90,300"])
def test_seeded_four_processes_same_seed_gives_same_bytes(schedule: str, runs: int, tmp_path: Path) -> None:
    first, _ = _run(_RACES, schedule, tmp_path)
    assert len(first) == 4
    for _ in range(runs - 1):
        again, lines = _run(_RACES, schedule, tmp_path)
        assert not _reasons(lines)
        assert again == first


def _findings(schedule: str, tmp_path: Path) -> tuple[list[str], list[object]]:
    """Return what four ranks saw under ``peerlane check``, and what it found: all but numbers of processes."""
    script, report = tmp_path / "races.py", tmp_path / "findings.json"
    script.write_text(_RACES.replace("{more}", "pass"))
    command = ["-m", "peerlane", "check", "-n", "4", "--json", str(report), str(script)]
    environ = os.environ | {"PEERLANE_SCHEDULE": schedule}
    done = run_python(command, env=environ, timeout=120)
    assert done.returncode == 3, done.stdout + done.stderr
    findings = json.loads(report.read_text())["findings"]
    sites = ("file", "line", "function", "rank", "stream", "verb", "access")
    reported = [
        (
            *(each[name] for name in ("kind", "certain", "count", "bytes", "missing", "message")),
            [[site[name] for name in sites] for site in each["sites"]],
        )
        for each in findings
    ]
    seen = sorted(line.partition("saw ")[2] for line in done.stdout.splitlines() if "saw" in line)
    return seen, sorted(reported, key=repr)


@pytest.mark.parametrize("runs", [2, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_seeded_four_processes_same_seed_gives_same_findings(runs: int, tmp_path: Path) -> None:
    first = _findings("seeded:5", tmp_path)
    assert len(first[0]) == 4
    assert first[1]
    for _ in range(runs - 1):
        assert _findings("seeded:5", tmp_path) == first


def test_seeded_other_seeds_give_other_bytes(tmp_path: Path) -> None:
    assert len({tuple(_run(_RACES, f"seeded:{seed}", tmp_path)[0]) for seed in range(5)}) > 1


_MORE = """
import os, signal, sys, threading, time
import numpy as np
import peerlane as pl

rank = int(os.environ["RANK"])
with pl.Group(window=4096) as group:
    channel = group.channel(1 - rank)
    {more}
    channel.notify(0)
    channel.wait(0, timeout=30)
    print("saw", rank)
"""


#: Rank 1 sleeps until rank 0 has made its calls.
_SLEEPS = """
    if rank == 1: open("calls are over").read()
    for turn in range(20): group.window.view()
    if rank == 0: open("calls are over", "w").close()
"""


def test_seeded_rank_that_sleeps_is_reported_and_holds_nobody_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = _MORE.replace("    {more}", _SLEEPS.replace('"calls are over"', repr(str(pipe))))
    seen, lines = _run(program, "seeded:3", tmp_path, 2)
    assert seen == ["0", "1"]
    assert _reasons(lines) == {("slept", 1)}


#: Rank 1 sleeps with its turn, and rank 0 says when its long calls returned; both tell the time by one clock.
_GIVES_UP = """
    channel.notify(1)
    channel.wait(1, timeout=30)
    if rank == 1:
        print("slept at", time.monotonic(), file=sys.stderr)
        time.sleep(3)
    else:
        times = [time.monotonic()]
        while times[-1] - times[0] < 2:
            group.window.view()
            times.append(time.monotonic())
        for before, after in zip(times, times[1:]):
            if after - before > 0.05: print("waited until", after, file=sys.stderr)
"""


def test_seeded_rank_that_sleeps_gives_up_its_turn_after_100_ms(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    program = _MORE.replace("    {more}", _GIVES_UP)
    runs = []
    for _ in range(3):  # a machine under load gives no processor to the rank that is next
        _, lines, reported = _run_reported(program, "seeded:3", tmp_path, 2)
        assert _reasons(lines) == {("slept", 1)}
        (slept,) = re.findall(r"slept at (\S+)", reported)
        runs += [float(until) - float(slept) for until in re.findall(r"waited until (\S+)", reported)]
    record_property("seconds", runs)
    assert any(_SLEEP_SECONDS <= each < 5 * _SLEEP_SECONDS for each in runs), f"it took {runs} s"


#: Rank 0 makes no call, and looks at memory for bytes that its own stream is to bring.
_RESTS = """
    if rank == 0:
        seen = memoryview(group.window)
        stream = group.device.create_stream()
        group.window[:64].fill(5, stream=stream)
        group.window[64:128].fill(6, stream=stream)
        began = time.monotonic()
        while seen[127] != 6 or seen[0] != 5: pass
        print("rested", time.monotonic() - began, file=sys.stderr)
        stream.sync()
"""


def test_seeded_rank_that_makes_no_call_has_its_operations_run_after_1_s(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    program = _MORE.replace("    {more}", _RESTS)
    _, lines, reported = _run_reported(program, "seeded:3", tmp_path, 2)
    (took,) = map(float, re.findall(r"rested (\S+)", reported))
    record_property("seconds", took)
    assert _reasons(lines) == {("rested", 0)}
    assert _REST_SECONDS * 0.9 <= took < overdue(_REST_SECONDS), f"it took {took:.3f} s"


@pytest.mark.parametrize("command", ["launch", "check"])
def test_seeded_run_with_a_sleeper_is_called_unrepeatable(command: str, tmp_path: Path) -> None:
    pipe, script = tmp_path / "pipe", tmp_path / "sleeps.py"
    os.mkfifo(pipe)
    script.write_text(_MORE.replace("    {more}", _SLEEPS.replace('"calls are over"', repr(str(pipe)))))
    words = ["-m", "peerlane", command, "-n", "2", str(script)]
    environ = os.environ | {"PEERLANE_SCHEDULE": "seeded:3"}
    done = run_python(words, env=environ, timeout=60)
    assert "this run may not repeat under PEERLANE_SCHEDULE=seeded:3: rank 1 slept" in done.stderr


def test_seeded_rank_that_computes_keeps_its_turn(tmp_path: Path) -> None:
    program = _MORE.replace(
        "{more}", "end = time.thread_time() + 0.3\n    while time.thread_time() < end: pass"
    )
    seen, lines = _run(program, "seeded:3", tmp_path, 2)
    assert (seen, _reasons(lines)) == (["0", "1"], set())


@pytest.mark.parametrize("seed", range(3))
def test_seeded_rank_is_killed_the_other_raises(seed: int, tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(_MORE.replace("{more}", "if rank == 0: os.kill(os.getpid(), signal.SIGKILL)"))
    command = ["-m", "peerlane", "launch", "-n", "2", str(script)]
    environ = os.environ | {"PEERLANE_SCHEDULE": f"seeded:{seed}"}
    done = run_python(command, env=environ, timeout=60)
    assert done.returncode == 128 + 9
    assert "rank 0" in done.stderr


def test_seeded_without_a_seed_launch_draws_one_for_all_ranks(tmp_path: Path) -> None:
    script = tmp_path / "says.py"
    script.write_text("import os; print('saw', os.environ['PEERLANE_SCHEDULE'])")
    command = ["-m", "peerlane", "launch", "-n", "2", str(script)]
    environ = os.environ | {"PEERLANE_SCHEDULE": "seeded"}
    done = run_python(command, env=environ, timeout=60)
    assert done.returncode == 0, done.stderr
    (printed,) = {line.partition("saw ")[2] for line in done.stdout.splitlines()}
    assert printed.startswith("seeded:")
    assert f"repeat it with PEERLANE_SCHEDULE={printed}" in done.stderr


_THREADS = """
import hashlib, sys, threading
import numpy as np
import peerlane as pl
from peerlane.rendezvous import RendezvousServer

said = {}

def run(rank, address):
    line = pl.rendezvous.Rendezvous(address, rank, 3)
    with pl.Group(rank=rank, size=3, rendezvous=line, window=4096, notifies="fifo") as group:
        seen = hashlib.sha256()
        others = [each for each in range(3) if each != rank]
        channels = group.channels(others)
        s = group.device.create_stream()
        for turn in range(5):
            for channel in channels:
                channel.write(np.full(256, 16 * rank + turn, np.uint8), notify=0, stream=s)
            for channel in channels:
                channel.wait(0, timeout=30)
                seen.update(bytes(group.window.view()[:256]))
        said[rank] = seen.hexdigest()[:16]
    line.close()

with RendezvousServer(3) as server:
    threads = [threading.Thread(target=run, args=(rank, server.address)) for rank in range(3)]
    for each in threads: each.start()
    for each in threads: each.join()
print(sorted(said.items()))
"""


def test_seeded_threads_as_ranks_same_seed_gives_same_bytes(tmp_path: Path) -> None:
    script = tmp_path / "threads.py"
    script.write_text(_THREADS)

    def seen(seed: int) -> str:
        environ = os.environ | {"PEERLANE_SCHEDULE": f"seeded:{seed}"}
        command = [str(script)]
        done = run_python(command, env=environ, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = seen(1)
    assert first.count("(") == 3
    assert [seen(1) for _ in range(4)] == [first] * 4

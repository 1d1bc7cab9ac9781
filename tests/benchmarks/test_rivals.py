"""``python -m benchmarks channel`` and its like: their output, and rivals that are missing, fail or hang."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

import peerlane as pl
from benchmarks import bars, channels
from benchmarks import rival_processes as rivals
from benchmarks.__main__ import main
from benchmarks.rival_libraries import ON_ONE_MACHINE, Launcher, Rival, Variant
from helpers.absent import needs_engine
from peerlane.cli.bench import measure, sweeps
from peerlane.cli.bench import ranks as libraries
from peerlane.cli.bench.timings import Entrant

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

JOBS = [(8, 3), (4096, 2)]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave only the rivals that the test adds, and the pipe, whatever is installed; repeat little."""
    for name in rivals.RIVALS:
        monkeypatch.setenv(f"BENCHMARKS_PYTHON_{name.upper()}", sys.executable)
    monkeypatch.setattr(rivals, "RIVALS", {name: rivals.RIVALS[name] for name in ("pipe", "tcp")})
    monkeypatch.setattr(channels, "_ROUNDS", 100)
    monkeypatch.setattr(channels, "_WRITES", 1000)
    monkeypatch.setattr(channels, "_LARGE", ())
    monkeypatch.setattr(sweeps, "_MOST", dict.fromkeys(sweeps._MOST, 5))
    yield
    pl.leave_node()


class Fake(Protocol):
    def __call__(self, name: str, program: str, kind: str | None = None) -> None: ...


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    """Return a function that adds a rival whose ranks run a program of the test."""

    def add(name: str, program: str, kind: str | None = None) -> None:
        python = tmp_path / f"python-of-{name}"
        script = tmp_path / f"{name}.py"
        script.write_text(program)
        # With -c it is a Python, which says what it has; with rival_rank.py it runs the program of the test.
        python.write_text(
            f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\nshift\nexec {sys.executable} {script} "$@"\n'
        )
        python.chmod(0o700)
        monkeypatch.setenv(f"BENCHMARKS_PYTHON_{name.upper()}", str(python))
        monkeypatch.setitem(rivals.RIVALS, name, Rival(libraries.TASKS, (), kind or name))
        for subject, (sweep, sizes, names, tasks) in rivals.SWEEPS.items():
            monkeypatch.setitem(rivals.SWEEPS, subject, (sweep, sizes, (*names, name), tasks))
        monkeypatch.setattr(channels, "ON_ONE_MACHINE", (*channels.ON_ONE_MACHINE, name))

    return add


#: A rival that reports one second for each operation.
SLOW = """
import json, os, sys
_, tasks, *jobs = sys.argv[1:]
if os.environ["RANK"] == "0":
    print("a word before")
    print(json.dumps({task: [1.0] * (1 if task == "barrier" else len(jobs)) for task in tasks.split(",")}))
"""


def bench(what: str, sizes: str, tmp_path: Path) -> dict[str, list[dict[str, object]]]:
    target = tmp_path / "out.json"
    assert main([what, "--sizes", sizes, "--rounds", "1", "--json", str(target)]) == 0
    result: dict[str, list[dict[str, object]]] = json.loads(target.read_text())
    return result


def test_bench_channel_writes_every_promised_figure(
    tmp_path: Path, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("slow", SLOW)
    result = bench("channel", "8,4K", tmp_path)
    measured = {
        (figure["case"], figure["contender"], figure["reference"]): figure for figure in result["figures"]
    }
    ours = ["peerlane", "peerlane on a stream", "peerlane in a table"]
    assert list(measured) == [
        (bars.ONE_DIRECTION, "peerlane", bars.LINE),
        *(("write 8 bytes", name, "ctypes.memmove") for name in ours),
        *((bars.RATE, name, bars.MILLION) for name in ours),
    ]
    timings = {(each["operation"], each["size"], each["contender"]): each for each in result["timings"]}
    assert list(timings) == [
        *(("write", size, name) for size in (8, 4096) for name in ("peerlane", "slow")),
        *(("message", size, name) for size in (8, 4096) for name in ("peerlane", "pipe", "slow")),
    ]
    ours, slow = timings["write", 4096, "peerlane"], timings["write", 4096, "slow"]
    assert (slow["seconds"], slow["low"], slow["high"], slow["gb_per_s"]) == (1.0, 1.0, 1.0, 4096e-9)
    assert slow["ratio"] == pytest.approx(1 / float(str(ours["seconds"])))
    assert ours["ratio"] == 1.0
    rate = measured[bars.RATE, "peerlane", bars.MILLION]
    assert rate["ratio"] == pytest.approx(1e-6 / float(str(rate["seconds"])))
    assert [(bar["id"], bar["must"]) for bar in result["bars"]] == [
        ("P8", 5.0), ("rate", 2.5), ("rate", 2.5), ("rate", 20.0),
    ]  # fmt: skip
    assert result["skipped"] == []
    assert "message over 2 processes" in capsys.readouterr().out


def test_bench_channel_notify_is_compared_with_fastest_mpi(tmp_path: Path, fake: Fake) -> None:
    fake("slow", SLOW, "mpi")
    fake("quick", SLOW.replace("1.0", "0.25"), "mpi")
    fake("failing", "import sys; sys.exit('no network')", "mpi")
    result = bench("channel", "8", tmp_path)
    references = {
        figure["reference"]: figure
        for figure in result["figures"]
        if (figure["case"], figure["contender"]) == (bars.ONE_DIRECTION, "peerlane")
    }
    assert set(references) == {bars.LINE, "slow", "quick", bars.FASTEST_MPI}
    fastest = references[bars.FASTEST_MPI]
    assert (fastest["reference_seconds"], fastest["kind"]) == (0.25, "speed")
    bar = next(each for each in result["bars"] if each["reference"] == bars.FASTEST_MPI)
    assert (bar["id"], bar["must"], bar["met"]) == ("P8", 4.0, "goal")
    assert bar["ratio"] == fastest["ratio"]
    assert any("no network" in str(each["why"]) for each in result["skipped"])


def test_bench_collective_writes_every_promised_timing(
    tmp_path: Path, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("slow", SLOW)
    result = bench("collective", "64,4K", tmp_path)
    slow = [each for each in result["timings"] if each["contender"] == "slow"]
    assert [(each["operation"], each["processes"], each["size"]) for each in slow] == [
        (operation, count, size)
        for count in (2, 4)
        for operation in ("broadcast", "all-gather", "all-reduce", "barrier")
        for size in ((None,) if operation == "barrier" else (64, 4096))
    ]
    assert all(float(str(each["ratio"])) > 1 for each in slow)
    assert all(each["is_shown"] == (each["variant"] == "") for each in result["timings"])
    assert "barrier over 4 processes" in capsys.readouterr().out


@needs_engine
@pytest.mark.timeout(180)
def test_bench_machines_is_compared_with_bare_tcp(tmp_path: Path) -> None:
    timings = bench("machines", "8,4K", tmp_path)["timings"]
    tcp = [each for each in timings if each["contender"] == "tcp"]
    assert [(each["operation"], each["size"]) for each in tcp] == [
        (f"{task} between machines", size) for task in ("write", "message") for size in (8, 4096)
    ]
    assert all(float(str(each["seconds"])) > 0 for each in timings)


def test_present_rivals_not_installed_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = tmp_path / "python"
    empty.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')  # no site-packages
    empty.chmod(0o700)
    monkeypatch.undo()
    for name in rivals.RIVALS:
        monkeypatch.setenv(f"BENCHMARKS_PYTHON_{name.upper()}", str(empty))
    monkeypatch.setenv("BENCHMARKS_PYTHON_GLOO", str(tmp_path / "none"))
    names, skips = rivals.present(ON_ONE_MACHINE, libraries.MESSAGE)
    assert names == ["pipe"]
    compared = {skip.case: skip.why for skip in skips}
    assert compared.pop("rival gloo").startswith("its Python does not run: ")
    assert compared == {
        "rival mpich": "not installed",
        "rival openmpi": "not installed",
        "rival nixl": "not installed (no nixl_cu12 numpy)",
    }
    assert rivals.present(ON_ONE_MACHINE, libraries.ALL_REDUCE)[0] == []


def test_installed_mpi_launcher_is_taken_from_beside_its_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    (tmp_path / "python").symlink_to(sys.executable)
    (tmp_path / "mpiexec.hydra").touch()
    for name in ("mpich", "openmpi"):
        monkeypatch.setenv(f"BENCHMARKS_PYTHON_{name.upper()}", str(tmp_path / "python"))
        rival = rivals.RIVALS[name]
        monkeypatch.setitem(rivals.RIVALS, name, Rival(rival.tasks, (), rival.kind, rival.launcher))
    names, skips = rivals.present(ON_ONE_MACHINE, libraries.WRITE)
    assert "mpich" in names
    assert "openmpi" not in names
    assert measure.Skip("rival openmpi", "not installed") in skips


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, sys; sys.exit('out of luck' if os.environ['RANK'] == '1' else 0)", "ended with 1: out of luck"),
        ("import os; os.abort()", "ended with -6"),
        ("print('nothing')", "printed no figures that can be read: 'nothing'"),
        ("", "printed no figures that can be read: ''"),
    ],
    ids=["one fails", "killed", "no figures", "silent"],
)  # fmt: skip
def test_rival_run_fails_raises_with_reason(fake: Fake, program: str, words: str) -> None:
    fake("broken", program)
    with pytest.raises(measure.ContenderFailed, match=words):
        rivals.run(Entrant("broken"), [libraries.WRITE], 2, JOBS)


def test_bench_channel_rival_fails_is_skipped_and_others_go_on(tmp_path: Path, fake: Fake) -> None:
    fake("broken", "raise SystemExit('out of luck')")
    result = bench("channel", "8", tmp_path)
    assert result["skipped"] == [{"case": "broken over 2 processes", "why": "ended with 1: out of luck"}]
    assert {each["contender"] for each in result["timings"]} == {"peerlane", "pipe"}


def test_rival_run_hangs_is_ended_and_raises(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    fake(
        "stuck",
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"os.write(os.open({str(pids)!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY), b'%d ' % os.getpid())\n"
        "time.sleep(600)\n",
    )
    monkeypatch.setattr(rivals, "_SECONDS", 10.0)
    monkeypatch.setattr(rivals, "_END_SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(measure.ContenderFailed, match="did not end within 10 s"):
        rivals.run(Entrant("stuck"), [libraries.WRITE], 2, JOBS)
    assert time.monotonic() - began < 30
    ended = [int(word) for word in pids.read_text().split()]
    assert len(ended) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in ended)


def test_rival_run_one_rank_fails_ends_the_other(fake: Fake) -> None:
    fake("half", "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('no')\ntime.sleep(600)\n")
    with pytest.raises(measure.ContenderFailed, match="ended with 1: no"):
        rivals.run(Entrant("half"), [libraries.WRITE], 2, JOBS)


def test_rival_run_asks_only_for_tasks_of_that_rival(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("slow", SLOW)
    slow = rivals.RIVALS["slow"]
    monkeypatch.setitem(rivals.RIVALS, "slow", Rival((libraries.MESSAGE,), (), slow.kind))
    assert rivals.run(Entrant("slow"), [libraries.WRITE, libraries.MESSAGE], 2, JOBS) == {
        libraries.MESSAGE: [1.0, 1.0]
    }


def test_rival_run_of_pipe_gives_seconds() -> None:
    compared = rivals.run(Entrant("pipe"), [libraries.MESSAGE], 2, JOBS)
    assert list(compared) == [libraries.MESSAGE]
    assert len(compared[libraries.MESSAGE]) == 2
    assert all(0 < seconds < 10 for seconds in compared[libraries.MESSAGE])


#: A launcher that reports its own words, and the variables that it has.
LAUNCHER = f"""#!{sys.executable}
import json, os, sys
print(json.dumps(dict(write=[sys.argv[1:], [os.environ.get(name) for name in ("MODE", "MPI4PY_MPIABI")]])))
"""


@pytest.mark.parametrize(
    ("cores", "bound"), [(2, ["--bound"]), (1, [])], ids=["a core each", "too few cores"]
)
def test_rival_run_of_mpi_is_bound_where_each_rank_has_a_core(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cores: int, bound: list[str]
) -> None:
    (tmp_path / "launch").write_text(LAUNCHER)
    (tmp_path / "launch").chmod(0o700)
    monkeypatch.setenv("BENCHMARKS_PYTHON_SOME", str(tmp_path / "python"))
    monkeypatch.setattr("peerlane.cli.machine.physical_cores", lambda: cores)
    launcher = Launcher(("launch", "--always"), ("--bound",))
    variants = {"plain": Variant(), "chosen": Variant({"MODE": "chosen"}, (libraries.WRITE,))}
    monkeypatch.setitem(rivals.RIVALS, "some", Rival(libraries.TASKS, (), "mpi", launcher, variants))
    words, variables = rivals.run(Entrant("some", "chosen"), libraries.TASKS, 2, JOBS)["write"]
    assert words[:-6] == ["--always", *bound, "-n", "2"]
    assert words[-4:] == ["mpi", "write", "8:3", "4096:2"]
    assert variables == ["chosen", "some"]


def test_variants_of_a_task_are_those_that_differ_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = {"plain": Variant(), "chosen": Variant(tasks=(libraries.WRITE,))}
    monkeypatch.setitem(rivals.RIVALS, "some", Rival(libraries.TASKS, (), "mpi", variants=variants))
    assert rivals.entrants(["some", "pipe"], libraries.MESSAGE) == [Entrant("some", "plain"), Entrant("pipe")]
    assert rivals.entrants(["some"], libraries.WRITE) == [Entrant("some", "plain"), Entrant("some", "chosen")]


def test_rival_run_of_slow_library_repeats_less_often(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("lazy", "import json, sys\nprint(json.dumps(dict(write=sys.argv[3:])))\n")
    monkeypatch.setitem(rivals.RIVALS, "lazy", Rival((libraries.WRITE,), (), "lazy", fewer=10))
    assert rivals.run(Entrant("lazy"), [libraries.WRITE], 2, [(8, 500), (4096, 2)]) == {
        "write": ["8:50", "4096:1"]
    }


def test_judged_bars_of_one_case_differ_by_reference() -> None:
    case = "all-reduce 64 MiB over 2 processes"
    figures = [
        measure.Figure(case, "peerlane", reference, measure.SPEED, ratio, ratio, ratio, 1.0)
        for reference, ratio in (("memcpy, 1 thread", 0.1), ("mpich", 1.5), ("gloo", 0.9))
    ]
    compared = [(bar.reference, bar.met(figure)) for bar, figure in bars.judged(figures)]
    assert compared == [("mpich", "goal"), ("gloo", "missed")]

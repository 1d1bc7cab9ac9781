"""``peerlane check``: what it prints, its exit codes, its files, and the program beside it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.launched import state, until
from helpers.prepared import run_python
from helpers.trace_format import flaws_of
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

RACE = """\
import sys
import peerlane as pl
device = pl.devices()[0]
with device.allocate(64) as memory, device.create_stream() as stream:
    memory.fill(3, stream=stream)
    print("seen", int(memory.view()[5]))
    stream.sync()
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
RIGHT = RACE.replace("    print", "    stream.sync()\n    print")
RANKS = """\
import peerlane as pl
with pl.Group(window=4096) as group:
    channel = group.channel(1 - group.rank)
    block = group.device.allocate(64)
    block.fill(7)
    with group.device.create_stream() as stream:
        if group.rank == 0:
            channel.write(block, at=0, stream=stream)
            channel.notify(0, stream=stream)
            channel.write(block, at=64, stream=stream)
            stream.sync()
        else:
            channel.wait(0)
            assert group.window.view()[3] == 7
            print(group.window.view()[70] in (0, 7))
    group.barrier()
"""
Check = Callable[..., Completed]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name, text in (("race.py", RACE), ("right.py", RIGHT), ("ranks.py", RANKS)):
        (tmp_path / name).write_text(text)

    def run(*words: str) -> Completed:
        done = run_python(["-m", "peerlane", "check", *words], timeout=60)
        assert list((tmp_path / "tmp").iterdir()) == []  # the logs are gone
        return done

    return run


def test_race_is_reported_on_stderr_and_the_output_stays(check: Check) -> None:
    done = check("race.py")
    assert done.returncode == 3
    assert re.fullmatch(r"seen \d\n", done.stdout)
    assert "race (certain): " in done.stderr
    assert "stream 1: fill (write) at race.py:5" in done.stderr
    assert "        5 | memory.fill(3, stream=stream)" in done.stderr
    assert '        6 | print("seen", int(memory.view()[5]))' in done.stderr
    assert "missing: a synchronization" in done.stderr
    assert done.stderr.endswith("peerlane check: 1 certain finding\n")
    assert max(map(len, done.stderr.splitlines())) <= 100
    assert "\x1b" not in done.stderr
    assert "cli" not in done.stderr  # no frame of peerlane


def test_right_program_ends_with_0(check: Check) -> None:
    done = check("right.py")
    assert (done.returncode, done.stderr) == (0, "peerlane check: no findings\n")


UNCERTAIN = """\
import socket, threading
import peerlane as pl
device = pl.devices()[0]
here, there = socket.socketpair()
memory, stream = device.allocate(64), device.create_stream()
def write():
    memory.fill(3, stream=stream)
    stream.sync()
    here.sendall(b"x")
thread = threading.Thread(target=write)
thread.start()
there.recv(1)
seen = int(memory.view()[5])
thread.join()
"""


def test_strict_counts_uncertain_findings_for_the_exit_code(check: Check, tmp_path: Path) -> None:
    (tmp_path / "uncertain.py").write_text(UNCERTAIN)
    lenient = check("uncertain.py")
    assert lenient.returncode == 0 and "1 uncertain finding" in lenient.stderr
    strict = check("--strict", "--json", "f.json", "uncertain.py")
    report = json.loads((tmp_path / "f.json").read_text())
    assert (strict.returncode, report["exit"], report["findings"][0]["certain"]) == (3, 3, False)
    assert check("--strict", "right.py").returncode == 0
    many = check("--strict", "--schedules", "3", "uncertain.py")
    assert many.returncode == 3 and "check --strict uncertain.py" in many.stderr


def test_finding_of_one_process_names_it_once(check: Check) -> None:
    done = check("race.py")
    assert done.stderr.count("process ") == 1 and "of process " in done.stderr
    assert done.stderr.startswith(
        ("\nrace (certain): copy", "\nrace (certain): fill", "\nrace (certain): host")
    )


def test_files_are_named_once_they_are_written(check: Check) -> None:
    done = check("--html", "page.html", "--json", "f.json", "right.py")
    assert done.stderr.splitlines()[-2:] == [
        "peerlane check: wrote f.json",
        "peerlane check: wrote page.html",
    ]


@pytest.mark.parametrize("program", ["race.py", "right.py"])
def test_exit_code_of_the_program_goes_first(check: Check, program: str) -> None:
    assert check(program, "41").returncode == 41


def test_program_killed_by_a_signal_is_reported_and_checked(check: Check, tmp_path: Path) -> None:
    text = RACE.replace(
        "    stream.sync()\n", "    import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "killed.py").write_text(text)
    done = check("killed.py")
    assert done.returncode == 128 + signal.SIGKILL
    assert "race (certain): " in done.stderr


@pytest.mark.parametrize("form", ["-c", "-m"])
def test_module_and_source_text_are_checked(check: Check, form: str) -> None:
    done = check(form, RACE if form == "-c" else "race", "0")
    assert done.returncode == 3
    assert "        5 | memory.fill(3, stream=stream)" in done.stderr


def test_dialect_is_served_and_checked(check: Check, tmp_path: Path) -> None:
    (tmp_path / "vendor.py").write_text("import acl, sys\nprint(acl.rt.get_device_count(), sys.argv[1:])\n")
    done = check("--devices", "3", "--dialect", "acl", "vendor.py", "--devices", "5")
    assert (done.returncode, done.stdout) == (0, "(3, 0) ['--devices', '5']\n")


def test_race_between_ranks_names_both_and_the_missing_wait(check: Check) -> None:
    done = check("-n", "2", "--devices", "2", "ranks.py")
    assert done.returncode == 3
    assert done.stdout == "[1] True\n"
    assert "rank 0, stream 1: Channel.write" in done.stderr and "at ranks.py:10" in done.stderr
    assert "rank 1, thread " in done.stderr and "at ranks.py:15" in done.stderr
    assert "missing: rank 1's wait at line 13 was for an earlier record at line 9." in done.stderr


def test_files_have_the_findings_a_page_and_a_trace(check: Check, tmp_path: Path) -> None:
    done = check(
        *(
            "-n",
            "2",
            "--devices",
            "2",
            "--json",
            "f.json",
            "--html",
            "f.html",
            "--trace",
            "f.trace",
            "ranks.py",
        )
    )
    assert done.returncode == 3
    findings = json.loads((tmp_path / "f.json").read_text())
    assert list(findings)[:2] == ["version", "exit"]
    assert (findings["version"], findings["exit"], findings["complete"]) == (1, 3, True)
    (race,) = (each for each in findings["findings"] if each["kind"] == "race")
    assert (race["certain"], [site["line"] for site in race["sites"]]) == (True, [10, 15])
    assert flaws_of(tmp_path / "f.trace") == []
    trace = json.loads((tmp_path / "f.trace").read_text())["traceEvents"]
    assert {each["cat"] for each in trace if each["ph"] == "s"} == {"notify", "arrival"}
    assert "ranks.py" in (tmp_path / "f.html").read_text()


def test_launch_writes_a_trace_of_all_ranks(check: Check, tmp_path: Path) -> None:
    words = ["-m", "peerlane", "launch", "-n", "2", "--devices", "2", "--trace", "f.trace", "ranks.py"]
    done = run_python(words, timeout=60)
    assert done.returncode == 0, done.stderr
    assert flaws_of(tmp_path / "f.trace") == []
    trace = json.loads((tmp_path / "f.trace").read_text())["traceEvents"]
    names = {each["args"]["name"].partition(" (")[0] for each in trace if each["name"] == "process_name"}
    assert names == {"rank 0", "rank 1"}
    lines = {each["args"].get("line") for each in trace if each["ph"] == "X"}
    assert {"ranks.py:8", "ranks.py:9", "ranks.py:13", "ranks.py:14"} <= lines


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-n", "0", "right.py"),
        ("-n", "2"),
        ("--json", "no/such/folder/f.json", "right.py"),
        ("--html", ".", "right.py"),
        ("--devices", "0", "right.py"),
        ("--no-such-option", "right.py"),
        ("--schedules", "0", "right.py"),
        ("--fault", "kill:rank=1", "right.py"),
    ],
)
def test_bad_usage_ends_with_2_and_runs_nothing(check: Check, words: tuple[str, ...]) -> None:
    done = check(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_program_that_is_not_there_ends_as_under_python(check: Check) -> None:
    done = check("absent.py")
    assert done.returncode == 2
    assert "can't open file" in done.stderr


def test_signals_reach_the_program_and_the_findings_are_reported(check: Check, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        RACE.replace(
            "    stream.sync()\n", "    print('ready', flush=True)\n    __import__('time').sleep(60)\n"
        )
    )
    with subprocess.Popen(
        [sys.executable, "-m", "peerlane", "check", "long.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "race (certain): " in errors


def test_check_that_was_stopped_and_continued_goes_on(check: Check, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("print('ready', flush=True)\nprint('read', input())\n")
    with subprocess.Popen(
        [sys.executable, "-m", "peerlane", "check", "waits.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            until(lambda: state(process.pid) == "T")
            time.sleep(0.1)  # longer than each of its waits
            process.send_signal(signal.SIGCONT)
        printed, errors = process.communicate("a line\n", timeout=60)
    assert (process.returncode, printed) == (0, "read a line\n"), errors


def test_end_of_check_ends_the_program(check: Check, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "peerlane", "check", "long.py"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        program = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
        process.wait(20)
        assert process.stdout.read() == ""  # the pipe closes with the program
    os.close(program)


def test_process_that_outlives_the_check_can_start_others(check: Check, tmp_path: Path) -> None:
    text = "import os, subprocess, sys, pathlib\n" + RIGHT.replace(
        "sys.exit",
        """while pathlib.Path(os.environ["PEERLANE_LOG"]).exists():
    pass
done = subprocess.run([sys.executable, "-c", "import peerlane; peerlane.devices()[0].allocate(8)"], timeout=60)
pathlib.Path("done").write_text(str(done.returncode))
sys.exit""",
    )
    (tmp_path / "late.py").write_text(text)
    words = "[sys.executable, 'late.py'], stdout=-3, stderr=-3, start_new_session=True"
    starter = f"import subprocess, sys; subprocess.Popen({words})"
    assert check("-c", starter).returncode == 0
    until(lambda: (tmp_path / "done").exists() and (tmp_path / "done").read_text() != "", 30)
    assert (tmp_path / "done").read_text() == "0"


@pytest.mark.parametrize("schedules", [3])
def test_schedules_stop_at_the_first_that_fails_and_show_how_to_repeat_it(
    check: Check, schedules: int
) -> None:
    done = check("--schedules", str(schedules), "--json", "f.json", "race.py")
    assert done.returncode == 3
    assert done.stdout.count("seen") == 1
    (repeated,) = re.findall(r"^  (PEERLANE_SCHEDULE=seeded:\S+) peerlane check race.py$", done.stderr, re.M)
    assert json.loads(Path("f.json").read_text())["schedule"] == repeated.partition("=")[2]


def test_schedules_of_a_right_program_find_nothing(check: Check) -> None:
    done = check("--schedules", "2", "right.py")
    assert (done.returncode, done.stdout) == (0, "seen 3\nseen 3\n")
    assert done.stderr.endswith("peerlane check: no findings under 2 schedules\n")


def test_rank_that_is_killed_is_reported_from_what_its_log_still_has(check: Check, tmp_path: Path) -> None:
    text = RANKS.replace("stream.sync()", "stream.sync(); channel.wait(1); os.kill(os.getpid(), 9)")
    text = text.replace("in (0, 7))", "in (0, 7)); channel.notify(1)")
    (tmp_path / "killed.py").write_text("import os\n" + text)
    done = check("-n", "2", "--devices", "2", "killed.py")
    assert done.returncode == 128 + signal.SIGKILL
    assert "race (certain): " in done.stderr
    assert "rank 0, stream 1: Channel.write at killed.py:11" in done.stderr


def test_faults_reach_the_program(check: Check) -> None:
    fault = "delay:rank=0,op=2,ms=1"
    done = check("--fault", fault, "-c", "import os; print(os.environ['PEERLANE_FAULT'])")
    assert done.stdout == f"{fault}\n"


def test_environment_of_the_log_is_replaced(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.setenv("PEERLANE_LOG", str(mine))
    assert check("race.py").returncode == 3


def test_file_that_cannot_be_written_does_not_hide_a_finding(check: Check, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "race.py").write_text(f"import os\nos.rmdir('gone')\n{RACE}")
    done = check("--json", "gone/f.json", "race.py")
    assert done.returncode == 3
    assert "race (certain)" in done.stderr and "--json 'gone/f.json' cannot be written" in done.stderr


def test_file_that_cannot_be_written_for_a_right_program_ends_with_2(check: Check, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "right.py").write_text(f"import os\nos.rmdir('gone')\n{RIGHT}")
    assert check("--json", "gone/f.json", "right.py").returncode == 2


def test_one_file_for_two_outputs_is_refused_and_left_as_it_is(check: Check, tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "found").write_text("mine")
    (tmp_path / "link").symlink_to("found")
    done = check("--json", "found", "--html", "link", "right.py")
    assert (done.returncode, (tmp_path / "found").read_text()) == (2, "mine")
    assert "--json and --html are the same file, 'link'" in done.stderr


def test_json_is_written_through_a_link(check: Check, tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "link.json").symlink_to("target.json")
    assert check("--json", "link.json", "right.py").returncode == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "target.json").read_text())["exit"] == 0


def test_lines_of_one_wrapper_are_distinguished_by_their_callers(check: Check, tmp_path: Path) -> None:
    program = "def call(verb, *given, **named):\n    return verb(*given, **named)\n" + RACE.replace(
        "memory.fill(3, stream=stream)", "call(memory.fill, 3, stream=stream)"
    ).replace("memory.view()[5]", "call(memory.view()[:6].copy)[5]")
    (tmp_path / "wrapped.py").write_text(program)
    done = check("wrapped.py")
    assert done.returncode == 3
    assert "after line 7, before line 8" in " ".join(done.stderr.split()), done.stderr


#: Two file systems of a mount namespace of its own: no room for logs in memory, and little on the disk.
SMALL_DISKS = """
mount -t tmpfs -o size=64k none /dev/shm && mount -t tmpfs -o size=768k none "$1" || exit 125
export TMPDIR="$1" && shift && exec "$@"
"""
HAS_NAMESPACES = (
    subprocess.run(
        ["unshare", "-rm", "sh", "-c", SMALL_DISKS, "sh", "/mnt", "true"], capture_output=True, check=False
    ).returncode
    == 0
)

#: The copies of the second stream are ordered by an event that the log has no room for.
MANY = """
import peerlane as pl
device = pl.devices()[0]
with device.create_stream() as s, device.create_stream() as t:
    a, b = device.allocate(4096), device.allocate(4096)
    for turn in range(30_000):
        pl.copy(a[turn % 64 * 64:][:8], b[:8], stream=s)
        if turn % 100 == 99:
            t.wait(s)
            b[64:128].fill(turn % 256, stream=t)
            s.wait(t)
            pl.copy(a[:64], b[64:128], stream=s)
    s.sync()
    t.sync()
    print("came", int(a.view()[0]))
"""


@pytest.mark.skipif(
    not HAS_NAMESPACES, reason="this process may not mount a file system in a namespace of its own"
)
def test_check_on_a_full_disk_lets_the_program_run_and_counts_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(MANY)
    (tmp_path / "disk").mkdir()
    (tmp_path / "runtime").mkdir(mode=0o700)
    words = [
        sys.executable,
        "-m",
        "peerlane",
        "check",
        "--json",
        "found.json",
        "--html",
        "page.html",
        "many.py",
    ]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", SMALL_DISKS, "sh", str(tmp_path / "disk"), *words],
        cwd=tmp_path,
        env=os.environ | {"PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("came ")
    findings = json.loads((tmp_path / "found.json").read_text())
    assert (findings["exit"], findings["complete"]) == (0, False)
    assert findings["dropped"] > 1000
    assert [each for each in findings["findings"] if each["certain"]] == []
    assert f"{findings['dropped']:,} events were dropped" in done.stderr

"""``peerlane launch --hosts``: ranks on several machines, which are all this one, behind a command like ssh."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import peerlane
from helpers.far_machine import like_ssh
from helpers.launched import MARK, Launched, Run, Start, until
from helpers.promised import overdue
from peerlane.cli.launch.wire import MAGIC, Kind
from peerlane.support.processes import parent_of

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

PROMISED_SECONDS = 0.5
READY = """\
import json, os, signal, subprocess, sys, time
from peerlane.rendezvous import Rendezvous
r = Rendezvous.from_environment()
def ready():
    r.barrier("ready")
    if r.rank == 0:
        print("ready", flush=True)
def rest():
    for _ in range(2000): time.sleep(0.05)
"""
SHOWN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("PEERLANE_MACHINE", "MASTER_ADDR"),
)


def parts(launched: Launched) -> list[int]:
    """Return the pids of the parts of other machines: the guards, then the parts themselves."""
    pids = [pid for pid, words in launched.members().items() if "peerlane.cli.launch" in words]
    return sorted(pids, key=lambda pid: parent_of(pid) in pids)


def shown(stdout: str) -> dict[int, list[str]]:
    lines = [line.partition("] ")[::2] for line in stdout.splitlines()]
    return {int(rank[1:]): words.split() for rank, words in lines}


def test_hosts_ranks_meet_and_know_their_machines(ssh: str, run: Run) -> None:
    program = READY + (
        "values = r.gather('all', bytes([r.rank]))\n"
        f"print(*(os.environ[name] for name in {SHOWN!r}), *(value[0] for value in values))\n"
    )
    done = run("--ssh", ssh, "--hosts", "localhost:2,b:1,user@c:2", "-c", program)
    assert done.returncode == 0, done.stderr
    positions = [(0, 2, 0), (1, 2, 0), (0, 1, 1), (0, 2, 2), (1, 2, 2)]
    names = ["localhost", "localhost", "b", "user@c", "user@c"]
    assert shown(done.stdout) == {
        rank: f"{rank} 5 {local} {count} {group} 3 {names[rank]} 127.0.0.1 0 1 2 3 4".split()
        for rank, (local, count, group) in enumerate(positions)
    }
    assert done.stderr == ""


def test_hosts_this_machine_alone_needs_no_command(run: Run) -> None:
    done = run(
        "--ssh", "no-such-command", "--hosts", "localhost:2", "-c", READY + "r.barrier(); print(r.rank)"
    )
    assert shown(done.stdout) == {0: ["0"], 1: ["1"]}, done.stderr


def test_hosts_local_rank_0_reads_standard_input(ssh: str, cwd: Path, start: Start) -> None:
    path = cwd / "words"
    path.write_text("some words")
    with path.open() as stdin:
        launched = start(
            *("--ssh", ssh, "--hosts", "localhost:1,b:1", "-c", "import sys; print(repr(sys.stdin.read()))"),
            stdin=stdin.fileno(),
        )
        assert sorted(launched.end().stdout.splitlines()) == ["[0] 'some words'", "[1] ''"]


def test_hosts_environment_there_is_peerlanes_and_what_is_named(
    ssh: str, run: Run, env: dict[str, str]
) -> None:
    names = ("PEERLANE_HIP_POLICY", "NAMED", "GIVEN", "OTHER", "PEERLANE_RUNTIME_DIR", "PEERLANE_MACHINE")
    program = (
        f"import os, acl; print(*(os.environ.get(name) for name in {names!r}), acl.rt.get_device_count()[0])"
    )
    variables = {**env, "PEERLANE_HIP_POLICY": "strict", "NAMED": "here", "OTHER": "x", "GIVEN": "no"}
    variables["PEERLANE_MACHINE"] = "mine"
    words = ("--env", "NAMED", "--env", "GIVEN=a=b", "--env", "UNSET", "--devices", "3")
    done = run("--ssh", ssh, *words, "--hosts", "localhost:1,b:1", "-c", program, env=variables)
    runtime = env["PEERLANE_RUNTIME_DIR"]
    assert shown(done.stdout) == {
        0: f"strict here no x {runtime} mine 3".split(),
        1: f"strict here a=b None {runtime} b 3".split(),
    }, done.stderr


def test_hosts_secret_is_in_no_argument_and_no_environment(ssh: str, start: Start) -> None:
    launched = start("--ssh", ssh, "--hosts", "localhost:1,b:1", "-c", READY + "ready(); rest()")
    launched.expect("ready")
    members = launched.members()
    assert len(parts(launched)) == 2
    for pid in members:
        for name in ("environ", "cmdline"):
            assert not re.search(rb"[0-9a-f]{64}", Path(f"/proc/{pid}/{name}").read_bytes()), (pid, name)
    launched.send(signal.SIGTERM)
    assert launched.end().returncode == 143


def test_hosts_values_of_peerlane_secret_stay_on_the_launchers_machine(
    ssh: str, run: Run, env: dict[str, str]
) -> None:
    program = "import os; print(os.environ.get('PEERLANE_SECRET'))"
    done = run("--ssh", ssh, "--hosts", "b:1", "-c", program, env={**env, "PEERLANE_SECRET": "x" * 16})
    assert done.stdout == "[0] None\n"


def test_hosts_rank_killed_on_another_machine_is_named_and_ends_waits_in_time(ssh: str, run: Run) -> None:
    program = READY + (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "ready()\n"
        "if r.rank == 2:\n"
        "    print('last', file=sys.stderr, flush=True)\n"
        "    r.put('at', repr(time.monotonic()).encode())\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "at = float(r.get('at'))\n"
        "try: r.barrier()\n"
        "except Exception as error: print(time.monotonic() - at, type(error).__name__, error)\n"
    )
    done = run("--ssh", ssh, "--hosts", "localhost:1,b:1,c:1", "-c", program)
    assert done.returncode == 137
    assert re.search(r"rank 2 \(pid \d+ on c\) was killed by SIGKILL; last words:\n  last\n", done.stderr)
    for rank in (0, 1):
        seconds, kind, *text = shown(done.stdout)[rank]
        assert kind == "PeerLost" and "on c) was killed by SIGKILL" in " ".join(text)
        assert float(seconds) < overdue(PROMISED_SECONDS)


def test_hosts_losses_are_distinguished_by_machine(ssh: str, run: Run) -> None:
    program = READY + (
        "from peerlane.rendezvous.reports import report_loss\n"
        "pids = [int(pid) for pid in r.gather('pids', str(os.getpid()).encode())]\n"
        "if r.rank == 2:\n"
        "    report_loss(pids[2], pids[1])\n"
        "    os._exit(5)\n"
        "if r.rank == 1:\n"
        "    time.sleep(0.5)\n"
        "    os._exit(6)\n"
        "rest()\n"
    )
    done = run("--ssh", ssh, "--hosts", "localhost:1,b:2", "-c", program)
    assert done.returncode == 6
    assert re.search(r"rank 1 \(pid \d+ on b\) exited with 6; ending the others", done.stderr)


def test_hosts_processes_left_on_another_machine_are_ended_and_named(ssh: str, run: Run) -> None:
    program = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    done = run("--ssh", ssh, "--hosts", "localhost:1,b:1", "-c", program)
    assert done.returncode == 0
    reported = r"the ranks left processes behind, which are ended: \d+ \(sleep 1000\)(.*)\n"
    assert sorted(re.findall(reported, done.stderr)) == ["", " on b"]


def test_hosts_wait_for_a_rank_elsewhere_is_never_a_deadlock(ssh: str, run: Run) -> None:
    program = READY + (
        "if r.rank != 1: print(r.get('late'))\nelse:\n    time.sleep(4)\n    r.put('late', b'came')\n"
    )
    done = run("--ssh", ssh, "--hosts", "localhost:1,b:2", "-c", program)
    assert sorted(done.stdout.splitlines()) == ["[0] b'came'", "[2] b'came'"], done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("which", [0, 1])
def test_hosts_part_killed_is_reported_and_its_ranks_die(which: int, ssh: str, start: Start) -> None:
    launched = start("--ssh", ssh, "--hosts", "localhost:1,b:2", "-c", READY + "ready(); rest()")
    launched.expect("ready")
    os.kill(parts(launched)[which], signal.SIGKILL)
    done = launched.end()
    assert done.returncode == 2
    assert "peerlane launch: host b is lost: " in done.stderr
    assert "; ending the others (SIGKILL after 5 s)" in done.stderr


def test_hosts_command_killed_is_reported_and_its_ranks_die(ssh: str, start: Start, tmp_path: Path) -> None:
    launched = start("--ssh", ssh, "--hosts", "localhost:1,b:2", "-c", READY + "ready(); rest()")
    launched.expect("ready")
    os.kill(parts(launched)[0], signal.SIGKILL)
    done = launched.end()
    assert "host b is lost: its command was killed by SIGKILL" in done.stderr


def test_hosts_local_part_killed_is_reported_and_its_ranks_die(ssh: str, start: Start) -> None:
    program = READY + "if r.rank == 0: print('part', os.getppid(), flush=True)\nready(); rest()"
    launched = start("--ssh", ssh, "--hosts", "localhost:2,b:1", "-c", program)
    part = int(launched.expect("part").split()[-1])
    launched.expect("ready")
    os.kill(part, signal.SIGKILL)
    done = launched.end()
    assert done.returncode == 2
    assert "host localhost is lost: its part was killed by SIGKILL" in done.stderr


def test_hosts_silent_machine_is_lost(ssh: str, start: Start) -> None:
    launched = start(
        *("--ssh", ssh, "--unreachable", "5", "--hosts", "localhost:1,b:1", "-c", READY + "ready(); rest()")
    )
    launched.expect("ready")
    began = time.monotonic()
    os.kill(parts(launched)[1], signal.SIGSTOP)
    done = launched.end()
    assert done.returncode == 2
    assert "host b is lost: its machine has been silent for 5 s; ending the others" in done.stderr
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("before", "reported"),
    [
        ("echo 'no such machine' >&2; exit 255", "host b cannot be used: its command exited with 255"),
        ("kill -KILL $$", "host b cannot be used: its command was killed by SIGKILL"),
        ("exit 0", "host b cannot be used: its command exited with 0"),
        ("head -c 200000 /dev/zero; exec sleep 1000", "host b cannot be used: it sent what is not a frame"),
    ],
)
def test_hosts_unusable_is_reported_before_any_rank_starts(
    before: str, reported: str, tmp_path: Path, run: Run, env: dict[str, str]
) -> None:
    odd = like_ssh(tmp_path, MARK, env["PEERLANE_RUNTIME_DIR"], f'if [ "$host" = b ]; then\n{before}\nfi')
    done = run("--ssh", odd, "--hosts", "localhost:1,a:1,b:1", "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (2, "")
    assert reported in done.stderr
    if "no such" in before:
        assert "[b] no such machine\n" in done.stderr
        assert done.stderr.endswith("last words:\n  no such machine\n")


def frame(kind: Kind, body: object) -> bytes:
    text = json.dumps(body).encode()
    return struct.pack("<IBi", len(text), kind, 0) + text


FAKE_PART = """\
import struct, sys, time
def hear():
    length, kind, number = struct.unpack("<IBi", sys.stdin.buffer.read(9))
    sys.stdin.buffer.read(length)
for number, frame in enumerate({frames!r}):
    if number:
        hear()
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()
time.sleep(1000)
"""


@pytest.fixture
def fake_part(tmp_path: Path, env: dict[str, str]) -> Callable[..., str]:
    """Return a function that makes a command whose part says one thing first, and one after each frame."""

    def make(*frames: bytes) -> str:
        path = tmp_path / "fake.py"
        path.write_text(FAKE_PART.format(frames=frames))
        return like_ssh(tmp_path, MARK, env["PEERLANE_RUNTIME_DIR"], f"exec {sys.executable} {path}")

    return make


@pytest.mark.parametrize(
    ("kind", "body", "reported"),
    [
        (
            Kind.READY,
            {"version": "0.0.1"},
            f"peerlane there is version 0.0.1, and here {peerlane.__version__}",
        ),
        (Kind.READY, [], "READY says nothing"),
        (
            Kind.READY,
            {"version": peerlane.__version__, "port": "x", "ssh": ""},
            "READY says neither port nor ssh",
        ),
        (Kind.ENDED, [], "ENDED comes before READY"),
        (Kind.START, {}, "START comes before READY"),
    ],
)
def test_hosts_other_version_and_nonsense_are_refused(
    kind: Kind, body: object, reported: str, fake_part: Callable[..., str], run: Run
) -> None:
    done = run(
        "--ssh", fake_part(MAGIC + frame(kind, body)), "--hosts", "localhost:1,b:1", "-c", "print('ran')"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "host b cannot be used: " in done.stderr and reported in done.stderr


@pytest.mark.parametrize(
    ("kind", "body", "reported"),
    [
        (Kind.ENDED, [[0, 1 << 40, ""]], "ENDED has the exit code 1099511627776"),
        (Kind.ENDED, [[7, 0, ""]], "ENDED has no ends: rank 7 is not of this machine"),
        (Kind.ENDED, 5, "ENDED has no ends"),
        (Kind.STARTED, [], "STARTED has no pids"),
        (Kind.LEFT, ["x"], "a list of processes is none"),
        (Kind.OUTPUT, 0, "OUTPUT is not for a launcher"),
        (Kind.READY, {}, "READY is not for a launcher"),
    ],
)
def test_hosts_part_that_sends_nonsense_is_lost(
    kind: Kind, body: object, reported: str, fake_part: Callable[..., str], run: Run
) -> None:
    ready = frame(Kind.READY, {"version": peerlane.__version__, "port": 1, "ssh": ""})
    odd = fake_part(MAGIC + ready, frame(Kind.PREPARED, None), frame(kind, body))
    done = run("--ssh", odd, "--hosts", "b:1", "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"host b is lost: it sent what is not a frame: {reported}" in done.stderr


def test_hosts_long_command_lines_that_are_left_are_reported(ssh: str, run: Run) -> None:
    left = "[sys.executable, '-c', 'import signal; signal.pause()', *['x' * 100_000] * 10]"
    program = f"import subprocess, sys; subprocess.Popen({left})"
    done = run("--ssh", ssh, "--hosts", "b:1", "-c", program)
    assert done.returncode == 0
    assert "the ranks left processes behind, which are ended: " in done.stderr
    assert len(done.stderr) < 1000


def test_hosts_words_of_a_shell_there_are_shown(tmp_path: Path, run: Run, env: dict[str, str]) -> None:
    chatty = like_ssh(tmp_path, MARK, env["PEERLANE_RUNTIME_DIR"], "echo Welcome to $host; echo hint >&2")
    done = run("--ssh", chatty, "--hosts", "b:1", "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (0, "[0] ran\n")
    assert sorted(done.stderr.splitlines()) == ["[b] Welcome to b", "[b] hint"]


def test_hosts_without_peerlane_shows_pythons_message(ssh: str, run: Run) -> None:
    plain = str(Path(sys.base_prefix, "bin", "python3"))
    done = run("--ssh", ssh, "--python", plain, "--hosts", "b:1", "-c", "print('ran')")
    assert done.returncode == 2
    assert "host b cannot be used: its command exited with 1" in done.stderr
    assert "No module named" in done.stderr


def test_hosts_missing_folder_is_reported(ssh: str, run: Run, tmp_path: Path) -> None:
    gone = like_ssh(tmp_path, MARK, str(tmp_path / "runtime"), f"rmdir {tmp_path}/cwd/work")
    work = tmp_path / "cwd" / "work"
    work.mkdir()
    done = run("--ssh", gone, "--hosts", "b:1", "-c", "print('ran')", cwd=work)
    assert done.returncode == 2
    assert f"host b cannot be used: [Errno 2] No such file or directory: '{work}'" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_hosts_signal_while_machines_are_reached_ends_launch(
    number: int, tmp_path: Path, start: Start, env: dict[str, str]
) -> None:
    slow = like_ssh(tmp_path, MARK, env["PEERLANE_RUNTIME_DIR"], f"touch {tmp_path}/began; exec sleep 1000")
    launched = start("--ssh", slow, "--hosts", "localhost:1,b:1", "-c", "print('ran')")
    until((tmp_path / "began").exists)
    launched.send(number)
    done = launched.end()
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


def test_hosts_second_interrupt_gives_up_a_reader_that_does_not_read(ssh: str, start: Start) -> None:
    program = READY + (
        "try: ready(); rest()\nexcept KeyboardInterrupt: os.write(1, b'x' * 200_000 + b'\\n')\nos._exit(0)"
    )
    launched = start("--ssh", ssh, "--grace", "100", "--hosts", "localhost:1,b:1", "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGINT)
    until(lambda: len(launched.members()) == 2)
    launched.send(signal.SIGINT)
    assert launched.process.wait(20) == 0


@pytest.mark.parametrize(
    ("hosts", "reported"),
    [
        ("a", "valid is HOST:N"),
        ("a:0", "with N from 1 to 4096"),
        ("a:-1", "valid is HOST:N"),
        ("a:x", "valid is HOST:N"),
        ("a:2,", "valid is HOST:N"),
        (":2", "valid is HOST:N"),
        ("-oProxyCommand=x:2", "valid is HOST:N"),
        ("a b:2", "valid is HOST:N"),
        ("a:2:2", "not an IPv6 address"),
        ("a:1,b:1,a:1", "'a' is there twice"),
        ("a:4000,b:97", "4,097 processes; 4096 are the most"),
        ("localhost:1,127.0.0.1:1", "are the same machine"),
        ("x" * 65 + ":1", "64 are the most"),
    ],
)
def test_hosts_bad_hosts_exit_2_with_what_is_valid(hosts: str, reported: str, run: Run) -> None:
    done = run(f"--hosts={hosts}", "-c", "pass")
    assert (done.returncode, done.stdout) == (2, "")
    assert reported in done.stderr


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["-n", "2", "--hosts", "a:1"], "not allowed with argument"),
        (["--hosts", "a:1", "--ssh", ""], "--ssh is ''"),
        (["--hosts", "a:1", "--ssh", "'"], "No closing quotation"),
        (["--hosts", "a:1", "--ssh", "no-such-command"], "there is no command 'no-such-command'"),
        (["--hosts", "a:1", "--python", "/a b/python"], "would not take '/a b/python' as one word"),
        (["--hosts", "a:1", "--port", "0"], "valid are 1 to 65535"),
        (["--hosts", "a:1", "--env", "1=2"], "valid are NAME and NAME=VALUE"),
        (["--hosts", "a:1", "--unreachable", "0.1"], "valid are seconds from 0.5"),
        (["--hosts", "a:1", "--fault", "kill:rank=1,op=1"], "rank 1"),
    ],
)
def test_hosts_bad_options_exit_2_with_reason(words: list[str], reported: str, run: Run) -> None:
    done = run(*words, "-c", "pass")
    assert (done.returncode, done.stdout) == (2, "")
    assert reported in done.stderr


def test_hosts_ipv6_address_is_a_host(ssh: str, run: Run) -> None:
    done = run(
        "--ssh", ssh, "--hosts", "[fd00::7]:1", "-c", "import os; print(os.environ['PEERLANE_MACHINE'])"
    )
    assert done.stdout == "[0] fd00::7\n", done.stderr


def test_hosts_command_like_srun_runs_one_part_a_machine(
    tmp_path: Path, run: Run, env: dict[str, str]
) -> None:
    srun = (
        tmp_path / "srun"
    )  # its options stand before the host's name, and it starts the words without a shell
    srun.write_text('#!/bin/sh\ntest "$1 $2 $3" = "-N1 -n1 -w" || exit 9\nshift 4\nexec "$@"\n')
    srun.chmod(0o755)
    done = run(
        *("--ssh", f"{srun} -N1 -n1 -w", "--address", "127.0.0.1", "--hosts", "n1:1,n2:2", "-c"),
        READY + "print(*r.gather('all', bytes([r.rank])))",
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3), done.stderr

"""``peerlane launch``: the environment of its ranks, and their output."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from helpers.launched import Run, Start
from helpers.launching import also_far
from helpers.prepared import run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


def sorted_lines(text: str) -> list[str]:
    return sorted(text.splitlines())


SHOW = "import os, sys; print(*(os.environ[n] for n in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK')), sys.argv[1:], __name__)"


@also_far
@pytest.mark.parametrize("form", ["script", "-m", "-c", "dash"])
def test_launch_each_rank_gets_its_number_and_arguments(form: str, cwd: Path, run: Run) -> None:
    for name in ("show.py", "-show.py"):
        (cwd / name).write_text(SHOW)
    words = {"script": ["show.py"], "-m": ["-m", "show"], "-c": ["-c", SHOW], "dash": ["--", "-show.py"]}
    done = run("-n", "3", *words[form], "-n", "7", "--grace")
    assert (done.returncode, done.stderr) == (0, "")
    args = "['-n', '7', '--grace'] __main__"
    assert sorted_lines(done.stdout) == [f"[{rank}] {rank} 3 {rank} {args}" for rank in range(3)]


RANK_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
SHOW_RANK_VARIABLES = f"import os; print(*(os.environ.get(n) for n in {RANK_VARIABLES}))"
MEET_OVER_TCP = """
import os, socket
import peerlane as pl
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with socket.create_server(place) if rank == 0 else socket.socket() as own:  # open to the end, as torch keeps it
    with pl.Group() as group:  # behind this, rank 0 listens
        group.barrier()
        with pl.Group(rank, name="only the rank is told") as again:
            again.barrier()
        if rank == 0:
            for _ in range(size - 1):
                with own.accept()[0] as line: line.sendall(b"hello")
        else:
            own.connect(place); print(own.recv(5))
        group.barrier()
"""


def test_launch_master_address_is_free_for_ranks_to_meet_at(run: Run, env: dict[str, str]) -> None:
    done = run("-n", "3", "-c", MEET_OVER_TCP)
    assert (done.returncode, sorted_lines(done.stdout)) == (0, ["[1] b'hello'", "[2] b'hello'"]), done.stderr


def test_launch_inside_launch_has_another_port(run: Run, env: dict[str, str]) -> None:
    inner = f"import subprocess, sys; {SHOW_RANK_VARIABLES}; "
    words = ["-m", "peerlane", "launch", "-n", "1", "-c", SHOW_RANK_VARIABLES]
    inner += f"sys.stdout.flush(); sys.exit(subprocess.call([sys.executable, *{words}]))"
    done = run("-n", "1", "-c", inner)
    assert done.returncode == 0, done.stderr
    outer, nested = (line.split()[-5:] for line in done.stdout.splitlines())
    assert outer[0] == nested[0] == "127.0.0.1"
    assert 1024 <= int(outer[1]) != int(nested[1]) >= 1024
    assert outer[2:] == nested[2:] == ["1", "0", "1"]


def test_launch_master_address_of_user_is_kept(run: Run, env: dict[str, str]) -> None:
    done = run("-n", "2", "-c", SHOW_RANK_VARIABLES, env={**env, "MASTER_ADDR": "::1", "MASTER_PORT": "7"})
    assert sorted_lines(done.stdout) == ["[0] ::1 7 2 0 1", "[1] ::1 7 2 0 1"]


@also_far
def test_launch_ranks_share_node_and_import_acl(run: Run) -> None:
    program = "import acl, os; print(acl.rt.get_device_count(), os.environ['PEERLANE_NODE'])"
    done = run("-n", "2", "--devices", "6", "-c", program)
    assert done.returncode == 0, done.stderr
    assert all(line.split("] ")[1].startswith("(6, 0) ") for line in done.stdout.splitlines())
    assert len({line.split()[-1] for line in done.stdout.splitlines()}) == 1


@also_far
def test_launch_ranks_meet_by_rendezvous_from_environment(run: Run) -> None:
    program = (
        "from peerlane.rendezvous import Rendezvous\n"
        "with Rendezvous.from_environment() as r:\n"
        "    r.put(f'of {r.rank}', bytes([r.rank]) * 3)\n"
        "    print(r.get(f'of {(r.rank + 1) % r.size}'), r.gather('all', bytes([r.rank])))\n"
        "    r.barrier()\n"
    )
    done = run("-n", "3", "-c", program)
    all_of_them = [bytes([rank]) for rank in range(3)]
    expected = [f"[{rank}] {bytes([(rank + 1) % 3]) * 3!r} {all_of_them}" for rank in range(3)]
    assert sorted_lines(done.stdout) == expected, done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-n", "0", "s.py"], "valid are 1 to 4096"),
        (["-n", "two", "s.py"], "valid are 1 to 4096"),
        (["s.py"], "-n"),
        (["-n", "2"], "SCRIPT"),
        (["-n", "2", "--grace", "-1", "s.py"], "valid are seconds"),
        (["-n", "2", "--grace", "nan", "s.py"], "valid are seconds"),
        (["-n", "2", "--devices", "0", "s.py"], "peerlane launch: "),
        (["-n", "2", "nothing.py"], "can't open file"),
    ],
)
def test_launch_bad_arguments_exit_2_with_reason(words: list[str], reason: str, run: Run) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


@also_far
def test_launch_output_lines_keep_their_stream_and_bytes(cwd: Path, start: Start) -> None:
    junk = bytes(range(256)).replace(b"\n", b"") + b"\xff\xfe\0"
    program = (
        "import os\n"
        f"os.write(1, {junk!r} + b'\\n\\r\\n\\n')\n"
        "os.write(2, b'to the other\\nno end')\n"
        "os.write(1, b'half '); os.write(1, b'whole\\nno end either')\n"
    )
    with (cwd / "out").open("wb") as out:
        done = start("-n", "1", "-c", program, stdout=out.fileno()).end()
    expected = b"[0] " + junk + b"\n[0] \r\n[0] \n[0] half whole\n[0] no end either\n"
    assert (cwd / "out").read_bytes() == expected
    assert (done.returncode, done.stderr) == (0, "[0] to the other\n[0] no end\n")


BIG = """\
import os, sys
rank = os.environ["RANK"]
for number in range(40_000):
    line = f"{rank} {number} " + "x" * (number % 150)
    sys.stdout.write(line + "\\n")
    if number % 4 == 0:
        sys.stderr.write(line + "\\n")
"""


@also_far
def test_launch_big_outputs_keep_every_line_in_order_of_its_rank(run: Run) -> None:
    done = run("-n", "3", "-c", BIG)
    assert done.returncode == 0
    for text, step in ((done.stdout, 1), (done.stderr, 4)):
        for rank in range(3):
            mine = [line for line in text.splitlines() if line.startswith(f"[{rank}] ")]
            assert mine == [f"[{rank}] {rank} {n} " + "x" * (n % 150) for n in range(0, 40_000, step)]
        assert len(text.splitlines()) == 3 * 40_000 // step


@also_far
def test_launch_line_without_end_is_cut_and_written(cwd: Path, start: Start) -> None:
    program = "import os\nfor _ in range(48): os.write(1, b'y' * (1 << 16))\nos.write(1, b'\\nshort')"
    done = start("-n", "1", "-c", program).end()
    lines = done.stdout.splitlines()
    assert "".join(line.removeprefix("[0] ") for line in lines[:-1]) == "y" * (3 << 20)
    assert lines[-1] == "[0] short"
    assert max(map(len, lines)) < (1 << 20) + (1 << 17)


@also_far
def test_launch_slow_reader_gets_every_line(start: Start) -> None:
    program = (
        "import os, sys\n"
        "data = b''.join(b'%d %s\\n' % (n, b'z' * 1000) for n in range(16_000))\n"
        "print('begin', flush=True); sys.stdout.buffer.write(data)"
    )
    launched = start("-n", "2", "-c", program)
    launched.expect("begin")
    assert launched.process.stdout is not None
    digests = {rank: hashlib.sha256() for rank in (b"[0] ", b"[1] ")}
    for line in launched.process.stdout:
        if not line.endswith(b"begin\n"):
            digests[line[:4]].update(line[4:])
    expected = hashlib.sha256(b"".join(b"%d %s\n" % (n, b"z" * 1000) for n in range(16_000)))
    assert {digest.hexdigest() for digest in digests.values()} == {expected.hexdigest()}
    assert launched.end().returncode == 0


@also_far
def test_launch_output_comes_while_program_runs(start: Start) -> None:
    launched = start("-n", "1", "-c", "import sys; print('early'); sys.stdin.read()", stdin=subprocess.PIPE)
    launched.expect("early")
    assert launched.process.poll() is None
    assert launched.end().returncode == 0


def test_launch_stdin_goes_to_rank_0_only(cwd: Path, start: Start) -> None:
    (cwd / "in").write_bytes(b"some words")
    with (cwd / "in").open("rb") as file:
        done = start("-n", "2", "-c", "import sys; print(repr(sys.stdin.read()))", stdin=file.fileno()).end()
    assert sorted_lines(done.stdout) == ["[0] 'some words'", "[1] ''"]


@pytest.mark.parametrize("no_color", [False, True])
def test_launch_on_a_terminal_colours_its_prefix_unless_no_color(
    no_color: bool, env: dict[str, str], start: Start
) -> None:
    ours, theirs = os.openpty()
    more = {"TERM": "xterm", "NO_COLOR": "1" if no_color else ""}
    launched = start("-n", "1", "-c", "print('seen')", stdout=theirs, env={**env, **more})
    done = launched.end()
    os.close(theirs)
    seen = os.read(ours, 1000)
    os.close(ours)
    assert done.returncode == 0
    assert seen == (b"[0] seen\r\n" if no_color else b"\x1b[36m[0]\x1b[0m seen\r\n")


@also_far
def test_launch_disk_full_ends_ranks_and_exits_2(start: Start) -> None:
    with Path("/dev/full").open("wb") as full:
        program = "import time; print('x', flush=True); time.sleep(60)"
        done = start("-n", "2", "-c", program, stdout=full.fileno()).end()
    assert done.returncode == 2
    assert "peerlane launch: standard output cannot be written: No space left on device" in done.stderr
    assert done.seconds < 50


@also_far
def test_launch_reader_gone_ends_ranks_and_exits_141_silently(start: Start) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    program = "import time; print('x', flush=True); time.sleep(60)"
    done = start("-n", "2", "-c", program, stdout=write_end).end()
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")
    assert done.seconds < 50


def test_launch_stdout_closed_exits_2_and_reports_it(start: Start) -> None:
    done = start("-n", "1", "-c", "print(1)", wrapper=["sh", "-c", 'exec "$@" >&-', "sh"]).end()
    assert done.returncode == 2
    assert "standard output cannot be written: it is closed" in done.stderr


GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "running-programs.md").read_text()


def test_launch_guide_examples_print_what_the_guide_shows(cwd: Path, run: Run, env: dict[str, str]) -> None:
    meet, spawn = re.findall(r"```python\n# (?:meet|spawn)\.py(.*?)```", GUIDE, re.DOTALL)
    (cwd / "meet.py").write_text(meet.partition("\n")[2])
    done = run("-n", "2", "meet.py")
    shown = re.search(r"```\n(\[0\].*?)```", GUIDE, re.DOTALL)
    assert shown is not None
    assert sorted_lines(done.stdout) == sorted_lines(shown[1])
    (cwd / "spawn.py").write_text(spawn)
    assert run_python(["spawn.py"], timeout=40, cwd=cwd, env=env).stdout == "[0, 0]\n"

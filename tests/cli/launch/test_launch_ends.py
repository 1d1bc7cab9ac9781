"""How ``peerlane launch`` ends after failures, signals and kills, leaving no process and no socket behind."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from helpers.launched import Launched, Run, Start, state, until
from helpers.launching import also_far
from helpers.peers import peer
from helpers.promised import overdue
from peerlane.backends.virtual.node.census import take_census

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

READY = """\
import os, signal, subprocess, sys, time
from peerlane.rendezvous import Rendezvous
r = Rendezvous.from_environment()
def ready():
    r.barrier("ready")
    if r.rank == 0:
        print("ready", flush=True)
def rest():  # in slices: Python handles a signal that comes just before a sleep only after that sleep
    for _ in range(2000): time.sleep(0.05)
"""
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
)
PROMISED_SECONDS = 0.5


def sockets(env: dict[str, str]) -> list[Path]:
    return list(Path(env["PEERLANE_RUNTIME_DIR"]).glob("*.sock"))


@also_far
def test_launch_rank_raises_others_end_and_last_words_are_shown(env: dict[str, str], run: Run) -> None:
    program = READY + (
        "ready()\n"
        "if r.rank == 1: print('first words', file=sys.stderr); raise ValueError('the last words')\n"
        "rest()"
    )
    done = run("-n", "3", "-c", program)
    assert done.returncode == 1
    assert re.search(
        r"peerlane launch: rank 1 \(pid \d+[^)]*\) exited with 1; ending the others", done.stderr
    )
    last = done.stderr.split("last words:\n")[1].splitlines()
    assert (last[0], last[-1]) == ("  first words", "  ValueError: the last words")
    assert done.seconds < 50
    assert sockets(env) == []


@also_far
@pytest.mark.parametrize(
    ("end", "code", "fate"),
    [
        ("os._exit(7)", 7, "exited with 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "was killed by SIGTERM"),
        ("os.abort()", 134, "was killed by SIGABRT"),
    ],
)
def test_launch_rank_fails_exit_code_is_that_of_rank(end: str, code: int, fate: str, run: Run) -> None:
    done = run("-n", "2", "-c", READY + f"ready()\nif r.rank == 1: {end}\nrest()")
    assert done.returncode == code
    assert re.search(rf"rank 1 \(pid \d+[^)]*\) {fate}; it wrote nothing to standard error", done.stderr)


@also_far
def test_launch_rank_killed_waiters_raise_peer_lost_in_time(run: Run) -> None:
    program = READY + (
        "import peerlane as pl\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "t = r.gather('time', str(time.monotonic()).encode())\n"
        "if r.rank == 1:\n"
        "    time.sleep(0.2); r.put('died', str(time.monotonic()).encode()); os.kill(os.getpid(), signal.SIGKILL)\n"
        "try: r.barrier() if r.rank else r.get('never')\n"
        "except pl.PeerLost as e: print(time.monotonic() - float(r.get('died')), e)\n"
    )
    done = run("-n", "3", "-c", program)
    assert done.returncode == 137
    reported = re.findall(
        r"^\[([02])\] ([\d.]+) .*rank 1 \(pid \d+[^)]*\) was killed by SIGKILL", done.stdout, re.M
    )
    assert {rank for rank, _ in reported} == {"0", "2"}, done.stdout + done.stderr
    worst = max(float(seconds) for _, seconds in reported)
    print(f"told after {worst:.4f} s (promised: {PROMISED_SECONDS} s)")
    assert worst < overdue(PROMISED_SECONDS)


@also_far
def test_launch_rank_ends_well_only_its_waiters_raise_peer_lost(run: Run) -> None:
    program = READY + (
        "import peerlane as pl\n"
        "r.barrier()\n"
        "if r.rank == 1: sys.exit()\n"
        "if r.rank == 2: print(r.get('late'))\n"
        "else:\n"
        "    try: r.barrier('with 1')\n"
        "    except pl.PeerLost as e: print(e); r.put('late', b'came')\n"
    )
    done = run("-n", "3", "-c", program)
    assert done.returncode == 0, done.stderr
    assert "[2] b'came'" in done.stdout
    assert re.search(r"\[0\] .*rank 1 \(pid \d+[^)]*\) exited with 0", done.stdout)


@also_far
def test_launch_rank_ignores_sigterm_is_killed_after_grace_time(run: Run) -> None:
    program = READY + (
        "if r.rank == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "ready()\nif r.rank == 1: sys.exit(9)\nrest()"
    )
    done = run("-n", "2", "--grace", "0.3", "-c", program)
    assert done.returncode == 9
    assert "SIGKILL after 0.3 s" in done.stderr and "still there after 0.3 s, and killed" in done.stderr


HIDES = {
    "a child": "subprocess.Popen([sys.executable, '-c', deaf], stdout=pipe)",
    "in a session": "subprocess.Popen([sys.executable, '-c', deaf], stdout=pipe, start_new_session=True)",
    "a daemon": (
        "subprocess.run([sys.executable, '-c', 'import subprocess, sys; '"
        "'subprocess.Popen([sys.executable, \"-c\", sys.argv[1]], start_new_session=True)', deaf], stdout=pipe)"
    ),
}
WITH_CHILD = READY + f"deaf = {STUBBORN!r}\nread, pipe = os.pipe()\n{{}}\nos.read(read, 1)\n"


@also_far
@pytest.mark.parametrize("how", HIDES)
def test_launch_rank_fails_grandchildren_are_ended(how: str, run: Run) -> None:
    program = WITH_CHILD.format(HIDES[how]) + "ready()\nif r.rank == 1: sys.exit(4)\nrest()"
    done = run("-n", "2", "--grace", "0.3", "-c", program)
    assert done.returncode == 4


@also_far
@pytest.mark.parametrize("how", HIDES)
def test_launch_processes_left_by_ranks_are_ended_and_named(how: str, run: Run) -> None:
    done = run("-n", "2", "--grace", "0.3", "-c", WITH_CHILD.format(HIDES[how]))
    assert done.returncode == 0
    assert "the ranks left processes behind, which are ended: " in done.stderr
    assert "-c import signal; " in done.stderr and "still there after 0.3 s, and killed" in done.stderr


@also_far
def test_launch_workers_of_multiprocessing_are_not_named_as_left(cwd: Path, run: Run) -> None:
    (cwd / "pool.py").write_text(
        "import multiprocessing as m\n"
        "from multiprocessing.shared_memory import SharedMemory\n"
        "if __name__ == '__main__':\n"
        "    memory = SharedMemory(create=True, size=64)\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.apply(abs, (-3,)))\n"
        "    memory.close(); memory.unlink()\n"
    )
    done = run("-n", "2", "pool.py")
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, ["[0] 3", "[1] 3"], "")


HANDLES = READY + (
    "def handle(number, frame): print(f'got {signal.Signals(number).name}'); sys.exit(r.rank * 5)\n"
    "for n in ('HUP', 'INT', 'QUIT', 'TERM', 'USR1', 'USR2'):\n"
    "    signal.signal(getattr(signal, 'SIG' + n), handle)\n"
    "ready()\nrest()"
)


@also_far
@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"])
def test_launch_signal_reaches_every_rank(name: str, start: Start) -> None:
    launched = start("-n", "2", "-c", HANDLES)
    launched.expect("ready")
    launched.send(signal.Signals[name])
    done = launched.end()
    # When the first rank fails, launch sends the other a SIGTERM too.
    assert f"[1] got {name}" in done.stdout and "[0] got SIG" in done.stdout
    assert done.returncode == 5


@also_far
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_launch_ended_by_passed_signal_exits_128_plus_it_and_names_no_rank(name: str, start: Start) -> None:
    launched = start("-n", "3", "-c", READY + "ready()\nrest()")
    launched.expect("ready")
    launched.send(signal.Signals[name])
    done = launched.end()
    assert done.returncode == 128 + signal.Signals[name]
    assert "peerlane launch" not in done.stderr


@also_far
def test_launch_sigterm_ignored_by_ranks_kills_them_and_their_children(start: Start) -> None:
    program = WITH_CHILD.format(HIDES["a daemon"]) + (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nrest()"
    )
    launched = start("-n", "2", "--grace", "0.3", "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGTERM)
    done = launched.end()
    assert done.returncode == 137
    assert "still there after 0.3 s, and killed" in done.stderr


@also_far
def test_launch_sigint_reaches_children_of_ranks(start: Start) -> None:
    program = READY + (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal;"
        "signal.signal(signal.SIGINT, signal.SIG_DFL); print(1, flush=True); signal.pause()'], stdout=-1)\n"
        "child.stdout.readline(); ready(); print(child.wait())"
    )
    launched = start("-n", "2", "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGINT)
    done = launched.end()
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines())[-2:] == ["[0] ready", "[1] -2"]
    assert "[0] -2" in done.stdout


@also_far
def test_launch_sigint_leaves_ranks_time_to_tidy_up(start: Start) -> None:
    program = READY + (
        "try:\n"  # the signal may come as soon as rank 0 has printed
        "    ready()\n"
        "    rest()\n"
        "except KeyboardInterrupt:\n"
        "    if r.rank == 1: sys.exit(130)\n"
        "    try: r.barrier()\n"  # returns when the other rank has ended
        "    except ConnectionError: time.sleep(0.3); print('tidied up')\n"
    )
    launched = start("-n", "2", "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGINT)
    done = launched.end()
    assert (done.returncode, done.stdout.splitlines()[-1]) == (130, "[0] tidied up")


@also_far
def test_launch_sigtstp_and_sigcont_stop_and_continue_ranks(start: Start) -> None:
    program = READY + (
        "pids = r.gather('pids', str(os.getpid()).encode())\n"
        "if r.rank == 0: print('pids', *map(int, pids), flush=True)\n"
        "rest()"
    )
    launched = start("-n", "2", "-c", program)
    pids = [int(pid) for pid in launched.expect("pids").split()[-2:]]
    launched.send(signal.SIGTSTP)
    os.waitid(os.P_PID, launched.process.pid, os.WSTOPPED | os.WNOWAIT)
    until(lambda: all(state(pid) == "T" for pid in pids))
    launched.send(signal.SIGCONT)
    until(lambda: all(state(pid) == "S" for pid in pids))
    launched.send(signal.SIGTERM)
    assert launched.end().returncode == 143


@also_far
def test_launch_sigterm_while_stopped_ends_ranks(start: Start) -> None:
    launched = start("-n", "2", "-c", READY + "ready()\nrest()")
    launched.expect("ready")
    launched.send(signal.SIGTSTP)
    os.waitid(os.P_PID, launched.process.pid, os.WSTOPPED | os.WNOWAIT)
    launched.send(signal.SIGTERM)
    launched.send(signal.SIGCONT)
    assert launched.end().returncode == 143


@also_far
def test_launch_under_nohup_ignores_sighup(start: Start) -> None:
    program = READY + "ready()\nprint(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)\nsys.stdin.read()"
    launched = start("-n", "1", "-c", program, wrapper=["nohup"], stdin=-1)
    launched.expect("True")
    launched.send(signal.SIGHUP)
    assert launched.end().returncode == 0


def supervisor_of(launched: Launched) -> int:
    children = Path(f"/proc/{launched.process.pid}/task/{launched.process.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


@also_far
@pytest.mark.parametrize("how", HIDES)
def test_launch_killed_leaves_no_process_or_socket(how: str, env: dict[str, str], start: Start) -> None:
    program = WITH_CHILD.format(HIDES[how]) + (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nrest()"
    )
    launched = start("-n", "2", "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGKILL)
    done = launched.end()
    assert done.returncode == -9
    assert "its first process has ended, and these processes are killed: " in done.stderr
    assert "still there" not in done.stderr
    until(lambda: sockets(env) == [])


@also_far
def test_launch_killed_with_unread_output_leaves_no_process(start: Start) -> None:
    program = READY + "ready()\nwhile True: print('x' * 60000)"
    launched = start("-n", "2", "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGKILL)
    launched.process.wait(20)
    assert launched.left_after(10.0) == {}


@also_far
def test_launch_sigterm_with_unread_output_ends_it(start: Start) -> None:
    launched = start("-n", "2", "--grace", "0.3", "-c", READY + "ready()\nwhile True: print('x' * 60000)")
    launched.expect("ready")
    launched.send(signal.SIGTERM)
    assert launched.process.wait(20) == 143
    assert launched.left_after(5.0) == {}


TIDIES_UP = READY + (
    "try: ready(); rest()\n"
    "except KeyboardInterrupt: {}\n"
    "os._exit(0)"  # without flushing: the pipe may be full
)


@also_far
@pytest.mark.parametrize("interrupts", [1, 2])
def test_launch_sigint_with_unread_output_ends_it(start: Start, interrupts: int) -> None:
    grace = 2.0 if interrupts == 1 else 100.0
    program = TIDIES_UP.format("os.write(1, b'x' * 200_000 + b'\\n')")
    launched = start("-n", "2", "--grace", str(grace), "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGINT)
    until(
        lambda: len(launched.members()) <= 2
    )  # the ranks have ended; the front and the supervisor cannot write
    if interrupts == 2:
        launched.send(signal.SIGINT)
    assert launched.process.wait(20) == 0
    assert launched.left_after(5.0) == {}


@also_far
def test_launch_sigint_ends_ranks_blocked_by_unread_output(start: Start) -> None:
    program = TIDIES_UP.format("os.write(1, b'x' * 20_000_000)")
    launched = start("-n", "2", "--grace", "0.5", "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGINT)
    assert launched.process.wait(20) == 143
    assert launched.left_after(5.0) == {}


@also_far
def test_launch_sigint_with_slow_reader_gives_it_all_output(start: Start) -> None:
    program = TIDIES_UP.format("os.write(1, (b'x' * 999 + b'\\n') * 1000)")
    launched = start("-n", "1", "--grace", "5", "-c", program)
    launched.expect("ready")
    launched.send(signal.SIGINT)
    until(lambda: len(launched.members()) <= 2)
    assert launched.process.stdout is not None
    count, began = 0, time.monotonic()
    for line in launched.process.stdout:
        count += len(line) == 1004
        if count % 250 == 1:
            time.sleep(2)
    assert (count, launched.process.wait(20)) == (1000, 0)
    assert time.monotonic() - began > 5


@also_far
def test_launch_supervisor_killed_is_reported_and_ranks_are_killed(start: Start) -> None:
    launched = start("-n", "2", "-c", WITH_CHILD.format(HIDES["a daemon"]) + "ready()\nrest()")
    launched.expect("ready")
    os.kill(supervisor_of(launched), signal.SIGKILL)
    done = launched.end()
    assert done.returncode == 137
    assert "its supervisor was killed by SIGKILL; all ranks were killed" in done.stderr


@pytest.mark.parametrize("killed", ["a rank", "launch", "its supervisor"])
def test_launch_ranks_killed_leave_no_slot_or_socket_in_their_node(
    killed: str, env: dict[str, str], start: Start
) -> None:
    spec = "name=tidied,devices=1"
    program = READY + (
        "import peerlane as pl\n"
        "kept = pl.Physical(pl.devices()[0], 2 << 20); kept.export(allow='user')\n"
        "ready(); print('pid', os.getpid(), flush=True); rest()"
    )
    directory = Path(env["PEERLANE_RUNTIME_DIR"])
    with peer(spec, **env) as other:  # another program on that node, which must live on
        other.run("kept = devices[0].allocate(G); shown = pl.Physical(devices[0], G).export(allow='user')")
        alone = sorted(directory.glob("tidied*"))
        assert len(alone) == 2
        launched = start("-n", "2", "--node", spec, "-c", program)
        rank = int(launched.expect("pid ").split()[-1])
        assert len(list(directory.glob("tidied.*.sock"))) == 3
        pid = {"a rank": rank, "launch": launched.process.pid, "its supervisor": supervisor_of(launched)}[
            killed
        ]
        os.kill(pid, signal.SIGKILL)
        launched.end()
        assert sorted(directory.glob("tidied*")) == alone
        assert [holder.pid for holder in take_census(directory, "tidied").holders] == [other.pid]
        assert other.run("result = shown.importers + devices[0].free_bytes - devices[0].total_bytes") == -(
            4 << 20
        )


def test_launch_whose_supervisor_is_killed_alone_leaves_no_socket_of_its_rendezvous(
    env: dict[str, str], start: Start
) -> None:
    launched = start("-n", "2", "-c", READY + "ready()\nrest()")
    launched.expect("ready")
    directory = Path(env["PEERLANE_RUNTIME_DIR"])
    assert len(list(directory.glob("rendezvous-*.sock"))) == 1
    os.kill(supervisor_of(launched), signal.SIGKILL)
    launched.end()
    assert list(directory.glob("rendezvous-*")) == []


def test_launch_stopped_while_its_ranks_end_and_continued_then_ends_quietly(start: Start) -> None:
    launched = start("-n", "1", "-c", READY + "ready()\nsys.stdin.read()", stdin=-1)
    launched.expect("ready")
    supervisor = supervisor_of(launched)
    launched.send(signal.SIGSTOP)
    os.waitid(os.P_PID, launched.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert launched.process.stdin is not None
    launched.process.stdin.close()  # the rank ends, and the supervisor with it
    launched.process.stdin = None
    until = time.monotonic() + 60
    while Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.01)
    launched.send(signal.SIGCONT)
    done = launched.end()
    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr


@also_far
def test_launch_killed_with_its_supervisor_ends_ranks(start: Start) -> None:
    launched = start("-n", "2", "-c", READY + "ready()\nrest()")
    launched.expect("ready")
    supervisor = supervisor_of(launched)
    os.kill(supervisor, signal.SIGSTOP)  # so that it cannot act on the death of the front
    launched.send(signal.SIGKILL)
    launched.process.wait(20)
    os.kill(supervisor, signal.SIGKILL)
    assert launched.left_after(10.0) == {}


def kill_at_random_moments(start: Start, rounds: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for _ in range(rounds):
        launched = start("-n", "2", "-c", WITH_CHILD.format(HIDES["in a session"]) + "rest()")
        with pytest.raises(subprocess.TimeoutExpired):  # it runs for a random time before the kill
            launched.process.wait(moments.uniform(0, 0.9))
        launched.send(signal.SIGKILL)
        launched.process.wait(20)
        assert launched.left_after(10.0) == {}


@also_far
def test_launch_killed_at_random_moments_leaves_no_process(start: Start) -> None:
    kill_at_random_moments(start, 8)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_launch_killed_at_300_random_moments_leaves_no_process(start: Start) -> None:
    kill_at_random_moments(start, 300)

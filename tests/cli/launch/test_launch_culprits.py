"""``peerlane launch`` names the rank that failed first, also when another rank ends before it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from helpers.launched import Run
from helpers.launching import also_far
from helpers.ports import free_port
from peerlane.cli.launch.losses import Losses
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

# `late()` delays the end of its process, as a slow interpreter would; `early()` ends it at once.
START = """\
import atexit, os, signal, sys, threading, time
import peerlane as pl
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def late():
    atexit.register(time.sleep, 1.5)  # runs after the group's own handler, which is registered later
def hook(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    os._exit(1)
def early():
    sys.excepthook = hook
"""


def culprit(done: Completed, code: int = 1) -> tuple[int, str]:
    """Return the rank that launch names, and its last words."""
    assert done.returncode == code, done.stderr
    named = set(
        re.findall(r"peerlane launch: rank (\d+) \(pid \d+[^)]*\) (?:exited|was killed)", done.stderr)
    )
    assert len(named) == 1, done.stderr
    _, _, words = done.stderr.rpartition("last words:\n")
    return int(named.pop()), words


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("ranks", "order"),
    [
        *itertools.product((2, 3), ("late", "early", "neither")),
        (8, "neither"),
        pytest.param(8, "late", marks=pytest.mark.soak),
        pytest.param(8, "early", marks=pytest.mark.soak),
    ],
)
def test_launch_rank_raises_in_its_group_is_named(ranks: int, order: str, rounds: int, run: Run) -> None:
    hurries = {"late": ("late()", "early()"), "early": ("early()", "late()"), "neither": ("pass", "pass")}
    first, others = hurries[order]
    program = START + (
        f"bad = size // 2\n"
        f"if rank == bad:\n    {first}\nelse:\n    {others}\n"
        "with pl.Group() as group:\n"
        "    group.barrier()\n"
        "    if rank == bad: raise ValueError('my own mistake')\n"
        "    group.barrier()\n"
    )
    for _ in range(rounds):
        named, words = culprit(run("-n", str(ranks), "-c", program))
        assert named == ranks // 2
        assert "ValueError: my own mistake" in words and "PeerLost" not in words


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 57))]
)
def test_launch_rank_raises_without_forced_order_is_named(seed: int, run: Run) -> None:
    """No order is forced. Before losses were followed, 27 of 57 such runs named the other rank."""
    program = START + (
        "with pl.Group() as group:\n"
        "    channel = group.channel(1 - rank)\n"
        f"    if rank == {seed % 2}: raise ValueError('my own mistake')\n"
        "    channel.wait(0)\n"
    )
    named, words = culprit(run("-n", "2", "-c", program))
    assert named == seed % 2
    assert "ValueError: my own mistake" in words


@also_far
def test_launch_chain_of_lost_ranks_names_its_origin(run: Run) -> None:
    """Rank 2 fails; only rank 1 waits for it, and only rank 0 waits for rank 1. They end in the order 0, 1, 2."""
    program = START + (
        "if rank == 2: late()\n"
        "if rank == 0: early()\n"
        "if rank < 2: pair = pl.Group(rank, 2, rendezvous='tcp://127.0.0.1:{port}', name='low')\n"
        "if rank > 0: other = pl.Group(rank - 1, 2, rendezvous='tcp://127.0.0.1:{next}', name='high')\n"
        "if rank == 0: pair.channel(1).wait(0)\n"
        "if rank == 1:\n"
        "    with pair:\n"
        "        pair.channel(0); other.channel(1).wait(0)\n"
        "if rank == 2:\n"
        "    with other:\n"
        "        other.channel(0); time.sleep(0.3); sys.exit(6)\n"
    )
    port = free_port()
    done = run("-n", "3", "-c", program.replace("{port}", str(port)).replace("{next}", str(port + 1)))
    assert culprit(done, 6)[0] == 2


ENDS = {
    "os._exit": ("os._exit(7)", 7),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", 137),
    "SIGABRT": ("os.abort()", 134),
    "sys.exit": ("sys.exit(3)", 3),
}


@also_far
@pytest.mark.parametrize("end", ENDS)
def test_launch_rank_killed_or_exits_in_its_group_is_named(end: str, run: Run) -> None:
    how, code = ENDS[end]
    program = START + (
        "if rank != 1: early()\n"
        "with pl.Group() as group:\n"
        "    group.barrier()\n"
        f"    if rank == 1: {how}\n"
        "    group.barrier()\n"
    )
    assert culprit(run("-n", "3", "-c", program), code)[0] == 1


def test_launch_rank_raises_outside_with_is_named(run: Run) -> None:
    """The group is closed at the exit of the program, before its interpreter has ended."""
    program = START + (
        "late() if rank == 0 else early()\n"
        "group = pl.Group()\n"
        "group.barrier()\n"
        "if rank == 0: raise ValueError('my own mistake')\n"
        "group.barrier()\n"
    )
    named, words = culprit(run("-n", "3", "-c", program))
    assert named == 0 and "my own mistake" in words


def test_launch_rank_catches_peer_lost_and_exits_names_lost_rank(run: Run) -> None:
    program = START + (
        "if rank == 1: late()\n"
        "try:\n"
        "    with pl.Group() as group:\n"
        "        group.barrier()\n"
        "        if rank == 1: raise ValueError('my own mistake')\n"
        "        group.barrier()\n"
        "except pl.PeerLost as error:\n"
        "    assert error.rank == 1, error.rank\n"
        "    print('no luck', file=sys.stderr)\n"
        "    sys.exit(4)\n"
    )
    named, words = culprit(run("-n", "2", "-c", program))
    assert named == 1 and "my own mistake" in words


def test_launch_rank_fails_after_peer_ended_well_is_named(run: Run) -> None:
    program = START + (
        "with pl.Group() as group:\n"
        "    group.barrier()\n"
        "    if rank == 0:\n"
        "        try: group.barrier()\n"
        "        except pl.PeerLost: pass\n"
        "        raise ValueError('a mistake of 0')\n"
        "late()\n"
    )
    named, words = culprit(run("-n", "2", "-c", program))
    assert named == 0 and "a mistake of 0" in words


def test_launch_rank_loses_peer_that_lives_on_is_named(run: Run) -> None:
    program = START + (
        "group = pl.Group()\n"
        "group.barrier()\n"
        "if rank == 1:\n"
        "    group.close(); time.sleep(60)\n"
        "group.barrier()\n"
    )
    done = run("-n", "2", "-c", program)
    named, words = culprit(done)
    assert named == 0 and "PeerLost" in words
    assert done.seconds < 35


def test_launch_rank_fails_in_a_thread_is_named(run: Run) -> None:
    program = START + (
        "if rank == 0: early()\n"
        "def work():\n"
        "    try: raise ValueError('my own mistake')\n"
        "    except ValueError as error: wrong.append(error); group.close()\n"
        "wrong = []\n"
        "group = pl.Group()\n"
        "group.barrier()\n"
        "if rank == 1:\n"
        "    thread = threading.Thread(target=work); thread.start(); thread.join(); time.sleep(1); raise wrong[0]\n"
        "group.barrier()\n"
    )
    named, words = culprit(run("-n", "2", "-c", program))
    assert named == 1 and "my own mistake" in words


def test_launch_child_of_rank_raises_names_that_rank(run: Run, cwd: Path) -> None:
    """The group consists of children of the ranks; each rank ends with the code of its child."""
    (cwd / "inner.py").write_text(
        START + "if rank == 1: late()\n"
        "with pl.Group() as group:\n"
        "    group.barrier()\n"
        "    if rank == 1: raise ValueError('my own mistake')\n"
        "    group.barrier()\n"
    )
    program = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, 'inner.py']))"
    named, words = culprit(run("-n", "2", "-c", program))
    assert named == 1 and "my own mistake" in words


@pytest.mark.parametrize(
    ("losses", "failed", "alive", "named"),
    [
        ([], [7], [8], (7, False)),
        ([(7, 8)], [7], [8], (7, True)),
        ([(7, 8)], [7], [], (7, False)),  # 8 ended well
        ([(7, 8)], [7, 8], [], (8, False)),
        ([(7, 8), (8, 9)], [7, 8], [9], (8, True)),
        ([(7, 8), (8, 9)], [7, 8, 9], [], (9, False)),
        ([(7, 6), (7, 8)], [7, 8], [6], (8, False)),  # 6 was lost earlier, and lives
        ([(7, 8), (8, 7)], [8, 7], [], (8, False)),
        ([(6, 7), (7, 8), (8, 7)], [6, 7, 8], [], (7, False)),
        ([(7, 7), (7, 99)], [7], [], (7, False)),
    ],
)
def test_losses_origin_of_each_chain_is_first_failure(
    losses: list[tuple[int, int]], failed: list[int], alive: list[int], named: tuple[int, bool]
) -> None:
    recorded = Losses()
    for pair in losses:
        recorded.add(*pair)
    assert recorded.origin(failed, alive) == named

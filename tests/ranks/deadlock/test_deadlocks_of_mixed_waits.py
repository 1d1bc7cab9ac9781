"""Ranks that wait in different places are told of the deadlock and of all places, in either order of coming."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from helpers.launched import Run
from helpers.peers import Peer, peer
from helpers.rank_peers import QUIET, ranks, wait_on

SECONDS = 2.0  # the promise
LOADED = 5 * SECONDS
PATIENCE = 60.0
SECOND = 0.7  # seconds after which the second rank comes to its wait

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

Record = Callable[[str, object], None]
_numbers = itertools.count()

LINE = "from peerlane.rendezvous import Rendezvous; r = Rendezvous.from_environment()\n"
# One process asks what each was told: `detail` is pickled with the error.
REPORT = """
import pickle, time
try:
{code}
except pl.Error as error:
    error = pickle.loads(pickle.dumps(error))
    waits = getattr(error.detail, "ranks", ())
    result = [type(error).__name__, error.fault.name, str(error), time.monotonic(),
        [[w.rank, w.pid, w.kind, w.what, w.peer, list(w.awaited), [t.place for t in w.threads]] for w in waits]]
"""


class Report:
    """What a rank was told: the type, the fault, the text, when, and ``detail``'s waits."""

    def __init__(self, fields: Sequence[object]) -> None:
        kind, fault, text, at, waits = fields
        assert isinstance(at, float) and isinstance(waits, list)
        self.kind, self.fault, self.text, self.at = str(kind), str(fault), str(text), at
        self.waits = {wait[0]: wait[1:] for wait in waits}


def all_reports(peers: Sequence[Peer], codes: Sequence[str], record: Record, first: int = 0) -> list[Report]:
    """Let the ranks run their code, ``first`` before the others; return what they were told, all of them in time."""
    peers[first].send(REPORT.format(code=textwrap.indent(codes[first], "    ")))
    time.sleep(SECOND)
    began = time.monotonic()
    for rank, each in enumerate(peers):
        if rank != first:
            each.send(REPORT.format(code=textwrap.indent(codes[rank], "    ")))
    report = []
    for each in peers:
        answer = each.receive(PATIENCE)
        assert answer is not None, "a rank was told nothing"
        report.append(Report(answer))
    seconds = max(each.at for each in report) - began
    print(f"told after {seconds:.2f} s")
    record("told_after_seconds", round(seconds, 2))
    for each in report:
        assert (each.kind, each.fault) == ("Deadlock", "DEADLOCK"), each.text
        assert "a deadlock: " in each.text and "wait in vain, and nothing there can run." in each.text
    assert seconds < LOADED
    return report


@contextlib.contextmanager
def lines(size: int) -> Iterator[list[Peer]]:
    """Start processes that have ``r``, their rendezvous, and no group; rank 0 serves."""
    node = f"name=places-{os.getpid()}-{next(_numbers)},devices=4"
    with contextlib.ExitStack() as ended:
        peers = [ended.enter_context(peer(node, WORLD_SIZE=str(size), RANK="0"))]
        address = peers[0].run(
            f"from peerlane.rendezvous import Rendezvous, RendezvousServer; s = RendezvousServer({size})\n"
            f"r = Rendezvous(s.address, 0, {size}); result = s.address"
        )
        for rank in range(1, size):
            created = ended.enter_context(peer(node))
            created.run(
                f"from peerlane.rendezvous import Rendezvous; r = Rendezvous({address!r}, {rank}, {size})"
            )
            peers.append(created)
        yield peers


@pytest.mark.parametrize("first", [0, 1])
def test_barrier_against_channel_wait_raises_deadlock_naming_both_lines(
    first: int, record_property: Record
) -> None:
    with ranks(2) as peers:
        for each in peers:
            each.run(LINE)
        codes = ["r.barrier('here')", "ch[0].wait(2)"]
        for report in all_reports(peers, codes, record_property, first):
            assert report.waits[0][1:] == ["barrier", "here", -1, [1], ["peer:4"]]
            assert report.waits[1][1] == "notify" and report.waits[1][3] == 0
            assert [report.waits[rank][0] for rank in (0, 1)] == [each.pid for each in peers]
            assert re.search(
                r"rank 0 \(process \d+\): MainThread at peer:4 waits for rank 1 to come to barrier 'here'",
                report.text,
            )
            assert re.search(
                r"rank 1 \(process \d+\): MainThread at peer:4 waits for notify 2 from", report.text
            )


def test_barrier_of_two_ranks_against_channel_wait_raises_deadlock_in_all_three(
    record_property: Record,
) -> None:
    with ranks(3) as peers:
        for each in peers:
            each.run(LINE)
        codes = ["r.barrier()", "ch[0].wait(2, timeout=40)", "r.barrier(timeout=50)"]
        for report in all_reports(peers, codes, record_property, 1):
            assert set(report.waits) == {0, 1, 2}
            assert report.waits[0][4] == [1] and report.waits[2][4] == [1]
            assert "waits for rank 1 to come to barrier ''" in report.text


@pytest.mark.parametrize("first", [0, 1])
def test_get_against_channel_wait_raises_deadlock_naming_both_lines(
    first: int, record_property: Record
) -> None:
    with lines(2) as peers:
        for each in peers:
            each.send("grp = pl.Group(rendezvous=r); ch = grp.channels(range(2), notifies=4)")
        for each in peers:
            each.receive()
        codes = ["ch[1].wait(1)", "r.get('never')"]
        for report in all_reports(peers, codes, record_property, first):
            assert report.waits[1][1:5] == ["key", "never", -1, [0]]
            assert "waits for rank 0 to put 'never' at the rendezvous (Rendezvous.get)" in report.text


def test_barrier_against_channel_wait_on_stream_raises_deadlock_in_both(record_property: Record) -> None:
    with ranks(2) as peers:
        for each in peers:
            each.run(LINE)
        code = "s = grp.device.create_stream(); ch[0].wait(2, stream=s); s.sync()"
        assert all(report.waits for report in all_reports(peers, ["r.barrier()", code], record_property))


def test_barriers_of_two_names_without_group_raise_deadlock_naming_both(record_property: Record) -> None:
    with lines(2) as peers:
        for report in all_reports(peers, ["r.barrier('a')", "r.barrier('b')"], record_property):
            assert [report.waits[rank][1:5] for rank in (0, 1)] == [
                ["barrier", "a", -1, [1]],
                ["barrier", "b", -1, [0]],
            ]


def test_gather_against_get_of_three_ranks_without_group_raises_deadlock_in_all(
    record_property: Record,
) -> None:
    with lines(3) as peers:
        codes = ["r.gather('g', b'')", "r.get('k', timeout=50)", "r.gather('g', b'')"]
        for report in all_reports(peers, codes, record_property, 2):
            assert report.waits[0][1:5] == ["gather", "g", -1, [1]]
            assert report.waits[1][1:5] == ["key", "k", -1, [0, 2]]


@pytest.mark.parametrize("first", [0, 1])
def test_group_against_barrier_raises_deadlock_naming_both_lines(first: int, record_property: Record) -> None:
    with lines(2) as peers:
        codes = ["pl.Group(rendezvous=r, name='first')", "r.barrier('b')"]
        for report in all_reports(peers, codes, record_property, first):
            assert report.waits[0][1:4] == ["group", "first", 1]
            assert report.waits[1][1:5] == ["barrier", "b", -1, [0]]
            assert "waits for rank 1, which should join group 'first' (Group)" in report.text


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("wait", ["ch[0].wait(1)", "grp.channel(0)", "grp.barrier()"])
def test_group_against_wait_in_another_group_raises_deadlock_naming_both_lines(
    first: int, wait: str, record_property: Record
) -> None:
    with ranks(2) as peers:
        for report in all_reports(peers, ["pl.Group(name='second')", wait], record_property, first):
            assert report.waits[0][1:4] == ["group", "second", 1]
            assert report.waits[1][5] == ["peer:4"]


def test_two_groups_created_in_different_orders_raise_deadlock_naming_both(record_property: Record) -> None:
    with lines(2) as peers:
        codes = [f"pl.Group(rendezvous=r, name={name!r})" for name in ("a", "b")]
        for report in all_reports(peers, codes, record_property):
            assert [report.waits[rank][1:4] for rank in (0, 1)] == [["group", "a", 1], ["group", "b", 0]]


def test_ranks_after_deadlock_can_use_barrier_and_channel_again(record_property: Record) -> None:
    with ranks(2) as peers:
        for each in peers:
            each.run(LINE)
        for _ in range(2):
            all_reports(peers, ["r.barrier()", "ch[0].wait(2)"], record_property)
        for each in peers:
            each.send(
                "r.barrier(timeout=30); ch[1 - grp.rank].notify(2); ch[1 - grp.rank].wait(2); result = 1"
            )
        assert [each.receive() for each in peers] == [1, 1]


_PROGRAM = """
import peerlane as pl
from peerlane.rendezvous import Rendezvous
line = Rendezvous.from_environment()
if line.rank == 0:
    line.get("never")
else:
    with pl.Group(rendezvous=line) as group:
        pass
"""


def test_launch_ranks_in_deadlock_shows_both_lines_once(run: Run, cwd: Path) -> None:
    (cwd / "places.py").write_text(textwrap.dedent(_PROGRAM))
    began = time.monotonic()
    done = run("-n", "2", "places.py")
    print(f"ended after {time.monotonic() - began:.2f} s")
    assert done.returncode == 1
    (start,) = re.findall(
        "^peerlane launch: a deadlock: ranks 0 and 1 wait in vain.*$", done.stderr, re.MULTILINE
    )
    first, second = done.stderr.partition(start)[2].splitlines()[1:3]
    assert re.match(
        r"  rank 0 \(process \d+\): MainThread at places\.py:6 waits for rank 1 to put 'never'", first
    )
    assert re.match(
        r"  rank 1 \(process \d+\): MainThread at places\.py:8 waits for rank 0, which should join", second
    )
    assert "peerlane.errors.Deadlock: " in done.stderr


def test_launch_of_programs_that_start_processes_of_ranks_names_no_deadlock(run: Run, cwd: Path) -> None:
    """A rank's parent starts another process later, which acts as the same rank."""
    (cwd / "started.py").write_text(
        "import sys\n"
        "from peerlane.rendezvous import Rendezvous\n"
        "Rendezvous.from_environment().barrier(sys.argv[1])\n"
    )
    (cwd / "starts.py").write_text(
        "import os, subprocess, sys, time\n"
        "def start(barrier):\n"
        "    return subprocess.Popen([sys.executable, 'started.py', str(barrier)])\n"
        "rank = int(os.environ['RANK'])\n"
        "first = start(rank)\n"
        f"time.sleep({QUIET})\n"
        "second = start(1 - rank)\n"
        "sys.exit(first.wait() or second.wait())\n"
    )
    done = run("-n", "2", "starts.py")
    assert done.returncode == 0 and "deadlock" not in done.stderr, done.stderr


# A wait that something could still end goes on.


def end_all(peers: Sequence[Peer], codes: Sequence[str]) -> list[object]:
    """Let the ranks run their code, which ends; return their results."""
    for each, code in zip(peers, codes, strict=True):
        each.send(code)
    return [each.receive(PATIENCE) for each in peers]


def test_deadlock_rank_with_working_thread_is_not_raised() -> None:
    code = f"""
import threading, time
threading.Thread(target=time.sleep, args=[{2 * QUIET}]).start()
ch[0].wait(1)
"""
    with ranks(2) as peers:
        peers[0].run(LINE)
        wait_on(peers, ["r.barrier()", code])


@pytest.mark.parametrize("waits", ["ch[0].wait(1)", "r.get('k')", "pl.Group(name='other')"])
def test_deadlock_thread_ends_the_waits_later_is_not_raised(waits: str) -> None:
    ends = {"ch[0].wait(1)": "ch[1].notify(1)", "r.get('k')": "r.put('k', b'')"}.get(
        waits, "pl.Group(name='other')"
    )
    code = f"""
import threading, time
def end():
    time.sleep(3)
    {ends}
threading.Thread(target=end).start()
r.barrier()
result = 1
"""
    with ranks(2) as peers:
        for each in peers:
            each.run(LINE)
        assert end_all(peers, [code, f"{waits}; r.barrier(); result = 1"]) == [1, 1]


_CHILD = f"import subprocess; child = subprocess.Popen(['sleep', '{2 * QUIET}'])\n"


def test_deadlock_rank_with_child_process_is_not_raised() -> None:
    with ranks(2) as peers:
        peers[0].run(LINE)
        wait_on(peers, ["r.barrier()", f"{_CHILD}ch[0].wait(1)"])


def test_deadlock_rank_with_child_process_without_group_is_not_raised() -> None:
    with lines(2) as peers:
        wait_on(peers, ["r.barrier('a')", f"{_CHILD}r.barrier('b')"])


def test_deadlock_serving_program_could_put_value_is_not_raised() -> None:
    with ranks(2) as peers:  # this process serves
        peers[0].run(LINE)
        wait_on(peers, ["r.get('k')", "ch[0].wait(1)"])


def test_deadlock_other_process_of_the_rank_puts_value_is_not_raised() -> None:
    with lines(2) as peers, peer("name=outside,devices=2") as other:
        address = peers[0].run("result = r.address")
        other.run(f"from peerlane.rendezvous import Rendezvous; o = Rendezvous({address!r}, 1, 2)")
        codes = [
            "r.barrier(); result = 1",
            "r.get('k'); r.barrier(); result = 1",
            f"import time; time.sleep({QUIET}); o.put('k', b'1'); result = 1",
        ]
        assert end_all([*peers, other], codes) == [1, 1, 1]


def test_deadlock_wait_with_short_timeout_ends_by_wait_timeout() -> None:
    with ranks(2) as peers:
        peers[0].run(LINE)
        code = """
try:
    r.barrier(timeout=1.5)
except pl.WaitTimeout:
    ch[1].notify(1); result = 1
"""
        assert end_all(peers, [code, "ch[0].wait(1, timeout=30); result = 1"]) == [1, 1]


def test_deadlock_thread_polls_join_is_not_raised() -> None:
    code = """
import threading
thread = threading.Thread(target=ch[1].wait, args=[1])
thread.start()
for _ in range(3):
    thread.join(1.0)
r.barrier(); thread.join()
result = 1
"""
    with ranks(2) as peers:
        for each in peers:
            each.run(LINE)
        codes = [code, "r.barrier(); ch[0].notify(1); result = 1"]
        assert end_all(peers, codes) == [1, 1]


def test_deadlock_rank_stopped_before_its_wait_is_not_raised() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP); r.barrier(); result = 1"
    with ranks(2) as peers:
        for each in peers:
            each.run(LINE)
        peers[0].send("r.barrier(); result = 1")
        peers[1].send(code)
        os.waitid(os.P_PID, peers[1].pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(QUIET)
        os.kill(peers[1].pid, signal.SIGCONT)
        assert [each.receive(PATIENCE) for each in peers] == [1, 1]


@pytest.mark.parametrize("stopped", [0, 1])
def test_deadlock_rank_stopped_in_its_wait_is_not_raised(stopped: int) -> None:
    """Its notify or value has arrived, and it has not seen that yet."""
    with ranks(2) as peers:
        for each in peers:
            each.run(LINE)
        peers[0].send("ch[1].wait(1); r.put('k', b''); r.barrier(); result = 1")
        peers[1].send("import time; time.sleep(0.5); ch[0].notify(1); r.get('k'); r.barrier(); result = 1")
        time.sleep(0.3)
        os.kill(peers[stopped].pid, signal.SIGSTOP)
        time.sleep(QUIET)
        os.kill(peers[stopped].pid, signal.SIGCONT)
        assert [each.receive(PATIENCE) for each in peers] == [1, 1]


def test_deadlock_server_stopped_is_not_raised() -> None:
    node = f"name=places-{os.getpid()}-{next(_numbers)},devices=4"
    with contextlib.ExitStack() as ended:
        server, *peers = [ended.enter_context(peer(node)) for _ in range(3)]
        address = server.run(
            "from peerlane.rendezvous import RendezvousServer; s = RendezvousServer(2); result = s.address"
        )
        for rank, each in enumerate(peers):
            each.send(
                f"from peerlane.rendezvous import Rendezvous; r = Rendezvous({address!r}, {rank}, 2)\n"
                "grp = pl.Group(rendezvous=r); ch = grp.channels(range(2)); r.put(f'k{grp.rank}', b'')"
            )
        for each in peers:
            each.receive()
        os.kill(server.pid, signal.SIGSTOP)
        peers[0].send("r.get('k1'); ch[1].notify(0); r.barrier(); result = 1")
        peers[1].send("ch[0].wait(0); r.barrier(); result = 1")
        time.sleep(QUIET)
        os.kill(server.pid, signal.SIGCONT)
        assert [each.receive(PATIENCE) for each in peers] == [1, 1]

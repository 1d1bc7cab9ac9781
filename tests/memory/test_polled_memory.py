"""A process that polls memory sees another process's queued write in time, whatever the writer does meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.launched import state, until
from helpers.prepared import run_python
from helpers.promised import overdue

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(120)]

SCHEDULES = ("eager", "lazy", "seeded:5")
ENDS_WITHIN = overdue(1.0)  # queued operations run after 1 s without a call

#: Rank 0 queues operations and goes on with {then}; rank 1 polls its window and prints the seconds it took.
_RANKS = """
import threading, time
import peerlane as pl
from peerlane.rendezvous import Rendezvous
with Rendezvous.from_environment() as met, pl.Group(rendezvous=met, window=1 << 22) as group:
    channel = group.channel(1 - group.rank)
    group.barrier()
    if group.rank == 0:
        stream = group.device.create_stream()
        source = group.device.allocate(1 << 22)
        source.fill(7, stream=stream)
        {submit}
        {then}
        met.barrier("seen", timeout=60)
        stream.sync(timeout=20)
    else:
        start, view = time.monotonic(), group.window.view()
        while not {seen} and time.monotonic() - start < 30:
            time.sleep(0.0005)
        print(f"{{time.monotonic() - start:.2f}}")
        met.barrier("seen", timeout=60)
    met.barrier("end", timeout=60)
"""

_SUBMITS = {
    "a write": "channel.write(source, stream=stream)",
    "a write behind a callback": "stream.launch_callback(int); channel.write(source, stream=stream)",
    "a write behind another stream": (
        "other = group.device.create_stream(); other.wait(stream); channel.write(source, stream=other)"
    ),
    "blocks": "channel.write_blocks(source, [[0, 0, 64], [4096, 0, (1 << 22) - 4096]], stream=stream)",
}
_THENS = {
    "sleeps": "time.sleep(15)",
    "meets": "pass",
    "waits for a thread": "thread = threading.Thread(target=time.sleep, args=(15,)); thread.start(); thread.join()",
}


@pytest.mark.parametrize(
    ("schedule", "submit", "then"),
    [
        *(("lazy", "a write", then) for then in _THENS),
        *(("lazy", submit, "meets") for submit in _SUBMITS if submit != "a write"),
        ("eager", "a write", "meets"),
        ("seeded:5", "a write", "meets"),
        ("seeded:5", "a write behind a callback", "sleeps"),
        ("seeded:5", "blocks", "waits for a thread"),
    ],
)
def test_rank_polling_its_window_sees_queued_write_in_time(
    tmp_path: Path, schedule: str, submit: str, then: str
) -> None:
    program = tmp_path / "ranks.py"
    seen = "(view[0] == 7 and view[-1] == 7)"
    program.write_text(_RANKS.format(submit=_SUBMITS[submit], then=_THENS[then], seen=seen))
    environment = {**os.environ, "PEERLANE_SCHEDULE": schedule}
    done = run_python(["-m", "peerlane", "launch", "-n", "2", str(program)], timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    took = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.strip()]
    assert len(took) == 1 and took[0] < ENDS_WITHIN, done.stdout


_IMPORTED = """
import os, time
import peerlane as pl
from peerlane.rendezvous import Rendezvous
with Rendezvous.from_environment() as met:
    device = pl.devices()[0]
    pids = [int(each) for each in met.gather("pid", b"%d" % os.getpid())]
    if met.rank == 0:
        memory = device.allocate(1 << 21)
        met.put("memory", bytes(memory.export(allow=pids[1:])))
        stream = device.create_stream()
        met.barrier("open", timeout=30)
        memory.fill(7, stream=stream)
        met.barrier("seen", timeout=60)
        stream.sync(timeout=20)
    else:
        memory = pl.Buffer.open(met.get("memory"))
        met.barrier("open", timeout=30)
        start = time.monotonic()
        while bytes(memory[:8]) != b"\\7" * 8 and time.monotonic() - start < 30:
            time.sleep(0.0005)
        print(f"{time.monotonic() - start:.2f}")
        met.barrier("seen", timeout=60)
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_process_polling_imported_memory_sees_queued_fill_in_time(tmp_path: Path, schedule: str) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(_IMPORTED)
    environment = {**os.environ, "PEERLANE_SCHEDULE": schedule}
    done = run_python(["-m", "peerlane", "launch", "-n", "2", str(program)], timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    (took,) = (float(line.split()[-1]) for line in done.stdout.splitlines() if line.strip())
    assert took < ENDS_WITHIN


_FORKED = """
import os, sys, time
import peerlane as pl
pid = os.fork()  # before any device was used: each is a process of its own
device = pl.devices()[0]
with device.create_stream() as stream:
    memory = device.allocate(64)
    view = memory.view()
    memory.fill(7, stream=stream)
    start = time.monotonic()
    while view[0] != 7 and time.monotonic() - start < 30:
        pass
    took = time.monotonic() - start
    if pid == 0:
        sys.exit(took > {most})
    _, status = os.waitpid(pid, 0)
    stream.sync(timeout=20)
    memory.fill(8, stream=stream)  # something is queued while the process forks
    child = os.fork()
    if child == 0:
        time.sleep(1.5)
        os._exit(3 if memory.is_live else 4)
    _, second = os.waitpid(child, 0)
    start = time.monotonic()
    while view[0] != 8 and time.monotonic() - start < {most}:
        pass
    print(status, os.waitstatus_to_exitcode(second) in (3, 4), took < {most}, view[0])
"""


@pytest.mark.parametrize("schedule", ["lazy", "seeded:5"])
def test_forked_child_and_parent_polling_memory_end(tmp_path: Path, schedule: str) -> None:
    program = tmp_path / "forks.py"
    program.write_text(_FORKED.format(most=ENDS_WITHIN))
    done = run_python([str(program)], timeout=60, env={**os.environ, "PEERLANE_SCHEDULE": schedule})
    assert (done.returncode, done.stdout) == (0, "0 True True 8\n"), done.stderr


#: Counts how often peerlane's threads ran in two seconds that begin well after the last call.
_IDLE = """
import os, time
from pathlib import Path
import peerlane as pl

def switches():
    found = 0
    for each in Path("/proc/self/task").iterdir():
        if int(each.name) != os.getpid():
            found += int((each / "status").read_text().partition("nonvoluntary_ctxt_switches")[0].split()[-1])
    return found

device = pl.devices()[0]
with device.create_stream() as stream:
    memory = device.allocate(64)
    for _ in range(20):
        memory.fill(7, stream=stream)
        stream.sync()
    time.sleep(1.4)
    found = []
    while min(found, default=2) > 1 and len(found) < 3:  # a loaded machine may wake them late
        before = switches()
        time.sleep(2)
        found.append(switches() - before)
    print(min(found))
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_process_with_nothing_queued_is_not_woken(tmp_path: Path, schedule: str) -> None:
    program = tmp_path / "idle.py"
    program.write_text(_IDLE)
    done = run_python([str(program)], timeout=60, env={**os.environ, "PEERLANE_SCHEDULE": schedule})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 1


#: Looks at memory after it was stopped, and prints what it saw and how long ago it queued the fill.
_STOPPED = """
import sys, time
import peerlane as pl
device = pl.devices()[0]
with device.create_stream() as stream:
    memory = device.allocate(64)
    memory.fill(1)
    view = memory.view()
    memory.fill(7, stream=stream)
    queued = time.monotonic()
    print("queued", flush=True)
    sys.stdin.readline()
    continued = time.monotonic()
    while time.monotonic() < continued + 0.3:
        pass
    print(view[0], time.monotonic() - queued, flush=True)
    stream.sync(timeout=20)
"""


@pytest.mark.parametrize("schedule", ["lazy", "seeded:5"])
def test_process_that_was_stopped_did_not_rest_meanwhile(tmp_path: Path, schedule: str) -> None:
    program = tmp_path / "stopped.py"
    program.write_text(_STOPPED)
    command, env = [sys.executable, str(program)], {**os.environ, "PEERLANE_SCHEDULE": schedule}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=env, text=True, **pipes) as process:
        try:
            assert process.stdin and process.stdout
            assert process.stdout.readline() == "queued\n"
            process.send_signal(signal.SIGSTOP)
            until(lambda: state(process.pid) == "T")
            stopped = time.monotonic()
            time.sleep(2)  # longer than a rest
            process.stdin.write("go on\n")
            process.stdin.flush()
            stopped = time.monotonic() - stopped
            process.send_signal(signal.SIGCONT)
            seen, seconds = process.stdout.readline().split()
        finally:
            process.kill()
    # On a loaded machine the rest of its time may be a second, too.
    assert seen == "1" or float(seconds) - stopped > 0.9


def test_process_exit_with_fills_queued_is_clean(tmp_path: Path) -> None:
    program = tmp_path / "exit.py"
    program.write_text(
        "import time\nimport peerlane as pl\n"
        "device = pl.devices()[0]\nstream = device.create_stream()\n"
        "memory = [device.allocate(1 << 20) for _ in range(64)]\n"
        "for each in memory:\n    each.fill(7, stream=stream)\n"
        "time.sleep(0.995)\nprint('over')\n"
    )
    for schedule in ("lazy", "seeded:5"):
        for _ in range(5):
            done = run_python([str(program)], timeout=30, env={**os.environ, "PEERLANE_SCHEDULE": schedule})
            assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")

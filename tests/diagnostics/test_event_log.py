"""The event log has what a process did to device memory, in order, with the program's lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import peerlane as pl
from helpers.logs import line_of, run_logged
from peerlane.diagnostics.log import event_log

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(120)]

WRITTEN = True
MOUNTED = 'mount -t tmpfs -o size=512k none "$1" && shift && exec "$@"'
HAS_NAMESPACES = (
    subprocess.run(
        ["unshare", "-rm", "sh", "-c", MOUNTED, "sh", "/mnt", "true"], capture_output=True, check=False
    ).returncode
    == 0
)

COPIES = """
    import peerlane as pl
    def inner():
        pl.copy(a, b)  # inner
    def outer():
        inner()  # outer
    device = pl.devices()[0]
    a, b = device.allocate(4096), device.allocate(4096)
    outer()
    for i in range(8):
        pl.copy(a[64 * i : 64 * i + 64], b[64 * i : 64 * i + 64])  # loop
    pl.copy_batch([a[:8], a[100:108]], [b[:8], b[200:208]])  # batch
    pl.fill(a, 1)  # fill
"""


def test_log_of_copies_has_bytes_lines_callers_and_merged_repeats(tmp_path: Path) -> None:
    (log,) = run_logged(tmp_path, COPIES)
    whole, loop, batch, fill = log.of("access")
    assert whole.line == line_of(COPIES, "# inner")
    assert whole.callers == ("inner", "outer", "<module>")
    (a, _, size, is_written), (b, *_) = whole.spans
    assert (size, is_written) == (4096, WRITTEN)
    assert (loop.repeats, loop.line) == (8, line_of(COPIES, "# loop"))
    assert [(span[0], span[2]) for span in loop.spans] == [(a, 512), (b, 512)]
    assert [span[2:] for span in batch.spans] == [(8, WRITTEN), (8, False)] * 2
    assert [span[2:] for span in fill.spans] == [(4096, WRITTEN)]
    assert [each.line for each in log.of("allocated")] == [line_of(COPIES, "a, b =")] * 2
    assert log.has_ended
    assert log.dropped == 0


STREAMS = """
    import peerlane as pl
    device = pl.devices()[0]
    a, b = device.allocate(4096), device.allocate(4096)
    with device.create_stream() as s, device.create_stream() as t, device.create_notify() as n:
        pl.copy(a, b, stream=s)
        t.wait(s.record())
        t.notify(n)
        s.wait(n)
        s.sync()
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
def test_log_of_streams_orders_records_waits_and_syncs(tmp_path: Path, schedule: str) -> None:
    (log,) = run_logged(tmp_path, STREAMS, PEERLANE_SCHEDULE=schedule)
    (copy,) = log.of("access")
    (record,) = log.of("event_record")
    (wait,) = log.of("event_wait")
    (notify,), (awaited,) = log.of("notify"), log.of("notify_wait")
    assert (copy.sequence, record.sequence) == (1, 2)
    assert wait.words[:2] == (record.stream, record.sequence)
    assert notify.words[:2] == awaited.words[:2]
    kinds = [each.kind for each in log.events]
    for created, consumed in (
        (notify, awaited),
        *zip(log.of("notified"), log.of("notify_waited"), strict=False),
    ):
        if created.words[2]:
            assert created.words[2] == 1
            assert not consumed.words[2] or kinds.index(created.kind) < kinds.index(consumed.kind)
    assert any((each.stream, each.sequence) == (copy.stream, 3) for each in log.of("sync"))


RANKS = """
    import peerlane as pl
    with pl.Group(window=4096) as group:
        with group.channel(1 - group.rank, notifies=2) as channel, group.device.create_stream() as s:
            x = group.device.allocate(64)
            pl.fill(x, 1)
            if group.rank == 0:
                channel.write(x, stream=s, notify=0)
                channel.write(x, at=64, nonblocking=True)  # loose
                channel.fence()
                channel.notify(1)
            else:
                channel.wait(0, stream=s)
                s.sync()
                channel.wait(1)
                channel.read(x)
            group.barrier()
        y = group.device.allocate(64)
        pl.fill(y, 1)
        group.all_reduce(y, dtype="int32")
"""
LOOSE, END, FETCH = 1, 4, 64


@pytest.mark.parametrize("schedule", ["eager", "seeded:1", "seeded:2"])
def test_log_of_ranks_has_channels_and_collectives_and_none_of_their_parts(
    tmp_path: Path, schedule: str
) -> None:
    sender, receiver = run_logged(tmp_path, RANKS, "launch", "-n", "2", PEERLANE_SCHEDULE=schedule)
    assert (sender.rank, receiver.rank) == (0, 1)
    (near,), (there,) = sender.of("channel"), receiver.of("channel")
    assert near.words[1] == there.words[2] or not there.words[2]
    incoming = there.words[1]
    write, loose = (each for each in sender.of("access") if each.words[0])
    assert loose.flags & LOOSE
    assert loose.line == line_of(RANKS, "# loose")
    first, second = sender.of("notify")
    assert [each.words[:2] for each in (first, second)] == [(incoming, 0), (incoming, 1)]
    assert [each.words[3] for each in (first, second)] == [near.words[0]] * 2
    assert first.stream == write.stream
    assert first.words[2] == 1 or [each.words[2] for each in sender.of("notified")] == [1]
    assert [each.words[0] for each in sender.of("fence")] == [near.words[0]]
    waited = receiver.of("notify_wait")
    assert [each.words[:2] for each in waited[:2]] == [(incoming, 0), (incoming, 1)]
    assert [each.flags for each in receiver.of("access") if each.words[0]] == [FETCH]
    for log in (sender, receiver):
        group = log.of("collective")[-1].words[0]  # the others are of the rendezvous, where the ranks met
        barrier, reduction = (each for each in log.of("collective") if each.words[0] == group)
        assert (barrier.words[1] >> 16, reduction.words[1] >> 16) == (1, 2)
        assert reduction.words[1] >> 8 & 0xFF == event_log.COLLECTIVES.index("all_reduce")
        assert [span[2:] for span in reduction.spans] == [(64, WRITTEN), (64, False)]
        # Whoever comes first may wait so long that its end is an event of its own.
        ends = [each for each in log.of("collected") if each.words[0] == group]
        assert len(ends) + sum(bool(each.flags & END) for each in (barrier, reduction)) == 2
        assert len(log.of("access")) == (4 if log is sender else 3)


THREADS = """
    import threading, queue, os
    import peerlane as pl
    lock, messages = threading.Lock(), queue.Queue()
    def work():
        with lock:
            messages.put(1)
    thread = threading.Thread(target=work)
    thread.start()
    messages.get()
    thread.join()
    pl.order("mine").post()
    pid = os.fork()
    if pid == 0:
        pl.order("mine").take()
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_log_of_threads_and_processes_has_their_order(tmp_path: Path) -> None:
    parent, child = sorted(run_logged(tmp_path, THREADS), key=lambda log: not log.has_ended)
    begun = [each for each in parent.of("post") if each.words[0] == 1]
    ended = [each for each in parent.of("post") if each.words[0] == 2]
    assert [each.words[:2] for each in parent.of("take") if each.words[0] in (1, 2)] == [
        begun[0].words[:2],
        ended[0].words[:2],
    ]
    assert ended[0].thread != begun[0].thread
    locks = {each.words[1] for each in parent.of("take") if each.words[0] == 0}
    assert len(locks) >= 2  # the lock's and the queue's
    posted = {each.words[:2] for each in parent.of("post")}
    assert len([each for each in child.of("take") if each.words[:2] in posted]) == 2  # the fork, and its own


def test_log_without_room_drops_events_and_counts_them(tmp_path: Path) -> None:
    program = """
    import peerlane as pl
    device = pl.devices()[0]
    a, b = device.allocate(8), device.allocate(8)
    for _ in range(30_000):
        pl.copy(a, b)
    """
    (log,) = run_logged(tmp_path, program, PEERLANE_LOG_BYTES="1MiB")
    assert log.dropped > 10_000
    assert len(log.of("access")) + log.dropped >= 30_000


FULL = """
    import json, sys
    import peerlane as pl
    from peerlane import _core
    from peerlane.diagnostics.log import event_log
    device = pl.devices()[0]
    a, b = device.allocate(8), device.allocate(8)
    for _ in range(30_000):
        pl.copy(a, b)
    facts = event_log.facts()
    reader = _core.LogReader(str(facts.path), True)
    read = reader.take(True)
    reader.give_back()
    pl.copy(b, a)
    _core.log_settle()
    gap, last = reader.take()
    kinds = [list(_core.LOG_KINDS)[each[0]] for each in (gap, last)]
    copies = sum(each[0] == _core.LOG_KINDS["access"] for each in read)
    missing = sum(each[9][0] for each in [*read, gap] if each[0] == _core.LOG_KINDS["gap"])
    print(json.dumps([facts.dropped, kinds, missing, copies]))
"""


@pytest.mark.skipif(
    not HAS_NAMESPACES, reason="this process may not mount a file system in a namespace of its own"
)
def test_log_on_a_full_disk_drops_events_and_goes_on_after_a_gap(tmp_path: Path) -> None:
    program, disk = tmp_path / "program.py", tmp_path / "disk"
    program.write_text(textwrap.dedent(FULL))
    disk.mkdir()
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", MOUNTED, "sh", str(disk), sys.executable, str(program)],
        env=os.environ | {"PEERLANE_LOG": str(disk)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    dropped, kinds, missing, copies = json.loads(done.stdout)
    assert dropped > 20_000
    assert (kinds, missing, copies + dropped) == (["gap", "access"], dropped, 30_000)


def test_log_that_cannot_be_created_is_warned_of_and_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("peerlane._core.log_begin", full)
    monkeypatch.setenv("PEERLANE_LOG", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="writes no event log: No space left on device"):
        event_log.begin_from_environment()


MANY = """
    import multiprocessing, os
    import peerlane as pl
    from peerlane.diagnostics.log import event_log
    def work():
        device = pl.devices()[0]
        a, b = device.allocate(8), device.allocate(8)
        for _ in range(8_000):
            pl.copy(a, b)
    if __name__ == "__main__":
        event_log.end()
        event_log.DEFAULT_BYTES = 2 << 20
        event_log.begin(os.environ["PEERLANE_LOG"], capacity=1 << 20)
        for _ in range(8):
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
"""


def test_logs_of_a_folder_hold_no_more_than_all_may(tmp_path: Path) -> None:
    logs = run_logged(tmp_path, MANY)
    held = sum(path.stat().st_blocks * 512 for path in (tmp_path / "logs").glob("*.log"))
    assert held <= (2 << 20) + len(logs) * 8192  # and their headers
    assert sum(len(log.of("access")) for log in logs) > 10_000
    assert sum(log.dropped for log in logs) > 30_000


def test_folder_lies_in_memory_if_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, elsewhere = tmp_path / "memory", tmp_path / "elsewhere"
    memory.mkdir()
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    monkeypatch.setattr(event_log, "_MEMORY", memory)
    with event_log.folder() as created:
        assert created.parent == memory
    monkeypatch.setattr(event_log, "DEFAULT_BYTES", 1 << 62)
    with event_log.folder() as created:
        assert created.parent == elsewhere
    assert not [*memory.iterdir(), *elsewhere.iterdir()]


def test_order_of_other_key_types_is_refused() -> None:
    pl.order(("block", 7, b"x"))
    for key in (1.5, None, ("a", None), True):
        with pytest.raises(TypeError, match="a key is a str, bytes, an int or a tuple of these"):
            pl.order(key)  # type: ignore[arg-type]


def test_program_without_a_log_loads_nothing_of_it(tmp_path: Path) -> None:
    program = """
    import sys
    import peerlane as pl
    assert "peerlane.diagnostics.hooks.threads" not in sys.modules and "multiprocessing" not in sys.modules
    """
    assert run_logged(tmp_path, program, PEERLANE_LOG="") == []


def test_size_that_is_not_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("12x", "4096", "-1"):
        monkeypatch.setenv("PEERLANE_LOG_BYTES", size)
        with pytest.raises(pl.InvalidValue, match="valid are 1MiB to 1TiB"):
            event_log.default_capacity()


COPYING = """
import time
import peerlane as pl
a = pl.devices()[0].allocate(1 << 20)
began = time.process_time()
for turn in range(30_000):
    pl.copy(a[turn % 1024 * 64:][:8], a[524288:524296])
print(time.process_time() - began)
"""


@pytest.mark.skipif(
    not HAS_NAMESPACES, reason="this process may not mount a file system in a namespace of its own"
)
def test_log_on_a_full_disk_costs_little_and_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    unshare = ["unshare", "-rm", "sh", "-c", MOUNTED, "sh", str(tmp_path / "disk")]
    (tmp_path / "runtime").mkdir(mode=0o700)
    environ = {**os.environ, "PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime"), "PEERLANE_LOG_BYTES": "64MiB"}
    seconds = {}
    small = str(tmp_path / "disk")
    for where in (small, str(tmp_path)):
        done = subprocess.run(
            [*unshare, sys.executable, "-c", COPYING],
            env={**environ, "PEERLANE_LOG": where},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seconds[where] = float(done.stdout)
        warned = (
            "no room for the event log" in done.stderr and "(No space left on device): events are missing"
        )
        assert (done.stderr.count("peerlane:"), bool(warned)) == ((1, True) if where == small else (0, False))
    assert seconds[small] < 5 * seconds[str(tmp_path)] + 0.5, seconds

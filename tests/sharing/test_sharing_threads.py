"""Threads that share and close the same objects, Ctrl-C while an exporter is stopped, and forked children."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import peerlane as pl
from helpers.peers import peer
from helpers.promised import overdue

G = 2 << 20
INTERRUPT_SECONDS = 1.0

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

Node = Callable[..., tuple[pl.Device, ...]]

# All threads use the same few objects; only peerlane's errors may be raised.
THREADS = """
import itertools, random, sys, threading, time
sys.setswitchinterval(1e-5)
numbers = {numbers}
until = time.monotonic() + {seconds}
imported, ranges = [None] * 3, [pl.AddressRange(devices[i % 2], 4 * G) for i in range(3)]
own, handles = [pl.Physical(devices[0], G) for _ in range(3)], [None] * 3
buffers = [devices[1].allocate(5000) for _ in range(3)]
wrong, counts = [], {{}}

def step(draw):
    i, at = draw.randrange(3), draw.randrange(4) * G
    which = draw.randrange(11)
    if which == 0: imported[i] = pl.Physical.open(draw.choice(numbers))
    elif which == 1: imported[i] and imported[i].close()
    elif which == 2: ranges[i].map(draw.choice(imported + own) or own[i], at=at)
    elif which == 3: ranges[i].unmap(at)
    elif which == 4: ranges[i][at : at + 4096].fill(5)
    elif which == 5: handles[i] = own[i].export(allow="user")
    elif which == 6: handles[i] and handles[i].close()
    elif which == 7:
        own[i].close()
        own[i] = pl.Physical(devices[0], G)
    elif which == 8: buffers[i].export(allow=[1]).close()
    elif which == 9:
        buffers[i].close()
        buffers[i] = devices[1].allocate(5000)
    else: handles[i] and handles[i].allow.__len__()
    return which

def work(seed):
    draw = random.Random(seed)
    for number in itertools.count():
        if number >= 300 and time.monotonic() >= until: break
        try: name = step(draw)
        except (pl.Closed, pl.BadHandle, pl.Busy, pl.BadAddress) as error: name = type(error).__name__
        except BaseException as error:
            wrong.append(repr(error))
            return
        counts[name] = counts.get(name, 0) + 1

threads = [threading.Thread(target=work, args=(seed,)) for seed in range({seed}, {seed} + 3)]
[t.start() for t in threads]; [t.join() for t in threads]
[each.close() for each in [*ranges, *own, *buffers, *filter(None, imported + handles)]]
del imported, ranges, own, handles, buffers
import gc
gc.collect(); pl.trim()
result = [wrong, len(counts)]
"""


def test_objects_shared_and_closed_by_threads_leak_nothing(node: Node) -> None:
    spec = f"name=threads-{os.getpid()},devices=2"
    device = node(spec)[0]
    seed = int(os.environ.get("PEERLANE_TEST_SEED", time.time_ns() % 1_000_000))
    print(f"seed: PEERLANE_TEST_SEED={seed}")
    with peer(spec) as exporter, peer(spec) as other:
        numbers = exporter.run(
            "blocks = [pl.Physical(devices[0], G) for _ in range(3)]\n"
            "handles = [b.export(allow='user') for b in blocks]; result = [int(h) for h in handles]"
        )
        wrong, kinds = other.run(THREADS.format(numbers=numbers, seconds=2, seed=seed))
        assert wrong == []
        assert kinds >= 11
        deadline = time.monotonic() + 20
        while exporter.run("result = sum(h.importers for h in handles)"):
            assert time.monotonic() < deadline
        assert device.free_bytes == device.total_bytes - 3 * G


def test_ctrl_c_during_open_from_stopped_exporter_is_raised_soon(node: Node) -> None:
    spec = f"name=stopped-{os.getpid()},devices=2"
    device = node(spec)[0]
    with peer(spec) as exporter, peer(spec) as importer:
        exporter.run("blocks = [pl.Physical(devices[0], G) for _ in range(2)]")
        numbers = exporter.run(
            "handles = [b.export(allow='user') for b in blocks]; result = [int(h) for h in handles]"
        )
        os.kill(exporter.pid, signal.SIGSTOP)
        try:
            while " T " not in Path(f"/proc/{exporter.pid}/stat").read_text():
                pass
            for number in numbers:  # the first open connects, too
                importer.send(
                    "import json, signal, time\n"
                    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                    "try:\n"
                    "    print(json.dumps({'result': 'begun'}), flush=True)\n"
                    f"    pl.Physical.open({number}, timeout=60)\n"
                    "except KeyboardInterrupt: result = time.monotonic()"
                )
                assert importer.receive() == "begun"
                while "S" not in Path(f"/proc/{importer.pid}/stat").read_text().rpartition(")")[2].split()[0]:
                    pass
                began = time.monotonic()
                os.kill(importer.pid, signal.SIGINT)
                assert importer.receive() - began < overdue(INTERRUPT_SECONDS)
        finally:
            os.kill(exporter.pid, signal.SIGCONT)
        # The interrupted open leaves no trace.
        assert importer.run(f"result = pl.Physical.open({numbers[0]}).size") == G
        deadline = time.monotonic() + 20
        while exporter.run("result = [h.importers for h in handles]")[1]:
            assert time.monotonic() < deadline
        assert device.free_bytes == device.total_bytes - 2 * G


FORKED = """
import json, os
own = pl.Physical(devices[0], G)
made = own.export(allow=[os.getppid()])
imported = pl.Physical.open({number})
buffer = devices[0].allocate(64)
reads, writes = os.pipe()
if os.fork() == 0:
    found = []
    for work in (lambda: own.export(), lambda: buffer.export(), lambda: imported.export(),
                 lambda: made.allow.add(1), lambda: made.allow.discard(1),
                 lambda: pl.Physical.open({number}), lambda: pl.Buffer.open({number}),
                 lambda: pl.AddressRange(devices[0], G), lambda: pl.Physical(devices[0], G)):
        try: work()
        except pl.Error as error: found.append(error.fault.name)
        else: found.append('nothing')
    found += [len(made.allow), made.importers]
    made.close(); own.close(); imported.close(); buffer.close()
    os.write(writes, json.dumps(found).encode())
    os._exit(0)
os.close(writes)
result = json.loads(os.read(reads, 10_000))
assert os.wait()[1] == 0
"""


def test_forked_child_sharing_is_refused_and_parent_keeps_all(node: Node) -> None:
    spec = f"name=forked-{os.getpid()},devices=2"
    device = node(spec)[0]
    block = pl.Physical(device, G)
    handle = block.export(allow="user")
    with peer(spec) as other:
        assert other.run(FORKED.format(number=int(handle))) == ["FORKED"] * 9 + [0, 0]
        # What the child closed is still open in its parent.
        assert handle.importers == 1
        assert pl.Physical.open(other.run("result = int(made)")).size == G
        other.run("imported.close(); made.close(); own.close(); buffer.close()")
        deadline = time.monotonic() + 20
        while handle.importers:
            assert time.monotonic() < deadline
    handle.close()
    block.close()

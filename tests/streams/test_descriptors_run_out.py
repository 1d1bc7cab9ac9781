"""Notifies give descriptors back; when no descriptor is left, the error says what to do."""

from __future__ import annotations

import json

import pytest

from helpers.prepared import run_python

pytestmark = pytest.mark.schedules_in_turn

PROGRAM = """
import gc, json, os, resource, sys, peerlane as pl
d0, _ = pl.devices()
stream = d0.create_stream()
stream.record().sync()
def used(): return len(os.listdir("/proc/self/fd"))
before = used()
found = {"pages": []}
for _ in range(3):
    many = [d0.create_notify() for _ in range(6300)]
    found["full"] = used() - before
    stream.wait(many[77]); many[77].record(); stream.sync(timeout=20)
    half = many[::2]
    del many
    found["half"] = used() - before
    del half
    found["pages"].append(used() - before)
again = [d0.create_notify() for _ in range(63)]
found["again"] = used() - before
del again
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (used() + 3, hard))
found["limit"] = used() + 3
kept = []
try:
    while True: kept.append(d0.create_notify())
except pl.OutOfMemory as error:
    found["notify"] = [error.fault.name, str(error), len(kept) >= 63]
try: stream.record().fileno()
except pl.OutOfMemory as error: found["event"] = [error.fault.name, str(error)]
kept.clear()
kept.append(d0.create_notify())
stream.wait(kept[0]); kept[0].record(); stream.sync(timeout=20)
print(json.dumps(found))
"""


@pytest.mark.timeout(120)
def test_notifies_release_descriptors_and_error_names_the_limit() -> None:
    done = run_python(["-c", PROGRAM], timeout=100)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["full"] == 100
    assert report["half"] == 100
    assert report["pages"] == [1, 1, 1]
    assert report["again"] == 1
    fault, text, some = report["notify"]
    assert fault == "OUT_OF_RESOURCES"
    assert some
    fault, event = report["event"]
    assert fault == "OUT_OF_RESOURCES"
    for each in (text, event):
        assert "ulimit -n" in each
        assert f"may have {report['limit']:,}" in each
        assert "device memory" not in each
    assert "signals: 63 notifies hold one" in text
    assert "an event: each whose fileno()" in event


SHARING = """
import os, resource, sys, peerlane as pl
block = pl.Physical(pl.devices()[0], 2 << 20)
most = len(os.listdir("/proc/self/fd")) + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
try: block.export(allow=[os.getppid()])
except pl.OutOfMemory as error: print(error.fault.name, error)
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("more", range(3))
def test_export_without_free_descriptor_raises_naming_the_limit(more: int) -> None:
    done = run_python(["-c", SHARING, str(more)], timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "OUT_OF_RESOURCES no file descriptor is left for handles: serving them holds some"
    )
    assert "ulimit -n" in done.stdout and "device memory" not in done.stdout

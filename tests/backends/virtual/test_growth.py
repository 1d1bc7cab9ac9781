"""Many cycles of neutral and of pyACL calls do not grow memory, descriptors or threads."""

from __future__ import annotations

import json
import os

import pytest

from helpers.rank_peers import ask_all, ranks
from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule

NEUTRAL = """
import numpy as np
d0.peers.add(d1)
source = np.arange(6 << 20, dtype=np.uint8)
sizes = [1, 300, 5000, 70_000, 1 << 20, (2 << 20) + 1, 6 << 20]

def cycle(i):
    n = sizes[i % len(sizes)]
    with d0.allocate(n) as a, d1.allocate(n) as b, pl.Host().allocate(n) as h:
        pl.copy(h, source[:n]); pl.copy(a, h); pl.copy(b, a)
        assert b.view()[-1] == source[n - 1]
        try: a[0:n + 1]
        except pl.BadAddress: pass
        address = a.address
    try: pl.raw.copy(address, address, 1)
    except pl.BadAddress: pass
"""

# 21 calls, of which three fail.
ACL = """
import peerlane.dialects
peerlane.dialects.install("acl")
import acl
from acl import rt
assert acl.init() == rt.set_device(0) == 0
kept, stream = rt.malloc(4096, 0)[0], rt.create_stream()[0]
host = rt.malloc_host(4096)[0]

def cycle(i):
    pointer, event = rt.malloc(100 + i % 5000, 0)[0], rt.create_event()[0]
    notify, other = rt.create_notify(0)[0], rt.create_stream()[0]
    assert rt.memcpy(kept, 4096, host, 64, 1) == rt.memcpy_async(pointer, 64, kept, 64, 3, stream) == 0
    assert rt.record_event(event, stream) == rt.stream_wait_event(other, event) == 0
    assert rt.record_notify(notify, stream) == rt.wait_and_reset_notify(notify, other, 5) == 0
    assert rt.memset_async(pointer, 64, i % 256, 64, other) == rt.synchronize_stream(other) == 0
    assert rt.memcpy(host, 4096, pointer, 64, 2) == 0
    assert rt.get_device() == (0, 0) and rt.stream_query(stream)[1] == 0
    assert rt.memcpy(kept, 1, host, 64, 1) == 107000 and rt.free(12345) == 107000
    assert rt.free(pointer) == rt.destroy_event(event) == rt.destroy_notify(notify) == rt.destroy_stream(other) == 0
    assert rt.free(pointer) == 0 and rt.free_host(pointer) == 107000
    if not i % 100: acl.get_recent_err_msg()
"""

CYCLES = """
import gc, json, os, sys, psutil, peerlane as pl
d0, d1 = pl.devices()
me = psutil.Process()
{work}

def state():
    gc.collect()
    return {{"rss": me.memory_info().rss, "fds": me.num_fds(), "threads": me.num_threads(),
            "maps": sum(1 for _ in open("/proc/self/maps"))}}

used = d0.free_bytes
for i in range(5000): cycle(i)     # fills the caches and the memory of the dead
before = state()
for i in range(int(sys.argv[1])): cycle(i)
print(json.dumps([before, state(), d0.free_bytes == used, d1.free_bytes == d1.total_bytes]))
"""


def cycles(work: str, count: int, seconds: float) -> None:
    own = {
        **os.environ,
        "PEERLANE_NODE": f"name=growth-{os.getpid()},devices=2",
    }  # other tests use the default node at the same time
    done = run_python(["-c", CYCLES.format(work=work), str(count)], timeout=seconds, env=own)
    assert done.returncode == 0, done.stderr
    before, after, *free = json.loads(done.stdout)
    print(f"{count:,} cycles in {done.seconds:.1f} s: {before} -> {after}")
    assert free == [True, True]
    assert after["fds"] <= before["fds"]
    assert after["threads"] <= before["threads"] + 1
    assert after["maps"] <= before["maps"] + 4
    assert after["rss"] <= before["rss"] + (8 << 20)


@pytest.mark.parametrize("work", [NEUTRAL, ACL], ids=["neutral", "acl"])
def test_thousand_cycles_of_calls_do_not_grow_the_process(work: str) -> None:
    cycles(work, 1000, 100)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("work", "count"), [(NEUTRAL, 100_000), (ACL, 50_000)], ids=["neutral", "acl"])
def test_many_cycles_of_calls_do_not_grow_the_process(work: str, count: int) -> None:
    cycles(work, count, 3000)


_CHANNELS = """
import gc, os
def state():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), sum(1 for _ in open("/proc/self/maps"))
def cycle():
    grp.register(mem, "kv")
    link = grp.channel(1 - grp.rank)
    link.write(src, memory="kv", stream=s)
    link.notify(0, stream=s)
    link.wait(0, timeout=20)
    s.sync()
    grp.deregister("kv")
    link.close()
for _ in range(3): cycle()
before = state()
for _ in range(30): cycle()
after = state()
result = [after[0] - before[0], after[1] - before[1]]
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:1"])
def test_channels_opened_and_closed_do_not_grow_the_process(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    with ranks(2) as peers:
        ask_all(
            peers,
            "mem = grp.device.allocate(1 << 16, peer=True)\n"
            "src = grp.device.allocate(64); s = grp.device.create_stream()",
        )
        for descriptors, maps in ask_all(peers, _CHANNELS):
            assert descriptors <= 4
            assert maps < 15  # the allocator's own come and go; one left by every second cycle would be more

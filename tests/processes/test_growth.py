"""Cycles of allocate, copy, free: no growth of memory, descriptors or threads."""

from __future__ import annotations

import json

import pytest

from peerlane.testing.procs import run_python

CYCLES = """
import gc, json, os, sys, numpy as np, psutil, peerlane as pl
d0, d1 = pl.devices()
d0.peers.add(d1)
me = psutil.Process()
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

def state():
    gc.collect()
    return {"rss": me.memory_info().rss, "fds": me.num_fds(), "threads": me.num_threads(),
            "maps": sum(1 for _ in open("/proc/self/maps"))}

for i in range(5000): cycle(i)     # fills the caches and the memory of the dead
before = state()
for i in range(int(sys.argv[1])): cycle(i)
print(json.dumps([before, state(), [d.free_bytes == d.total_bytes for d in (d0, d1)]]))
"""


def cycles(count: int, seconds: float) -> None:
    done = run_python(["-c", CYCLES, str(count)], timeout=seconds)
    assert done.returncode == 0, done.stderr
    before, after, free = json.loads(done.stdout)
    print(f"{count:,} cycles in {done.seconds:.1f} s: {before} -> {after}")
    assert free == [True, True]
    assert after["fds"] <= before["fds"]
    assert after["threads"] <= before["threads"] + 1
    assert after["maps"] <= before["maps"] + 4
    assert after["rss"] <= before["rss"] + (8 << 20)


def test_no_growth_in_a_thousand_cycles() -> None:
    cycles(1000, 100)


@pytest.mark.soak
def test_no_growth_in_a_hundred_thousand_cycles() -> None:
    cycles(100_000, 1800)

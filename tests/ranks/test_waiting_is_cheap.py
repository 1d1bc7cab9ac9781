"""A waiting rank leaves the cores to others."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from helpers.peers import peer
from helpers.rank_peers import ranks
from peerlane.rendezvous import RendezvousServer

MOST_SHARE = 0.01  # of a core
SIZE, PROCESSES = 16, 4

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

_WAIT = """
import json, time
s = grp.device.create_stream()
print(json.dumps({{"result": "begun"}}), flush=True)
wall, spent = time.monotonic(), time.process_time()
if {streamed}:
    ch[1].wait(0, stream=s); s.sync()
else:
    ch[1].wait(0)
wall, spent = time.monotonic() - wall, time.process_time() - spent
result = [wall, spent]
"""


@pytest.mark.parametrize("streamed", [False, True])
def test_channel_wait_idle_takes_under_one_percent_of_a_core(streamed: bool) -> None:
    with ranks(2) as (waiting, slow):
        waiting.run("ch[0].notify(3); ch[0].wait(3)")  # the costs of a first wait are not counted
        shares: list[float] = []
        while min(shares, default=1) >= MOST_SHARE and len(shares) < 3:  # the machine may be busy
            waiting.send(_WAIT.format(streamed=streamed))
            assert waiting.receive() == "begun"
            slow.run("import time; time.sleep(2.2); ch[0].notify(0)")
            wall, spent = waiting.receive()
            print(f"{spent * 1e3:.1f} ms of {wall:.1f} s")
            shares.append(spent / wall)
        assert min(shares) < MOST_SHARE


_RANK = """
import os, threading, time
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from peerlane.rendezvous import Rendezvous
os.sched_setaffinity(0, {cores})
def work(rank):
    with pl.Group(rank, {size}, rendezvous=Rendezvous({address!r}, rank, {size})) as grp:
        src, dst = grp.device.allocate(1 << 16), grp.device.allocate(1 << 16)
        src.view("float32", 1 << 14)[:] = rank + 1
        grp.barrier()
        began = time.monotonic()
        for _ in range(3):
            grp.barrier()
            grp.all_reduce(dst, src, dtype="float32")
        assert (dst.view("float32", 1 << 14) == grp.size * (grp.size + 1) / 2).all()
        ended = time.monotonic()
        grp.barrier()
        return ended - began
mine = {mine}
with ThreadPoolExecutor(len(mine)) as pool:
    result = max(pool.map(work, mine))
"""


def test_all_reduce_of_16_ranks_on_two_cores_completes() -> None:
    cores, node = sorted(os.sched_getaffinity(0))[:2], "name=many-ranks,devices=4"
    with RendezvousServer(SIZE) as server, ExitStack() as ended:
        peers = [ended.enter_context(peer(node)) for _ in range(PROCESSES)]
        for number, each in enumerate(peers):
            mine = list(range(number, SIZE, PROCESSES))
            each.send(_RANK.format(cores=cores, size=SIZE, address=server.address, mine=mine))
        print(f"{max(each.receive(60.0) for each in peers):.2f} s")

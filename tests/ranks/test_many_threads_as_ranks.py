"""Many ranks as threads of one process: more than a rendezvous lets one process wait by default."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import peerlane as pl
from helpers.prepared import run_python
from peerlane.rendezvous import Rendezvous, RendezvousServer
from peerlane.rendezvous.frames import Operation
from peerlane.rendezvous.meeting_loop import MeetingLoop

SECONDS = 240.0
SOAK = pytest.mark.soak

# Under `seeded` a communicator of 128 threads does not end within 240 s.
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(SECONDS + 30)]

_GROUP = """
import sys
import numpy as np
import peerlane as pl
from peerlane.rendezvous import Rendezvous, RendezvousServer
from concurrent.futures import ThreadPoolExecutor
size = int(sys.argv[1])
with RendezvousServer(size) as server:
    def rank(me):
        with Rendezvous(server.address, me, size) as line:
            with pl.Group(me, size, rendezvous=line, window=4096, workspace=0, timeout=200) as group:
                right, left = (me + 1) % size, (me - 1) % size
                to, back = group.channels([right, left], notifies=1)
                to.write(bytes([me]) * 8, notify=0)
                back.wait(0, timeout=200)
                assert bytes(group.window.view()[:8]) == bytes([left]) * 8
                own = np.array([me], np.int64)
                group.all_reduce(own, dtype="int64", algorithm="ring")
                assert own[0] == size * (size - 1) // 2
                group.barrier()
        return me
    with ThreadPoolExecutor(size) as pool:
        assert sorted(pool.map(rank, range(size))) == list(range(size))
print("fine")
"""


@pytest.mark.parametrize("size", [66, pytest.param(128, marks=SOAK)])
def test_group_of_many_threads_meets_writes_and_reduces(size: int) -> None:
    done = run_python(["-c", _GROUP, str(size)], timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", ""), done.stderr[-3000:]


def test_group_first_barrier_makes_few_requests_of_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair of ranks has a channel, and a request for each of them would be most of the barrier's time."""
    size, asked, counts = 12, list[Operation](), threading.Event()
    carry_out = MeetingLoop.carry_out

    def counted(loop: MeetingLoop, connection: Any) -> None:
        if counts.is_set():
            asked.append(connection.operation)
        carry_out(loop, connection)

    monkeypatch.setattr(MeetingLoop, "carry_out", counted)
    begin, end = (threading.Barrier(size, action=each) for each in (counts.set, counts.clear))
    with RendezvousServer(size) as server:

        def rank(me: int) -> None:
            with (
                Rendezvous(server.address, me, size) as client,
                pl.Group(rendezvous=client, window=4096) as group,
            ):
                begin.wait(60)
                group.barrier()
                end.wait(60)

        with ThreadPoolExecutor(size) as pool:
            list(pool.map(rank, range(size)))
    pairs = size * (size - 1)
    assert 0 < len(asked) < pairs, Counter(asked)


def test_ranks_that_wait_for_a_late_one_make_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    size, asked, others_wait = 24, list[Operation](), threading.Event()
    carry_out = MeetingLoop.carry_out

    def counted(loop: MeetingLoop, connection: Any) -> None:
        asked.append(connection.operation)
        if asked.count(Operation.PUT) == size - 1:  # the others gather no more, and have put their messages
            others_wait.set()
        carry_out(loop, connection)

    monkeypatch.setattr(MeetingLoop, "carry_out", counted)
    with RendezvousServer(size) as server:

        def rank(me: int) -> None:
            assert me != size - 1 or others_wait.wait(60)
            with (
                Rendezvous(server.address, me, size) as client,
                pl.Group(rendezvous=client, window=4096) as group,
            ):
                assert [each.rank for each in group.members] == list(range(size))

        with ThreadPoolExecutor(size) as pool:
            list(pool.map(rank, range(size)))
    assert len(asked) < 14 * size, Counter(asked)


_HCOMM = """
import sys
from concurrent.futures import ThreadPoolExecutor
import peerlane as pl
from peerlane.dialects import acl, hcomm
size, work = int(sys.argv[1]), sys.argv[2]
def ok(result):
    *outputs, ret = result if isinstance(result, tuple) else (result,)
    assert ret == 0, (ret, hcomm.explain())
    return outputs[0] if len(outputs) == 1 else outputs
ok(acl.rt.set_device(0))
info = ok(hcomm.HcclGetRootInfo())
def reduces(me, comm):
    buffer, _ = ok(hcomm.HcclGetHcclBuffer(comm))
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.memset(buffer, 4, 1, 4))
    ok(hcomm.HcclAllReduce(buffer, buffer + 64, 1, hcomm.HCCL_DATA_TYPE_INT32, hcomm.HCCL_REDUCE_SUM, comm, stream))
    ok(hcomm.HcclBarrier(comm, stream))
    ok(acl.rt.synchronize_stream(stream))
    found = bytearray(4)
    ok(acl.rt.memcpy(pl.as_buffer(found).address, 4, buffer + 64, 4, 2))
    assert int.from_bytes(found, "little") == size * 0x01010101, found
def rank(me):
    ok(acl.rt.set_device(me))
    comm = ok(hcomm.HcclCommInitRootInfo(size, info, me))
    if work == "reduce":
        reduces(me, comm)
    ok(hcomm.HcclCommDestroy(comm))
    return me
with ThreadPoolExecutor(size) as pool:
    assert sorted(pool.map(rank, range(size))) == list(range(size))
print("fine")
"""


def communicate(size: int, work: str) -> None:
    env = {
        **os.environ,
        "PEERLANE_NODE": f"name=many-{os.getpid()},devices={size},memory=1GiB",
        "HCCL_BUFFSIZE": "1",
        "HCCL_CONNECT_TIMEOUT": "200",
        "HCCL_EXEC_TIMEOUT": "200",
    }
    done = run_python(["-c", _HCOMM, str(size), work], timeout=SECONDS, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", ""), done.stderr[-3000:]


def test_hcomm_communicator_of_many_threads_is_created() -> None:
    communicate(66, "nothing")


@pytest.mark.parametrize("size", [16, pytest.param(66, marks=SOAK), pytest.param(128, marks=SOAK)])
def test_hcomm_communicator_of_many_threads_reduces(size: int) -> None:
    communicate(size, "reduce")

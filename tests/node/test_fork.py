"""Forked children of a process that only asked for its devices, and of a process that used them."""

from __future__ import annotations

import textwrap

import pytest

from helpers.prepared import run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

HEAD = """
import multiprocessing, os, sys, threading, warnings
import numpy as np
import peerlane as pl

warnings.simplefilter("ignore")


def in_child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(type(error).__name__, error)
            sys.stdout.flush()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def uses():
    d0, d1 = pl.devices()[:2]
    data = np.random.default_rng(1).integers(0, 256, (5 << 20) + 3, dtype=np.uint8)
    a, b, back = d0.allocate(data.nbytes), d1.allocate(data.nbytes), np.zeros_like(data)
    notify = d0.create_notify()
    with d0.create_stream() as s, d1.create_stream() as t:
        t.wait(notify)
        b.copy_from(a, stream=t)
        a.copy_from(data, stream=s)
        s.notify(notify)
        t.sync(timeout=30)
    b.copy_to(back)
    assert (back == data).all()
    assert d0.free_bytes <= d0.total_bytes - data.nbytes


def refused():
    try:
        pl.devices()[0].allocate(8)
    except pl.Closed as error:
        assert error.fault is pl.Fault.FORKED and "was forked after its parent had used devices" in str(error)
    else:
        raise AssertionError("served")
"""


def succeeds(body: str, printed: str = "") -> None:
    done = run_python(["-c", HEAD + textwrap.dedent(body)], timeout=90)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_pool_workers_forked_before_use_join_the_node() -> None:
    succeeds("""
        def work(number):
            device = pl.devices()[number % 2]
            buffer = device.allocate(1 << 20)
            buffer.fill(number)
            place = device.backend._state.slot
            return os.getpid(), place, bytes(buffer.view()[:3])

        count = len(pl.devices())
        with multiprocessing.get_context("fork").Pool(3) as pool:
            given = pool.map(work, range(12), chunksize=1)
        own = pl.devices()[0].backend._state.slot
        assert [each[2] for each in given] == [bytes([n] * 3) for n in range(12)]
        assert len({pid for pid, _, _ in given}) == len({place for _, place, _ in given})
        assert own not in {place for _, place, _ in given}
        assert pl.devices()[0].free_bytes == pl.devices()[0].total_bytes
        uses()
    """)


def test_forked_child_and_parent_share_memory_by_handles() -> None:
    succeeds("""
        d0, d1 = pl.devices()
        ours, theirs = multiprocessing.Pipe()

        def work():
            held = d1.allocate(2 << 20)
            held.fill(4)
            theirs.send(bytes(held.export(allow=[os.getppid()])))
            opened = pl.Buffer.open(ours_key := theirs.recv())
            seen = bytes(opened.view()[:4])
            opened.fill(9)
            theirs.send(seen)
            theirs.recv()

        pid = os.fork()
        if pid == 0:
            work()
            os._exit(0)
        import_key = ours.recv()
        buffer = d0.allocate(4 << 20)
        buffer.fill(5)
        ours.send(bytes(buffer.export(allow=[pid])))
        assert ours.recv() == bytes([5] * 4)
        assert (buffer.view() == 9).all()
        imported = pl.Buffer.open(import_key)
        assert (imported.view() == 4).all()
        ours.send(None)
        assert os.waitpid(pid, 0)[1] == 0
        assert (imported.view() == 4).all()
    """)


USES = {
    "memory": "d.allocate(8).close()",
    "pinned memory": "pl.Host().allocate(8).close()",
    "physical memory": "pl.Physical(d, 2 << 20).close()",
    "address range": "pl.AddressRange(d, 2 << 20).close()",
    "stream": "d.create_stream().close()",
    "event": "d.create_event()",
    "notify": "d.create_notify().close()",
    "peer": "d.peers.add(pl.devices()[1])",
    "handle": "d.allocate(8).export(allow='user')",
}


@pytest.mark.parametrize("use", list(USES.values()), ids=list(USES))
def test_forked_child_after_each_use_is_refused_until_leave_node(use: str) -> None:
    succeeds(f"""
        d = pl.devices()[0]
        {use}
        assert in_child(refused) == 0
        pl.leave_node()
        pl.devices()
        assert in_child(uses) == 0
        uses()
    """)


def test_forked_child_after_earlier_node_works() -> None:
    succeeds("""
        def large():
            one, other = bytearray(64 << 20), np.full(64 << 20, 7, np.uint8)
            pl.copy(one, other)
            assert one == other.tobytes()

        large()  # helpers of large copies wait for more
        for _ in range(3):
            uses()  # so do workers, and freed blocks are kept
            pl.leave_node()
            assert in_child(uses) == 0
            pl.devices()
            assert in_child(uses) == 0 and in_child(large) == 0
    """)


def test_forked_child_is_refused_while_object_of_left_node_lives() -> None:
    succeeds("""
        view, physical = lambda d: d.allocate(4096).view(), lambda d: pl.Physical(d, 2 << 20)
        for make in (view, physical, pl.Device.create_notify):
            kept = make(pl.devices()[0])
            pl.leave_node()
            pl.devices()
            first = in_child(refused)
            del kept
            assert (first, in_child(uses)) == (0, 0)
    """)


def test_forked_child_can_leave_reenter_fork_and_exit() -> None:
    succeeds("""
        d = pl.devices()[0]
        state = d.backend._state

        def leaves():
            pl.leave_node()
            assert d.is_closed
            uses()

        def goes_elsewhere():
            assert len(pl.enter_node("devices=5,name=elsewhere")) == 5
            uses()

        def forks():
            assert in_child(uses) == 0
            assert d.free_bytes == d.total_bytes
            assert in_child(uses) == 0
            uses()
            assert in_child(refused) == 0

        for work in (leaves, goes_elsewhere, forks):
            assert in_child(work) == 0
        pid = os.fork()
        if pid == 0:
            uses()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert state.processes() == (os.getpid(),)
        uses()
    """)


def test_forked_child_with_many_threads_joins_once() -> None:
    succeeds("""
        d = pl.devices()[0]

        def work():
            wait, made = threading.Barrier(8), []

            def one():
                wait.wait(20)
                made.append(d.allocate(1 << 20))

            threads = [threading.Thread(target=one) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            assert len(made) == 8 and len(d.backend._state.processes()) == 2

        assert in_child(work) == 0
    """)


def test_fork_while_threads_allocate_refuses_child_and_keeps_parent() -> None:
    succeeds("""
        d, over, seen = pl.devices()[0], threading.Event(), []

        def busy():
            while not over.is_set():
                with d.allocate(1 << 20) as a, d.create_stream() as s:
                    a.fill(len(seen) % 250, stream=s)
                    s.sync(timeout=30)
                    seen.append((a.view() == a.view()[0]).all())

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        while not seen:
            pass
        for _ in range(10):
            assert in_child(refused) == 0
        over.set()
        for thread in threads:
            thread.join(30)
        assert all(seen)
    """)

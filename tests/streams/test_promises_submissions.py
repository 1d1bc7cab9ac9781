"""The promises of docs/errors.md on calls with ``stream=``, and on streams with forks and Ctrl-C."""

from __future__ import annotations

import numpy as np
import pytest

import peerlane as pl
from helpers.prepared import run_python
from helpers.promised import overdue
from helpers.promises import WILD, Node, filled, parked, untouched
from peerlane.errors import Fault

pytestmark = pytest.mark.timeout(60)


def test_call_on_closed_stream_raises_closed(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 64, 1), filled(d0, 64, 2)
    table = pl.CopyDescriptor.build(d0.allocate(64), [(a, b)])
    s = d0.create_stream()
    s.close()
    calls = [
        lambda stream: pl.copy(a, b, stream=stream),
        lambda stream: pl.copy(a, bytes(64), stream=stream),
        lambda stream: a.copy_from(b, stream=stream),
        lambda stream: b.copy_to(a, stream=stream),
        lambda stream: a.fill(3, stream=stream),
        lambda stream: pl.copy_2d(a, 8, b, 8, 8, 8, stream=stream),
        lambda stream: pl.copy_batch([a], [b], stream=stream),
        lambda stream: pl.reduce(a, b, dtype="int8", stream=stream),
        lambda stream: pl.raw.reduce(a.address, b.address, 8, dtype="int64", stream=stream),
        lambda stream: pl.raw.copy(a.address, b.address, 64, stream=stream),
        lambda stream: pl.raw.copy_2d(a.address, 8, b.address, 8, 8, 8, stream=stream),
        lambda stream: pl.raw.fill(a.address, 3, count=64, stream=stream),
        lambda stream: pl.raw.launch_descriptor(table.table.address, 64, stream=stream),
        table.launch,
        lambda stream: pl.copy(a[:0], b[:0], stream=stream),
        lambda stream: pl.copy(a[:0], b"", stream=stream),
        lambda stream: a[:0].fill(3, stream=stream),
        lambda stream: pl.copy_2d(a, 8, b, 8, 0, 8, stream=stream),
        lambda stream: pl.copy_2d(a, 8, b, 8, 8, 0, stream=stream),
        lambda stream: pl.copy_batch([], [], stream=stream),
        lambda stream: pl.raw.copy(a.address, b.address, 0, stream=stream),
        lambda stream: pl.raw.copy_2d(a.address, 8, b.address, 8, 0, 8, stream=stream),
        lambda stream: pl.raw.fill(a.address, 3, count=0, stream=stream),
        lambda stream: pl.reduce(a[:0], b[:0], dtype="int8", stream=stream),
        lambda stream: pl.raw.reduce(a.address, b.address, 0, dtype="int8", stream=stream),
    ]
    for call in calls:
        closed = rf"stream {s.id} on virtual:0 was closed \(made at .*, closed at .*\); it takes no more"
        with pytest.raises(pl.Closed, match=closed):
            call(s)
        with pytest.raises(TypeError, match=r"stream must be a Stream or None, not (int|object)"):
            call(5)
        with pytest.raises(TypeError, match=r"stream must be a Stream or None, not (int|object)"):
            call(object())
    assert s.submitted == 0
    assert untouched(a, 1)


def test_copy_batch_counts_differ_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 8, 1), filled(d0, 8, 2)
    for stream in (None, d0.create_stream()):
        with pytest.raises(pl.InvalidValue, match="2 destinations and 1 sources"):
            pl.copy_batch([a, a], [b], stream=stream)
    assert untouched(a, 1)


def test_copy_batch_bad_pair_raises_and_writes_nothing(node: Node) -> None:
    d0, _ = node()
    a, b, gone = filled(d0, 8, 1), filled(d0, 8, 2), d0.allocate(8)
    gone.close()
    s = d0.create_stream()
    for stream in (None, s):
        with pytest.raises(
            pl.InvalidValue, match=r"pair 1 of the batch.* source has 7 bytes, the destination 8"
        ):
            pl.copy_batch([a, a], [b, b[:7]], stream=stream)
        with pytest.raises(pl.Closed):
            pl.copy_batch([a, gone], [b, b], stream=stream)
        with pytest.raises(pl.AccessDenied):
            pl.copy_batch([a, b"12345678"], [b, b], stream=stream)
    assert s.submitted == 0
    assert untouched(a, 1)


def test_copy_batch_end_without_memory_raises_type_error(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 8, 1)
    with pytest.raises(TypeError, match="int has neither the buffer protocol nor DLPack"):
        pl.copy_batch([a, a], [bytes(8), 5])
    assert untouched(a, 1)


def test_allocate_with_stream_frees_in_stream_order(node: Node) -> None:
    d0, d1 = node("devices=2,memory=4MiB")
    s = d0.create_stream()
    out = filled(d1, 2 << 20, 0)
    gate = parked(s)
    held = d0.allocate(2 << 20, stream=s)
    held.fill(7)
    pl.raw.copy(out.address, held.address, out.size, stream=s)
    held.close()
    assert held.is_closed
    for use in (lambda: held.address, held.view, lambda: held.fill(1)):
        with pytest.raises(pl.Closed):
            use()
    assert d0.free_bytes == 2 << 20
    gate.record()
    s.sync()
    assert d0.free_bytes == 4 << 20
    assert untouched(out, 7)
    with pytest.raises(TypeError, match="stream must be a Stream or None, not str"):
        d0.allocate(8, stream="s")  # type: ignore[arg-type]
    s.close()
    with pytest.raises(pl.Closed, match="in its order"):
        d0.allocate(8, stream=s)
    assert d0.free_bytes == 4 << 20


def test_raw_null_address_on_stream_raises_and_queues_nothing(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, 64, 1)
    calls = [
        lambda stream: pl.raw.copy(0, a.address, 8, stream=stream),
        lambda stream: pl.raw.copy(a.address, 0, 8, stream=stream),
        lambda stream: pl.raw.copy_2d(0, 8, a.address, 8, 8, 2, stream=stream),
        lambda stream: pl.raw.copy_2d(a.address, 8, 0, 8, 8, 2, stream=stream),
        lambda stream: pl.raw.fill(0, 1, count=8, stream=stream),
        lambda stream: pl.raw.reduce(0, a.address, 8, dtype="int8", stream=stream),
        lambda stream: pl.raw.reduce(a.address, 0, 8, dtype="int8", stream=stream),
        lambda stream: pl.raw.launch_descriptor(0, 64, stream=stream),
        lambda stream: pl.raw.write_value(0, 1, stream=s),
        lambda stream: pl.raw.wait_value(0, 1, stream=s),
    ]
    for stream in (None, s):
        for call in calls:
            with pytest.raises(pl.BadAddress, match="address is NULL") as refused:
                call(stream)
            assert refused.value.fault is Fault.NULL_ADDRESS
        pl.raw.copy(0, 0, 0, stream=stream)  # no bytes: nothing to refuse
        pl.raw.fill(0, 1, count=0, stream=stream)
    assert s.submitted == 0
    assert untouched(a, 1)


def test_raw_copy_wild_on_stream_raises_host_fault_at_sync(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, 2 << 20, 1)
    gone = d0.allocate(8)
    address = gone.address
    gone.close()
    for nbytes in (8, 2 << 20):
        for ends in ((a.address, WILD), (WILD, a.address)):
            pl.raw.copy(*ends, nbytes, stream=s)
            with pytest.raises(pl.BadAddress, match=r"operation \d+ \(copy\).*cannot be touched") as failed:
                s.sync()
            assert failed.value.fault is Fault.HOST_FAULT
    for call in (
        lambda: pl.raw.copy_2d(WILD, 8, a.address, 8, 8, 2, stream=s),
        lambda: pl.raw.fill(WILD, 1, count=8, stream=s),
        lambda: pl.raw.write_value(8, 1, stream=s),
        lambda: pl.raw.launch_descriptor(WILD, 64, stream=s),
    ):
        call()
        with pytest.raises(pl.BadAddress, match=r"operation \d+ .*cannot be touched") as failed:
            s.sync()
        assert failed.value.fault is Fault.HOST_FAULT
    before = s.submitted
    for wrong, fault in (
        (address, Fault.FREED_ADDRESS),
        (address + (1 << 40), Fault.UNKNOWN_ADDRESS),
        (a.address + (2 << 20) - 7, Fault.OUT_OF_BOUNDS),
    ):
        with pytest.raises(pl.BadAddress) as refused:
            pl.raw.copy(wrong, a.address, 8, stream=s)
        assert refused.value.fault is fault
    assert s.submitted == before
    gate = parked(s)
    late = filled(d0, 8, 9)
    target = np.zeros(8, np.uint8)
    pl.raw.copy(target.ctypes.data, late.address, 8, stream=s)
    late.close()
    gate.record()
    s.sync()
    assert (target == 9).all()


def test_raw_copy_2d_bad_on_stream_raises_and_queues_nothing(node: Node) -> None:
    d0, _ = node()
    s, a, b = d0.create_stream(), filled(d0, 100, 1), filled(d0, 1000, 2)
    with pytest.raises(pl.BadAddress, match="1 bytes beyond") as refused:
        pl.raw.copy_2d(a.address, 20, b.address, 30, 1, 6, stream=s)
    assert refused.value.fault is Fault.OUT_OF_BOUNDS
    with pytest.raises(pl.InvalidValue):
        pl.raw.copy_2d(a.address, (1 << 64) - 1, a.address, (1 << 64) - 1, 8, 8, stream=s)
    with pytest.raises(pl.InvalidValue, match="source pitch is 7 bytes"):
        pl.copy_2d(a, 8, b, 7, 8, 2, stream=s)
    assert s.submitted == 0
    assert untouched(a, 1)


def test_raw_fill_bad_on_stream_raises_and_queues_nothing(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, 64, 1)
    for value, count, width in ((0, 4, 3), (300, 1, 1), (0, 17, 4), (0, 1 << 63, 4)):
        with pytest.raises((pl.InvalidValue, pl.BadAddress)):
            pl.raw.fill(a.address, value, count=count, width=width, stream=s)
    assert s.submitted == 0
    assert untouched(a, 1)


def test_fork_after_use_refuses_stream_calls_of_the_child() -> None:
    code = """
import os, sys, peerlane as pl
from peerlane.diagnostics.log.observers import Recorder
if os.fork() == 0:                      # before the first call: harmless
    d = pl.devices()[0]
    with d.create_stream() as s:
        a = d.allocate(8); a.fill(3, stream=s); s.launch_callback(int)
    os._exit(0 if bytes(a.view()) == bytes([3] * 8) else 1)
assert os.wait()[1] == 0
d = pl.devices()[0]
s, t, busy = d.create_stream(), d.create_stream(), d.create_stream()
a, n = d.allocate(8), d.create_notify()
owned = d.allocate(8, stream=s)
s.launch_callback(int); s.sync()        # the thread of callbacks runs
done, group = s.record(), pl.StreamGroup(d)
done.sync()
busy.wait(n); pending = busy.record(); a.fill(5, stream=busy)
empty = d.create_event()
if os.fork() == 0:
    refused = 0
    calls = [d.create_stream, d.create_event, d.create_notify, s.record, busy.record, busy.sync, s.sync,
             pending.sync, lambda: pending.is_done, pending.fileno, n.record,
             lambda: pl.copy(a, bytes(8), stream=s), lambda: a.fill(1, stream=t), lambda: s.launch_callback(int),
             lambda: s.wait(pending), lambda: s.wait(n), lambda: s.notify(n), lambda: busy.is_done,
             lambda: pl.copy_batch([a], [a], stream=s), lambda: pl.StreamGroup(d),
             lambda: pl.raw.copy(0, 0, 0, stream=s), lambda: pl.copy(a[:0], b"", stream=s),
             lambda: pl.copy_2d(a, 8, a, 8, 0, 1, stream=s), lambda: pl.raw.copy_2d(0, 8, 0, 8, 0, 1, stream=s),
             lambda: pl.raw.fill(0, 1, count=0, stream=s), lambda: pl.raw.copy(0, 0, 0),
             lambda: pl.reduce(a, a, dtype="int8", stream=s), lambda: pl.raw.reduce(0, 0, 0, dtype="int8"),
             lambda: done.time_ns, lambda: done - done, lambda: setattr(s, "on_error", "continue"),
             lambda: pl.set_observer(None), lambda: pl.set_observer(Recorder()),
             lambda: pl.trace.recording().__enter__(), group.create_stream,
             *(each.__enter__ for each in (s, done, n, group))]
    for number, call in enumerate(calls):
        try: call(); print("not refused:", number)
        except pl.Closed as e: refused += e.fault is pl.Fault.FORKED
    owned.close(); s.abort()
    print(*(each for each in (s, done, n, group) if "virtual:0" not in repr(each)), end="")
    for closed in (s, t, busy, pending, n, empty, group): closed.close()
    del s, t, busy, pending, n, owned, done, group
    sys.exit(refused != len(calls) and refused + 100)
print(os.waitstatus_to_exitcode(os.wait()[1]))
n.record(); busy.sync(timeout=20)
assert bytes(a.view()) == bytes([5] * 8) and pending.is_done and s.on_error == "stop"
owned.close(); s.sync(timeout=20)
"""
    done = run_python(["-c", code], timeout=60)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_ctrl_c_during_stream_sync_stops_it_soon() -> None:
    code = """
import os, signal, threading, time, peerlane as pl
d = pl.devices()[0]
s, a, n = d.create_stream(), d.allocate(8), d.create_notify()
s.wait(n)
a.fill(7, stream=s)
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
try: threading.Timer(0.2, interrupt).start(); s.sync()
except KeyboardInterrupt: print(time.monotonic() - sent[0])
n.record()
s.sync(timeout=20)
print(bytes(a.view()) == bytes([7] * 8))
"""
    done = run_python(["-c", code], timeout=60)
    assert done.returncode == 0, done.stderr
    seconds, works = done.stdout.split()
    print(f"Ctrl-C was seen after {float(seconds):.3f} s (promised: 1 s)")
    assert float(seconds) < overdue(1.0)
    assert works == "True"

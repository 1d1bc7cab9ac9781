"""The promises of docs/errors.md on notifies and events that processes share, and tests of what they do."""

from __future__ import annotations

import os
import time

import pytest

import peerlane as pl
from helpers.peers import Peer, PeerError, peer
from helpers.promised import overdue
from helpers.promises import Node, parked
from peerlane.errors import Fault

LOST_SECONDS = 0.5

pytestmark = pytest.mark.timeout(120)

Shared = tuple[pl.Device, pl.Device, Peer]


def test_notify_export_bad_or_closed_raises(node: Node) -> None:
    notify = node()[0].create_notify()
    for bad in ("everybody", [0]):
        with pytest.raises(pl.InvalidValue):
            notify.export(allow=bad)
    notify.close()
    with pytest.raises(pl.Closed):
        notify.export()


def test_notify_open_unlisted_or_of_wrong_kind_raises(shared: Shared) -> None:
    d0, _, other = shared
    number = other.run("n=devices[0].create_notify(); h=n.export(); result=int(h)")
    with pytest.raises(pl.AccessDenied) as refused:
        pl.Notify.open(number)
    assert refused.value.fault is Fault.NOT_LISTED
    other.run(f"h.allow.add({os.getpid()})")
    with pytest.raises(pl.BadHandle) as wrong:
        pl.Physical.open(number)
    assert wrong.value.fault is Fault.WRONG_KIND
    assert pl.Notify.open(number).device is d0
    other.run("n.close(); del n, h")


@pytest.mark.parametrize("kind", ["binary", "fifo", "strict"])
def test_notify_of_each_kind_is_recorded_and_waited_for_across_processes(shared: Shared, kind: str) -> None:
    d0, d1, other = shared
    mine = d0.create_notify(kind)
    mine.record()  # the handle carries this record
    number = int(mine.export(allow=[other.pid]))
    other.run(
        f"n=pl.Notify.open({number}, device=devices[1]); s=devices[1].create_stream();"
        "s.wait(n, timeout=10); s.sync(); result=n.kind.name"
    )
    back = other.run(f"b=devices[0].create_notify('fifo'); result=int(b.export(allow=[{os.getpid()}]))")
    theirs, stream = pl.Notify.open(back), d1.create_stream()
    for _ in range(20):
        other.send("s.wait(n, timeout=10); s.notify(b); s.sync()")
        stream.notify(mine)
        stream.wait(theirs, timeout=10)
        stream.sync()
        other.receive()
    assert theirs.recorded == theirs.consumed == 20
    assert mine.recorded == 21


def test_notify_waited_for_by_streams_of_two_processes_wakes_all(shared: Shared) -> None:
    d0, _, other = shared
    gate = d0.create_notify("fifo")
    number = int(gate.export(allow=[other.pid]))
    other.send(
        f"n=pl.Notify.open({number}); ss=[devices[1].create_stream() for _ in range(20)];"
        "[s.wait(n, timeout=20) for s in ss]; [s.sync() for s in ss]; result=len(ss)"
    )
    streams = [d0.create_stream() for _ in range(20)]
    for stream in streams:
        stream.wait(gate, timeout=20)
    for _ in range(40):
        gate.record()
    for stream in streams:
        stream.sync()
    assert other.receive() == 20
    assert gate.consumed == 40


def test_notify_wait_after_recorder_was_killed_raises_peer_lost(shared: Shared) -> None:
    d0, _, other = shared
    mine = d0.create_notify("fifo")
    number = int(mine.export(allow=[other.pid]))
    theirs = pl.Notify.open(
        other.run(
            f"n=pl.Notify.open({number}); n.record(); b=devices[0].create_notify();"
            f"result=int(b.export(allow=[{os.getpid()}]))"
        )
    )
    first, second = d0.create_stream(), d0.create_stream()
    first.wait(mine)  # the other process recorded it before
    first.wait(mine)
    second.wait(theirs)
    other.kill()
    began = time.monotonic()
    for stream in (first, second):
        with pytest.raises(pl.PeerLost, match=str(other.pid)):
            stream.sync(timeout=30)
    seconds = time.monotonic() - began
    print(f"told after {seconds:.3f} s")
    assert seconds < overdue(LOST_SECONDS)
    assert mine.consumed == 1
    mine.record()
    first.wait(mine, timeout=10)  # this process can still record it
    first.sync()


def test_queued_notify_and_record_run_for_other_process_without_sync(shared: Shared) -> None:
    d0, _, other = shared
    stream, notify, event = d0.create_stream(), d0.create_notify(), d0.create_event()
    buffer = d0.allocate(1 << 20)
    buffer.fill(3, stream=stream)
    stream.notify(notify)
    stream.record(event)
    handles = [int(signal.export(allow=[other.pid])) for signal in (notify, event)]
    other.run(
        f"n=pl.Notify.open({handles[0]}); e=pl.Event.open({handles[1]}); s=devices[1].create_stream();"
        "s.wait(n); s.wait(e); s.sync(timeout=20)"
    )
    stream.notify(notify)
    other.run("s.wait(n); s.sync(timeout=20)")


@pytest.mark.parametrize("seed", [3, 17, 99])
def test_queued_notify_of_seeded_process_runs_without_its_sync(node: Node, seed: int) -> None:
    spec = f"name=seeded-{os.getpid()},devices=2"
    stream = node(spec)[0].create_stream()
    with peer(spec, PEERLANE_SCHEDULE=f"seeded:{seed}") as other:
        number = other.run(
            f"n=devices[0].create_notify(); s=devices[0].create_stream(); result=int(n.export(allow=[{os.getpid()}]))"
        )
        notify = pl.Notify.open(number)
        other.run("s.notify(n)")
        stream.wait(notify)
        stream.sync(timeout=20)


def test_stream_close_waits_for_record_of_other_process(shared: Shared) -> None:
    d0, _, other = shared
    notify = d0.create_notify()
    number = int(notify.export(allow=[other.pid]))
    lonely = d0.create_stream()
    lonely.wait(notify)
    with pytest.raises(pl.Cancelled):  # no process has opened it
        lonely.close()
    other.run(f"n=pl.Notify.open({number})")
    stream = d0.create_stream()
    stream.wait(notify)
    other.send("import time; time.sleep(0.3); n.record()")
    stream.close()
    assert notify.consumed == 1
    other.receive()
    stream = d0.create_stream()
    stream.wait(notify)
    other.send("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(pl.PeerLost):
        stream.close()


def test_event_export_closed_raises_closed(node: Node) -> None:
    event = node()[0].create_event()
    event.close()
    with pytest.raises(pl.Closed):
        event.export()


def test_event_open_bad_or_not_recorded_raises(shared: Shared) -> None:
    d0, _, other = shared
    number = other.run(f"e=devices[0].create_event(); result=int(e.export(allow=[{os.getpid()}]))")
    with pytest.raises(pl.BadHandle):
        pl.Event.open(number ^ 1)
    event, stream = pl.Event.open(number), d0.create_stream()
    assert not event.is_recorded
    for wait in (event.sync, lambda: stream.wait(event), lambda: event.is_done):
        with pytest.raises(pl.InvalidValue) as refused:
            wait()
        assert refused.value.fault is Fault.NOT_RECORDED


def test_event_between_unreachable_devices_is_shared(node: Node) -> None:
    spec = f"name=islands-{os.getpid()},devices=2,switch=1"
    d0, d1 = node(spec)
    assert not d1.can_access(d0)
    with peer(spec) as other:
        number = other.run(
            f"s=devices[0].create_stream(); e=s.record(); result=int(e.export(allow=[{os.getpid()}]))"
        )
        with pl.Event.open(number, device=d1) as event, d1.create_stream() as stream:
            assert event.device is d1
            stream.wait(event)
            stream.record(event)
            stream.sync()
            assert other.run("e.sync(timeout=20); result=e.is_done")


def test_event_shared_orders_copies_of_two_processes(shared: Shared) -> None:
    d0, d1, other = shared
    buffer = d0.allocate(1 << 16)
    stream = d0.create_stream()
    gate = parked(stream)
    buffer.fill(5, stream=stream)
    event = stream.record()
    with pytest.raises(pl.Busy):
        buffer.export()  # small buffers move on export, and this one is in use
    event_handle = int(event.export(allow=[other.pid]))  # the export carries the record made before
    large = d0.allocate(4 << 20)
    large.fill(6, stream=stream)
    stream.record(event)
    memory = int(large.export(allow=[other.pid]))
    other.run(
        f"e=pl.Event.open({event_handle}, device=devices[1]); m=pl.Buffer.open({memory});"
        "o=devices[1].allocate(m.size);"
        "s=devices[1].create_stream(); s.wait(e, timeout=20); o.copy_from(m, stream=s); s.record(e); result=e.is_done"
    )
    assert not event.is_done
    gate.record()
    event.sync(timeout=20)  # waits for the newest record, the other process's
    assert event.is_done
    assert other.run("s.sync(); result=[int(o.view()[0]), int(o.view()[-1]), e.time_ns > 0]") == [6, 6, True]
    assert event.time_ns > 0
    far = d1.create_stream()
    far.wait(event)
    far.sync()


def test_event_cancelled_by_other_process_raises_cancelled(shared: Shared) -> None:
    d0, _, other = shared
    event = d0.create_event()
    number = int(event.export(allow=[other.pid]))
    other.run(
        f"e=pl.Event.open({number}); s=devices[0].create_stream(); n=devices[0].create_notify();"
        "s.wait(n); s.record(e)"
    )
    stream = d0.create_stream()
    stream.wait(event)
    other.run("s.abort()")
    with pytest.raises(pl.Cancelled):
        stream.sync(timeout=20)
    with pytest.raises(pl.Cancelled):
        event.sync(timeout=20)
    with pytest.raises(pl.Cancelled):
        _ = event.time_ns


def test_event_sync_of_other_process_raises_timeout_or_peer_lost(shared: Shared) -> None:
    d0, _, other = shared
    event = d0.create_event()
    number = int(event.export(allow=[other.pid]))
    other.run(
        f"e=pl.Event.open({number}); s=devices[0].create_stream(); n=devices[0].create_notify();"
        "s.wait(n); s.record(e)"
    )
    assert event.is_recorded
    assert not event.is_done
    with pytest.raises(pl.Busy) as early:
        _ = event.time_ns
    assert early.value.fault is Fault.NOT_READY
    with pytest.raises(pl.WaitTimeout):
        event.sync(timeout=0.05)
    with pytest.raises(pl.Unsupported):
        event.fileno()
    other.kill()
    began = time.monotonic()
    with pytest.raises(pl.PeerLost, match=f"process {other.pid} has ended"):
        _ = event.time_ns
    assert event.is_done
    with pytest.raises(pl.PeerLost, match=str(other.pid)):
        event.sync(timeout=30)
    assert time.monotonic() - began < overdue(LOST_SECONDS)
    stream = d0.create_stream()
    stream.record(event)
    event.sync(timeout=10)


@pytest.mark.parametrize("records", [31, 32, 33, 100])
def test_event_wait_after_many_later_records_keeps_its_record(shared: Shared, records: int) -> None:
    d0, _, other = shared
    event, source = d0.create_event(), d0.allocate(4096)
    source.fill(0)
    handles = int(event.export(allow=[other.pid])), int(source.export(allow=[other.pid]))
    other.run(f"e=pl.Event.open({handles[0]}); b=pl.Buffer.open({handles[1]}); t=devices[0].allocate(4096)")
    held_up, free, go = d0.create_stream(), d0.create_stream(), d0.create_notify()
    held_up.wait(go)
    source.fill(7, stream=held_up)
    held_up.record(event)
    other.run("s=devices[0].create_stream(); s.wait(e); t.copy_from(b, stream=s)")
    for _ in range(records):
        free.record(event)
    free.sync(timeout=30)
    assert event.is_done  # in this process the newest record counts
    with pytest.raises(PeerError) as early:
        other.run("s.sync(timeout=0.2)")
    assert early.value.kind == "WaitTimeout"
    go.record()
    held_up.sync(timeout=30)
    other.run("s.sync(timeout=20)")
    assert other.run("result=bytes(t.view()) == bytes([7]) * 4096")
    other.run("s.wait(e); s.sync(timeout=20)")  # all records are over now
    other.run("s.close(); e.close(); b.close(); t.close(); del s, e, b, t")


@pytest.mark.parametrize("how", ["result", "pl.leave_node()"])
def test_notify_wait_after_peer_left_raises_peer_lost(shared: Shared, how: str) -> None:
    """A process that leaves in order is lost to the waiters, as a killed process is."""
    d0, _, other = shared
    stream, back = d0.create_stream(), d0.create_stream()
    imported = int(other.run(f"n=devices[0].create_notify(); result=int(n.export(allow=[{os.getpid()}]))"))
    mine = d0.create_notify()
    exported = int(mine.export(allow=[other.pid]))
    other.run(f"m=pl.Notify.open({exported}); result=1")
    theirs = pl.Notify.open(imported)
    stream.wait(theirs)
    back.wait(mine)
    with pytest.raises(pl.WaitTimeout):
        stream.sync(timeout=0.3)
    began = time.monotonic()
    if how == "result":
        other.close()
    else:
        other.run(how)
    for waiting in (stream, back):
        with pytest.raises(pl.PeerLost, match=str(other.pid)):
            waiting.sync(timeout=30)
    assert time.monotonic() - began < overdue(LOST_SECONDS)


def test_notify_wait_after_live_peer_let_go_is_not_peer_lost(shared: Shared) -> None:
    d0, _, other = shared
    mine, stream = d0.create_notify(), d0.create_stream()
    number = int(mine.export(allow=[other.pid]))
    other.run(f"n=pl.Notify.open({number}); n.close(); del n; import gc; gc.collect()")
    stream.wait(mine)
    with pytest.raises(pl.WaitTimeout):
        stream.sync(timeout=0.5)
    other.run(f"n=pl.Notify.open({number}); n.record(); n.close(); del n")
    stream.sync(timeout=30)


def test_signal_opened_100_times_by_one_process_works(shared: Shared) -> None:
    d0, _, other = shared
    event, notify = d0.create_event(), d0.create_notify()
    numbers = [int(each.export(allow=[other.pid])) for each in (event, notify)]
    other.run(f"all = [pl.Event.open({numbers[0]}) for _ in range(100)]")
    other.run(f"all += [pl.Notify.open({numbers[1]}) for _ in range(100)]")
    d0.create_stream().record(event)
    other.run("s=devices[0].create_stream(); [s.wait(each) for each in all[:100]]; s.sync(timeout=20)")
    other.run("all[150].record()")
    stream = d0.create_stream()
    stream.wait(notify)
    stream.sync(timeout=30)
    other.run("s.close(); all.clear()")


SIGNALS = {"event": pl.Event, "notify": pl.Notify}


@pytest.mark.parametrize("what", SIGNALS)
def test_signal_close_makes_its_handles_stale(shared: Shared, what: str) -> None:
    other = shared[2]
    for is_open in (False, True):
        number = other.run(f"t=devices[0].create_{what}(); h=t.export(allow=[{os.getpid()}]); result=int(h)")
        opened = SIGNALS[what].open(number) if is_open else None
        other.run("t.close()")
        if opened is not None:
            SIGNALS[what].open(number).close()  # works: this process has it open
            opened.close()
            until_let_go(other)
        with pytest.raises(pl.BadHandle) as stale:
            SIGNALS[what].open(number)
        assert stale.value.fault is Fault.STALE_HANDLE
        with pytest.raises(PeerError, match="Closed"):
            other.run(f"h.allow.add({os.getpid()})")


@pytest.mark.parametrize("what", SIGNALS)
def test_signal_close_of_opened_one_drops_importer_and_keeps_waits(shared: Shared, what: str) -> None:
    d0, _, other = shared
    number = other.run(f"t=devices[0].create_{what}(); h=t.export(allow=[{os.getpid()}]); result=int(h)")
    opened, waiting = SIGNALS[what].open(number), d0.create_stream()
    assert other.run("result=h.importers") == 1
    if what == "event":
        other.run("s=devices[0].create_stream(); g=devices[0].create_notify(); s.wait(g); s.record(t)")
    waiting.wait(opened)
    opened.close()
    until_let_go(other)
    assert not waiting.is_done
    other.run("g.record(); s.sync()" if what == "event" else "t.record()")
    waiting.sync(timeout=20)
    opened.close()
    again = SIGNALS[what].open(number)
    assert other.run("result=h.importers") == 1
    again.close()
    until_let_go(other)


def until_let_go(other: Peer) -> None:
    deadline = time.monotonic() + 10
    while other.run("result=h.importers") != 0:
        assert time.monotonic() < deadline

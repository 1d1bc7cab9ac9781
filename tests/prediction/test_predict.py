"""`peerlane.predict`: the times of what a block submits, from its log."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

import peerlane as pl
from helpers.prepared import run_python
from helpers.promises import Node
from peerlane.diagnostics.log import event_log, log_files
from peerlane.diagnostics.log.log_files import LoggedEvent, LoggedSpan
from peerlane.prediction.collectives import predicted, seconds_of
from peerlane.prediction.fluid import simulate
from peerlane.prediction.machines import COPY_LATENCY, HOST, MACHINES
from peerlane.prediction.operations import Lane, Run
from peerlane.prediction.result import Prediction

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
H100 = MACHINES["h100-8"]
PEER = MIB / H100.peer + COPY_LATENCY  # seconds of 1 MiB between two devices alone


@pytest.fixture
def devices(node: Node) -> list[pl.Device]:
    return node("devices=4")


def ends(prediction: Prediction) -> list[float]:
    return [stream.end for stream in prediction.streams]


def test_copy_takes_its_latency_and_its_bytes_by_the_link(devices: list[pl.Device]) -> None:
    src, dst = devices[0].allocate(MIB), devices[1].allocate(MIB)
    with pl.predict("h100-8") as prediction, devices[0].create_stream() as stream:
        pl.copy(dst, src, stream=stream)
        stream.sync()
    assert prediction.seconds == pytest.approx(PEER)
    (one,) = prediction.operations
    assert (one.stream, one.kind, one.nbytes, one.start) == (f"stream {stream.id}", "copy", MIB, 0.0)
    assert prediction.streams[0].busy == pytest.approx(PEER)
    assert {link.name: link.nbytes for link in prediction.links} == {
        "port of device 0, out": MIB,
        "port of device 1, in": MIB,
    }
    assert prediction.bottleneck is not None
    assert prediction.bottleneck.share == pytest.approx(MIB / H100.peer / PEER)
    assert prediction.unknown == {}


def test_copies_that_share_a_port_share_its_bandwidth_and_others_do_not(devices: list[pl.Device]) -> None:
    buffers = [device.allocate(MIB) for device in devices]
    with pl.predict("h100-8") as prediction:
        streams = [device.create_stream() for device in devices]
        for destination in (1, 2):
            pl.copy(buffers[destination], buffers[0], stream=streams[destination])
        pl.copy(buffers[0], buffers[3], stream=streams[3])
        for stream in streams:
            stream.close()
    shared = 2 * MIB / H100.peer + COPY_LATENCY
    assert ends(prediction) == pytest.approx([shared, shared, PEER])


def test_mesh_has_a_link_for_each_pair_and_a_machine_without_peers_copies_through_its_host(
    devices: list[pl.Device],
) -> None:
    buffers = [device.allocate(MIB) for device in devices]

    def seconds(profile: str) -> float:
        with pl.predict(profile) as prediction:
            streams = [device.create_stream() for device in devices[:2]]
            for destination, stream in zip((1, 2), streams, strict=True):
                pl.copy(buffers[destination], buffers[0], stream=stream)
            for stream in streams:
                stream.close()
        return prediction.seconds

    assert seconds("mi300x") == pytest.approx(MIB / MACHINES["mi300x"].peer + COPY_LATENCY)
    with pl.predict("rtx4090-2") as prediction:
        pl.copy(buffers[1], buffers[0])
    assert [link.name for link in prediction.links] == ["device 0 to host", "host to device 1"]


def test_stream_that_waits_for_an_event_or_a_notify_begins_behind_it(devices: list[pl.Device]) -> None:
    a, b, c, d = (device.allocate(MIB) for device in devices)
    with pl.predict("h100-8") as prediction:
        first, second, third = (device.create_stream() for device in devices[:3])
        notify = devices[2].create_notify()
        pl.copy(b, a, stream=first)
        second.wait(first.record())
        pl.copy(c, b, stream=second)
        second.notify(notify)
        third.wait(notify)
        pl.copy(d, c, stream=third)
        for stream in (first, second, third):
            stream.sync()
            stream.close()
    assert ends(prediction) == pytest.approx([PEER, 2 * PEER, 3 * PEER])


def test_what_a_thread_submits_behind_a_synchronization_begins_behind_it(devices: list[pl.Device]) -> None:
    a, b, c, _ = (device.allocate(MIB) for device in devices)
    with pl.predict("h100-8") as prediction:
        with devices[0].create_stream() as first, devices[1].create_stream() as second:
            pl.copy(b, a, stream=first)
            first.sync()
            pl.copy(c, b, stream=second)
            second.sync()
        pl.copy(a, c)  # without a stream: by the thread
    assert ends(prediction) == pytest.approx([3 * PEER, PEER, 2 * PEER])  # threads come before streams
    assert prediction.streams[0].name == "main thread"


def test_bytes_of_rows_parts_fills_and_host_memory_are_those_of_the_links(devices: list[pl.Device]) -> None:
    a, b, _, _ = (device.allocate(MIB) for device in devices)
    host = bytearray(4096)
    with pl.predict("h100-8") as prediction, devices[0].create_stream() as stream:
        pl.copy_2d(b, 1024, a, 1024, 16, 64, stream=stream)
        pl.copy_batch([b[:8], b[64:80]], [a[:8], a[64:80]], stream=stream)
        pl.fill(b[:4096], 7, stream=stream)
        pl.reduce(b[:512], a[:512], dtype="int64", stream=stream)
        pl.copy(a[:4096], host, stream=stream)
        pl.copy(b[:256], b[256:512], stream=stream)
        stream.sync()
    moved = {link.name: link.nbytes for link in prediction.links}
    assert moved == {
        "port of device 0, out": 16 * 64 + 24 + 512,
        "port of device 1, in": 16 * 64 + 24 + 512,
        "memory of device 1": 4096 + 256,
        "host to device 0": 4096,
    }
    kinds = Counter(each.kind for each in prediction.operations)
    assert kinds == {"copy_2d": 1, "batch": 1, "fill": 1, "reduce": 1, "copy": 2}
    assert sum(each.nbytes for each in prediction.operations) == 16 * 64 + 24 + 4096 + 512 + 4096 + 256


def test_callbacks_take_the_configured_time_or_are_counted_as_unknown(devices: list[pl.Device]) -> None:
    for compute, unknown in ((0.0, {"callbacks": 2}), (1e-3, {})):
        with pl.predict("h100-8", compute=compute) as prediction, devices[0].create_stream() as stream:
            stream.launch_callback(lambda: None)
            stream.launch_callback(lambda: None)
            stream.sync()
        assert prediction.seconds == pytest.approx(2 * compute)
        assert prediction.unknown == unknown


def test_link_without_a_published_rate_and_device_beyond_the_machine_are_counted_as_unknown(
    node: Node,
) -> None:
    devices = node("devices=6")
    a, b = devices[0].allocate(64), devices[5].allocate(64)
    with pl.predict("gb200-4") as prediction:
        pl.copy(a[:32], a[32:])
        pl.copy(b, a)
    assert prediction.unknown == {
        "copies by links without a published rate": 1,
        "copies with memory of devices that the machine or the log lacks": 1,
    }


def test_memory_of_an_address_range_with_a_hole_is_known(devices: list[pl.Device]) -> None:
    granule = devices[1].granularity
    with (
        pl.AddressRange(devices[0], 3 * granule) as reserved,
        pl.Physical(devices[0], granule) as near,
        pl.Physical(devices[1], granule) as far,
    ):
        reserved.map(near, 0)
        reserved.map(far, 2 * granule)
        reserved.set_access({devices[0]: "rw", devices[1]: "rw"})
        with pl.predict("h100-8") as prediction:
            pl.raw.copy(reserved.address, reserved.address + 2 * granule, 64)
        assert prediction.unknown == {}
        assert {link.name for link in prediction.links} == {"port of device 1, out", "port of device 0, in"}


def test_timeline_has_a_track_for_each_stream_and_a_slice_for_each_operation(
    devices: list[pl.Device], tmp_path: Path
) -> None:
    a, b, _, _ = (device.allocate(MIB) for device in devices)
    with pl.predict("h100-8") as prediction, devices[0].create_stream() as stream:
        pl.copy(b, a, stream=stream)
        pl.copy(a, b, stream=stream)
        stream.sync()
    prediction.write(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert [(names[each["tid"]], each["name"], each["args"]["bytes"]) for each in slices] == [
        (f"stream {stream.id}", "copy", MIB)
    ] * 2
    assert [each["ts"] for each in slices] == pytest.approx([0.0, PEER * 1e6])
    assert sum(each["dur"] for each in slices) == pytest.approx(prediction.seconds * 1e6)


def test_picture_has_a_row_for_each_stream_and_a_bar_for_each_operation(devices: list[pl.Device]) -> None:
    a, b, c, _ = (device.allocate(MIB) for device in devices)
    with (
        pl.predict("h100-8") as prediction,
        devices[0].create_stream() as one,
        devices[1].create_stream() as other,
    ):
        pl.copy(b, a, stream=one)
        pl.copy(c, b, stream=other)
        names = [f"h100-8, stream {stream.id}" for stream in (one, other)]
    picture = ElementTree.fromstring(prediction._repr_svg_())
    svg = "{http://www.w3.org/2000/svg}"
    assert [each.text for each in picture.iter(f"{svg}text")][-3:] == [*names, "copy"]
    titles = [each.text for each in picture.iter(f"{svg}title")]
    assert titles == [f"copy, 1 MiB, {PEER * 1e6:.1f} us"] * 2


def test_threads_have_lanes_of_their_own(devices: list[pl.Device]) -> None:
    a, b, c, d = (device.allocate(MIB) for device in devices)
    with pl.predict("h100-8") as prediction:
        worker = threading.Thread(target=lambda: pl.copy(d, c))
        worker.start()
        pl.copy(b, a)
        worker.join(timeout=60)
    assert ends(prediction) == pytest.approx([PEER, PEER])


@dataclass
class Log:
    """A log of a process with events that no native code wrote."""

    events_: list[LoggedEvent]
    machine: str = ""
    problem: str = ""
    dropped: int = 0

    def events(self) -> Iterator[LoggedEvent]:
        return iter(self.events_)


def logged(
    kind: str, time: int, *, words: tuple[int, ...] = (), spans: tuple[LoggedSpan, ...] = (), flags: int = 0
) -> LoggedEvent:
    """Return an event of the first thread."""
    four = (*words, 0, 0, 0, 0)[:4]
    return LoggedEvent(0, kind, flags, 0, 0, 7, 1, time, 0, 0, four, spans, ())


def run_of(*logs: Log) -> Run:
    """Return the tasks of logs; a collective of ``nbytes`` takes as many seconds."""
    run = Run(H100, lambda number: number - 1, 0.0, lambda name, counts, nbytes: float(nbytes))
    run.add(logs)  # type: ignore[arg-type]
    return run


def all_reduce(time: int, rank: int, number: int, nbytes: int, ranks: int = 2) -> LoggedEvent:
    what = event_log.COLLECTIVES.index("all_reduce")
    return logged(
        "collective",
        time,
        words=(1, number << 16 | what << 8, 0, ranks << 32 | rank),
        spans=(LoggedSpan(5, 0, nbytes, False), LoggedSpan(6, 0, nbytes, True)),
        flags=log_files.END,
    )


def test_collective_begins_when_the_last_rank_has_come_and_ends_for_all() -> None:
    late = logged("access", 1, spans=(LoggedSpan(9, 0, 10**9, False), LoggedSpan(8, 0, 10**9, True)))
    placed = logged(
        "allocated", 0, words=(1, 2), spans=(LoggedSpan(8, 0, 10**9, True), LoggedSpan(9, 0, 10**9, True))
    )
    run = run_of(Log([all_reduce(1, 0, 1, 3)]), Log([placed, late, all_reduce(2, 1, 1, 3)]))
    times = simulate(run.tasks, {("memory", 0, -1): 1e9})
    collectives = [each for each in run.operations if each.kind == "all_reduce"]
    assert [(each.lane, each.nbytes) for each in collectives] == [
        (Lane(0, False, 7), 3),
        (Lane(1, False, 7), 3),
    ]
    assert [times.start[each.task] for each in collectives] == pytest.approx([1 + COPY_LATENCY] * 2)
    assert [times.end[each.task] for each in collectives] == pytest.approx([4 + COPY_LATENCY] * 2)
    assert [times.end[task] for task in run._last.values()] == pytest.approx([4 + COPY_LATENCY] * 2)


def test_messages_and_waits_for_values_are_counted_as_unknown() -> None:
    send = event_log.COLLECTIVES.index("send")
    run = run_of(
        Log([logged("collective", 0, words=(1, 1 << 16 | send << 8, 1, 2 << 32)), logged("value_wait", 1)])
    )
    assert +run.unknown == {"messages of a group": 1, "waits for a value: the write that ends them": 1}


def test_post_that_another_process_takes_comes_before_what_it_does_then() -> None:
    spans = (LoggedSpan(8, 0, 10**9, False), LoggedSpan(8, 1 << 30, 10**9, True))
    placed = logged("allocated", 0, words=(1, 2), spans=(LoggedSpan(8, 0, 1 << 31, True),))
    writer = Log([placed, logged("access", 1, spans=spans), logged("post", 2, words=(11, 12))])
    reader = Log([logged("take", 3, words=(11, 12)), logged("access", 4, spans=spans)])
    run = run_of(writer, reader)
    times = simulate(run.tasks, {("memory", 0, -1): 1e9})
    assert [times.end[each.task] for each in run.operations] == pytest.approx([1.0, 2.0], rel=1e-4)


def test_collectives_of_ranks_take_the_time_of_the_vendors_library(tmp_path: Path) -> None:
    program = tmp_path / "ranks.py"
    program.write_text("""
import peerlane as pl
with pl.Group() as group:
    device = pl.devices()[group.rank]
    one, other, both = (device.allocate(nbytes << 20) for nbytes in (1, 1, 2))
    with pl.predict("h100-8") as prediction:
        group.all_reduce(other, one, dtype="float32")
        group.all_gather(both, one)
        group.broadcast(one, root=1)
    for each in prediction.operations:
        print(each.kind, each.nbytes, each.end - each.start)
""")
    done = run_python(["-m", "peerlane", "launch", "-n", "2", "--devices", "2", str(program)], timeout=90)
    assert done.returncode == 0, done.stderr
    lines = [line.split()[1:] for line in done.stdout.splitlines()]  # without the number of the rank
    shown = [(kind, int(nbytes), float(seconds)) for kind, nbytes, seconds in lines]
    expected = [
        (kind, nbytes, pytest.approx(predicted(H100, kind, 2, nbytes).seconds))
        for kind, nbytes in (("all_reduce", MIB), ("all_gather", 2 * MIB), ("broadcast", MIB))
    ]
    assert sorted(shown) == sorted(expected * 2, key=lambda each: each[:2])


def test_wait_that_is_read_before_its_record_comes_behind_it() -> None:
    """A log may have an event of another thread behind a later one, so that the merge takes the wait first."""
    spans = (LoggedSpan(8, 0, 10**9, False), LoggedSpan(8, 1 << 30, 10**9, True))
    placed = logged("allocated", 0, words=(1, 2), spans=(LoggedSpan(8, 0, 1 << 31, True),))
    late = logged("sync", 9)
    writer = Log([placed, logged("access", 1, spans=spans), late, logged("notify", 2, words=(5, 0, 1))])
    reader = Log([logged("notify_wait", 3, words=(5, 0, 1)), logged("access", 4, spans=spans)])
    run = run_of(writer, reader)
    times = simulate(run.tasks, {("memory", 0, -1): 1e9})
    assert [times.end[each.task] for each in run.operations] == pytest.approx([1.0, 2.0], rel=1e-4)


def test_thread_of_one_process_does_not_wait_for_another_processs_thread_of_that_number() -> None:
    spans = (LoggedSpan(8, 0, 10**9, False), LoggedSpan(8, 1 << 30, 10**9, True))
    placed = logged("allocated", 0, words=(1, 2), spans=(LoggedSpan(8, 0, 1 << 31, True),))
    one = Log([placed, logged("access", 1, spans=spans), logged("post", 2, words=(2, 5))])
    other = Log([logged("take", 3, words=(2, 5)), logged("access", 4, spans=spans)])
    times = simulate((run := run_of(one, other)).tasks, {("memory", 0, -1): 1e9})
    assert [times.end[each.task] for each in run.operations] == pytest.approx([2.0, 2.0], rel=1e-4)


def test_copies_between_machines_take_the_interfaces_of_their_devices() -> None:
    """Memory of a host has the interface of the device at the other end, or the first one."""
    first_host, second_host = HOST, HOST - 1
    assert H100.route(3, 9) == (("network out", 3, HOST), ("network in", 9, HOST))
    assert H100.route(first_host, 11) == (("network out", 3, HOST), ("network in", 11, HOST))
    assert H100.route(10, first_host) == (("network out", 10, HOST), ("network in", 2, HOST))
    assert H100.route(second_host, first_host) == (("network out", 8, HOST), ("network in", 0, HOST))
    assert H100.route(second_host, 9) == (("from host", 9, HOST),)
    assert H100.route(8, 9) == (("out", 8, HOST), ("in", 9, HOST))
    assert H100.route(second_host, second_host) == ()
    assert {H100.rate(link) for link in H100.route(3, 9)} == {H100.network}


def test_host_memory_and_devices_of_another_machine_are_its_own() -> None:
    placed = [
        logged("allocated", 0, words=(1, 2), spans=(LoggedSpan(8, 0, 64, True),)),
        logged("access", 2, spans=(LoggedSpan(0, 0, 64, False), LoggedSpan(8, 0, 64, True))),
    ]
    writer = [logged("access", 3, spans=(LoggedSpan(0, 0, 64, False), LoggedSpan(8, 0, 64, True)))]
    run = run_of(Log(writer, "a"), Log(placed, "b"))
    routes = {each.lane.process: run.tasks[each.task].flows[0].route for each in run.operations}
    assert routes == {0: H100.route(HOST, 8), 1: (("from host", 8, HOST),)}


def test_collective_of_machines_with_unlike_ranks_or_a_lost_log_is_unknown() -> None:
    calls = [Log([all_reduce(1, rank, 1, 3, ranks=3)], machine) for rank, machine in enumerate("aab")]
    counts_of_calls = []

    def note(name: str, counts: Sequence[int], nbytes: int) -> float:
        counts_of_calls.append((name, counts, nbytes))
        return 1.0

    Run(H100, lambda number: number, 0.0, note).add(calls)  # type: ignore[arg-type]
    assert counts_of_calls == [("all_reduce", (2, 1), 3)]
    assert run_of(calls[0], calls[2]).unknown["collectives of kind all_reduce"] == 1
    assert seconds_of(H100, "all_reduce", (2, 1), 3) is None
    assert seconds_of(H100, "all_reduce", (9, 9), 3) is None
    assert seconds_of(MACHINES["gb200-4"], "all_reduce", (1, 1), 3) is None
    assert seconds_of(H100, "all_reduce", (8, 8), MIB) == predicted(H100, "all_reduce", 16, MIB).seconds


def test_log_that_is_not_complete_is_counted_as_unknown() -> None:
    run = run_of(Log([]), Log([], problem="no header"), Log([], dropped=3))
    assert +run.unknown == {"logs of processes that are not complete": 2}

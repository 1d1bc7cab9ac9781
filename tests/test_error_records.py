"""Errors carry their facts as data: `Error.detail` is a record with the numbers of the text, and it pickles."""

from __future__ import annotations

import ast
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import peerlane as pl
from helpers.launched import until
from helpers.peers import Peer
from helpers.promises import Node
from peerlane import errors, raw
from peerlane.errors import (
    BadArgument,
    ChannelWait,
    HandleRefused,
    LostProcess,
    MeetingWait,
    MemoryHolder,
    NoRoom,
    OutOfRange,
    Refused,
    SizesDiffer,
)
from peerlane.rendezvous import Rendezvous, RendezvousServer

pytestmark = pytest.mark.timeout(60)

SOURCE = Path(__file__).parents[1] / "src" / "peerlane"
ERRORS = frozenset(
    name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, pl.Error)
)
#: Where the record is added later, and parts that are not the library.
ELSEWHERE = ("backends/virtual/messages/", "cli/", "testing/", "errors.py")


def refusal(call: Callable[..., object], *args: object, **named: object) -> Any:
    """Return the error of a call, after a check that pickling keeps all of it."""
    with pytest.raises(pl.Error) as raised:
        call(*args, **named)
    return kept(raised.value)


def kept(error: pl.Error) -> Any:
    again = pickle.loads(pickle.dumps(error))
    names = ("fault", "call", "code", "device", "operation", "rank", "missing_address", "detail")
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert [getattr(again, name) for name in names] == [getattr(error, name) for name in names]
    assert error.detail is not None
    return error


def calls_without_record(path: Path) -> Iterator[str]:
    for call in ast.walk(ast.parse(path.read_text())):
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ERRORS
        if named and not any(each.arg == "detail" for each in call.keywords):
            yield f"{path.relative_to(SOURCE)}:{call.lineno}"


@pytest.mark.any_schedule
def test_errors_of_the_library_have_a_record() -> None:
    files = [
        each
        for each in sorted(SOURCE.rglob("*.py"))
        if not str(each.relative_to(SOURCE)).startswith(ELSEWHERE)
    ]
    assert [address for each in files for address in calls_without_record(each)] == []


@pytest.fixture(params=["virtual", "reference"])
def devices(request: pytest.FixtureRequest, node: Node) -> tuple[pl.Device, ...]:
    backend = {"virtual": "", "reference": "backend=reference,"}[request.param]
    if backend:
        return pl.enter_node(f"{backend}devices=2,memory=1GiB")
    return node("devices=2,memory=1GiB")


def test_raw_copy_beyond_allocation_record_names_operand_and_allocation(
    devices: tuple[pl.Device, ...],
) -> None:
    whole = devices[0].allocate(4096)
    at = whole.address
    for role, ends in (("dst", (at + 4090, at)), ("src", (at, at + 4090))):
        error = refusal(raw.copy, *ends, 16)
        assert error.detail == OutOfRange(role, at + 4090, 16, at, 4096, whole.id)
        assert error.device == devices[0].name
        assert "range of 16 bytes" in str(error)
        assert "ends 10 bytes beyond" in str(error)


def test_raw_copy_freed_address_record_has_freed_allocation(devices: tuple[pl.Device, ...]) -> None:
    live, host = devices[0].allocate(64), bytearray(64)
    freed = devices[0].allocate(4096)
    at, number = freed.address, freed.id
    pageable = raw_address(host)
    freed.close()
    for role, ends in (
        ("dst", (at + 8, live.address)),
        ("src", (live.address, at + 8)),
        ("dst", (at + 8, pageable)),
        ("src", (pageable, at + 8)),
    ):
        error = refusal(raw.copy, *ends, 16)
        assert error.fault is pl.Fault.FREED_ADDRESS
        assert error.detail == OutOfRange(role, at + 8, 16, at, 4096, number)
        assert str(error).startswith({"dst": "destination ", "src": "source "}[role])


def raw_address(view: bytearray) -> int:
    import numpy as np

    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_raw_copy_unknown_address_record_has_bytes_of_the_call(devices: tuple[pl.Device, ...]) -> None:
    live = devices[0].allocate(64)
    unknown = live.address + (1 << 30)
    for role, ends in (("dst", (unknown, live.address)), ("src", (live.address, unknown))):
        error = refusal(raw.copy, *ends, 33)
        assert error.fault is pl.Fault.UNKNOWN_ADDRESS
        assert error.detail == OutOfRange(role, unknown, 33, 0, 0, 0)
        assert "asked for 33 bytes" in str(error)
        assert "asked for 1 bytes" not in str(error)


def test_raw_copy_between_back_ends_record_names_operand(node: Node) -> None:
    (virtual, _), there = node(), pl.enter_node("backend=reference,devices=2")[0]
    del virtual
    pageable, far = bytearray(64), there.allocate(64)
    error = refusal(raw.copy, raw_address(pageable), far.address + 60, 8)
    assert error.detail == OutOfRange("src", far.address + 60, 8, far.address, 64, far.id)


def test_raw_copy_null_address_record_has_reason(devices: tuple[pl.Device, ...]) -> None:
    live = devices[0].allocate(64)
    for role, ends in (("dst", (0, live.address)), ("src", (live.address, 0))):
        error = refusal(raw.copy, *ends, 16)
        assert error.fault is pl.Fault.NULL_ADDRESS
        assert error.detail == Refused(reason="null_address", role=role, address=0, size=16)
    view = refusal(raw.view, 0, 4)
    assert view.fault is pl.Fault.NULL_ADDRESS
    assert view.detail == Refused(reason="null_address", role="address", address=0, size=4)
    assert str(view) == "address is NULL (asked for 4 bytes)"


def test_refusals_of_both_back_ends_have_equal_records(devices: tuple[pl.Device, ...]) -> None:
    d0, _ = devices
    a = d0.allocate(4096)
    assert refusal(pl.copy, a, bytearray(10)).detail == SizesDiffer(10, 4096, None)
    assert refusal(pl.copy_batch, [a], [bytearray(3)]).detail == SizesDiffer(3, 4096, 0)
    assert refusal(pl.fill, a, 300).detail == BadArgument("value", 300, least=0, most=255)
    assert refusal(d0.allocate, 0).detail == BadArgument("nbytes", 0, least=1, most=(1 << 63) - 1)
    assert refusal(lambda: a[0:5000]).detail == Refused(reason="outside", start=0, stop=5000, size=4096)
    assert refusal(pl.copy, bytes(4096), a).detail.reason == "read_only"
    assert refusal(d0.peers.add, d0).detail == Refused(reason="peer_self", device=d0.name)
    full = refusal(d0.allocate, 1 << 40).detail
    assert isinstance(full, NoRoom)
    assert (full.asked, full.capacity, full.allocations, full.holders) == (1 << 40, 1 << 30, 1, ())
    part = a[0:16]
    part.close()
    assert refusal(pl.copy, part, a[0:16]).detail == Refused(reason="part_closed", allocation=a.id)
    number = a.id
    a.close()
    closed = refusal(lambda: a.address).detail
    assert (closed.reason, closed.allocation, closed.freed_by) == ("closed", number, "Buffer.close()")
    assert closed.freed_at.startswith("test_error_records.py:")
    pl.leave_node()
    assert refusal(d0.allocate, 1).detail.reason == "left"


def test_closed_stream_of_reference_device_names_its_device(devices: tuple[pl.Device, ...]) -> None:
    d0, d1 = devices
    a, b, stream = d0.allocate(64), d1.allocate(64), d0.create_stream()
    number = stream.id
    stream.close()
    error = refusal(pl.copy, a, b, stream=stream)
    assert (error.detail.reason, error.detail.stream) == ("stream_closed", number)
    assert "device number" not in str(error)


def test_sync_failed_callback_record_names_callback_and_exception(devices: tuple[pl.Device, ...]) -> None:
    def fails() -> None:
        raise KeyError("k")

    stream = devices[0].create_stream()
    stream.launch_callback(fails)
    behind = stream.record()
    cancelled = refusal(behind.sync)
    assert (cancelled.detail.reason, cancelled.detail.operation, cancelled.detail.failed) == (
        "failed_before",
        2,
        1,
    )
    details = refusal(stream.sync).detail
    assert details.reason == "callback_failed"
    assert details.callback.endswith("fails")
    assert details.raised == "KeyError: 'k'"
    stream.close()


def test_sync_timed_out_wait_record_has_notify_or_address(node: Node) -> None:
    d0, _ = node()
    stream, notify, word = d0.create_stream(on_error="continue"), d0.create_notify(), d0.allocate(8)
    stream.wait(notify, timeout=0.05)
    assert refusal(stream.sync).detail == Refused(reason="wait_timeout", seconds=0.05, notify=notify.id)
    raw.wait_value(word.address, 7, stream=stream, timeout=0.05)
    assert refusal(stream.sync).detail == Refused(reason="wait_timeout", seconds=0.05, address=word.address)


def test_bad_timeout_record_has_value_and_limits(node: Node) -> None:
    d0, _ = node()
    stream = d0.create_stream()
    error = refusal(stream.sync, timeout=-1)
    assert error.detail == BadArgument("timeout", -1.0, least=0, rule="or None")
    assert "timeout is -1; valid are seconds from 0 on" in str(error)


def test_own_handle_refusal_record_has_both_pids(node: Node) -> None:
    d0, _ = node()
    handle = d0.allocate(64).export()
    error = refusal(pl.Buffer.open, int(handle))
    me = os.getpid()
    assert error.detail == HandleRefused(reason="own_process", maker=me, asker=me, status=11)
    number = int(handle)
    handle.close()
    stale = refusal(pl.Buffer.open, number)
    assert stale.detail == HandleRefused(reason="stale", maker=me, asker=me, status=5)


def test_handle_refusals_of_another_process_have_both_pids(shared: tuple[pl.Device, pl.Device, Peer]) -> None:
    _, _, other = shared
    number = other.run("block = devices[0].allocate(64); h = block.export(); result = int(h)")
    error = refusal(pl.Buffer.open, number)
    assert error.detail == HandleRefused(reason="not_listed", maker=other.pid, asker=os.getpid(), status=6)
    other.run(f"h.allow.add({os.getpid()})")
    error = refusal(pl.Physical.open, number)
    kinds = {"exported_kind": 2, "wanted_kind": 1}
    assert error.detail == HandleRefused(
        reason="wrong_kind", maker=other.pid, asker=os.getpid(), status=12, **kinds
    )


def test_allocate_over_capacity_record_has_holders(shared: tuple[pl.Device, pl.Device, Peer]) -> None:
    d0, _, other = shared
    other.run("block = devices[0].allocate(4 * G)")
    error = refusal(d0.allocate, d0.total_bytes)
    (holder,) = error.detail.holders
    assert isinstance(holder, MemoryHolder)
    assert (holder.pid, holder.nbytes) == (other.pid, 8 << 20)
    assert holder.program[:20] in str(error)
    assert error.detail.free == d0.total_bytes - (8 << 20)


def test_physical_and_range_refusals_have_numbers(node: Node) -> None:
    d0, _ = node()
    unit = d0.granularity
    block, address = pl.Physical(d0, 2 * unit), pl.AddressRange(d0, 4 * unit)
    assert refusal(pl.Physical, d0, 5).detail == BadArgument("nbytes", 5, multiple=unit)
    fit = Refused(reason="does_not_fit", at=7, size=2 * unit, extent=4 * unit, multiple=unit)
    assert refusal(address.map, block, 7).detail == fit
    size = BadArgument("size", 5, least=unit, most=2 * unit, multiple=unit)
    assert refusal(address.map, block, 0, size=5).detail == size
    address.map(block, 0)
    first = address[0:unit].address
    assert refusal(address.map, block, 0).detail == Refused(reason="overlap", address=first, size=2 * unit)
    hole = refusal(raw.fill, first + 3 * unit, 1, count=4)
    assert (hole.detail.reason, hole.detail.address, hole.missing_address) == (
        "not_mapped",
        first + 3 * unit,
        first + 3 * unit,
    )
    grown = refusal(address.grow, 1 << 50).detail
    assert (grown.reason, grown.asked, grown.size) == ("cannot_grow", 1 << 50, 4 * unit)
    address.close()
    block.close()


def test_descriptor_refusals_have_numbers(node: Node) -> None:
    d0, _ = node()
    table, data = d0.allocate(64), d0.allocate(64)
    pairs = [(data[0:8], data[8:16])] * 5
    needed = refusal(pl.CopyDescriptor.build, table, pairs).detail
    assert needed == Refused(reason="table_too_small", size=64, needed=192, entries=5)
    assert refusal(pl.CopyDescriptor.build, table, [(data[0:8], data[8:17])]).detail == SizesDiffer(9, 8, 0)
    stream = d0.create_stream()
    pl.fill(table, 0)
    raw.launch_descriptor(table.address, 64, stream=stream)
    bad = refusal(stream.sync)
    assert (bad.detail.reason, bad.detail.field, bad.detail.found) == ("bad_descriptor", 1, 0)
    assert bad.device == d0.name
    stream.close()


def test_rendezvous_waits_in_vain_have_records() -> None:
    with RendezvousServer(2) as server:
        first, second = Rendezvous(server.address, 0, 2), Rendezvous(server.address, 1, 2)
        late = refusal(first.barrier, "b", timeout=0.1)
        assert late.detail == MeetingWait("barrier", "b", 0, 2, 0.1, awaited=(1,))
        assert str(late) == "Rendezvous.barrier: rank 1 of 2 did not come to 'b' within 0.1 s"
        assert refusal(second.gather, "g", b"", timeout=0.1).detail == MeetingWait(
            "gather", "g", 1, 2, 0.1, (0,)
        )
        unput = refusal(first.get, "k", timeout=0.1)
        assert unput.detail == MeetingWait("key", "k", 0, 2, 0.1, awaited=(0, 1))
        assert refusal(first.get, "k", timeout=-2).detail.name == "timeout"
        details: list[Any] = []
        waiting = threading.Thread(target=lambda: details.append(refusal(first.get, "k", timeout=20)))
        waiting.start()
        until(lambda: bool(server._loop.meeting._wanted))
        first.close()
        waiting.join()
        assert details[0].detail == MeetingWait("key", "k", 0, 2, 20, lost=0)
        assert details[0].rank == 0
        server.close()
        gone = refusal(second.get, "k", timeout=1)
        assert (gone.detail.reason, gone.detail.address) == ("no_server", server.address)


def test_rendezvous_argument_records_have_limits() -> None:
    assert refusal(Rendezvous, "/nowhere", 5, 2).detail == Refused(
        reason="bad_rank", rank=5, size=2, most=65536
    )
    missing = refusal(Rendezvous.from_environment, {}).detail
    assert missing == Refused(reason="not_set", variables=("PEERLANE_RENDEZVOUS", "RANK", "WORLD_SIZE"))


def test_channel_refusals_have_numbers(node: Node) -> None:
    d0, _ = node()
    lines: list[Any] = [None, None]
    ends: list[Any] = [None, None]
    with RendezvousServer(2) as server:

        def join(rank: int) -> None:
            lines[rank] = pl.Group(
                rank, 2, rendezvous=Rendezvous(server.address, rank, 2), name="records", device=d0, timeout=30
            )
            ends[rank] = lines[rank].channel(1 - rank, notifies=2, timeout=30)

        threads = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        near, data = ends[0], d0.allocate(64)
        size = near.window.size
        beyond = refusal(near.write, data, at=size - 10)
        assert beyond.detail == Refused(reason="outside", rank=1, first=size - 10, nbytes=64, size=size)
        assert refusal(near.write, data, memory="no").detail == BadArgument("tag", "no", choices=("window",))
        assert refusal(near.notify, 9).detail == BadArgument("notify", 9, least=0, most=1)
        late = refusal(near.wait, 1, timeout=0.05)
        assert late.detail == ChannelWait(1, 1, 0, 0.05)
        bad = refusal(near.wait, 1, timeout=-1)
        assert (bad.call, bad.detail) == (
            "Channel.wait",
            BadArgument("timeout", -1.0, least=0, rule="or None"),
        )
        block = refusal(near.write_blocks, data, [(0, 0, 8), (0, 0, 65)])
        assert (block.detail.role, block.detail.size, block.detail.extent) == ("src", 65, 64)
        assert block.device == d0.name
        assert refusal(lines[0].send, data, 0).detail == Refused(reason="own_rank", rank=0, size=2)
        parts = refusal(lines[0].all_gather, data[0:10], data[0:3]).detail
        assert (parts.reason, parts.sizes) == ("sizes_differ", (5, 3))
        ends[1].close()
        assert refusal(near.wait, 1, timeout=20).detail == LostProcess(os.getpid())
        for each in lines:
            each.close()


def test_deadlock_after_failed_operation_names_its_kind_and_cause(devices: tuple[pl.Device, ...]) -> None:
    def fails() -> None:
        raise KeyError("k")

    d0, _ = devices
    target, waiting = d0.allocate(64), d0.create_stream()
    copying, calling = d0.create_stream(), d0.create_stream()
    raw.copy(target.address, 0x1000, 16, stream=copying)
    calling.launch_callback(fails)
    until(lambda: copying.is_done and calling.is_done)
    waiting.wait(d0.create_notify())
    copied, called = sorted(refusal(waiting.sync).detail.failed, key=lambda each: each.stream)
    assert (copied.stream, copied.kind, copied.operation) == (copying.id, "copy", 1)
    assert copied.why.startswith("source host range of 16 bytes at 0x1000")
    assert (called.stream, called.kind, called.operation) == (calling.id, "callback", 1)
    assert called.why.endswith("fails raised KeyError: 'k'")
    waiting.abort(close=True)
    for stream in (copying, calling):
        with pytest.raises(pl.Error):
            stream.sync()

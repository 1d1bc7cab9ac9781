"""The promises of docs/errors.md on physical memory, handles and which processes may open them."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import Peer, PeerError, peer
from helpers.promised import overdue
from helpers.promises import Node, filled, parked, untouched
from peerlane.backends.virtual.node import handles
from peerlane.errors import Fault

G = 2 << 20
LOST_SECONDS = 0.5

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

Shared = tuple[pl.Device, pl.Device, Peer]


def _exported(
    other: Peer, allow: str = "[me]", what: str = "pl.Physical(devices[0], G)", more: str = ""
) -> int:
    number: int = other.run(
        f"me={os.getpid()}; thing={what}; handle=thing.export(allow={allow}{more}); result=int(handle)"
    )
    return number


def _let_go(other: Peer) -> None:
    deadline = time.monotonic() + 10
    while other.run("result=handle.importers") != 0:
        assert time.monotonic() < deadline


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        while " T " not in Path(f"/proc/{pid}/stat").read_text():
            pass
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _refused(kind: type[pl.Error], fault: Fault, work: Callable[[], object]) -> str:
    with pytest.raises(kind) as refused:
        work()
    assert refused.value.fault is fault, str(refused.value)
    return str(refused.value)


def test_granularity_of_device_is_2_mib(node: Node) -> None:
    assert node()[0].granularity == G


def test_physical_bad_size_raises_and_charges_nothing(node: Node) -> None:
    device = node()[0]
    for size in (0, -G):
        with pytest.raises(pl.InvalidValue):
            pl.Physical(device, size)
    with pytest.raises(pl.InvalidValue, match="round up to 4,194,304"):
        pl.Physical(device, G + 1)
    with pytest.raises(TypeError):
        pl.Physical(device, 2.0 * G)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Device"):
        pl.Physical("virtual:0", G)  # type: ignore[arg-type]
    assert device.free_bytes == device.total_bytes


def test_physical_over_capacity_raises_out_of_memory(node: Node) -> None:
    device = node("devices=1,memory=8MiB")[0]
    with pl.Physical(device, 3 * G):
        text = _refused(pl.OutOfMemory, Fault.OUT_OF_MEMORY, lambda: pl.Physical(device, 2 * G))
        assert "4,194,304" in text
        assert "2,097,152" in text
        assert device.free_bytes == G
    assert device.free_bytes == 4 * G


def test_physical_used_after_close_raises_closed(node: Node) -> None:
    device = node()[0]
    block = pl.Physical(device, G)
    rng = pl.AddressRange(device, G)
    assert not block.is_closed
    block.close()
    assert "closed" in repr(block)
    for use in (
        lambda: block.is_imported,
        lambda: block.is_read_only,
        lambda: block.export(),
        lambda: rng.map(block),
        lambda: block.__enter__(),
    ):
        with pytest.raises(pl.Closed):
            use()


def test_physical_close_keeps_mapped_bytes(node: Node) -> None:
    device = node()[0]
    rng = pl.AddressRange(device, G)
    with pl.Physical(device, G) as block:
        rng.map(block)
    block.close()
    rng[:4].copy_from(b"kept")
    assert bytes(rng[:4].view()) == b"kept"


def test_export_bad_arguments_raise(node: Node) -> None:
    block = pl.Physical(node()[0], G)
    for bad in ({"rights": "w"}, {"rights": 3}, {"allow": "everybody"}, {"allow": [0]}, {"allow": [1 << 31]}):
        with pytest.raises(pl.InvalidValue):
            block.export(**bad)
    for unfit in (
        {"allow": 5},
        {"allow": None},
        {"allow": np.array([1, 2])},
        {"allow": ["1"]},
        {"allow": [True]},
    ):
        with pytest.raises(TypeError, match=r"allow must be|a pid must be"):
            block.export(**unfit)


def test_export_imported_raises_unsupported(shared: Shared) -> None:
    imported = pl.Physical.open(_exported(shared[2]))
    assert imported.is_imported
    assert "0x0" not in _refused(pl.Unsupported, Fault.UNSUPPORTED, imported.export)
    buffer = pl.Buffer.open(_exported(shared[2], what="devices[1].allocate(100)"))
    _refused(pl.Unsupported, Fault.UNSUPPORTED, buffer.export)


def test_open_of_what_is_not_a_handle_raises_bad_handle(shared: Shared) -> None:
    _exported(shared[2])
    text: str = shared[2].run("result=bytes(handle).decode()")
    changed = text[:30] + ("A" if text[30] != "A" else "B") + text[31:]
    for bad, message in (
        (0, "between 1 and"),
        (-1, "between 1 and"),
        (1 << 63, "between 1 and"),
        (text[:-1], "63 characters"),
        (text + "A", "65 characters"),
        (b"", "0 characters"),
        ("!" * 64, "letters, digits"),
        (changed, "checksum"),
    ):
        assert message in _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda bad=bad: pl.Physical.open(bad))
    for unfit in (None, 1.5, True, [1]):
        with pytest.raises(TypeError):
            pl.Physical.open(unfit)  # type: ignore[arg-type]
    assert pl.Physical.open(text).size == G
    assert pl.Physical.open(text.encode()).size == G


def test_open_guessed_number_raises_bad_handle(shared: Shared) -> None:
    number = _exported(shared[2])
    for guess in (number ^ 1, number ^ (1 << 27), number ^ (1 << 28), number ^ (1 << 44)):
        _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda guess=guess: pl.Physical.open(guess))
    with peer(f"name=shared-{os.getpid()},devices=2") as idle:
        slot = idle.run("result=devices[0].backend._state.slot")
        guess = handles.encode_int(handles.decode(number)._replace(slot=slot))
        for _ in range(2):
            text = _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda: pl.Physical.open(guess))
            assert f"process {idle.pid}" in text and "gives no handles" in text
        _exported(idle)
        _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda: pl.Physical.open(guess))
    pl.Physical.open(number).close()


def test_open_from_unlisted_process_raises_not_listed(shared: Shared) -> None:
    number = _exported(shared[2], allow="[]")
    text = _refused(pl.AccessDenied, Fault.NOT_LISTED, lambda: pl.Physical.open(number))
    assert str(os.getpid()) in text
    assert str(shared[2].pid) in text
    shared[2].run("handle.allow.add(me)")
    pl.Physical.open(number).close()
    shared[2].run("handle.allow.discard(me)")
    _refused(pl.AccessDenied, Fault.NOT_LISTED, lambda: pl.Physical.open(number))


def test_open_listed_before_start_raises_listed_early(shared: Shared) -> None:
    number = _exported(shared[2], allow="[]")
    # Start time 0 stands for a pid that was listed before its process started.
    shared[2].run(f"from peerlane import _core; _core.allow(*handle._entry, {os.getpid()}, 0)")
    _refused(pl.AccessDenied, Fault.LISTED_EARLY, lambda: pl.Physical.open(number))
    shared[2].run(f"_core.allow(*handle._entry, {os.getpid()}, 1)")
    _refused(pl.AccessDenied, Fault.PID_REUSED, lambda: pl.Physical.open(number))
    shared[2].run("handle.allow.add(me)")
    pl.Physical.open(number).close()


def test_open_own_handle_raises_own_handle(node: Node) -> None:
    block = pl.Physical(node()[0], G)
    handle = block.export(allow=[os.getpid()])
    for form in (handle, int(handle), bytes(handle), pickle.loads(pickle.dumps(handle))):
        _refused(pl.AccessDenied, Fault.OWN_HANDLE, lambda form=form: pl.Physical.open(form))


def test_open_stale_handle_raises_stale_handle(shared: Shared) -> None:
    number = _exported(shared[2])
    shared[2].run("thing.close()")
    _refused(pl.BadHandle, Fault.STALE_HANDLE, lambda: pl.Physical.open(number))
    number = _exported(shared[2])
    block = pl.Physical.open(number)
    shared[2].run("thing.close()")
    pl.Physical.open(number).close()  # an importer has it, so it lives
    shared[2].run("handle.close()")
    _refused(pl.BadHandle, Fault.STALE_HANDLE, lambda: pl.Physical.open(number))
    rng = pl.AddressRange(shared[0], G)
    rng.map(block)
    rng[:].fill(1)


def test_open_handle_of_other_kind_raises_wrong_kind(shared: Shared) -> None:
    number = _exported(shared[2], what="devices[0].allocate(5)")
    _refused(pl.BadHandle, Fault.WRONG_KIND, lambda: pl.Physical.open(number))
    number = _exported(shared[2])
    _refused(pl.BadHandle, Fault.WRONG_KIND, lambda: pl.Buffer.open(number))


def test_open_handle_of_other_node_raises_node_mismatch(shared: Shared) -> None:
    with peer(f"name=elsewhere-{os.getpid()},devices=2") as other:
        number = _exported(other)
        text = other.run("result=bytes(handle).decode()")
        for form in (number, text):
            _refused(pl.BadHandle, Fault.NODE_MISMATCH, lambda form=form: pl.Physical.open(form))


def test_open_handle_of_dead_maker_raises_peer_lost(shared: Shared) -> None:
    number = _exported(shared[2])
    text = shared[2].run("result=bytes(handle).decode()")
    block = pl.Physical.open(number)
    rng = pl.AddressRange(shared[0], G)
    rng.map(block)
    rng[:4].copy_from(b"here")
    shared[2].kill()
    began = time.monotonic()
    message = (
        f"process {shared[2].pid}, which made the handle, has ended or left the node; memory that was opened before "
        "stays"
    )
    for form in (text, number, text):  # however it is found out, the words are the same
        assert message in _refused(pl.PeerLost, Fault.PEER_LOST, lambda form=form: pl.Physical.open(form))
    assert time.monotonic() - began < overdue(LOST_SECONDS)
    assert bytes(rng[:4].view()) == b"here"


def test_open_handle_of_stopped_maker_raises_wait_timeout(shared: Shared) -> None:
    number = _exported(shared[2])
    with _stopped(shared[2].pid):
        began = time.monotonic()
        _refused(pl.WaitTimeout, Fault.WAIT_TIMEOUT, lambda: pl.Physical.open(number, timeout=0.2))
        assert 0.2 <= time.monotonic() - began < overdue(0.2)
    pl.Physical.open(number).close()
    for bad in (-1.0, float("nan")):
        with pytest.raises(pl.InvalidValue):
            pl.Physical.open(number, timeout=bad)


def test_third_open_of_stopped_maker_needs_no_answer(shared: Shared) -> None:
    other = shared[2]
    for _ in range(2):
        pl.Physical.open(_exported(other)).close()
    texts = other.run(
        f"blocks=[pl.Physical(devices[0], G) for _ in range(3)]; result=[]\n"
        f"for number, block in enumerate(blocks):\n"
        f"    with pl.AddressRange(devices[0], G) as addresses: addresses.map(block); addresses[:8].fill(number)\n"
        f"exports=[each.export(allow=[{os.getpid()}], rights=how) for each, how in zip(blocks, ('rw', 'rw', 'r'))]\n"
        f"result=[bytes(each).decode() for each in exports]"
    )
    with _stopped(other.pid):
        opened = [pl.Physical.open(text.encode(), timeout=0.2) for text in texts]
        assert [block.is_read_only for block in opened] == [False, False, True]
        for number, block in enumerate(opened):
            with pl.AddressRange(block.device, G) as addresses:
                addresses.map(block)
                assert bytes(addresses[:8]) == bytes([number] * 8)
        opened[1].close()
        right = texts[0].encode()
        for wrong in (b"x" + right[1:], right[:-1] + bytes([right[-1] ^ 1]), right[1:]):
            _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda text=wrong: pl.Physical.open(text))  # type: ignore[misc]
    assert other.run("result=[each.importers for each in exports]") == [1, 0, 1]
    opened[0].close()
    opened[2].close()
    deadline = time.monotonic() + 10
    while other.run("result=[each.importers for each in exports]") != [0, 0, 0]:
        assert time.monotonic() < deadline


def test_open_for_unreachable_device_raises_access_denied(node: Node) -> None:
    spec = f"name=islands-{os.getpid()},devices=2,switch=1"
    d0, d1 = node(spec)
    assert not d1.can_access(d0)
    with peer(spec) as other:
        number = _exported(other)
        _refused(pl.AccessDenied, Fault.PEER_UNREACHABLE, lambda: pl.Physical.open(number, device=d1))
        _let_go(other)
        assert pl.Physical.open(number, device=d0).device is d0
        with pytest.raises(TypeError):
            pl.Physical.open(number, device="virtual:0")  # type: ignore[arg-type]


def test_open_for_other_device_keeps_device_of_maker(shared: Shared) -> None:
    d0, d1, other = shared
    near, far = d0.allocate(8), d1.allocate(8)
    buffer = pl.Buffer.open(_exported(other, what="devices[0].allocate(4096)"), device=d1)
    with pl.Physical.open(_exported(other), device=d1) as block, pl.AddressRange(d1, G) as rng:
        assert buffer.device is block.device is d0
        assert f"on {d0.name}" in repr(block)
        rng.map(block)
        assert rng.access(d0) == rng.access(d1) == "rw"
        with pl.AddressRange(d0, G) as another:
            another.map(block)
            assert another.access(d1) == "rw"
        for part in (buffer[:8], rng[:8]):
            assert pl.raw.locate(part.address).ordinal == d0.ordinal
            assert [part.route_to(near).kind, part.route_to(far).kind] == ["local", "staged"]


def test_buffer_export_in_use_raises_busy(node: Node) -> None:
    device = node()[0]
    buffer = filled(device, 5000, 3)
    view = buffer.view()
    assert "host view" in _refused(pl.Busy, Fault.BUSY, buffer.export)
    view[0] = 3
    del view
    stream = device.create_stream()
    gate = parked(stream)
    buffer.fill(3, stream=stream)
    _refused(pl.Busy, Fault.BUSY, buffer.export)
    gate.record()
    address = buffer.address
    buffer.export().close()
    assert buffer.address == address
    assert untouched(buffer, 3)


def test_buffer_export_of_host_or_several_blocks_raises_unsupported(node: Node) -> None:
    device = node()[0]
    rng = pl.AddressRange(device, 2 * G)
    for at in (0, G):
        rng.map(pl.Physical(device, G), at=at)
    for refused in (pl.as_buffer(bytearray(4)), pl.Host().allocate(4), rng[G - 2 : G + 2]):
        _refused(pl.Unsupported, Fault.UNSUPPORTED, refused.export)
    rng[G - 2 : G].export().close()
    with pytest.raises(pl.Closed):
        buffer = device.allocate(4)
        buffer.close()
        buffer.export()


def test_set_access_rw_of_read_only_import_raises_and_changes_nothing(shared: Shared) -> None:
    imported = pl.Physical.open(_exported(shared[2], more=', rights="r"'))
    device = imported.device
    with pl.AddressRange(device, 2 * G) as rng, pl.Physical(device, G) as own:
        rng.map(own, access="none")
        rng.map(imported, at=G)
        for access in ("rw", {device: "rw"}):
            _refused(pl.AccessDenied, Fault.READ_ONLY, lambda access=access: rng.set_access(access))
            assert (rng.access(device), rng.access(device, G)) == ("none", "r")
        rng.set_access("rw", at=0, size=G)
        rng.unmap(G)
        rng.map(own, at=G)
        rng.set_access("rw")


def test_buffer_open_read_only_refuses_writes(shared: Shared) -> None:
    number = _exported(shared[2], what="devices[0].allocate(100)", more=', rights="r"')
    shared[2].run("thing.fill(7)")
    buffer = pl.Buffer.open(number)
    assert buffer.size == 100
    for write in (
        lambda: buffer.fill(1),
        lambda: pl.raw.fill(buffer.address, 1, count=4),
        lambda: buffer.copy_from(bytes(100)),
        lambda: pl.copy_batch([buffer], [bytes(100)]),
    ):
        _refused(pl.AccessDenied, Fault.READ_ONLY, write)
    view = buffer.view()
    assert (view == 7).all()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    buffer.close()
    _refused(pl.Closed, Fault.CLOSED, buffer.view)
    _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda: pl.Buffer.open(number ^ 1))


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (100, 900), (0, 1)])
def test_buffer_open_of_part_refuses_bytes_behind_it(shared: Shared, start: int, stop: int) -> None:
    d0, _, other = shared
    number = _exported(other, what=f"devices[0].allocate(1000)[{start}:{stop}]")
    other.run("thing.fill(7)")
    buffer, own, size = pl.Buffer.open(number), d0.allocate(2000), stop - start
    own.fill(9)
    pl.raw.copy(own.address, buffer.address, size)
    assert bytes(own) == b"\7" * size + b"\t" * (2000 - size)
    pl.raw.copy(buffer.address + size - 1, own.address + 1999, 1)
    assert bytes(buffer) == b"\7" * (size - 1) + b"\t"
    for beyond in (
        lambda: pl.raw.copy(own.address, buffer.address, size + 1),
        lambda: pl.raw.copy(buffer.address, own.address, size + 1),
        lambda: pl.raw.fill(buffer.address + size - 1, 1, count=2),
    ):
        _refused(pl.BadAddress, Fault.OUT_OF_BOUNDS, beyond)
    _refused(pl.BadAddress, Fault.UNKNOWN_ADDRESS, lambda: pl.raw.copy(own.address, buffer.address + size, 1))
    assert bytes(buffer) == b"\7" * (size - 1) + b"\t"
    buffer.close()
    _refused(pl.BadAddress, Fault.FREED_ADDRESS, lambda: pl.raw.copy(own.address, buffer.last_address, 1))


def test_buffer_open_of_empty_part_has_no_bytes(shared: Shared) -> None:
    with pl.Buffer.open(_exported(shared[2], what="devices[0].allocate(8)[:0]")) as buffer:
        assert bytes(buffer) == b""


def test_buffer_is_imported_only_when_opened(shared: Shared) -> None:
    assert pl.Buffer.open(_exported(shared[2], what="devices[0].allocate(8)")).is_imported
    assert not shared[0].allocate(8).is_imported


def test_handle_class_called_raises_type_error() -> None:
    with pytest.raises(TypeError, match="export"):
        pl.Handle()


def test_handle_close_makes_it_stale_and_keeps_importers(shared: Shared) -> None:
    number = _exported(shared[2])
    block = pl.Physical.open(number)
    shared[2].run("handle.close(); handle.close(); thing.close()")
    _refused(pl.BadHandle, Fault.STALE_HANDLE, lambda: pl.Physical.open(number))
    rng = pl.AddressRange(shared[0], G)
    rng.map(block)
    rng[:4].copy_from(b"mine")


def test_handle_importers_counts_processes(shared: Shared) -> None:
    number = _exported(shared[2])
    assert shared[2].run("result=handle.importers") == 0
    first, second = pl.Physical.open(number), pl.Physical.open(number)
    assert shared[2].run("result=handle.importers") == 1
    first.close()
    second.close()
    _let_go(shared[2])


def test_handle_enter_closed_raises_closed(node: Node) -> None:
    handle = pl.Physical(node()[0], G).export()
    with handle:
        assert handle.importers == 0
    assert handle.is_closed
    with pytest.raises(pl.Closed):
        handle.__enter__()


def test_allow_list_acts_as_a_set(node: Node) -> None:
    block = pl.Physical(node()[0], G)
    handle = block.export(allow=[os.getpid(), 1])
    assert handle.allow & {1, 5} == {1}
    assert type(handle.allow | {7}) is set
    handle.allow |= {os.getppid()}
    assert os.getppid() in handle.allow
    handle.allow -= {1}
    assert set(handle.allow) == {os.getpid(), os.getppid()}
    assert len(handle.allow) == 2


def test_handle_allow_assigned_raises_attribute_error(node: Node) -> None:
    block = pl.Physical(node()[0], G)
    handle, other = block.export(), block.export()
    for value in ({1}, other.allow, None):
        with pytest.raises(AttributeError, match="live set"):
            handle.allow = value  # type: ignore[assignment]
    kept = handle.allow
    handle.allow.add(os.getpid())
    assert os.getpid() in kept


def test_allow_bad_pid_raises_and_lists_nothing(node: Node) -> None:
    block = pl.Physical(node()[0], G)
    handle = block.export()
    for change in (handle.allow.add, handle.allow.discard):
        for bad in (0, -1, 1 << 31):
            with pytest.raises(pl.InvalidValue):
                change(bad)
        for unfit in ("1", 1.0, True):
            with pytest.raises(TypeError):
                change(unfit)  # type: ignore[arg-type]
    handle.allow.discard(77)
    assert len(handle.allow) == 0


def test_allow_add_when_everyone_is_allowed_raises(shared: Shared) -> None:
    handle = pl.Physical(shared[0], G).export(allow="user")
    assert handle.allow.is_everyone
    with pytest.raises(pl.InvalidValue, match="user"):
        handle.allow.add(1)
    assert shared[2].run(f"result=pl.Physical.open({int(handle)}).size") == G


def test_allow_add_on_closed_handle_raises_closed(node: Node) -> None:
    block = pl.Physical(node()[0], G)
    handle, other = block.export(), block.export()
    handle.close()
    with pytest.raises(pl.Closed):
        handle.allow.add(1)
    everyone = block.export(allow="user")
    block.close()
    for over in (other, everyone):
        with pytest.raises(pl.Closed):
            over.allow.add(1)


def test_open_read_only_in_listed_process_refuses_rw_map(shared: Shared) -> None:
    block = pl.Physical(shared[0], G)
    handle = block.export(allow=[shared[2].pid], rights="r")
    rng = pl.AddressRange(shared[0], G)
    rng.map(block)
    rng[:4].copy_from(b"look")
    shared[2].run(
        f"b=pl.Physical.open({int(handle)}); r=pl.AddressRange(devices[1], G); r.map(b);"
        "result=[b.is_read_only, bytes(r[:4].view()).decode()]"
    )
    with pytest.raises(PeerError) as refused:
        shared[2].run("r2=pl.AddressRange(devices[1], G); r2.map(b, access='rw')")
    assert refused.value.fault == "READ_ONLY"

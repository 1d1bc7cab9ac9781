"""Neutral calls on a back-end in plain Python, and between that back-end and virtual devices."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.backend import host, registry
from peerlane.backend.base import BackendBase
from peerlane.backend.facts import Caps, DeviceInfo, Kind, Location
from peerlane.memory.dispatch import PIECE
from peerlane.support.own_process import OwnProcess

BASE = 1 << 62  # no address of a process


class Block:
    """Memory of the plain back-end."""

    def __init__(self, backend: Plain, ordinal: int, address: int, size: int) -> None:
        self.backend, self.ordinal, self.address, self.size = backend, ordinal, address, size
        self.data = bytearray(size)

    def host_view(self) -> memoryview:
        return memoryview(self.data)

    def close(self) -> None:
        self.backend.blocks.pop(self.address, None)


class Plain(BackendBase):
    """Two devices whose memory is bytearrays at made-up addresses."""

    name = "plain"
    caps = Caps.FILL | Caps.HOST_VIEW

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.calls: list[str] = []
        self.is_closed = False
        self._next = itertools.count(BASE, 1 << 32)

    def devices(self) -> tuple[DeviceInfo, ...]:
        facts = {"switch": 0, "granularity": 256, "max_peers": 1, "max_streams": 8, "max_notifies": 8}
        flags = {"routes_peer_memory_only": False, "is_host_mapped": False}
        return tuple(
            DeviceInfo(ordinal=n, name="Plain", uuid=bytes([n] * 16), total_bytes=1 << 30, **facts, **flags)
            for n in range(2)
        )

    def free_bytes(self, ordinal: int) -> int:
        return (1 << 30) - sum(block.size for block in self.blocks.values() if block.ordinal == ordinal)

    def allocate(self, ordinal: int, nbytes: int, peer: bool = False) -> Block:
        block = Block(self, ordinal, next(self._next), nbytes)
        self.blocks[block.address] = block
        return block

    def locate(self, address: int) -> Location:
        if address < BASE:
            return Location(Kind.PAGEABLE, -1, address, 0, 0)
        block, _ = self._at(address, 1)
        return Location(Kind.DEVICE, block.ordinal, block.address, block.size, block.address)

    def _at(self, address: int, nbytes: int) -> tuple[Block, int]:
        for block in self.blocks.values():
            if block.address <= address and address + nbytes <= block.address + block.size:
                return block, address - block.address
        raise pl.BadAddress(f"nothing at {address:#x}", fault=pl.Fault.UNKNOWN_ADDRESS)

    def read(self, address: int, into: memoryview) -> None:
        self.calls.append("read")
        block, at = self._at(address, into.nbytes)
        into[:] = block.data[at : at + into.nbytes]

    def write(self, address: int, data: memoryview) -> None:
        self.calls.append("write")
        block, at = self._at(address, data.nbytes)
        block.data[at : at + data.nbytes] = data

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        self.calls.append("copy")
        origin, at = self._at(src, nbytes)
        piece = bytes(origin.data[at : at + nbytes])
        target, to = self._at(dst, nbytes)
        target.data[to : to + nbytes] = piece

    def fill(self, address: int, value: int, width: int, count: int) -> None:
        self.calls.append("fill")
        block, at = self._at(address, width * count)
        block.data[at : at + width * count] = value.to_bytes(width, "little") * count

    def close(self) -> None:
        self.is_closed = True
        self.blocks.clear()


class Factory:
    def configure(self, settings: str, source: str) -> object:
        return settings

    def enter(self, config: object, present: Plain | None) -> Plain:
        return present or Plain()


@pytest.fixture
def plain(node: Node) -> Iterator[tuple[pl.Device, pl.Device]]:
    """Yield a device of the plain back-end and a virtual device."""
    registry.register("plain", Factory())
    (virtual, _) = node()
    yield pl.Device("plain:1"), virtual
    pl.leave_node()


def noise(nbytes: int) -> bytes:
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8).tobytes()


def test_device_of_another_backend_is_entered_on_first_use(plain: tuple[pl.Device, pl.Device]) -> None:
    device, virtual = plain
    assert device.name == "plain:1" and pl.Device("plain:1") is device
    assert [each.name for each in pl.devices()] == ["virtual:0", "virtual:1"]
    assert pl.Device(virtual.name) is virtual
    with pytest.raises(pl.InvalidValue, match="plain:0 to plain:1"):
        pl.Device("plain:2")


def test_node_settings_with_backend_name_choose_that_backend(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register("plain", Factory())
    pl.leave_node()
    monkeypatch.setenv("PEERLANE_NODE", "backend=plain,devices=2")
    assert [each.name for each in pl.devices()] == ["plain:0", "plain:1"]
    with pytest.raises(
        pl.InvalidValue,
        match=r"backend is 'plane' \(did you mean 'plain'\?\); valid are virtual, reference, plain",
    ):
        pl.enter_node("backend=plane")
    pl.leave_node()


@pytest.mark.parametrize("is_queued", [False, True])
@pytest.mark.parametrize("size", [1, 4097, 2 * PIECE + 5])
def test_copy_between_host_and_backends_moves_the_bytes(
    plain: tuple[pl.Device, pl.Device], size: int, is_queued: bool
) -> None:
    device, virtual = plain
    data = noise(size)
    a, b, c = device.allocate(size), virtual.allocate(size), device.allocate(size)
    result = bytearray(size)
    stream = device.create_stream() if is_queued else None
    for dst, src in ((a, data), (b, a), (c, b), (a, c), (result, a)):
        pl.copy(dst, src, stream=stream)
    if stream is not None:
        stream.close()
    assert result == data
    assert bytes(b.view()) == data == bytes(c.view())


def test_copy_within_one_backend_calls_that_backends_copy(plain: tuple[pl.Device, pl.Device]) -> None:
    device, _ = plain
    a = device.allocate(1000)
    b = pl.Device("plain:0").allocate(1000)
    device.backend.calls.clear()
    b[100:200].copy_from(a[5:105])
    assert device.backend.calls == ["copy"]


def test_route_to_other_backend_is_staged_through_host(plain: tuple[pl.Device, pl.Device]) -> None:
    device, virtual = plain
    a, b = device.allocate(8), virtual.allocate(8)
    text = "between back-ends plain and virtual bytes go through the host"
    assert a.route_to(b) == pl.Route("staged", text)
    assert a.route_to(a).kind == "local" and b.route_to(b).kind == "local"
    assert a.route_to(pl.Device("plain:0").allocate(8)).kind == "staged"
    assert a.route_to(pl.as_buffer(bytearray(8))).kind == "host"


def test_copy_refused_by_either_backend_raises(plain: tuple[pl.Device, pl.Device]) -> None:
    device, virtual = plain
    a, b = device.allocate(8), virtual.allocate(9)
    with pytest.raises(pl.InvalidValue, match="the source has 9 bytes, the destination 8"):
        pl.copy(a, b)
    with pytest.raises(pl.AccessDenied):
        pl.copy(b"12345678", a)
    a.close()
    with pytest.raises(pl.Closed, match=r"freed by Buffer.close\(\) at test_dispatch.py"):
        pl.copy(a, bytes(8))


def test_buffer_close_under_queued_copy_keeps_block_until_copy_ends(
    plain: tuple[pl.Device, pl.Device],
) -> None:
    device, virtual = plain
    a, result, notify = device.allocate(8), bytearray(8), virtual.create_notify()
    a.copy_from(b"12345678")
    with device.create_stream() as stream:
        stream.wait(notify)
        pl.copy(result, a, stream=stream)
        a.close()
        assert device.backend.blocks
        notify.record()
    assert result == b"12345678"
    assert not device.backend.blocks


def test_fill_copy_2d_and_batch_reach_memory_of_each_backend(plain: tuple[pl.Device, pl.Device]) -> None:
    device, virtual = plain
    a, b = device.allocate(64), virtual.allocate(64)
    a.fill(b"\x01\x02")
    assert bytes(a.view()) == b"\x01\x02" * 32
    b.fill(0)
    pl.copy_2d(b, 16, a, 8, 4, 4)
    expected = np.zeros(64, np.uint8)
    expected.reshape(4, 16)[:, :4] = a.view().reshape(8, 8)[:4, :4]
    assert np.array_equal(b.view(), expected)
    result = bytearray(4)
    with device.create_stream() as stream:
        pl.copy_batch([a[:4], b[:4], result], [b"abcd", b"efgh", a[8:12]], stream=stream)
    assert (bytes(a.view()[:4]), bytes(b.view()[:4]), result) == (b"abcd", b"efgh", b"\x01\x02\x01\x02")


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_reduce_on_plain_backend_gives_same_bits_as_native_code(
    plain: tuple[pl.Device, pl.Device], dtype: str, op: str
) -> None:
    device, virtual = plain
    left, right = noise(4096), noise(4097)[1:]
    ends = [(where.allocate(4096), where.allocate(4096)) for where in (device, virtual)]
    mixed = device.allocate(4096)
    for dst, src in (*ends, (mixed, ends[1][1])):
        dst.copy_from(left)
        src.copy_from(right)
        pl.reduce(dst, src, dtype=dtype, op=op)
    expected = bytes(ends[1][0].view())
    same = _without_nan(expected, dtype)
    assert np.array_equal(_without_nan(bytes(ends[0][0].view()), dtype), same)
    assert np.array_equal(_without_nan(bytes(mixed.view()), dtype), same)


def _without_nan(data: bytes, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        values = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(data, dtype)
    return np.where(np.isnan(values), 0, values)


def test_raw_calls_find_addresses_of_every_backend(plain: tuple[pl.Device, pl.Device]) -> None:
    device, virtual = plain
    a, b = device.allocate(64), virtual.allocate(64)
    assert pl.raw.locate(a.address + 3).base == a.address
    assert pl.raw.locate(b.address).ordinal == 0
    pl.raw.fill(a.address, 7, count=64)
    pl.raw.copy(b.address, a.address, 64)
    with device.create_stream() as stream:
        pl.raw.copy(a.address, b.address + 32, 32, stream=stream)
        pl.raw.copy_2d(a.address + 32, 8, b.address, 8, 4, 2, stream=stream)
    pl.raw.reduce(a.address, b.address, 8, dtype="uint64", op="max")
    assert bytes(b.view()) == b"\x07" * 64 == bytes(a.view())
    for wrong in (
        lambda: pl.raw.copy(a.address, b.address, 65),
        lambda: pl.raw.fill(a.address + 1, 0, count=64),
    ):
        with pytest.raises(pl.BadAddress):
            wrong()
    a.close()
    with pytest.raises(pl.BadAddress):
        pl.raw.copy(b.address, a.last_address, 1)


def test_call_needing_missing_capability_raises_unsupported_naming_it(
    plain: tuple[pl.Device, pl.Device],
) -> None:
    device, _ = plain
    a = device.allocate(64)
    with pytest.raises(pl.Unsupported, match=r"needs PHYSICAL; back-end plain has FILL\|HOST_VIEW"):
        pl.Physical(device, 256)
    with pytest.raises(pl.Unsupported, match="PHYSICAL"):
        pl.AddressRange(device, 256)
    with pytest.raises(pl.Unsupported, match="DESCRIPTOR"):
        pl.CopyDescriptor(a)
    with pytest.raises(pl.Unsupported, match="SHARE"):
        a.export()
    with device.create_stream() as stream, pytest.raises(pl.Unsupported):
        pl.raw.write_value(a.address, 1, stream=stream)


def test_fill_without_capability_raises_unsupported_and_keeps_nothing(
    plain: tuple[pl.Device, pl.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, virtual = plain
    a, b = device.allocate(64), virtual.allocate(64)
    monkeypatch.setattr(device.backend, "caps", Caps.NONE)
    for call in (lambda: a.fill(1), lambda: pl.raw.fill(a.address, 1, count=8)):
        with pytest.raises(pl.Unsupported, match="needs FILL; back-end plain has none"):
            call()
    with pytest.raises(pl.Unsupported, match="needs DESCRIPTOR; back-end plain has none"):
        pl.raw.launch_descriptor(b.address, 64, device=device)
    a.close()
    assert not device.backend.blocks


def test_export_of_signal_on_backend_without_share_raises_unsupported(
    plain: tuple[pl.Device, pl.Device],
) -> None:
    device, _ = plain
    for signal in (device.create_event(), device.create_notify()):
        with pytest.raises(pl.Unsupported, match="needs SHARE; back-end plain has"):
            signal.export()


@pytest.mark.parametrize("name", ["copy", "copy_2d", "reduce"])
def test_raw_direct_between_two_backends_raises_access_denied_and_writes_nothing(
    plain: tuple[pl.Device, pl.Device], name: str
) -> None:
    device, virtual = plain
    a, b = device.allocate(64), virtual.allocate(64)
    a.fill(1)
    b.fill(2)
    calls: dict[str, Callable[..., None]] = {
        "copy": lambda to, source, **how: pl.raw.copy(to, source, 64, **how),
        "copy_2d": lambda to, source, **how: pl.raw.copy_2d(to, 16, source, 16, 8, 4, **how),
        "reduce": lambda to, source, **how: pl.raw.reduce(to, source, 64, dtype="uint8", **how),
    }
    for to, source in ((a, b), (b, a)):
        route = f"no direct route from {source.device.name} to {to.device.name}"
        with pytest.raises(pl.AccessDenied, match=route) as refused:
            calls[name](to.address, source.address, direct=True)
        assert refused.value.fault is pl.Fault.PEER_NOT_ENABLED
    host = bytearray(64)
    pl.copy(host, a)
    assert (bytes(host), bytes(b)) == (b"\1" * 64, b"\2" * 64)
    calls[name](b.address, pl.as_buffer(host).address, direct=True)  # host memory needs no route
    calls[name](b.address, a.address)
    assert set(b.view()) == ({4} if name == "reduce" else {1, 2} if name == "copy_2d" else {1})


def test_leave_node_closes_other_backends_and_their_objects(plain: tuple[pl.Device, pl.Device]) -> None:
    device, _ = plain
    a, stream = device.allocate(64), device.create_stream()
    pl.leave_node()
    assert device.is_closed and a.is_closed and stream.is_closed
    with pytest.raises(pl.Closed):
        pl.copy(a, bytes(64))
    with pytest.raises(pl.Closed):
        device.create_stream()


def test_neutral_classes_are_slotless_and_shadow_no_native_name() -> None:
    from peerlane import _core
    from peerlane.backends.virtual.buffer import VirtualBuffer
    from peerlane.backends.virtual.notify import VirtualNotify
    from peerlane.backends.virtual.stream import VirtualStream

    natives = ((VirtualBuffer, pl.Buffer, _core.Memory), (VirtualStream, pl.Stream, _core.Stream))
    for kind, neutral, native in (*natives, (VirtualNotify, pl.Notify, _core.Notify)):
        for name in (set(vars(neutral)) & set(vars(native))) - set(vars(kind)) - {"__doc__", "__module__"}:
            assert getattr(kind, name) is getattr(native, name), f"{neutral.__name__}.{name}"
    for neutral in (
        pl.Buffer,
        pl.Stream,
        pl.StreamGroup,
        pl.Event,
        pl.Notify,
        pl.Physical,
        pl.AddressRange,
        pl.Handle,
    ):
        assert all(each.__dict__["__slots__"] == () for each in neutral.__mro__[:-1])
        assert neutral.__mro__ in ((neutral, OwnProcess, object), (neutral, object))


def _waiting_stream(device: pl.Device, virtual: pl.Device) -> tuple[pl.Stream, pl.Notify]:
    stream, notify = device.create_stream(), virtual.create_notify()
    stream.wait(notify)
    return stream, notify


def test_raw_calls_on_stream_keep_closed_memory_of_both_backends_until_done(
    plain: tuple[pl.Device, pl.Device],
) -> None:
    device, virtual = plain
    a, b, c, result = device.allocate(64), virtual.allocate(64), device.allocate(64), bytearray(64)
    b.copy_from(noise(64))
    stream, notify = _waiting_stream(device, virtual)
    pl.raw.copy(a.address, b.address, 64, stream=stream)
    pl.raw.reduce(a.address, b.address, 8, dtype="uint64", op="max", stream=stream)
    pl.raw.copy_2d(c.address, 8, a.address, 8, 8, 8, stream=stream)
    pl.raw.fill(c.address, 3, count=4, stream=stream)
    pl.copy(result, c, stream=stream)
    a_address, free = a.address, virtual.free_bytes
    for each in (a, b, c):
        each.close()
    assert len(device.backend.blocks) == 2 and virtual.free_bytes == free
    with pytest.raises(pl.BadAddress, match=r"destination address .* freed by Buffer.close\(\)"):
        pl.raw.copy(a_address, c.last_address, 8, stream=stream)
    notify.record()
    stream.close()
    assert result == b"\x03" * 4 + noise(64)[4:]
    assert not device.backend.blocks and virtual.free_bytes > free


def test_raw_copy_between_backends_refused_moves_and_keeps_nothing(
    plain: tuple[pl.Device, pl.Device],
) -> None:
    device, virtual = plain
    size = 3 * PIECE
    a, b = device.allocate(size), virtual.allocate(2 * PIECE + 1)
    b.fill(7)
    with pytest.raises(
        pl.BadAddress, match=r"source range of 3,145,728 bytes .* ends 1,048,575 bytes beyond"
    ):
        pl.raw.copy(a.address, b.address, size)
    assert not any(a.view())
    with pytest.raises(pl.BadAddress, match="destination range"):
        pl.raw.copy(b.address, a.address, size)
    a.close()
    assert not device.backend.blocks


def test_queued_operation_backend_raises_error_is_raised_at_sync_with_its_call(
    plain: tuple[pl.Device, pl.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, virtual = plain
    a, b = device.allocate(64), device.allocate(64)

    def refuse(*_: int) -> None:
        raise pl.DeviceFault("the board is on fire", fault=pl.Fault.DEVICE_FAULT)

    monkeypatch.setattr(device.backend, "copy", refuse)
    for submit, call in (
        (lambda stream: pl.copy(a, b, stream=stream), "copy"),
        (lambda stream: pl.raw.copy(a.address, b.address, 8, stream=stream), "raw.copy"),
    ):
        stream, notify = _waiting_stream(device, virtual)
        submit(stream)
        notify.record()
        with pytest.raises(
            pl.DeviceFault, match=r"operation 2 \(copy\) .*: the board is on fire \[submitted"
        ) as caught:
            stream.sync()
        assert (caught.value.fault, caught.value.call) == (pl.Fault.DEVICE_FAULT, call)
        assert caught.value.operation == 2 and "test_dispatch.py" in str(caught.value)
        stream.close()


def test_queued_operation_backend_raises_other_exception_is_callback_failed(
    plain: tuple[pl.Device, pl.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = plain
    a, b = device.allocate(64), device.allocate(64)
    monkeypatch.setattr(device.backend, "copy", lambda *_: 1 // 0)
    stream = device.create_stream()
    pl.copy(a, b, stream=stream)
    with pytest.raises(pl.DeviceFault, match=r"copy \(copy\) raised ZeroDivisionError") as caught:
        stream.sync()
    assert caught.value.fault is pl.Fault.CALLBACK_FAILED
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


class Pinned:
    """Memory of the host that the back-end knows by its address."""

    def __init__(self, backend: Pinning, size: int) -> None:
        self.backend, self.size, self.data = backend, size, (ctypes.c_ubyte * size)()
        self.address, self.number = ctypes.addressof(self.data), host.next_allocation()

    def host_view(self) -> memoryview:
        return memoryview(self.data).cast("B")

    def close(self) -> None:
        self.backend.pinned.pop(self.address, None)


class Pinning(Plain):
    """The plain back-end, with pinned memory."""

    name = "pinning"
    caps = Plain.caps | Caps.PINNED_HOST

    def __init__(self) -> None:
        super().__init__()
        self.pinned: dict[int, Pinned] = {}

    def allocate_host(self, nbytes: int) -> Pinned:
        pinned = Pinned(self, nbytes)
        return self.pinned.setdefault(pinned.address, pinned)

    def locate(self, address: int) -> Location:
        for each in self.pinned.values():
            if 0 <= address - each.address < each.size:
                return Location(Kind.PINNED, -1, each.address, each.size, each.number)
        return super().locate(address)

    def _at(self, address: int, nbytes: int) -> tuple[Any, int]:
        for each in self.pinned.values():
            if 0 <= address - each.address < each.size:
                return SimpleNamespace(data=each.host_view()), address - each.address
        return super()._at(address, nbytes)


class PinningFactory:
    def configure(self, settings: str, source: str) -> object:
        return settings

    def enter(self, config: object, present: Pinning | None) -> Pinning:
        return present or Pinning()


def test_pinned_memory_of_backend_is_copied_filled_and_viewed_as_host_memory(node: Node) -> None:
    registry.register("pinning", PinningFactory())
    (device, _) = pl.enter_node("backend=pinning")
    pinned, block = pl.Host().allocate(64), device.allocate(64)
    assert pinned.device == pl.Host() and pl.raw.locate(pinned.address + 1).kind is Kind.PINNED
    pinned.view()[:] = np.frombuffer(noise(64), np.uint8)
    device.backend.calls.clear()
    with device.create_stream() as stream:
        block.copy_from(pinned, stream=stream)
    pinned[:32].copy_from(block[32:])
    assert device.backend.calls == ["copy", "copy"]
    assert bytes(pinned.view()) == noise(64)[32:] * 2
    pl.raw.fill(pinned.address, 9, count=64)
    assert set(bytes(pinned.view())) == {9} and pinned.route_to(block).kind == "host"
    with pytest.raises(pl.Unsupported, match="DESCRIPTOR"):
        pl.CopyDescriptor(pinned)
    with pytest.raises(pl.Unsupported, match="SHARE"):
        pinned.export()
    view = pinned.view()
    pinned.close()
    assert not device.backend.pinned and set(bytes(view)) == {9}
    with pytest.raises(pl.Closed, match=r"freed by Buffer.close\(\)"):
        pl.copy(pinned, block)
    pl.leave_node()
    with pytest.raises(pl.Closed):
        pl.copy(block, bytes(64))

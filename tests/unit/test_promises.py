"""One test per line of docs/errors.md (those of raw addresses, forks and Ctrl-C: test_promises_raw.py)."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node, filled, untouched
from peerlane.errors import Fault
from peerlane.testing.procs import run_python

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
PROMISES = dict.fromkeys(re.findall(r"^\* `([a-z0-9_]+)`:", PAGE, re.MULTILINE))
HEADINGS = {name.rstrip("`") for name in re.findall(r"^## `(.+)$", PAGE, re.MULTILINE)}

# Operators of the set protocol, which only call add, discard and iteration.
THAT_CANNOT_FAIL = {"backend", "caps", "info", "is_closed", "name", "ordinal", "total_bytes", "uuid"}
FROM_THE_SET_PROTOCOL = {"clear", "isdisjoint", "pop", "remove"}


def _public() -> set[str]:
    names = set()
    for name in pl.__all__:
        thing = getattr(pl, name)
        if inspect.isfunction(thing):
            names.add(name)
        elif inspect.isclass(thing) and name in ("Device", "Host", "PeerSet", "Buffer"):
            methods = {n for n, m in inspect.getmembers(thing, inspect.isroutine) if not n.startswith("_")}
            names |= {f"{name}.{n}" for n in methods - FROM_THE_SET_PROTOCOL}
            properties = {n for n, m in vars(thing).items() if isinstance(m, property)}
            names |= {f"{name}.{n}" for n in properties - THAT_CANNOT_FAIL}
    names |= {f"raw.{n}" for n, f in vars(pl.raw).items() if inspect.isfunction(f) and not n.startswith("_")}
    names |= {"trace.recording", "Trace.write"}  # the rest of the module cannot fail
    native = {"Buffer.address", "Buffer.__getitem__", "Buffer.__enter__"}
    return names | native | {"Device", "Buffer", "Buffer.__dlpack__`, the buffer protocol"}


def test_every_public_method_has_a_promise() -> None:
    assert _public() == HEADINGS


def test_every_promise_has_a_test() -> None:
    files = Path(__file__).parent.glob("test_promises*.py")
    tests = {
        name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text(), re.MULTILINE)
    }
    assert set(PROMISES) <= tests, set(PROMISES) - tests
    assert len(PROMISES) > 40


def test_copy_sizes_differ(node: Node) -> None:
    d0, d1 = node()
    a, b = filled(d0, 100, 1), filled(d1, 60, 2)
    with pytest.raises(pl.InvalidValue, match=r"source has 60 bytes, the destination 100.*\[:60\]"):
        pl.copy(a, b)
    assert untouched(a, 1)


def test_copy_to_read_only(node: Node) -> None:
    d0, _ = node()
    target = b"abcd"
    with pytest.raises(pl.AccessDenied, match="read-only") as refused:
        pl.copy(target, filled(d0, 4, 7))
    assert refused.value.fault is Fault.READ_ONLY
    assert target == b"abcd"


def test_copy_closed(node: Node) -> None:
    d0, _ = node()
    a, b = d0.allocate(64), filled(d0, 64, 3)
    a.close()
    for dst, src in ((a, b), (b, a)):
        with pytest.raises(pl.Closed, match=r"freed by Buffer.close\(\) at test_promises.py:\d+"):
            pl.copy(dst, src)
    assert untouched(b, 3)


def test_copy_no_buffer(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(TypeError, match="int has neither the buffer protocol nor DLPack"):
        pl.copy(d0.allocate(8), 5)


def test_copy_2d_pitch_below_width(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 64, 1), filled(d0, 64, 2)
    with pytest.raises(pl.InvalidValue, match="source pitch is 7 bytes, less than the width of 8"):
        pl.copy_2d(a, 8, b, 7, 8, 2)
    assert untouched(a, 1)


def test_copy_2d_too_large(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 64, 1), filled(d0, 640, 2)
    with pytest.raises(pl.InvalidValue, match="need 76 bytes; the destination has 64"):
        pl.copy_2d(a, 17, b, 17, 8, 5)
    assert untouched(a, 1)


def test_copy_2d_negative(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 64, 1)
    for bad in (-1, 1 << 64):
        with pytest.raises(pl.InvalidValue, match=r"0 to 2\*\*64 - 1"):
            pl.copy_2d(a, 8, a, 8, bad, 2)
    with pytest.raises(TypeError, match="float"):
        pl.copy_2d(a, 8, a, 8.0, 8, 2)  # type: ignore[arg-type]


def test_fill_not_a_byte(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 30, 1)
    for bad in (256, -1, b"abc", b"", b"abcd"):
        with pytest.raises(pl.InvalidValue):
            pl.fill(a, bad)
    with pytest.raises(TypeError):
        pl.fill(a, 1.0)  # type: ignore[arg-type]
    assert untouched(a, 1)


def test_fill_read_only() -> None:
    with pytest.raises(pl.AccessDenied, match="read-only"):
        pl.fill(b"abc", 0)


class _OnAnotherDevice:
    def __dlpack__(self) -> None: ...

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_as_buffer_foreign() -> None:
    with pytest.raises(TypeError, match="object has neither"):
        pl.as_buffer(object())
    with pytest.raises(TypeError, match=r"DLPack device \(2, 0\)"):
        pl.as_buffer(_OnAnotherDevice())
    with pytest.raises(TypeError, match="holds Python objects"):
        pl.as_buffer(np.array([1.5] * 4, dtype=object))
    with pytest.raises(TypeError, match="holds Python objects"):
        pl.as_buffer(memoryview(np.zeros(2, "i4,O")))


def test_as_buffer_strided() -> None:
    with pytest.raises(pl.InvalidValue, match="not contiguous"):
        pl.as_buffer(np.zeros((8, 8))[:, ::2])
    with pytest.raises(pl.InvalidValue, match="in C order"):
        pl.as_buffer(np.asfortranarray(np.zeros((3, 4))))
    released = memoryview(b"abc")
    released.release()
    with pytest.raises(pl.InvalidValue, match="does not give its bytes"):
        pl.as_buffer(released)
    assert pl.as_buffer(np.array(["2026-11-21"], dtype="datetime64[D]")).size == 8


def test_devices_bad_node() -> None:
    code = "import peerlane as pl\ntry: pl.devices()\nexcept pl.InvalidValue as e: print(e.fault.name, e)"
    done = run_python(["-c", code], timeout=30, env=os.environ | {"PEERLANE_NODE": "devices=none"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("BAD_CONFIG")
    assert "devices" in done.stdout


def test_enter_node_bad(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 64, 9)
    with pytest.raises(pl.InvalidValue) as refused:
        pl.enter_node("devices=0")
    assert refused.value.fault is Fault.BAD_CONFIG
    assert untouched(a, 9)
    assert not d0.is_closed


def test_enter_node_mismatch(node: Node) -> None:
    d0, _ = node(f"name=shape-{os.getpid()},devices=2")
    code = (
        "import os, peerlane as pl\n"
        f"try: pl.enter_node('name=shape-{os.getpid()},devices=3')\n"
        "except pl.InvalidValue as e: print(e.fault.name, e)"
    )
    done = run_python(["-c", code], timeout=30)
    assert done.stdout.startswith("NODE_MISMATCH"), done.stdout + done.stderr
    assert "3 devices" in done.stdout
    assert "2 devices" in done.stdout
    assert not d0.is_closed


def test_enter_node_other_window(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(pl.Unsupported, match="keeps them"):
        pl.enter_node("devices=2,window_bytes=2GiB")
    name = d0.backend.config.name  # type: ignore[attr-defined]
    with pytest.raises(pl.Unsupported):
        pl.enter_node(f"name={name},devices=3,window_bytes=2GiB")
    assert not d0.is_closed


def test_a_process_may_give_its_own_node_another_shape(node: Node) -> None:
    first = node(f"name=mine-{os.getpid()},devices=2")
    again = node(f"name=mine-{os.getpid()},devices=4")
    assert (len(first), len(again)) == (2, 4)
    assert first[0].is_closed
    kept = filled(again[3], 8, 1)
    assert again[3].free_bytes == again[3].total_bytes - (2 << 20)
    assert untouched(kept, 1)


def test_a_refused_node_changes_nothing(node: Node) -> None:
    d0, _ = node(f"name=kept-{os.getpid()},devices=2")
    (Path(os.environ["PEERLANE_RUNTIME_DIR"]) / "blocked.node").mkdir()
    with pytest.raises(pl.Error, match="cannot open the state"):
        pl.enter_node("name=blocked,devices=2,poison=true")
    assert not (d0.allocate(64).view() == 0xCB).all()


def test_leave_node_closes(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(64)
    pl.leave_node()
    pl.leave_node()
    assert a.is_closed
    assert d0.is_closed
    for call in (lambda: a.address, lambda: d0.free_bytes, a.view):
        with pytest.raises(pl.Closed):
            call()


def test_device_unknown(node: Node) -> None:
    node()
    for bad in ("virtual:2", "virtual:-1", "virtual:00", "cuda:0", "", "virtual:" + "9" * 5000, "virtual:٣"):
        with pytest.raises(pl.InvalidValue, match="virtual:0 to virtual:1") as refused:
            pl.Device(bad)
        assert refused.value.fault is Fault.INVALID_DEVICE
    with pytest.raises(TypeError):
        pl.Device(0)  # type: ignore[arg-type]


def test_allocate_bad_size(node: Node) -> None:
    d0, _ = node()
    before = d0.free_bytes
    for bad in (0, -1, 1 << 63, 1 << 200):
        with pytest.raises(pl.InvalidValue, match="valid are 1 to"):
            d0.allocate(bad)
    for wrong in (1.0, True, None, "8"):
        with pytest.raises(TypeError, match="nbytes must be an int"):
            d0.allocate(wrong)  # type: ignore[arg-type]
    assert d0.free_bytes == before
    assert d0.allocate(np.int64(8)).size == 8


def test_allocate_over_capacity(node: Node) -> None:
    d0, _ = node("devices=2,memory=16MiB")
    a = d0.allocate(10 << 20)
    with pytest.raises(
        pl.OutOfMemory, match=r"8,388,608 bytes: 6,291,456 of its 16,777,216 bytes are free"
    ) as refused:
        d0.allocate(8 << 20)
    assert isinstance(refused.value, MemoryError)
    assert refused.value.device == "virtual:0"
    assert d0.free_bytes == 6 << 20
    a.close()
    d0.allocate(16 << 20)


def test_allocate_after_leaving(node: Node) -> None:
    d0, _ = node()
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        d0.allocate(8)


def test_free_bytes_after_leaving(node: Node) -> None:
    d0, _ = node()
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        d0.free_bytes  # noqa: B018


def test_peers_is_live(node: Node) -> None:
    d0, d1 = node()
    with pytest.raises(AttributeError, match="live set"):
        d0.peers = {d1}  # type: ignore[assignment]
    d0.peers |= {d1}
    assert d1 in d0.peers


def test_can_access_wrong_device(node: Node) -> None:
    old, _ = node()
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="another node") as refused:
        d0.can_access(old)
    assert refused.value.fault is Fault.WRONG_DEVICE
    with pytest.raises(TypeError, match="must be a Device, not int"):
        d0.can_access(1)  # type: ignore[arg-type]


def test_why_not_wrong_device(node: Node) -> None:
    old, _ = node()
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="another node"):
        d0.why_not(old)


def test_host_allocate_bad_size(node: Node) -> None:
    node()
    for bad in (0, -5, 1 << 64):
        with pytest.raises(pl.InvalidValue, match=r"Host\.allocate"):
            pl.Host().allocate(bad)
    with pytest.raises(pl.OutOfMemory, match="no room for"):
        pl.Host().allocate(1 << 60)


def test_peers_add_self(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(pl.InvalidValue) as refused:
        d0.peers.add(d0)
    assert refused.value.fault is Fault.PEER_SELF
    assert len(d0.peers) == 0


def test_peers_add_unreachable(node: Node) -> None:
    d0, _, d2, _ = node("devices=4,switch=2")
    with pytest.raises(pl.AccessDenied, match=r"switch 0.*switch 1") as refused:
        d0.peers.add(d2)
    assert refused.value.fault is Fault.PEER_UNREACHABLE
    assert d2 not in d0.peers
    assert d0.why_not(d2)


def test_peers_add_too_many(node: Node) -> None:
    devices = node("devices=10,profile=ascend-a2,memory=2MiB")
    for peer in devices[1:9]:
        devices[0].peers.add(peer)
    with pytest.raises(pl.OutOfMemory, match="8 peers, the most") as refused:
        devices[0].peers.add(devices[9])
    assert refused.value.fault is Fault.OUT_OF_RESOURCES
    assert len(devices[0].peers) == 8


def test_peers_discard_wrong_device(node: Node) -> None:
    old, _ = node()
    d0, d1 = node()
    d0.peers.discard(d1)
    with pytest.raises(pl.InvalidValue, match="another node"):
        d0.peers.discard(old)


def test_buffer_is_made() -> None:
    with pytest.raises(TypeError, match=r"made by Device\.allocate"):
        pl.Buffer(0x1000, 8, False, True)  # type: ignore[call-arg]


def test_enter_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(8)
    a.close()
    with pytest.raises(pl.Closed), a:
        pass


def test_export_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(8)
    a.close()
    for export in (a.__dlpack__, lambda: memoryview(a), lambda: bytes(a)):
        with pytest.raises(pl.Closed):
            export()


def test_trim_gives_back(node: Node) -> None:
    d0, _ = node()
    keep = filled(d0, 4 << 20, 7)
    d0.allocate(8 << 20).close()
    assert pl.trim() >= 8 << 20
    assert pl.trim() == 0
    assert untouched(keep, 7)


def test_close_twice(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(64)
    a.close()
    b = d0.allocate(64)
    a.close()
    assert a.is_closed
    assert not b.is_closed


def test_close_keeps_views(node: Node) -> None:
    d0, _ = node()
    for nbytes in (64, 4 << 20):
        a = filled(d0, nbytes, 5)
        view = a.view()
        a.close()
        others = [filled(d0, nbytes, 6) for _ in range(3)]
        assert (view == 5).all()
        with pytest.raises(pl.Closed):
            a.view()
        del others


def test_copy_from_sizes_differ(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 8, 1)
    with pytest.raises(pl.InvalidValue):
        a.copy_from(b"123456789")
    assert untouched(a, 1)


def test_copy_to_closed(node: Node) -> None:
    d0, _ = node()
    a, target = d0.allocate(8), bytearray(b"12345678")
    a.close()
    with pytest.raises(pl.Closed):
        a.copy_to(target)
    assert target == b"12345678"


def test_buffer_fill_not_a_byte(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="300 is not a byte"):
        d0.allocate(8).fill(300)


def test_view_does_not_fit(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(10)
    with pytest.raises(pl.InvalidValue, match="10 bytes are not a whole number of float32"):
        a.view(np.float32)
    with pytest.raises(pl.InvalidValue, match=r"shape \(3, 2\)"):
        a.view(np.uint8, (3, 2))
    with pytest.raises(pl.InvalidValue, match="not a type of plain bytes"):
        a.view(object)


def test_view_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(10)
    a.close()
    for export in (a.view, lambda: memoryview(a), lambda: np.from_dlpack(a)):
        with pytest.raises(pl.Closed):
            export()


def test_route_to_wrong(node: Node) -> None:
    d0, _ = node()
    old = d0.allocate(8)
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="another node"):
        d0.allocate(8).route_to(old)
    with pytest.raises(TypeError, match="must be a Buffer"):
        d0.allocate(8).route_to(bytearray(8))  # type: ignore[arg-type]


def test_address_closed(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(8)
    part = a[2:4]
    a.close()
    for closed in (a, part):
        with pytest.raises(pl.Closed, match=r"allocated at test_promises.py:\d+"):
            closed.address  # noqa: B018


def test_part_out_of_bounds(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(100)
    with pytest.raises(pl.BadAddress, match="ends 20 bytes beyond") as refused:
        a[50:120]
    assert refused.value.fault is Fault.OUT_OF_BOUNDS
    for start, stop in ((-101, 5), (60, 50), (101, 101)):
        with pytest.raises(pl.BadAddress):
            a[start:stop]
    with pytest.raises(pl.InvalidValue, match="step is 2"):
        a[::2]
    with pytest.raises(TypeError, match="not with int"):
        a[3]  # type: ignore[index]
    with pytest.raises(TypeError):
        a[1.5:3]  # type: ignore[misc]


def test_part_of_closed(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 16, 1)
    part = a[4:8]
    part.close()
    with pytest.raises(pl.Closed, match=r"a part of allocation \d+ .* its own close"):
        part.fill(2)
    assert untouched(a, 1)
    a.close()
    with pytest.raises(pl.Closed):
        a[0:4]

"""Every line of docs/errors.md has a test of its name; this file has those on the node, its devices and copies."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import numpy as np
import pytest

import peerlane as pl
from helpers.prepared import run_python
from helpers.promises import Node, filled, untouched
from peerlane.errors import Fault
from peerlane.rendezvous import Rendezvous, RendezvousServer
from peerlane.support.declared import kept

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
PROMISES = dict.fromkeys(re.findall(r"^\* `([a-z0-9_]+)`:", PAGE, re.MULTILINE))
HEADINGS = {name.rstrip("`") for name in re.findall(r"^## `(.+)$", PAGE, re.MULTILINE)}

THAT_CANNOT_FAIL = {
    *("backend", "caps", "info", "is_closed", "is_idle", "is_recorded", "Rendezvous.address"),
    *(
        "name",
        "nbytes",
        "notifies",
        "ordinal",
        "peer_notifies",
        "rank",
        "size",
        "table",
        "total_bytes",
        "uuid",
    ),
}
CLASSES = {
    *("Buffer", "CopyDescriptor", "Device", "Event", "Host", "Notify", "PeerSet", "Stream", "StreamGroup"),
    *("AddressRange", "AllowList", "Channel", "Group", "Handle", "Physical"),
}
# Headings for special methods and for what native classes give.
BESIDES = {
    *("Buffer", "Buffer.address", "Buffer.__getitem__", "Buffer.__enter__"),
    *(
        "Buffer.__dlpack__`, the buffer protocol",
        "CopyDescriptor",
        "Device",
        "Event",
        "Event.__sub__",
        "Event.__await__",
    ),
    *(
        "Event.__enter__",
        "Notify",
        "Notify.__enter__",
        "Stream",
        "Stream.__enter__",
        "Stream.__await__",
        "StreamGroup",
    ),
    *(
        "StreamGroup.__enter__",
        "AddressRange",
        "AddressRange.__getitem__",
        "AddressRange.__enter__",
        "AllowList",
    ),
    *("Handle", "Handle.__enter__", "Physical", "Rendezvous", "RendezvousServer"),
    *("Channel", "Channel.__enter__", "Group", "Group.__enter__"),
}


def _methods(owner: type) -> set[str]:
    methods = set()
    ours = re.compile(r"peerlane\.(?!_core)")
    python = [base for base in owner.__mro__ if ours.match(base.__module__)]
    for name, member in (pair for base in python for pair in vars(base).items()):
        is_getter = isinstance(member, property) and not isinstance(member, kept)
        fallible = is_getter and not {name, f"{owner.__name__}.{name}"} & THAT_CANNOT_FAIL
        if not name.startswith("_") and (fallible or inspect.isroutine(member)):
            methods.add(f"{owner.__name__}.{name}")
    return methods


def _public() -> set[str]:
    names = {name for name in pl.__all__ if inspect.isfunction(getattr(pl, name))}
    raw = {n: f for n, f in vars(pl.raw).items() if inspect.isfunction(f) and f.__module__ == pl.raw.__name__}
    names |= {f"raw.{n}" for n in raw if not n.startswith("_")}
    names |= {"trace.recording", "Trace.write"}  # the rest of the module cannot fail
    meeting = map(_methods, (Rendezvous, RendezvousServer))
    return names.union(BESIDES, *(_methods(getattr(pl, name)) for name in CLASSES), *meeting)


def test_public_methods_match_headings_of_errors_page() -> None:
    assert _public() == HEADINGS


def test_errors_page_promises_all_have_a_test() -> None:
    files = Path(__file__).parents[1].rglob("test_promises*.py")
    tests = {
        name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text(), re.MULTILINE)
    }
    assert set(PROMISES) <= tests, set(PROMISES) - tests
    assert len(PROMISES) > 40


def test_copy_sizes_differ_raises_invalid_value(node: Node) -> None:
    d0, d1 = node()
    a, b = filled(d0, 100, 1), filled(d1, 60, 2)
    with pytest.raises(pl.InvalidValue, match=r"source has 60 bytes, the destination 100.*\[:60\]"):
        pl.copy(a, b)
    assert untouched(a, 1)


def test_copy_to_read_only_raises_access_denied(node: Node) -> None:
    d0, _ = node()
    target = b"abcd"
    with pytest.raises(pl.AccessDenied, match="read-only") as refused:
        pl.copy(target, filled(d0, 4, 7))
    assert refused.value.fault is Fault.READ_ONLY
    assert target == b"abcd"


def test_copy_with_closed_end_raises_closed(node: Node) -> None:
    d0, _ = node()
    a, b = d0.allocate(64), filled(d0, 64, 3)
    a.close()
    for dst, src in ((a, b), (b, a)):
        with pytest.raises(pl.Closed, match=r"freed by Buffer.close\(\) at test_promises.py:\d+"):
            pl.copy(dst, src)
    assert untouched(b, 3)


def test_copy_end_without_memory_raises_type_error(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(TypeError, match="int has neither the buffer protocol nor DLPack"):
        pl.copy(d0.allocate(8), 5)
    a, stream = d0.allocate(8), d0.create_stream()
    for ends in ((None, a), (a, None)):
        for where in (None, stream):
            with pytest.raises(TypeError, match="NoneType has neither the buffer protocol nor DLPack"):
                pl.copy(*ends, stream=where)
    assert stream.submitted == 0


def test_copy_2d_pitch_below_width_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 64, 1), filled(d0, 64, 2)
    with pytest.raises(pl.InvalidValue, match="source pitch is 7 bytes, less than the width of 8"):
        pl.copy_2d(a, 8, b, 7, 8, 2)
    assert untouched(a, 1)


def test_copy_2d_too_large_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 64, 1), filled(d0, 640, 2)
    with pytest.raises(pl.InvalidValue, match="need 76 bytes; the destination has 64"):
        pl.copy_2d(a, 17, b, 17, 8, 5)
    assert untouched(a, 1)


def test_copy_2d_negative_count_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 64, 1)
    for bad in (-1, 1 << 64):
        with pytest.raises(pl.InvalidValue, match=r"0 to 2\*\*64 - 1"):
            pl.copy_2d(a, 8, a, 8, bad, 2)
    with pytest.raises(TypeError, match="float"):
        pl.copy_2d(a, 8, a, 8.0, 8, 2)  # type: ignore[arg-type]


def test_fill_not_a_byte_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 30, 1)
    for bad in (256, -1, b"abc", b"", b"abcd"):
        with pytest.raises(pl.InvalidValue):
            pl.fill(a, bad)
    with pytest.raises(TypeError):
        pl.fill(a, 1.0)  # type: ignore[arg-type]
    assert untouched(a, 1)


def test_fill_read_only_raises_access_denied() -> None:
    with pytest.raises(pl.AccessDenied, match="read-only"):
        pl.fill(b"abc", 0)


class _OnAnotherDevice:
    def __dlpack__(self) -> None: ...

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_as_buffer_of_foreign_object_raises_type_error() -> None:
    with pytest.raises(TypeError, match="object has neither"):
        pl.as_buffer(object())
    with pytest.raises(TypeError, match=r"DLPack device \(2, 0\)"):
        pl.as_buffer(_OnAnotherDevice())
    with pytest.raises(TypeError, match="holds Python objects"):
        pl.as_buffer(np.array([1.5] * 4, dtype=object))
    with pytest.raises(TypeError, match="holds Python objects"):
        pl.as_buffer(memoryview(np.zeros(2, "i4,O")))


def test_as_buffer_of_strided_object_raises_invalid_value() -> None:
    with pytest.raises(pl.InvalidValue, match="not contiguous"):
        pl.as_buffer(np.zeros((8, 8))[:, ::2])
    with pytest.raises(pl.InvalidValue, match="in C order"):
        pl.as_buffer(np.asfortranarray(np.zeros((3, 4))))
    released = memoryview(b"abc")
    released.release()
    with pytest.raises(pl.InvalidValue, match="does not export its bytes"):
        pl.as_buffer(released)
    assert pl.as_buffer(np.array(["2026-11-21"], dtype="datetime64[D]")).size == 8


def test_devices_asked_at_interpreter_end_raises_closed() -> None:
    code = """
import peerlane as pl

class Late:
    def __del__(self):
        try: pl.devices()
        except pl.Closed as error: print(error)
        try: pl.enter_node("devices=3")
        except pl.Closed as error: print(error)

kept = Late(), pl.devices()
"""
    done = run_python(["-c", code], timeout=30)
    message = "the process is ending: its node was left by an exit handler\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, 2 * message, "")


def test_devices_with_bad_node_variable_raises_bad_config() -> None:
    code = "import peerlane as pl\ntry: pl.devices()\nexcept pl.InvalidValue as e: print(e.fault.name, e)"
    done = run_python(["-c", code], timeout=30, env=os.environ | {"PEERLANE_NODE": "devices=none"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("BAD_CONFIG")
    assert "devices" in done.stdout


def test_enter_node_bad_raises_and_keeps_present_node(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 64, 9)
    with pytest.raises(pl.InvalidValue) as refused:
        pl.enter_node("devices=0")
    assert refused.value.fault is Fault.BAD_CONFIG
    assert untouched(a, 9)
    assert not d0.is_closed


def test_enter_node_mismatch_raises_and_keeps_present_node(node: Node) -> None:
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


def test_enter_node_with_other_window_raises_unsupported(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(pl.Unsupported, match="keeps them"):
        pl.enter_node("devices=2,window_bytes=2GiB")
    name = d0.backend.config.name  # type: ignore[attr-defined]
    with pytest.raises(pl.Unsupported):
        pl.enter_node(f"name={name},devices=3,window_bytes=2GiB")
    assert not d0.is_closed


def test_enter_node_again_alone_with_other_shape_succeeds(node: Node) -> None:
    first = node(f"name=mine-{os.getpid()},devices=2")
    again = node(f"name=mine-{os.getpid()},devices=4")
    assert (len(first), len(again)) == (2, 4)
    assert first[0].is_closed
    kept = filled(again[3], 8, 1)
    assert again[3].free_bytes == again[3].total_bytes - (2 << 20)
    assert untouched(kept, 1)


def test_enter_node_refused_keeps_settings_of_present_node(node: Node) -> None:
    d0, _ = node(f"name=kept-{os.getpid()},devices=2")
    blocked = Path(os.environ["PEERLANE_RUNTIME_DIR"]) / "blocked.node"
    blocked.mkdir()
    try:
        with pytest.raises(pl.Error, match="cannot open the state"):
            pl.enter_node("name=blocked,devices=2,poison=true")
    finally:
        blocked.rmdir()  # the test runs under each schedule in one folder
    assert not (d0.allocate(64).view() == 0xCB).all()


def test_leave_node_closes_buffers_and_devices(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(64)
    pl.leave_node()
    pl.leave_node()
    assert a.is_closed
    assert d0.is_closed
    for call in (lambda: a.address, lambda: d0.free_bytes, a.view):
        with pytest.raises(pl.Closed):
            call()


def test_device_unknown_name_raises_invalid_device(node: Node) -> None:
    node()
    for bad in ("virtual:2", "virtual:-1", "virtual:00", "cuda:0", "", "virtual:" + "9" * 5000, "virtual:٣"):
        with pytest.raises(pl.InvalidValue, match="virtual:0 to virtual:1") as refused:
            pl.Device(bad)
        assert refused.value.fault is Fault.INVALID_DEVICE
    with pytest.raises(TypeError):
        pl.Device(0.0)  # type: ignore[arg-type]


def test_allocate_bad_size_raises_and_charges_nothing(node: Node) -> None:
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


def test_allocate_over_capacity_raises_out_of_memory(node: Node) -> None:
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


def test_allocate_after_leave_node_raises_closed(node: Node) -> None:
    d0, _ = node()
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        d0.allocate(8)


def test_free_bytes_after_leave_node_raises_closed(node: Node) -> None:
    d0, _ = node()
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        d0.free_bytes  # noqa: B018


def test_peers_assigned_raises_attribute_error(node: Node) -> None:
    d0, d1 = node()
    with pytest.raises(AttributeError, match="live set"):
        d0.peers = {d1}  # type: ignore[assignment]
    d0.peers |= {d1}
    assert d1 in d0.peers


def test_can_access_wrong_device_raises(node: Node) -> None:
    old, _ = node()
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="another node") as refused:
        d0.can_access(old)
    assert refused.value.fault is Fault.WRONG_DEVICE
    with pytest.raises(TypeError, match=r"must be a Device such as device\(1\), not int"):
        d0.can_access(1)  # type: ignore[arg-type]


def test_link_wrong_device_raises(node: Node) -> None:
    old, _ = node()
    d0, d1 = node()
    assert (d0.link(d1), d1.link(d0), d0.link(d0)) == ("PIX", "PIX", "X")
    with pytest.raises(pl.InvalidValue, match="another node") as refused:
        d0.link(old)
    assert refused.value.fault is Fault.WRONG_DEVICE
    with pytest.raises(TypeError, match=r"must be a Device such as device\(1\), not str"):
        d0.link("virtual:1")  # type: ignore[arg-type]


def test_why_not_wrong_device_raises(node: Node) -> None:
    old, _ = node()
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="another node"):
        d0.why_not(old)


def test_host_allocate_bad_size_raises(node: Node) -> None:
    node()
    for bad in (0, -5, 1 << 64):
        with pytest.raises(pl.InvalidValue, match=r"Host\.allocate"):
            pl.Host().allocate(bad)
    with pytest.raises(pl.OutOfMemory, match="no room for"):
        pl.Host().allocate(1 << 60)


def test_peers_add_self_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(pl.InvalidValue) as refused:
        d0.peers.add(d0)
    assert refused.value.fault is Fault.PEER_SELF
    assert len(d0.peers) == 0


def test_peers_add_unreachable_raises_access_denied(node: Node) -> None:
    d0, _, d2, _ = node("devices=4,switch=2")
    with pytest.raises(pl.AccessDenied, match=r"switch 0.*switch 1") as refused:
        d0.peers.add(d2)
    assert refused.value.fault is Fault.PEER_UNREACHABLE
    assert d2 not in d0.peers
    assert d0.why_not(d2)


def test_peers_add_too_many_raises_out_of_resources(node: Node) -> None:
    devices = node("devices=10,profile=ascend-a2,memory=2MiB")
    for peer in devices[1:9]:
        devices[0].peers.add(peer)
    with pytest.raises(pl.OutOfMemory, match="8 peers, the most") as refused:
        devices[0].peers.add(devices[9])
    assert refused.value.fault is Fault.OUT_OF_RESOURCES
    assert len(devices[0].peers) == 8


def test_peers_discard_wrong_device_raises_invalid_value(node: Node) -> None:
    old, _ = node()
    d0, d1 = node()
    d0.peers.discard(d1)
    with pytest.raises(pl.InvalidValue, match="another node"):
        d0.peers.discard(old)


def test_trim_gives_back_cached_memory_only(node: Node) -> None:
    d0, _ = node()
    keep = filled(d0, 4 << 20, 7)
    d0.allocate(8 << 20).close()
    assert pl.trim() >= 8 << 20
    assert pl.trim() == 0
    assert untouched(keep, 7)

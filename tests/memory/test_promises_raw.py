"""The promises of docs/errors.md on raw addresses, forks and Ctrl-C."""

from __future__ import annotations

import ctypes

import pytest

import peerlane as pl
from helpers.prepared import run_python
from helpers.promised import overdue
from helpers.promises import Node, filled, untouched
from peerlane.errors import Fault

pytestmark = pytest.mark.schedules_in_turn


def test_raw_copy_unknown_address_raises_naming_the_nearest(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(4 << 20)
    with pytest.raises(pl.BadAddress, match=r"nearest is allocation \d+ .* [0-9,]+ bytes below") as refused:
        pl.raw.copy(a.address + (1 << 40), a.address, 8)
    assert refused.value.fault is Fault.UNKNOWN_ADDRESS


def test_raw_copy_freed_address_raises_naming_the_close(node: Node) -> None:
    d0, _ = node()
    a, b = d0.allocate(4096), d0.allocate(4096)
    address = a.address
    a.close()
    with pytest.raises(
        pl.BadAddress, match=r"source address .* freed by Buffer.close\(\) at test_promises"
    ) as refused:
        pl.raw.copy(b.address, address + 100, 8)
    assert refused.value.fault is Fault.FREED_ADDRESS


def test_raw_copy_beyond_allocation_raises_out_of_bounds(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 1000, 1), filled(d0, 2000, 2)
    with pytest.raises(
        pl.BadAddress, match=r"500 bytes beyond .* starts at byte 500, from where 500"
    ) as refused:
        pl.raw.copy(a.address + 500, b.address, 1000)
    assert refused.value.fault is Fault.OUT_OF_BOUNDS
    assert untouched(a, 1)


def test_raw_copy_null_address_raises_bad_address(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(8)
    with pytest.raises(pl.BadAddress, match="NULL") as refused:
        pl.raw.copy(0, a.address, 8)
    assert refused.value.fault is Fault.NULL_ADDRESS


def test_raw_copy_wild_host_address_raises_host_fault(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 4 << 20, 1)
    for wild in (0x1000, 0xDEAD << 48, (1 << 64) - 4096):
        for nbytes in (8, 2 << 20):
            with pytest.raises((pl.BadAddress, pl.InvalidValue)):
                pl.raw.copy(wild, a.address, nbytes)
            with pytest.raises((pl.BadAddress, pl.InvalidValue)):
                pl.raw.copy(a.address, wild, nbytes)
    with pytest.raises(
        pl.BadAddress, match="source host range of 8 bytes at 0x1000 cannot be touched"
    ) as refused:
        pl.raw.copy(a.address, 0x1000, 8)
    assert refused.value.fault is Fault.HOST_FAULT


def test_raw_copy_negative_number_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(8).address
    for arguments in ((-1, a, 8), (a, 1 << 64, 8), (a, a, -8)):
        with pytest.raises(pl.InvalidValue, match=r"0 to 2\*\*64 - 1"):
            pl.raw.copy(*arguments)
    with pytest.raises(TypeError, match="nbytes must be an int, not str"):
        pl.raw.copy(a, a, "8")  # type: ignore[arg-type]


def test_raw_copy_direct_without_route_raises_access_denied(node: Node) -> None:
    d0, d1 = node()
    a, b = filled(d0, 64, 1), filled(d1, 64, 2)
    with pytest.raises(pl.AccessDenied, match="virtual:0 and virtual:1 have no peer access") as refused:
        pl.raw.copy(a.address, b.address, 64, direct=True)
    assert refused.value.fault is Fault.PEER_NOT_ENABLED
    assert untouched(a, 1)
    d0.peers.add(d1)
    pl.raw.copy(a.address, b.address, 64, direct=True)
    assert untouched(a, 2)


def test_raw_copy_2d_beyond_allocation_raises_out_of_bounds(node: Node) -> None:
    d0, _ = node()
    a, b = filled(d0, 100, 1), filled(d0, 1000, 2)
    with pytest.raises(pl.BadAddress, match="1 bytes beyond") as refused:
        pl.raw.copy_2d(a.address, 20, b.address, 30, 21 - 20, 6)
    assert refused.value.fault is Fault.OUT_OF_BOUNDS
    assert untouched(a, 1)


def test_raw_copy_2d_span_that_wraps_raises_out_of_bounds(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(100).address
    with pytest.raises(pl.InvalidValue) as refused:
        pl.raw.copy_2d(a, (1 << 64) - 1, a, (1 << 64) - 1, 8, 8)
    assert refused.value.fault is Fault.OUT_OF_BOUNDS


def test_raw_fill_bad_width_value_or_range_raises(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 64, 1)
    with pytest.raises(pl.InvalidValue, match="width is 3"):
        pl.raw.fill(a.address, 0, count=4, width=3)
    for value, width in ((300, 1), (1 << 40, 4), (-1, 1)):
        with pytest.raises(pl.InvalidValue):
            pl.raw.fill(a.address, value, count=4, width=width)
    with pytest.raises(pl.BadAddress, match="beyond"):
        pl.raw.fill(a.address, 0, count=17, width=4)
    assert untouched(a, 1)


def test_raw_view_of_unusable_address_raises_bad_address(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(64)
    address = a.address
    host = ctypes.create_string_buffer(8)
    cases = [
        (address, 65, Fault.OUT_OF_BOUNDS),
        (0, 1, Fault.NULL_ADDRESS),
        (ctypes.addressof(host), 8, Fault.UNKNOWN_ADDRESS),
        (address + (1 << 40), 1, Fault.UNKNOWN_ADDRESS),
    ]
    for at, nbytes, fault in cases:
        with pytest.raises(pl.BadAddress) as refused:
            pl.raw.view(at, nbytes)
        assert refused.value.fault is fault
    a.close()
    with pytest.raises(pl.BadAddress) as refused:
        pl.raw.view(address, 1)
    assert refused.value.fault is Fault.FREED_ADDRESS
    with pytest.raises(pl.InvalidValue):
        pl.raw.view(-1, 1)
    with pytest.raises(TypeError):
        pl.raw.view("x", 1)  # type: ignore[arg-type]


def test_raw_buffer_of_unusable_address_raises_bad_address(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 64, 0)
    address = a.address
    host, pinned = ctypes.create_string_buffer(8), pl.Host().allocate(64)
    cases = [
        (address, 65, Fault.OUT_OF_BOUNDS),
        (0, 1, Fault.NULL_ADDRESS),
        (ctypes.addressof(host), 8, Fault.UNKNOWN_ADDRESS),
        (pinned.address, 8, Fault.UNKNOWN_ADDRESS),
        (address + (1 << 40), 1, Fault.UNKNOWN_ADDRESS),
    ]
    for at, nbytes, fault in cases:
        with pytest.raises(pl.BadAddress) as refused:
            pl.raw.buffer(at, nbytes)
        assert refused.value.fault is fault
    part = pl.raw.buffer(address + 8, 16)
    part.fill(3)
    assert bytes(a)[7:25] == b"\0" + b"\3" * 16 + b"\0"
    assert (part.address, part.device) == (address + 8, d0)
    part.close()
    assert not a.is_closed
    other = pl.raw.buffer(address, 64)
    a.close()
    with pytest.raises(pl.Closed):
        other.fill(1)
    with pytest.raises(pl.BadAddress) as refused:
        pl.raw.buffer(address, 1)
    assert refused.value.fault is Fault.FREED_ADDRESS
    with pytest.raises(pl.InvalidValue):
        pl.raw.buffer(-1, 1)
    with pytest.raises(TypeError):
        pl.raw.buffer("x", 1)  # type: ignore[arg-type]


def test_locate_freed_or_unknown_address_raises_bad_address(node: Node) -> None:
    d0, _ = node()
    a = d0.allocate(64)
    address = a.address
    assert pl.raw.locate(address + 63).ordinal == 0
    a.close()
    with pytest.raises(pl.BadAddress) as refused:
        pl.raw.locate(address)
    assert refused.value.fault is Fault.FREED_ADDRESS
    with pytest.raises(pl.BadAddress) as refused:
        pl.raw.locate(address + (1 << 40))
    assert refused.value.fault is Fault.UNKNOWN_ADDRESS
    with pytest.raises(TypeError):
        pl.raw.locate("x")  # type: ignore[arg-type]


def test_fork_makes_child_access_to_views_crash() -> None:
    code = """
import os, peerlane as pl
d = pl.devices()[0]
a, big, host = d.allocate(8), d.allocate(4 << 20), pl.Host().allocate(8)
r = pl.AddressRange(d, 2 << 20); r.map(pl.Physical(d, 2 << 20))
for views in ([b.view(), memoryview(b)] for b in (a, big, r[:8], host)):
    for view in views:
        if os.fork() == 0:
            view[0]
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]), end=" ")
"""
    done = run_python(["-c", code], timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["-11"] * 6 + ["0"] * 2


def test_fork_after_use_refuses_calls_of_the_child() -> None:
    code = """
import os, peerlane as pl
if os.fork() == 0:                      # before the first call: harmless
    pl.devices()[0].allocate(8).fill(1)
    os._exit(0)
assert os.wait()[1] == 0
a = pl.devices()[0].allocate(8)
d = pl.devices()[0]
b, big = d.allocate(8), d.allocate(4 << 20)
view = big.view()
p = a.address
big.close()                             # the view alone keeps it
if os.fork() == 0:
    refused = 0
    calls = [pl.devices, lambda: d.allocate(8), lambda: d.free_bytes, lambda: a.fill(1),
             lambda: pl.copy(a, a), a.view,
             lambda: pl.raw.copy(p, p, 1), lambda: pl.raw.locate(p), pl.trim, lambda: pl.Host().allocate(8),
             lambda: pl.enter_node("devices=3"), lambda: pl.copy(bytearray(3), b"abc")]
    for call in calls:
        try: call()
        except pl.Closed as e: refused += e.fault is pl.Fault.FORKED
    with b: del view, a                 # leaving, closing and dropping do nothing here
    pl.leave_node()
    sys.exit(refused != len(calls) and refused + 100)
print(os.waitstatus_to_exitcode(os.wait()[1]))
a.fill(2)
assert (view[:] == view[0]).all() and d.free_bytes == d.total_bytes - (2 << 20) - (4 << 20)
"""
    done = run_python(["-c", code.replace("import os, peerlane", "import os, sys, peerlane")], timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_fork_before_use_lets_the_child_join_the_node() -> None:
    code = """
import os, peerlane as pl
d = pl.devices()[0]
asked = d.total_bytes, d.uuid, d.free_bytes, d.can_access(pl.devices()[1]), d.peers, pl.Device("virtual:1")
for _ in range(2):
    if os.fork() == 0:
        assert pl.devices()[0] is d and d.free_bytes == asked[2]
        with d.allocate(3 << 20) as a, d.create_stream() as s:
            a.fill(7, stream=s)
            s.sync(timeout=20)
            assert (a.view() == 7).all() and d.free_bytes == asked[2] - (4 << 20)
        os._exit(0)
    assert os.wait()[1] == 0
d.allocate(8).close()
if os.fork() == 0:
    try: pl.devices()
    except pl.Closed as e: os._exit(e.fault is not pl.Fault.FORKED)
    os._exit(2)
assert os.wait()[1] == 0 and d.free_bytes == asked[2]
"""
    done = run_python(["-W", "ignore", "-c", code], timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_ctrl_c_during_copies_stops_them_soon() -> None:
    code = """
import os, signal, threading, time, peerlane as pl
d0, d1 = pl.devices()
a, b = d0.allocate(1 << 30), d1.allocate(1 << 30)     # staged: slow enough to be met in the middle
a.fill(1)
for k in range(20):
    sent = []
    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    try:
        threading.Timer(0.05, interrupt).start()
        while True: pl.copy(b, a)
    except KeyboardInterrupt:
        print(time.monotonic() - sent[0])
        break
b[:4096].copy_from(a[:4096])
print(bytes(b[:2].view()) == b"\\1\\1")
"""
    done = run_python(["-c", code], timeout=60)
    assert done.returncode == 0, done.stderr
    seconds, works = done.stdout.split()
    print(f"Ctrl-C was seen after {float(seconds):.3f} s (promised: 1 s)")
    assert float(seconds) < overdue(1.0)
    assert works == "True"


def test_raw_copy_host_range_with_unmapped_end_writes_nothing(node: Node) -> None:
    d0 = node()[0]
    buffer = filled(d0, 4096, 7)
    pinned = [pl.Host().allocate(4 << 20) for _ in range(4)]
    for number, each in enumerate(pinned):
        each.fill(number + 1)
    lowest = min(each.address for each in pinned)
    for dst, src, nbytes in (
        (2 << 20, 3, lowest + (2 << 20)),  # a backward copy over all mapped memory, down to the first page
        (lowest - (1 << 30), 1 << 12, 2 << 30),
        (buffer.address, 1 << 20, 4096),
        (1 << 12, buffer.address - (8 << 20), 16 << 20),
    ):
        with pytest.raises(pl.BadAddress):
            pl.raw.copy(dst, src, nbytes)
    for number, each in enumerate(pinned):
        assert (each.view() == number + 1).all()
    assert (buffer.view() == 7).all()


def test_raw_copy_unknown_address_names_nearest_of_same_window(node: Node) -> None:
    d0 = node("devices=2,memory=64MiB")[0]
    buffer, host = d0.allocate(4096), pl.Host().allocate(4096)
    with pytest.raises(pl.BadAddress, match=r"the nearest is .*\(4,096 bytes at " + f"{buffer.address:#x}"):
        pl.raw.copy(host.address, buffer.address + (1 << 36), 50)

"""The text of a failure on a stream names the operation, its memory, its stream, and the line of each."""

from __future__ import annotations

import pickle
import sys
import weakref
from collections.abc import Callable
from types import CodeType

import pytest

import peerlane as pl
from peerlane import _core, raw

pytestmark = pytest.mark.timeout(60)

WILD = 0x1000
Node = tuple[pl.Device, ...]


def this_line(back: int = 0) -> str:
    """Return the calling line as messages name it, or one ``back`` lines before it."""
    return f"{__file__.rpartition('/')[2]}:{sys._getframe(1).f_lineno - back}"


@pytest.fixture
def node() -> Node:
    pl.leave_node()
    return pl.devices()


def failure_of(call: Callable[[], object], kind: type[pl.Error] = pl.BadAddress) -> str:
    with pytest.raises(kind) as failed:
        call()
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)
    return str(failed.value)


def test_failed_copy_names_both_ends_and_three_lines(node: Node) -> None:
    stream = node[0].create_stream()
    line = this_line(1)
    buffer = node[0].allocate(256)
    allocated = this_line(1)
    raw.copy(buffer.address + 64, WILD, 128, stream=stream)
    submitted = this_line(1)
    text = failure_of(stream.sync)
    assert text.startswith(
        f"operation 1 (copy) of stream {stream.id}: source host range of 128 bytes at 0x1000"
    )
    assert text.endswith(
        f" [128 bytes from 0x1000 in host memory to {buffer.address + 64:#x} (byte 64 of allocation {buffer.id} (256 "
        f"bytes at {buffer.address:#x} on virtual:0, allocated at {allocated})); submitted at {submitted}; "
        f"stream {stream.id} on virtual:0, made at {line}]"
    )


def test_failed_copy_to_buffer_freed_meanwhile_names_the_close(node: Node) -> None:
    a, b = node[0].allocate(64), node[0].allocate(64)
    with node[0].create_stream() as stream:
        gate = node[0].create_notify()
        stream.wait(gate)
        raw.copy(a.address, WILD, 64, stream=stream)
        a.close()
        closed = this_line(1)
        gate.record()
        assert f"which was freed by Buffer.close() at {closed}" in failure_of(stream.sync)
        raw.copy(b.address, WILD, 64, stream=stream)
        assert "which was freed" not in failure_of(stream.sync)


@pytest.mark.parametrize("count", [1, 64, 500])
def test_failed_copy_among_many_names_its_own_line(node: Node, count: int) -> None:
    buffer = node[0].allocate(64)
    stream = node[0].create_stream(on_error="continue")
    gate = node[0].create_notify()
    stream.wait(gate)
    for _ in range(count):
        pl.copy(buffer, bytes(64), stream=stream)
    raw.copy(buffer.address, WILD, 64, stream=stream)
    bad = this_line(1)
    for _ in range(count):
        pl.copy(buffer, bytes(64), stream=stream)
    gate.record()
    text = failure_of(stream.sync)
    assert text.startswith(f"operation {count + 2} (copy)") and f"submitted at {bad};" in text
    stream.close()


def test_cancelled_wait_names_line_of_failed_copy_and_its_own(node: Node) -> None:
    first, second = node[0].create_stream(), node[1].create_stream()
    buffer = node[0].allocate(64)
    gate = node[0].create_notify()
    first.wait(gate)
    raw.copy(buffer.address, WILD, 64, stream=first)
    bad = this_line(1)
    event = first.record()
    second.wait(event)
    waiting = this_line(1)
    gate.record()
    text = failure_of(second.sync, pl.Cancelled)
    assert f"submitted at {bad};" in text and f"submitted at {waiting};" in text
    failure_of(first.sync)


def test_failed_operation_of_each_kind_names_range_and_line(node: Node) -> None:
    stream = node[0].create_stream(on_error="continue")
    buffer = node[0].allocate(4096)
    stream.wait(node[0].create_notify(), timeout=0.01)
    assert f"[submitted at {this_line(1)}; stream" in failure_of(stream.sync, pl.WaitTimeout)

    def bad() -> None:
        raise LookupError("no")

    stream.launch_callback(bad)
    submitted = this_line(1)
    with pytest.raises(pl.DeviceFault, match=rf"raised LookupError: no \[submitted at {submitted}") as failed:
        stream.sync()
    assert isinstance(failed.value.__cause__, LookupError)
    raw.copy_2d(buffer.address, 64, WILD, 32, 32, 4, stream=stream)
    text = failure_of(stream.sync)
    assert f"[4 rows of 32 bytes from 0x1000 in host memory to {buffer.address:#x} (start of" in text
    raw.reduce(buffer.address + 8, WILD, 4, dtype="int64", stream=stream)
    text = failure_of(stream.sync)
    assert "(reduction) of stream" in text
    assert f"[32 bytes of 0x1000 in host memory into {buffer.address + 8:#x} (byte 8 of" in text
    assert f"submitted at {this_line(4)}; stream" in text
    raw.wait_value(buffer.address + 8, 1, stream=stream, timeout=0.01)
    text = failure_of(stream.sync, pl.WaitTimeout)
    assert f"[the word at {buffer.address + 8:#x} (byte 8 of" in text
    raw.fill(WILD, 1, count=16, stream=stream)
    assert "[16 bytes at 0x1000 in host memory; submitted at" in failure_of(stream.sync)
    buffer.fill(0)
    raw.launch_descriptor(buffer.address, 64, stream=stream)
    text = failure_of(stream.sync, pl.InvalidValue)
    assert (
        f"[the copy list at {buffer.address:#x} (start of" in text and f"submitted at {this_line(3)}" in text
    )


def test_failed_copy_to_mapped_or_pinned_memory_names_program_address(node: Node) -> None:
    with (
        node[0].create_stream(on_error="continue") as stream,
        pl.AddressRange(node[0], node[0].granularity) as addresses,
    ):
        physical = pl.Physical(node[0], node[0].granularity)
        addresses.map(physical)
        raw.copy(addresses.address + 16, WILD, 64, stream=stream)
        assert f" to {addresses.address + 16:#x} (" in failure_of(stream.sync)
        pinned = pl.Host().allocate(64)
        raw.copy(pinned.address + 8, WILD, 8, stream=stream)
        assert f" to {pinned.address + 8:#x} (byte 8 of allocation {pinned.id}" in failure_of(stream.sync)
        physical.close()


def test_aborted_wait_names_its_line(node: Node) -> None:
    a, b = node[0].allocate(64), node[0].allocate(64)
    stream = node[0].create_stream()
    gate = node[0].create_notify()
    stream.wait(gate)
    pl.copy(a, b, stream=stream)
    stream.abort()
    assert "submitted at" in failure_of(stream.sync, pl.Cancelled)  # the wait
    stream.close()


def test_submit_lines_of_many_code_objects_do_not_keep_them_alive(node: Node) -> None:
    buffer, host = node[0].allocate(64), bytearray(64)
    stream = node[0].create_stream()
    names = {"raw": raw, "dst": buffer.address, "src": pl.as_buffer(host).address, "stream": stream}
    raw.copy(buffer.address, WILD, 8, stream=stream)
    bad = this_line(1)
    streams = []
    for number in range(10_000):
        code = compile(f"raw.copy(dst, src, 8, stream=stream)  # {number}", f"{number}.py", "exec")
        exec(code, names)
        streams.append(weakref.ref(code))
    del code
    text = failure_of(stream.sync)
    assert "submitted at" not in text or f"submitted at {bad};" in text
    assert sum(each() is not None for each in streams) <= 4096
    assert _core.site(0) is None and _core.site(1 << 62) is None


def test_lines_of_hundreds_of_code_objects_are_all_known() -> None:
    codes = [compile("number = core.site_number()", f"{number}.py", "exec") for number in range(400)]
    sites = []
    for code in codes:
        names = {"core": _core}
        exec(code, names)
        sites.append(names["number"])
    assert [_core.site(each)[0].co_filename for each in sites] == [code.co_filename for code in codes]


def test_closed_stream_error_names_lines_that_created_and_closed_it(node: Node) -> None:
    stream = node[0].create_stream()
    line = this_line(1)
    stream.close()
    closed = this_line(1)
    buffer = node[0].allocate(8)
    text = failure_of(lambda: pl.copy(buffer, buffer, stream=stream), pl.Closed)
    assert f"was closed (made at {line}, closed at {closed}); it takes no more" in text
    with node[0].create_stream() as other:
        pass
    assert "closed at test_failed_operations.py" in failure_of(
        lambda: pl.copy(buffer, buffer, stream=other), pl.Closed
    )


def test_call_site_of_caller_gives_its_line() -> None:
    site = _core.call_site()
    assert site is not None
    code, offset = site
    assert isinstance(code, CodeType) and code is sys._getframe().f_code
    assert _core.line_of(code, offset) == sys._getframe().f_lineno - 4


def test_failed_copy_from_callback_names_line_of_callback(node: Node) -> None:
    """The thread that runs callbacks has no frame outside peerlane except the callback's own."""
    stream, other = node[0].create_stream(), node[0].create_stream()
    buffer = node[0].allocate(64)
    stream.launch_callback(raw.copy, buffer.address, WILD, 64)
    assert "raised BadAddress" in failure_of(stream.sync, pl.DeviceFault)
    other.launch_callback(lambda: raw.copy(buffer.address, WILD, 64, stream=stream))
    other.sync()
    assert f"submitted at {this_line(2)}" in failure_of(stream.sync)

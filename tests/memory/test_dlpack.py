"""Tensors lent by DLPack: each type is taken without a copy and given back once."""

from __future__ import annotations

import contextlib
import gc
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.dlpack_producers import PADDED, READ_ONLY, OldProducer, Producer, memory
from helpers.promises import Node, parked

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]

# (code, bits, lanes): integers, floats, bfloat16, complex, bool, float8, float6, float4, complex of two bfloat16,
# an unknown one, vectors.
TYPES = [
    *((code, bits, 1) for code in (0, 1) for bits in (8, 16, 32, 64, 128)),
    *((2, bits, 1) for bits in (16, 32, 64, 128)),
    *((4, 16, 1), (5, 32, 1), (5, 64, 1), (5, 128, 1), (6, 8, 1)),
    *((code, 8, 1) for code in range(7, 15)),
    *(
        (15, 6, 1),
        (16, 6, 1),
        (17, 4, 1),
        (17, 4, 2),
        (18, 32, 1),
        (200, 24, 1),
        (2, 32, 4),
        (0, 1, 8),
        (6, 1, 1),
    ),
]


@pytest.mark.parametrize("version", [(1, 0), (1, 7), None], ids=["1.0", "1.7", "unversioned"])
@pytest.mark.parametrize("element", TYPES, ids=str)
def test_tensor_of_each_element_type_copies_in_both_directions(
    node: Node, element: tuple[int, int, int], version: tuple[int, int] | None
) -> None:
    d0, _ = node()
    shape = (2, 3, 4)
    _, bits, lanes = element
    content = bytes(np.random.default_rng(bits).integers(0, 256, 24 * bits * lanes // 8, dtype=np.uint8))
    source, target = memory(content), memory(bytes(len(content)))
    lenders = [Producer(each, shape, element=element, version=version) for each in (source, target)]
    with d0.allocate(len(content)) as buffer:
        buffer.copy_from(lenders[0])
        assert bytes(buffer.view()) == content
        buffer.copy_to(lenders[1])
    assert bytes(target) == content
    assert [each.returned for each in lenders] == [1, 1]


@pytest.mark.parametrize("version", [(1, 0), None])
def test_as_buffer_of_tensor_shares_its_memory(version: tuple[int, int] | None) -> None:
    held = memory(bytes(range(24)))
    lender = Producer(held, (4, 5), byte_offset=4, strides=(5, 1), version=version)
    buffer = pl.as_buffer(lender)
    assert (buffer.size, bytes(buffer.view())) == (20, bytes(range(4, 24)))
    held[4] = 99
    assert buffer.view()[0] == 99
    buffer.fill(7)
    assert bytes(held) == bytes(range(4)) + b"\7" * 20


@pytest.mark.parametrize(
    ("shape", "strides", "element", "flags", "nbytes"),
    [
        ((), None, (2, 32, 1), 0, 4),
        ((), (), (2, 32, 1), 0, 4),
        ((3, 4), None, (2, 16, 1), 0, 24),
        ((1, 3, 1), (77, 1, -5), (2, 16, 1), 0, 6),
        ((5, 0), (9, 9), (2, 16, 1), 0, 0),
        ((0, 1 << 62, 1 << 62), None, (2, 16, 1), 0, 0),
        ((7,), None, (17, 4, 2), 0, 7),
        ((6,), None, (17, 4, 1), 0, 3),
        ((5,), None, (17, 4, 1), PADDED, 5),
        ((8,), None, (6, 1, 1), 0, 1),
        ((4,), None, (15, 6, 1), 0, 3),
        ((3,), None, (0, 12, 1), 0, 6),
    ],
)
def test_as_buffer_of_tensor_shape_has_expected_size(
    shape: Any, strides: Any, element: tuple[int, int, int], flags: int, nbytes: int
) -> None:
    held = memory(bytes(range(32)))
    buffer = pl.as_buffer(Producer(held, shape, strides=strides, element=element, flags=flags))
    assert (buffer.size, bytes(buffer.view())) == (nbytes, bytes(range(nbytes)))


def test_copy_of_empty_tensor_at_null_succeeds(node: Node) -> None:
    d0, _ = node()
    buffer, stream = d0.allocate(8), d0.create_stream()
    for where in (None, stream):
        pl.copy(Producer(None, (0, 3)), buffer[:0], stream=where)
        pl.copy(buffer[:0], Producer(None, (0,), version=None), stream=where)
        pl.copy_batch([buffer[:0]], [Producer(None, (0,))], stream=where)
    stream.sync()
    assert bytes(pl.as_buffer(Producer(None, (0,))).view()) == b""


@pytest.mark.parametrize("kind", [1, 3, 11])
def test_as_buffer_of_foreign_pinned_tensor_is_host_memory(kind: int) -> None:
    assert bytes(pl.as_buffer(Producer(memory(b"abc"), (3,), device=(kind, 0))).view()) == b"abc"


def test_as_buffer_asks_producer_for_version_and_no_copy() -> None:
    lender = Producer(memory(b"abc"), (3,))
    pl.as_buffer(lender)
    assert lender.options["max_version"] >= (1, 0)
    assert lender.options["copy"] is False
    assert bytes(pl.as_buffer(OldProducer(memory(b"abc"), (3,), version=None)).view()) == b"abc"


def test_tensor_lent_is_returned_once_after_last_use() -> None:
    lender = Producer(memory(bytes(range(8))), (8,))
    whole = pl.as_buffer(lender)
    part, view = whole[2:4], whole.view()
    whole.close()
    del whole
    gc.collect()
    assert bytes(part.view()) == b"\2\3"
    del part
    gc.collect()
    assert (lender.returned, bytes(view)) == (0, bytes(range(8)))
    del view
    gc.collect()
    assert lender.returned == 1


def test_tensor_lent_to_queued_copy_is_kept_until_it_ran(node: Node) -> None:
    d0, _ = node()
    stream, buffer = d0.create_stream(), d0.allocate(4)
    lender, target = Producer(memory(b"abcd"), (4,)), Producer(memory(bytes(4)), (4,))
    gate = parked(stream)
    pl.copy(buffer, lender, stream=stream)
    buffer.copy_to(target, stream=stream)
    gc.collect()
    assert (lender.returned, target.returned) == (0, 0)
    gate.record()
    stream.sync()
    stream.close()
    gc.collect()
    assert (lender.returned, target.returned) == (1, 1)


def test_tensor_lent_to_refused_call_is_returned_once(node: Node) -> None:
    d0, _ = node()
    buffer = d0.allocate(4)
    calls: list[tuple[type[Exception], Callable[[Any], object]]] = [
        (pl.InvalidValue, lambda lender: buffer.copy_from(lender)),
        (pl.InvalidValue, lambda lender: pl.copy_batch([buffer], [lender])),
        (TypeError, lambda lender: pl.copy_batch([buffer, buffer], [lender, 5])),
        (pl.InvalidValue, lambda lender: pl.reduce(buffer, lender, dtype="int8")),
        (pl.InvalidValue, lambda lender: pl.copy_2d(buffer, 4, lender, 4, 4, 2)),
        (TypeError, lambda lender: pl.copy(lender, None)),
    ]
    for error, call in calls:
        for version in ((1, 0), None):
            lender = Producer(memory(b"abc"), (3,), version=version)
            with pytest.raises(error):
                call(lender)
            gc.collect()
            assert lender.returned == 1


def test_tensor_without_deleter_is_read_and_not_returned() -> None:
    for version in ((1, 0), None):
        lender = Producer(memory(b"abc"), (3,), version=version, deletes=False)
        assert bytes(pl.as_buffer(lender).view()) == b"abc"
        gc.collect()
        assert lender.returned == 0


def test_tensor_lent_is_returned_by_another_thread() -> None:
    lender = Producer(memory(b"abc"), (3,))
    held = [pl.as_buffer(lender)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join(10)
    assert lender.returned == 1


_AT_EXIT = """
import ctypes, sys
sys.path.insert(0, {tests!r})
import peerlane as pl
from helpers.dlpack_producers import Producer, memory

lender = Producer(memory(b"abc"), (3,))
# A deleter of C, as libraries have; it prints the first field, which is the version: 1.
lender.managed.deleter = ctypes.cast(ctypes.CDLL(None).puts, type(lender.managed.deleter))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(lender.managed))
buffer = pl.as_buffer(lender)
{body}
"""


@pytest.mark.parametrize("body", ["", "view = buffer.view()", "part = buffer[:1]", "raise SystemExit(0)"])
def test_tensor_held_at_exit_is_returned_once(body: str) -> None:
    program = _AT_EXIT.format(tests=str(Path(__file__).parents[1]), body=body)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\1\n", "")


class _Mute(pl.raw.Exporter):
    """An exporter whose buffer protocol raises, as NumPy does for element types without a format letter."""

    def __init__(self, lender: Producer, error: type[Exception]) -> None:
        self._lender, self._error = lender, error

    def _exported(self) -> object:
        raise self._error("cannot include dtype 'E' in a buffer")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._lender.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._lender.__dlpack__(**options)


def test_unversioned_tensor_without_buffer_protocol_is_read_only() -> None:
    for version, may_write in ((None, False), ((1, 0), True)):
        held = memory(b"dlpack")
        lender = Producer(held, (6,), version=version)
        pl.copy(lender, b"plain.")
        with contextlib.nullcontext() if may_write else pytest.raises(pl.AccessDenied, match="read-only"):
            pl.copy(_Mute(lender, BufferError), b"muted.")
        assert bytes(held) == (b"muted." if may_write else b"plain.")


class _Both(_Mute):
    def _exported(self) -> object:
        return b"buffer"


def test_as_buffer_prefers_buffer_protocol_over_dlpack() -> None:
    lender = Producer(memory(b"dlpack"), (6,))
    assert bytes(pl.as_buffer(_Both(lender, ValueError)).view()) == b"buffer"
    for error in (ValueError, BufferError, TypeError):
        assert bytes(pl.as_buffer(_Mute(lender, error)).view()) == b"dlpack"

    class Closed(pl.raw.Exporter):
        def _exported(self) -> object:
            raise ValueError("mmap closed")

    with pytest.raises(pl.InvalidValue, match="the Closed does not export its bytes: mmap closed"):
        pl.as_buffer(Closed())


def test_each_operation_takes_a_lent_tensor(node: Node) -> None:
    d0, _ = node()
    stream = d0.create_stream()
    source, target = memory(bytes(range(8))), memory(bytes(8))
    lender, taker = (Producer(each, (4,), element=(4, 16, 1)) for each in (source, target))
    a, b = d0.allocate(8), d0.allocate(8)
    for where in (None, stream):
        pl.fill(taker, 0)
        pl.copy_batch([a, taker], [lender, lender], stream=where)
        stream.sync()
        assert bytes(a.view()) == bytes(target) == bytes(source)
        b.fill(0)
        pl.copy_2d(b, 4, lender, 4, 2, 2, stream=where)
        stream.sync()
        assert bytes(b.view()) == b"\0\1\0\0\4\5\0\0"
        pl.reduce(taker, lender, dtype="uint8", stream=where)
        stream.sync()
        assert bytes(target) == bytes(range(0, 16, 2))


def test_read_only_tensor_is_copied_as_source(node: Node) -> None:
    d0, _ = node()
    lender = Producer(memory(b"abcd"), (4,), flags=READ_ONLY)
    buffer = d0.allocate(4)
    buffer.copy_from(lender)
    assert bytes(buffer.view()) == b"abcd"
    assert memoryview(pl.as_buffer(lender)).readonly


def test_arrays_and_tensors_guide_program_runs(node: Node) -> None:
    node()
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "arrays-and-tensors.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["weights"].tolist() == list(range(8))
    assert names["buffer"].is_closed

"""Views tell the event log which bytes the host reads and writes, and else behave as plain arrays."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import peerlane as pl
from helpers.promises import Node
from peerlane import _core
from peerlane.diagnostics.hooks import numpy_views
from peerlane.diagnostics.log import event_log, log_files

pytestmark = pytest.mark.any_schedule

SIZE = 4096
NAMES = ("read", "written", "unknown")
Bytes = tuple[str, frozenset[int]]


class Recorded:
    """The accesses that the log was told, as sets of bytes of one place."""

    def __init__(self, logs: Path) -> None:
        event_log.begin(logs, capacity=1 << 26)
        (path,) = logs.glob("*.log")
        self._reader = _core.LogReader(str(path))
        self._origin: tuple[int, int] | None = None

    def count_from(self, address: int) -> None:
        """Count bytes from an address on."""
        self.clear()
        event_log.host_access(event_log.READ, address, 1)
        ((_, _, ((block, offset, _, _),), _),) = self._take()
        self._origin = block, offset

    def clear(self) -> None:
        self._take()

    def accesses(self) -> list[Bytes]:
        """Return the accesses since the last call, of bytes in the same block."""
        elements = []
        for is_alias, flags, spans, rows in self._take():
            touched = set()
            for at, (block, offset, size, _) in enumerate(spans):
                assert self._origin is not None and block == self._origin[0]
                first = offset - self._origin[1]
                pitch, width, height = rows[at] if rows else (0, size, 1)
                touched.update(first + pitch * row + each for row in range(height) for each in range(width))
            kind = "unknown" if flags & log_files.UNKNOWN else "written" if spans[0][3] else "read"
            alias = "given back" if flags & log_files.END else "lent"
            elements.append((alias if is_alias else kind, frozenset(touched)))
        return elements

    def _take(self) -> list[tuple[bool, int, Any, Any]]:
        _core.log_settle()  # the newest event may not grow any more
        return [
            (kind == "view", event[1], event[10], event[11])
            for event in self._reader.take(also_open=True)
            if (kind := log_files.KINDS[event[0]]) in ("host_access", "view")
        ]


@pytest.fixture
def buffer(node: Node) -> Iterator[pl.Buffer]:
    (device,) = node("devices=1")
    with device.allocate(SIZE) as allocated:
        allocated.view("int32")[:] = np.arange(SIZE // 4)
        yield allocated


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Recorded]:
    yield Recorded(tmp_path)
    event_log.end()


@pytest.fixture
def recorded(buffer: pl.Buffer, log: Recorded) -> Recorded:
    log.count_from(np.frombuffer(memoryview(buffer), np.uint8).__array_interface__["data"][0])
    return log


def some(first: int, end: int) -> frozenset[int]:
    return frozenset(range(first, end))


def rows(first: int, width: int, pitch: int, height: int) -> frozenset[int]:
    return frozenset(first + pitch * row + at for row in range(height) for at in range(width))


ALL = some(0, SIZE)
ONE = [("read", ALL)]
# Of a view `v` of 1,024 int32, and `m`, the same bytes as 32 rows of 32.
READS: dict[str, tuple[Callable[[Any, Any], Any], list[Bytes]]] = {
    "element": (lambda v, m: v[3], [("read", some(12, 16))]),
    "last element": (lambda v, m: v[-1], [("read", some(SIZE - 4, SIZE))]),
    "element by a NumPy number": (lambda v, m: v[np.int64(3)], [("read", some(12, 16))]),
    "element of two axes": (lambda v, m: m[1, -1], [("read", some(252, 256))]),
    "element of a part": (lambda v, m: v[8:][2], [("read", some(40, 44))]),
    "element of a row": (lambda v, m: m[2][3], [("read", some(268, 272))]),
    "part": (lambda v, m: v[2:5], []),
    "part that is added up": (lambda v, m: v[2:5].sum(), [("read", some(8, 20))]),
    "every second": (lambda v, m: v[::2].max(), [("read", rows(0, 4, 8, 512))]),
    "backwards": (lambda v, m: v[4:0:-1].tolist(), [("read", some(4, 20))]),
    "column": (lambda v, m: m[:, 2].copy(), [("read", rows(8, 4, 128, 32))]),
    "rectangle": (lambda v, m: m[1:3, 2:4].mean(), [("read", rows(136, 8, 128, 2))]),
    "transposed": (lambda v, m: m.T[2].tolist(), [("read", rows(8, 4, 128, 32))]),
    "windows": (
        lambda v, m: np.lib.stride_tricks.sliding_window_view(v[:6], 3).sum(),
        [("read", some(0, 24))],
    ),
    "numbers": (lambda v, m: v[[1, 2, 3, 9]], [("read", some(4, 16) | some(36, 40))]),
    "rows by numbers": (lambda v, m: m[[0, 5], 1:3], [("read", rows(4, 8, 640, 2))]),
    "mask": (lambda v, m: m[np.eye(32, dtype=bool)], [("read", rows(0, 4, 132, 32))]),
    "take": (lambda v, m: v.take([3, 4]), [("read", some(12, 20))]),
    "np.take": (lambda v, m: np.take(m, 2, axis=1), [("read", rows(8, 4, 128, 32))]),
    "item": (lambda v, m: m.item(33), [("read", some(132, 136))]),
    "trace": (lambda v, m: np.trace(m), [("read", rows(0, 4, 132, 32))]),
    "iteration": (lambda v, m: list(v[:2]), [("read", some(0, 4)), ("read", some(4, 8))]),
    "comparison": (lambda v, m: (v[:4] == 7).all(), [("read", some(0, 16))]),
    "sum of two": (lambda v, m: v[:2] + v[4:6], [("read", some(0, 8)), ("read", some(16, 24))]),
    "masked sum": (lambda v, m: np.add.reduce(v, where=np.arange(1024) < 3), [("read", some(0, 12))]),
    "np.sum": (lambda v, m: np.sum(m), ONE),
    "np.concatenate": (
        lambda v, m: np.concatenate([v[:1], v[4:5]]),
        [("read", some(0, 4)), ("read", some(16, 20))],
    ),
    "np.array_equal": (lambda v, m: np.array_equal(v[:1], [0]), [("read", some(0, 4))]),
    "np.split": (lambda v, m: np.split(v, 2)[1][0], [("read", some(2048, 2052))]),
    "np.save": (lambda v, m: np.save(io.BytesIO(), v), ONE),
    "copy": (lambda v, m: v.copy(), ONE),
    "copy.copy": (lambda v, m: copy.copy(v), ONE),
    "tobytes": (lambda v, m: v.tobytes(), ONE),
    "bytes": (lambda v, m: bytes(v), ONE),
    "astype": (lambda v, m: v.astype("int64"), ONE),
    "astype of the same type": (lambda v, m: v.astype("int32", copy=False), []),
    "repr": (lambda v, m: repr(v), ONE),
    "str": (lambda v, m: f"{v[:2]}", [("read", some(0, 8))]),
    "int": (lambda v, m: int(v[:1].reshape(())), [("read", some(0, 4))]),
    "contains": (lambda v, m: 7 in v, ONE),
    "pickle": (lambda v, m: pickle.loads(pickle.dumps(v)), ONE),
    "reshape": (lambda v, m: v.reshape(8, 128), []),
    "reshape that copies": (lambda v, m: m.T.reshape(-1), ONE),
    "ravel": (lambda v, m: m.ravel(), []),
    "other type": (lambda v, m: v[:1].view("uint8")[2], [("read", some(2, 3))]),
    "facts": (lambda v, m: (len(v), v.shape, np.size(m), np.zeros_like(v)[0], v.dtype), []),
    "memoryview": (lambda v, m: memoryview(v), [("lent", ALL)]),
    "base class": (lambda v, m: v[:1].view(np.ndarray), [("lent", some(0, 4))]),
    "ctypes": (lambda v, m: v.ctypes.data, [("lent", ALL)]),
    "DLPack": (lambda v, m: np.from_dlpack(v[:2]), [("lent", some(0, 8))]),
    "flat": (lambda v, m: v[:2].flat, [("lent", some(0, 8))]),
}


@pytest.mark.parametrize("case", READS)
def test_view_read_reports_its_bytes_and_returns_the_plain_result(
    buffer: pl.Buffer, recorded: Recorded, case: str
) -> None:
    read, expected = READS[case]
    plain = np.frombuffer(memoryview(buffer), "int32")
    v, m = buffer.view("int32"), buffer.view("int32", (32, 32))
    recorded.clear()

    elements = read(v, m)

    assert recorded.accesses() == expected
    wanted = read(plain, plain.reshape(32, 32))
    if isinstance(wanted, np.ndarray):
        assert np.array_equal(np.asarray(elements), wanted) and elements.dtype == wanted.dtype
        shares = np.shares_memory(np.asarray(elements), plain)
        is_lent = expected and expected[0][0] == "lent"
        assert type(elements) is (numpy_views.CheckedView if shares and not is_lent else np.ndarray)
    elif not isinstance(wanted, (np.flatiter, memoryview, tuple)) and case != "ctypes":
        assert type(elements) is type(wanted) and elements == wanted


def _plus(v: Any) -> None:
    v += 1


def _part_plus(v: Any) -> None:
    v[1:3] += 1


def _shaped(v: Any) -> None:
    v[0]
    v.shape = (32, 32)
    v[1, 0] = 5


WRITES: dict[str, tuple[Callable[[Any], Any], list[Bytes]]] = {
    "element": (lambda v: v.__setitem__(3, 5), [("written", some(12, 16))]),
    "element from a view": (
        lambda v: v.__setitem__(3, v[4:5].reshape(())),
        [("read", some(16, 20)), ("written", some(12, 16))],
    ),
    "all": (lambda v: v.__setitem__(slice(None), 5), [("written", ALL)]),
    "part from a part": (
        lambda v: v.__setitem__(slice(2), v[8:10]),
        [("read", some(32, 40)), ("written", some(0, 8))],
    ),
    "numbers": (
        lambda v: v.__setitem__([1, 3, 7], 0),
        [("written", some(4, 8) | some(12, 16) | some(28, 32))],
    ),
    "mask": (lambda v: v.__setitem__(np.arange(1024) < 2, 0), [("written", some(0, 8))]),
    "in place": (_plus, [("read", ALL), ("written", ALL)]),
    "part in place": (
        _part_plus,
        [("read", some(4, 12)), ("written", some(4, 12)), ("read", some(4, 12)), ("written", some(4, 12))],
    ),
    "out=": (lambda v: np.add(v[:2], 1, out=v[2:4]), [("read", some(0, 8)), ("written", some(8, 16))]),
    "masked out=": (
        lambda v: np.negative(v, out=v, where=np.arange(1024) == 1),
        [("read", some(4, 8)), ("written", some(4, 8))],
    ),
    "ufunc.at": (lambda v: np.add.at(v, [1, 1], 1), [("read", some(4, 8)), ("written", some(4, 8))]),
    "fill": (lambda v: v[1:3].fill(7), [("written", some(4, 12))]),
    "put": (lambda v: np.put(v, [2, 3], 1), [("written", some(8, 16))]),
    "sort": (lambda v: v[:4].sort(), [("read", some(0, 16)), ("written", some(0, 16))]),
    "np.copyto": (
        lambda v: np.copyto(v[:2], v[4:6]),
        [("written", some(0, 8)), ("read", some(16, 24))],
    ),
    "np.putmask": (lambda v: np.putmask(v, np.arange(1024) == 1, 3), [("written", some(4, 8))]),
    "np.fill_diagonal": (lambda v: np.fill_diagonal(v.reshape(32, 32), 1), [("unknown", ALL)]),
    "np.concatenate": (
        lambda v: np.concatenate([v[:1], v[:1]], out=v[4:6]),
        [("read", some(0, 4)), ("read", some(0, 4)), ("written", some(16, 24))],
    ),
    "sum": (lambda v: v[:3].sum(out=v[3:4].reshape(())), [("read", some(0, 12)), ("written", some(12, 16))]),
    "flat": (lambda v: setattr(v, "flat", 3), [("written", ALL)]),
    "after another shape": (_shaped, [("read", some(0, 4)), ("written", some(128, 132))]),
}


@pytest.mark.parametrize("case", WRITES)
def test_view_write_reports_its_bytes_and_changes_the_same(
    buffer: pl.Buffer, recorded: Recorded, case: str
) -> None:
    write, expected = WRITES[case]
    plain = np.frombuffer(memoryview(buffer), "int32").copy()
    view = buffer.view("int32")
    recorded.clear()

    write(view)

    assert recorded.accesses() == expected
    write(plain)
    assert bytes(buffer) == plain.tobytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_view_index_of_any_kind_reports_exactly_its_elements(log: Recorded, data: st.DataObject) -> None:
    shape = data.draw(st_numpy.array_shapes(min_dims=1, max_dims=4, max_side=5))
    numbers = np.arange(int(np.prod(shape)), dtype="int64")
    outer = np.frombuffer(bytearray(numbers.tobytes()), "int64").reshape(
        shape
    )  # lent, as a block's bytes are
    plain = outer[tuple(data.draw(st.slices(size)) for size in shape)]
    kinds = st_numpy.basic_indices(plain.shape, allow_newaxis=True, allow_ellipsis=True)
    if plain.size:
        kinds |= st_numpy.integer_array_indices(plain.shape) | st_numpy.arrays(bool, plain.shape)
    key = data.draw(kinds)
    view, address = plain.view(numpy_views.CheckedView), outer.__array_interface__["data"][0]
    wanted = frozenset(int(8 * n + at) for n in np.asarray(plain[key]).reshape(-1) for at in range(8))
    log.count_from(address)

    elements = view[key]
    if isinstance(elements, numpy_views.CheckedView):
        elements.sum()
    assert log.accesses() == ([("read", wanted)] if wanted else [])
    view[key] = 3
    assert log.accesses() == ([("written", wanted)] if wanted else [])


def test_view_of_too_many_rows_reports_an_unknown_interval(log: Recorded) -> None:
    lent = np.frombuffer(bytearray(1 << 16), np.uint8)
    view = lent.view(numpy_views.CheckedView)
    log.count_from(lent.__array_interface__["data"][0])
    chosen = np.flatnonzero(np.random.default_rng(3).random(lent.size) < 0.3)
    view[chosen]
    assert log.accesses() == [("unknown", some(int(chosen[0]), int(chosen[-1]) + 1))]


def test_view_without_checker_is_a_plain_array(buffer: pl.Buffer) -> None:
    assert type(buffer.view()) is np.ndarray
    with buffer.writing("int32") as array:
        assert type(array) is np.ndarray
        array[0] = 5
    with buffer[:4].reading("int32") as array:
        assert array[0] == 5


def test_view_with_checker_is_an_array_that_pickles_as_a_plain_one(
    buffer: pl.Buffer, recorded: Recorded
) -> None:
    view = buffer.view("int32")
    assert isinstance(view, np.ndarray)
    assert repr(view[:3]) == "array([0, 1, 2], dtype=int32)"
    assert type(pickle.loads(pickle.dumps(view))) is np.ndarray
    assert type(np.empty_like(view)) is np.ndarray
    assert type(np.array(view)) is np.ndarray


def test_view_of_structures_reports_fields_by_themselves(buffer: pl.Buffer, recorded: Recorded) -> None:
    view = buffer.view([("a", "int32"), ("b", "int32")])
    recorded.clear()
    view["b"][1] = 7
    view[2]  # the result refers to the bytes
    assert recorded.accesses() == [("written", some(12, 16)), ("lent", some(16, 24))]


def test_view_refused_index_reports_nothing(buffer: pl.Buffer, recorded: Recorded) -> None:
    view = buffer.view("int32")
    view[0]
    recorded.clear()
    for key in (1024, -1025, (1, 2), [5000], 1 << 70, "a", 1.5):
        with pytest.raises(IndexError):
            view[key]
    with pytest.raises(ValueError, match="delete"):
        del view[0]
    assert recorded.accesses() == []


def test_result_outside_the_block_reports_nothing(buffer: pl.Buffer, recorded: Recorded) -> None:
    own = np.array(buffer.view("int32"), subok=True)
    recorded.clear()
    own[0] = 3
    own[[0, 1]] += 1
    assert own.sum() and memoryview(own)
    assert recorded.accesses() == []


def test_buffer_as_bytes_reports_a_read(buffer: pl.Buffer, recorded: Recorded) -> None:
    assert bytes(buffer[8:12]) == (2).to_bytes(4, "little")
    assert recorded.accesses() == [("read", some(8, 12))]


def test_reading_and_writing_report_the_beginning_and_the_end(buffer: pl.Buffer, recorded: Recorded) -> None:
    with buffer[16:32].reading("int32") as array:
        assert recorded.accesses() == [("read", some(16, 32))]
        assert type(array) is np.ndarray
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert recorded.accesses() == [("read", some(16, 32))]
    with buffer.writing("int32", (32, 32)) as array:
        array[0, 0] = 5
    assert recorded.accesses() == [("written", ALL)] * 2


def test_writing_of_read_only_memory_is_refused() -> None:
    constant = pl.as_buffer(b"constant")
    with pytest.raises(pl.AccessDenied) as refused:
        constant.writing()
    assert refused.value.fault is pl.Fault.READ_ONLY
    with constant.reading() as array:
        assert array.tobytes() == b"constant"


def test_writing_of_closed_buffer_is_refused(buffer: pl.Buffer) -> None:
    part = buffer[:8]
    buffer.close()
    for declare in (part.reading, part.writing):
        with pytest.raises(pl.Closed):
            declare()


def test_view_keeps_the_bytes_after_close_and_still_reports(buffer: pl.Buffer, recorded: Recorded) -> None:
    view = buffer.view("int32")
    buffer.close()
    recorded.clear()
    assert view[1] == 1
    assert recorded.accesses() == [("read", some(4, 8))]


def test_view_lent_to_ctypes_works(buffer: pl.Buffer, recorded: Recorded) -> None:
    view = buffer.view("int32")
    assert ctypes.cast(view.ctypes.data, ctypes.POINTER(ctypes.c_int32))[2] == 2


@pytest.mark.parametrize(
    "take",
    [
        pytest.param(memoryview, id="memoryview"),
        pytest.param(lambda view: view.view(np.ndarray), id="base class"),
        pytest.param(lambda view: np.asarray(memoryview(view)), id="array"),
    ],
)
def test_lent_memory_is_returned_when_the_last_array_on_it_is_gone(
    buffer: pl.Buffer, recorded: Recorded, take: Callable[[Any], Any]
) -> None:
    watched = buffer.view()
    recorded.clear()
    lent = take(watched)
    assert recorded.accesses() == [("lent", some(0, buffer.size))]
    part = lent[:8]
    del lent, watched
    assert recorded.accesses() == []
    del part
    assert recorded.accesses() == [("given back", some(0, buffer.size))]


def test_array_on_a_buffer_is_returned_when_it_is_gone(buffer: pl.Buffer, recorded: Recorded) -> None:
    recorded.clear()
    assert np.array(buffer).size == buffer.size
    lent, back = recorded.accesses()
    assert (lent, back) == (("lent", some(0, buffer.size)), ("given back", some(0, buffer.size)))

"""``acl.rt.reduce_async``: element by element, in stream order, without losing a sum."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.acl_calls import Held, content, filled, holding, in_thread, ok
from peerlane import set_observer
from peerlane.diagnostics.log import observers

pytestmark = pytest.mark.timeout(120)
SUM, MAX, MIN = 10, 11, 12
TYPES = {0: np.float32, 1: np.float16, 2: np.int8, 3: np.int32, 6: np.int16, 8: np.uint32}
OPERATIONS: dict[int, Any] = {SUM: np.add, MAX: np.maximum, MIN: np.minimum}


def bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return bfloat16 of values that it holds exactly."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize(("kind", "number"), list(itertools.product(OPERATIONS, TYPES)))
def test_acl_reduce_async_every_kind_and_type_equals_numpy(acl: ModuleType, kind: int, number: int) -> None:
    random = np.random.default_rng(kind * 100 + number)
    dtype = np.dtype(TYPES[number])
    a, b = (random.integers(-100, 100, 1001).astype(dtype) for _ in range(2))
    dst, src = holding(acl, a.tobytes()), holding(acl, b.tobytes())
    ok(acl.rt.reduce_async(dst, src, a.nbytes, kind, number, 0, 0))
    ok(acl.rt.synchronize_stream(0))
    with np.errstate(all="ignore"):
        assert content(acl, dst, a.nbytes) == OPERATIONS[kind](a, b).astype(dtype).tobytes()
    assert content(acl, src, b.nbytes) == b.tobytes()


def test_acl_reduce_async_bfloat16_sum_rounds_to_nearest_even(acl: ModuleType) -> None:
    a = bits(np.array([1, 1, 256, 256, np.inf, np.nan, -2, 3e38]))
    b = bits(np.array([2, 0.5, 1, 3, -np.inf, 1, 2, 3e38]))
    dst, src = holding(acl, a.tobytes()), holding(acl, b.tobytes())
    ok(acl.rt.reduce_async(dst, src, a.nbytes, SUM, 27, 0, 0))
    ok(acl.rt.synchronize_stream(0))
    sums = (np.frombuffer(content(acl, dst, a.nbytes), np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert sums[:4].tolist() == [3, 1.5, 256, 260]
    assert np.isnan(sums[4:6]).all() and sums[6] == 0 and np.isinf(sums[7])


@pytest.mark.parametrize("kind", OPERATIONS)
def test_acl_reduce_async_every_bfloat16_value_rounds_to_nearest_even(acl: ModuleType, kind: int) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    order = np.random.default_rng(kind).permutation
    a, b = np.concatenate([every, order(every)]), np.concatenate([order(every), order(every)])
    wide = [(each.astype(np.uint32) << 16).view(np.float32) for each in (a, b)]
    with np.errstate(all="ignore"):
        exact = OPERATIONS[kind](*wide)
    number = exact.view(np.uint32).astype(object)  # Python integers do not overflow
    low = number & 0xFFFF
    up = (low > 0x8000) | ((low == 0x8000) & (number >> 16 & 1 == 1))
    expected = np.where(np.isnan(exact), number >> 16 | 0x40, (number >> 16) + up).astype(np.uint16)
    dst, src = holding(acl, a.tobytes()), holding(acl, b.tobytes())
    ok(acl.rt.reduce_async(dst, src, a.nbytes, kind, 27, 0, 0))
    ok(acl.rt.synchronize_stream(0))
    assert content(acl, dst, a.nbytes) == expected.tobytes()


def test_acl_reduce_async_5_mib_reduces_every_element(acl: ModuleType) -> None:
    size = (5 << 20) + 4
    dst, src = filled(acl, size, 1), filled(acl, size, 2)
    ok(acl.rt.reduce_async(dst, src, size, SUM, 2, 0, 0))
    ok(acl.rt.reduce_async(dst, dst, size, SUM, 2, 0, 0))
    ok(acl.rt.synchronize_stream(0))
    assert content(acl, dst, size) == bytes([6]) * size


def test_acl_reduce_async_runs_in_stream_order(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    a, b, c = filled(acl, 1 << 20, 1), filled(acl, 1 << 20, 2), filled(acl, 1 << 20, 0)
    held = Held(acl, stream)
    ok(acl.rt.memset_async(a, 1 << 20, 5, 1 << 20, stream))
    ok(acl.rt.reduce_async(a, b, 1 << 20, SUM, 2, stream, 0))
    ok(acl.rt.memcpy_async(c, 1 << 20, a, 1 << 20, 3, stream))
    event = ok(acl.rt.create_event())
    ok(acl.rt.record_event(event, stream))
    assert acl.rt.stream_query(stream) == (1, 0)
    assert content(acl, a, 8) == bytes([1]) * 8
    held.release()
    ok(acl.rt.synchronize_event(event))
    assert content(acl, c, 1 << 20) == bytes([7]) * (1 << 20)


def test_acl_reduce_async_eight_streams_into_one_address_lose_no_sum(acl: ModuleType) -> None:
    one = holding(acl, np.ones(1 << 16, np.int32).tobytes())
    total = filled(acl, 4 << 16, 0)
    streams = [ok(acl.rt.create_stream()) for _ in range(8)]
    for stream in streams * 10:
        ok(acl.rt.reduce_async(total, one, 4 << 16, SUM, 3, stream, 0))
    ok(acl.rt.synchronize_device())
    assert (np.frombuffer(content(acl, total, 4 << 16), np.int32) == 80).all()


def test_acl_reduce_async_source_freed_while_queued_still_reduces(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    a, b = filled(acl, 64, 1), filled(acl, 64, 2)
    held = Held(acl, stream)
    ok(acl.rt.reduce_async(a, b, 64, SUM, 2, stream, 0))
    ok(acl.rt.free(b))
    held.release()
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, a, 64) == bytes([3]) * 64


def test_acl_reduce_async_observer_receives_spans(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    a, b = filled(acl, 64, 1), filled(acl, 64, 2)
    recorder = observers.Recorder()
    set_observer(recorder)
    try:
        ok(acl.rt.reduce_async(a, b, 64, SUM, 2, stream, 0))
        ok(acl.rt.synchronize_stream(stream))
        observers.flush()
    finally:
        set_observer(None)
    (seen,) = [each for each in recorder.operations("submitted") if each.stream]
    (start,) = recorder.operations("started", "reduce")
    assert seen.kind == "reduce"
    assert seen.spans == start.spans
    assert [(span.size, span.written) for span in seen.spans] == [(64, True), (64, False), (64, False)]


def test_acl_reduce_async_aborted_changes_nothing(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    a, b = filled(acl, 64, 1), filled(acl, 64, 2)
    Held(acl, stream)
    ok(acl.rt.reduce_async(a, b, 64, SUM, 2, stream, 0))
    ok(acl.rt.stream_abort(stream))
    assert acl.rt.synchronize_stream(stream) == 107023
    assert content(acl, a, 64) == bytes([1]) * 64


def test_acl_reduce_async_bad_addresses_return_107000_and_explain_it(acl: ModuleType) -> None:
    a, b, host = filled(acl, 64, 1), filled(acl, 128, 1), ok(acl.rt.malloc_host(64))
    ok(acl.rt.set_device(1))
    other = filled(acl, 64, 1)
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.set_device(0))
    for dst, src, words in (
        (host, a, "dst is"),
        (a, host, "src is"),
        (a, other, "not memory of device 0"),
        (a + 4, a, "has 60 bytes from there on, not 64"),
        (b + 2, a, f"the destination address {b + 2:#x} is not a multiple of 4"),
        (b, b + 32, "overlap and are not the same"),
    ):
        assert acl.rt.reduce_async(dst, src, 64, SUM, 0, 0, 0) == 107000
        assert words in acl.get_recent_err_msg()
    assert acl.rt.reduce_async(a, a, 0, SUM, 0, 0, 0) == 107000
    assert acl.rt.reduce_async(a, a, 64, SUM, 0, stream, 0) == 107003
    assert in_thread(acl.rt.reduce_async, a, a, 64, SUM, 0, 0, 0) == 107002


@pytest.mark.parametrize(
    ("kind", "number", "code"), [(SUM, 0, 0), (SUM, 1, 0), (SUM, 6, 0), (SUM, 3, 207000), (MAX, 0, 207000)]
)
def test_acl_reduce_async_on_310p_supports_fewer_kinds(
    enter: Callable[[str], ModuleType], kind: int, number: int, code: int
) -> None:
    for profile, expected in (("ascend-310p", code), ("ascend-a2", 0)):
        acl = enter(f"devices=1,memory=64MiB,profile={profile}")
        ok(acl.rt.set_device(0))
        pointer = filled(acl, 64, 0)
        assert acl.rt.reduce_async(pointer, pointer, 64, kind, number, 0, 0) == expected
        ok(acl.rt.synchronize_stream(0))

"""Element types that NumPy lacks, given as types of ml_dtypes, types of torch or names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import peerlane as pl
from helpers.dlpack_producers import Producer, memory
from helpers.promises import Node
from helpers.reductions import TYPES, expected, material
from helpers.threads_as_ranks import run_ranks

pytestmark = pytest.mark.timeout(60)

EXTENSIONS = sorted(
    name for name, each in vars(ml_dtypes).items() if isinstance(each, type) and issubclass(each, np.generic)
)


def _noise(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_array_of_each_ml_dtypes_type_is_copied_in_both_directions(node: Node, name: str) -> None:
    d0, _ = node()
    stream = d0.create_stream()
    content = _noise(24)
    source, target = content.view(name), np.zeros(24, np.uint8).view(name)
    with d0.allocate(24) as buffer:
        for where in (None, stream):
            buffer.copy_from(source, stream=where)
            buffer.copy_to(target, stream=where)
            stream.sync()
            assert target.tobytes() == bytes(buffer.view()) == content.tobytes()
            target.view(np.uint8)[:] = 0
        pl.copy_batch([target], [source])
        assert target.tobytes() == content.tobytes()
        with pytest.raises(pl.InvalidValue, match="not contiguous"):
            buffer.copy_from(source[::2])
        target.flags.writeable = False
        with pytest.raises(pl.AccessDenied, match="read-only"):
            buffer.copy_to(target)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_view_takes_each_ml_dtypes_type(node: Node, name: str) -> None:
    d0, _ = node()
    kind = getattr(ml_dtypes, name)
    with d0.allocate(24) as buffer:
        buffer.copy_from(_noise(24))
        for dtype in (name, kind, np.dtype(kind)):
            view = buffer.view(dtype, (2, -1))
            assert (view.dtype, view.shape) == (np.dtype(kind), (2, 12 // view.itemsize))
            assert view.tobytes() == _noise(24).tobytes()
            view.view(np.uint8)[0, 0] ^= 1
            assert bytes(buffer.view())[0] == _noise(24)[0] ^ 1
            view.view(np.uint8)[0, 0] ^= 1
    with pytest.raises(pl.InvalidValue, match="bytes are not a whole number of bfloat16"):
        d0.allocate(7).view("bfloat16")


class _Dtype:
    """A stand-in for torch's types, which print as module and name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


_Dtype.__module__, _Dtype.__name__ = "torch", "dtype"


def test_view_takes_torch_types_and_refuses_unknown(node: Node) -> None:
    buffer = node()[0].allocate(16)
    for name in (
        "bfloat16",
        "float8_e4m3fn",
        "float32",
        "bool",
        "complex64",
        "uint16",
        "float8_e8m0fnu",
        "int4",
    ):
        dtype: Any = _Dtype(name)
        assert buffer.view(dtype).dtype == np.dtype(name if name != "int4" else ml_dtypes.int4)
    for name in ("float4_e2m1fn_x2", "qint8", "bits8", "int3", "nonsense"):
        unknown: Any = _Dtype(name)
        with pytest.raises(TypeError, match=rf"neither NumPy nor ml_dtypes has the type torch\.{name}"):
            buffer.view(unknown)


@pytest.mark.parametrize("dtype", TYPES)
def test_reduce_takes_each_torch_type(node: Node, dtype: str) -> None:
    d0, _ = node()
    a, b = material(dtype, 33, 1)
    result = expected(dtype, "sum", a, b).tobytes()
    same: Any = _Dtype(dtype)
    left, right = d0.allocate(a.size), d0.allocate(b.size)
    calls: list[Callable[[], None]] = [
        lambda: pl.reduce(left, right, dtype=same),
        lambda: pl.raw.reduce(left.address, right.address, 33, dtype=same),
    ]
    if dtype == "bfloat16":
        calls.append(lambda: pl.reduce(left, right, dtype=ml_dtypes.bfloat16))
        calls.append(lambda: pl.reduce(left, right, dtype=np.dtype(ml_dtypes.bfloat16)))
    for call in calls:
        left.copy_from(a)
        right.copy_from(b)
        call()
        assert bytes(left.view()) == result


def test_reduce_of_type_without_kernel_raises_invalid_value(node: Node) -> None:
    buffer = node()[0].allocate(16)
    wrong: list[Any] = [
        *map(_Dtype, ("float8_e4m3fnuz", "bool", "complex64", "nonsense")),
        *("float8_e5m2fnuz", ml_dtypes.float8_e4m3b11fnuz, np.dtype(ml_dtypes.int4)),
    ]
    for dtype in wrong:
        with pytest.raises(
            pl.InvalidValue, match=r"reduce: dtype is '\w+'; valid are int8, .*, float16, bfloat16, float32"
        ):
            pl.reduce(buffer, buffer, dtype=dtype)


def test_channels_and_collectives_take_bfloat16_tensors(node: Node) -> None:
    node("devices=2")
    parts = [_noise(64), _noise(64)[::-1].copy()]
    for each in parts:
        each[1::2] &= 0x3F  # bfloat16 that are finite
    total = parts[0].copy()
    pl.reduce(total, parts[1], dtype="bfloat16")
    dtype: Any = _Dtype("bfloat16")

    def lent(held: Any) -> Producer:
        return Producer(held, (8, 4), element=(4, 16, 1))

    def rank(group: pl.Group) -> None:
        mine, theirs = parts[group.rank].tobytes(), parts[1 - group.rank].tobytes()
        with group.channel(1 - group.rank) as channel:
            channel.write(lent(memory(mine)))
            channel.notify(0)
            channel.wait(0, timeout=30)
            assert bytes(group.window.view()) == theirs
            room = memory(bytes(64))
            channel.read(lent(room))
            assert bytes(room) == mine
            group.barrier()
            held = memory(mine)
            group.all_reduce(lent(held), dtype=dtype)
            assert bytes(held) == total.tobytes()
            group.broadcast(lent(held := memory(mine)), 1)
            assert bytes(held) == parts[1].tobytes()
            whole = memory(bytes(128))
            group.all_gather(Producer(whole, (2, 32), element=(4, 16, 1)), lent(memory(mine)))
            assert bytes(whole) == parts[0].tobytes() + parts[1].tobytes()
            pl.copy(group.window, parts[group.rank])
            group.barrier()
            if group.rank == 0:
                channel.write_reduce(lent(memory(mine)), dtype=dtype)
                channel.notify(0)
            else:
                channel.wait(0, timeout=30)
                assert bytes(group.window.view()) == total.tobytes()
            group.barrier()

    run_ranks(2, rank, window=64)

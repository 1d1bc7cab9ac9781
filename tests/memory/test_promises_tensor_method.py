"""``Buffer.tensor`` on a stand-in for PyTorch, which is NumPy; tests/memory/test_torch.py has the real one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node, filled
from peerlane.errors import Fault


class _Type:
    """A dtype, as torch has them."""

    def __init__(self, name: str) -> None:
        self.name, self.itemsize = name, np.dtype(name).itemsize


class _Tensor:
    def __init__(self, array: Any) -> None:
        self.array = array

    def view(self, dtype: _Type) -> _Tensor:
        return _Tensor(self.array.view(dtype.name))

    def reshape(self, shape: Any) -> _Tensor:
        return _Tensor(self.array.reshape(shape))

    def numel(self) -> int:
        return int(self.array.size)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serve the stand-in as ``torch``."""
    module: Any = ModuleType("torch")
    vars(module).update(dtype=_Type, from_numpy=_Tensor, uint8=_Type("uint8"), float32=_Type("float32"))
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_tensor_is_the_bytes_of_the_buffer(node: Node, torch: Any) -> None:
    d0, _ = node()
    with filled(d0, 64, 0) as buffer:
        tensor = buffer.tensor("float32", (4, 4))
        tensor.array[1, 2] = 5.0
        assert buffer.view("float32")[6] == 5.0
        assert buffer.tensor(torch.float32, (2, -1)).array.shape == (2, 8)
        assert buffer.tensor().array.shape == (64,)
        del tensor


def test_tensor_that_does_not_fit_raises_invalid_value(node: Node, torch: Any) -> None:
    d0, _ = node()
    with filled(d0, 66, 0) as buffer:
        with pytest.raises(pl.InvalidValue, match="2 are left over, slice the buffer first"):
            buffer.tensor("float32")
        with pytest.raises(pl.InvalidValue, match="does not hold 16 elements"):
            buffer[:64].tensor("float32", (3, 5))
        for wrong in ("float33", 4, SimpleNamespace(itemsize=1)):
            with pytest.raises(TypeError, match=r"torch\.dtype or its name"):
                buffer.tensor(wrong)


def test_tensor_without_torch_raises_unsupported(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    d0, _ = node()
    monkeypatch.setitem(sys.modules, "torch", None)
    with filled(d0, 64, 0) as buffer, pytest.raises(pl.Unsupported, match="pip install torch"):
        buffer.tensor()


def test_tensor_of_unusable_buffer_raises(node: Node, torch: Any) -> None:
    d0, _ = node()
    buffer = d0.allocate(64)
    buffer.close()
    with pytest.raises(pl.Closed):
        buffer.tensor()
    with pytest.raises(pl.AccessDenied) as refused:
        pl.as_buffer(b"fixed").tensor()
    assert refused.value.fault is Fault.READ_ONLY

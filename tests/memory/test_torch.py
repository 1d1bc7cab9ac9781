"""Tensors of PyTorch, where it is installed, of every type that it lends."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node, filled

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.timeout(120)

# The types that PyTorch refuses to lend; it has no call that lists them.
_UNLENT = ("qint", "quint", "bits")
DTYPES = sorted(
    {str(each) for each in vars(torch).values() if isinstance(each, torch.dtype)},
)


def _dtype(name: str) -> Any:
    return getattr(torch, name.partition(".")[2])


@pytest.mark.filterwarnings("ignore:ComplexHalf support", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("name", DTYPES)
def test_torch_tensor_of_each_type_is_copied_or_refused(node: Node, name: str) -> None:
    d0, _ = node()
    stream = d0.create_stream()
    dtype = _dtype(name)
    source, target = torch.empty(3, 8, dtype=dtype), torch.empty(3, 8, dtype=dtype)
    if name.partition(".")[2].startswith(_UNLENT):
        with pytest.raises(
            pl.InvalidValue, match=r"Tensor does not lend its bytes by DLPack: .* not supported"
        ):
            pl.as_buffer(source)
        return
    nbytes = source.numel() * source.element_size()
    content = np.random.default_rng(1).integers(0, 256, nbytes, dtype=np.uint8)
    source.untyped_storage().copy_(torch.from_numpy(content).untyped_storage())
    assert pl.as_buffer(source).address == source.data_ptr()
    with d0.allocate(nbytes) as buffer:
        for where in (None, stream):
            target.untyped_storage().fill_(0)
            buffer.copy_from(source, stream=where)
            buffer.copy_to(target, stream=where)
            stream.sync()
            assert bytes(buffer.view()) == bytes(target.untyped_storage()) == content.tobytes()


def test_torch_parameter_error_advises_detach(node: Node) -> None:
    d0, _ = node()
    buffer = filled(d0, 8, 1)
    parameter = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    for copy in (buffer.copy_from, buffer.copy_to):
        with pytest.raises(
            pl.InvalidValue, match=r"the Parameter requires grad, .*write parameter\.detach\(\) instead"
        ):
            copy(parameter)
    with pytest.raises(
        pl.InvalidValue, match=r"the Tensor requires grad, .*write tensor\.detach\(\) instead"
    ):
        pl.as_buffer(parameter + 1)
    buffer.copy_to(parameter.detach())
    assert parameter.detach().view(torch.int16).tolist() == [0x0101] * 4


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_torch_tensor_without_plain_bytes_raises_invalid_value() -> None:
    square = torch.zeros(4, 4, dtype=torch.complex64)
    cases = [
        (square.t(), r"not contiguous in C order \(shape \(4, 4\), strides \(1, 4\).*with \.contiguous\(\)"),
        (square[:, ::2], "not contiguous"),
        (torch.zeros(1).expand(4), "not contiguous"),
        (square.conj(), "does not lend its bytes by DLPack: .*conjugate bit"),
        (torch._neg_view(torch.ones(4)), r"negative bit set.*write tensor\.resolve_neg\(\)"),
        (torch.eye(3).to_sparse(), "does not lend its bytes by DLPack: .*layout"),
        (torch.eye(3).to_sparse_csr(), "does not lend its bytes by DLPack: .*layout"),
        (torch.zeros(4, device="meta"), "does not lend its bytes by DLPack: .*meta"),
    ]
    for tensor, text in cases:
        with pytest.raises(pl.InvalidValue, match=text):
            pl.as_buffer(tensor)


def test_torch_tensor_of_none_or_one_element_has_right_size() -> None:
    assert pl.as_buffer(torch.tensor(3.0)).size == 4
    assert pl.as_buffer(torch.zeros(0, 4).t()).size == 0
    assert pl.as_buffer(torch.zeros(4, 1)[:, :1]).size == 16
    assert pl.as_buffer(torch.arange(8, dtype=torch.uint8)[2:5]).view().tolist() == [2, 3, 4]


def test_torch_tensor_of_live_buffer_is_kept() -> None:
    tensor = torch.arange(1 << 16, dtype=torch.uint8)
    storage = torch.multiprocessing.reductions.StorageWeakRef(tensor.untyped_storage())
    buffer = pl.as_buffer(tensor)
    del tensor
    gc.collect()
    assert not storage.expired()
    del buffer
    gc.collect()
    assert storage.expired()


def test_torch_from_dlpack_of_buffer_shares_bytes(node: Node) -> None:
    d0, _ = node()
    buffer = filled(d0, 8, 5)
    tensor = torch.from_dlpack(buffer)
    assert (tensor.dtype, tensor.device.type, tensor.tolist()) == (torch.uint8, "cpu", [5] * 8)
    tensor[0] = 9
    assert buffer.view()[0] == 9
    assert tensor.view(torch.bfloat16).shape == (4,)
    copied = torch.from_dlpack(buffer, copy=True)
    copied[0] = 1
    assert buffer.view()[0] == 9


def test_torch_types_are_accepted_by_reduce_and_view(node: Node) -> None:
    d0, _ = node()
    ones = torch.ones(4, dtype=torch.bfloat16)
    with d0.allocate(8) as buffer:
        buffer.copy_from(ones)
        pl.reduce(buffer, ones, dtype=torch.bfloat16)
        pl.reduce(ones, buffer, dtype=torch.bfloat16)
        assert ones.tolist() == [3.0] * 4
        assert buffer.view(torch.bfloat16).astype(np.float32).tolist() == [2.0] * 4
        with pytest.raises(pl.InvalidValue, match="dtype is 'float8_e4m3fnuz'; valid are int8"):
            pl.reduce(buffer, buffer, dtype=torch.float8_e4m3fnuz)


@pytest.mark.parametrize("name", [name for name in DTYPES if not name.partition(".")[2].startswith(_UNLENT)])
def test_torch_tensor_of_a_buffer_has_its_bytes_in_each_type(node: Node, name: str) -> None:
    d0, _ = node()
    dtype = _dtype(name)
    with filled(d0, 64, 0) as buffer:
        tensor = buffer.tensor(name.partition(".")[2], (2, -1))
        assert (tensor.dtype, tensor.shape) == (dtype, (2, 32 // dtype.itemsize))
        tensor.untyped_storage().fill_(7)
        assert bytes(buffer.view()) == b"\x07" * 64
        pl.copy(tensor, b"\x01" * 64)
        assert bytes(buffer.view()) == b"\x01" * 64
        del tensor
        gc.collect()

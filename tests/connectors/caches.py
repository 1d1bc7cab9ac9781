"""The KV cache of one side: blocks of known bytes on a virtual device."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import peerlane as pl

LAYERS = 4
BLOCKS = 64
BLOCK_BYTES = 64 << 10
TOKENS = 16


def bytes_of(layer: int, block: int) -> np.ndarray:
    """Return what prefill computes for a block of a layer."""
    return np.random.default_rng([layer, block]).integers(1, 256, BLOCK_BYTES, np.uint8)


def _of_cuda(device: int, nbytes: int) -> pl.Buffer:
    """Return memory of CUDA's driver, with the device's context current, as PyTorch for CUDA has it."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)]
    codes += [
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)),
    ]
    if any(codes):
        raise MemoryError(f"CUDA's driver gave no memory of device {device}: the codes are {codes}")
    return pl.raw.buffer(address.value, nbytes)


class Caches:
    """A buffer for each layer.

    Parameters
    ----------
    device : int
    layers : int
    dialect : str
        With ``cuda`` it is memory of CUDA's driver.
    """

    def __init__(self, device: int, layers: int, dialect: str = ""):
        self.device = device
        nbytes = BLOCKS * BLOCK_BYTES
        self.buffers = [
            _of_cuda(device, nbytes) if dialect == "cuda" else pl.devices()[device].allocate(nbytes)
            for _ in range(layers)
        ]
        for buffer in self.buffers:
            buffer.fill(0)

    def compute(self, blocks: Iterable[int]) -> None:
        """Write the bytes of these blocks, as the model's forward pass would."""
        for layer, buffer in enumerate(self.buffers):
            for block in blocks:
                buffer.view()[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES] = bytes_of(layer, block)

    def look(self, blocks: Iterable[int]) -> None:
        """Read these blocks, as the model's forward pass would."""
        for buffer in self.buffers:
            for block in blocks:
                buffer.view()[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES].max()

    def wrong(self, moved: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return (layer, block) of each block that is not prefill's, by own number and prefill's, or not zeros."""
        wrong = []
        for layer, buffer in enumerate(self.buffers):
            rows = buffer.view().reshape(BLOCKS, BLOCK_BYTES)
            for block in range(BLOCKS):
                expected = bytes_of(layer, moved[block]) if block in moved else 0
                if not (rows[block] == expected).all():
                    wrong.append((layer, block))
        return wrong


class DeviceTensor:
    """A tensor of PyTorch without bytes, that says it is on a device, at the address of device memory.

    PyTorch for the CPU has no tensors of devices.
    """

    def __init__(self, tensor: Any, buffer: pl.Buffer, device: int):
        import torch

        self._tensor, self._buffer = tensor, buffer
        self.device = torch.device("cuda", device)

    def data_ptr(self) -> int:
        """Return the address on the device."""
        return self._buffer.address

    def untyped_storage(self) -> DeviceTensor:
        """Return the storage, which begins where the tensor does."""
        return self

    def get_device(self) -> int:
        """Return the device's number."""
        return int(self.device.index)

    @property
    def nbytes(self) -> Any:
        """The bytes, which a tensor has as a number, and its storage as a method."""
        return _Bytes(self._buffer.size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)

    def __getitem__(self, item: Any) -> Any:
        return self._tensor[item]


class _Bytes(int):
    def __call__(self) -> int:
        return int(self)

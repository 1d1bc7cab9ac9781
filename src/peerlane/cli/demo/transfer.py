"""The single moves of the demo.  Each returns the seconds of its copies only."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter

import numpy as np

import peerlane as pl
from peerlane.cli.weights import Tensor, Weights

Advance = Callable[[int], None]

#: The largest piece; Ctrl-C is looked for between pieces.
STAGING = 8 << 20
#: The unit in which a device's memory is charged.
BLOCK = 2 << 20
_PIECE = 256 << 20
_ALIGNMENT = 256


Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Replica:
    """A device's copy of the weights: a buffer for each tensor, in the file's order."""

    device: pl.Device
    tensors: Sequence[Tensor]
    buffers: Sequence[pl.Buffer]


def hold(device: pl.Device, tensors: Sequence[Tensor], stack: ExitStack) -> Replica:
    """Allocate zeroed memory for the tensors: no earlier bytes can pass for a copy, and all pages were touched."""
    buffers = [stack.enter_context(device.allocate(tensor.nbytes, peer=True)) for tensor in tensors]
    replica = Replica(device, tensors, buffers)
    clear(replica)
    return replica


def hold_in_one(
    physical: pl.Physical, tensors: Sequence[Tensor], stack: ExitStack
) -> tuple[Replica, pl.Buffer]:
    """Allocate zeroed memory for the tensors as :func:`hold` does, but in one block, which can be shared.

    Returns
    -------
    Replica, Buffer
        The second is the block.
    """
    addresses = stack.enter_context(pl.AddressRange(physical.device, physical.size))
    addresses.map(physical)
    whole = addresses[: physical.size]
    replica = replica_at(whole, physical.device, tensors)
    clear(replica)
    return replica, whole


def replica_at(memory: pl.Buffer, device: pl.Device, tensors: Sequence[Tensor]) -> Replica:
    """Return a replica whose buffers are the tensors' places in memory that holds all of them."""
    return Replica(device, tensors, [memory[start : start + size] for start, size in places(tensors)])


def clear(replica: Replica) -> None:
    """Zero a device's copy."""
    for buffer in replica.buffers:
        buffer.fill(0)


def load(weights: Weights, into: Replica, staging: pl.Buffer, advance: Advance) -> tuple[float, list[str]]:
    """Load the file to a device through pinned memory; return the copies' seconds and each tensor's digest."""
    seconds, digests = 0.0, []
    host = memoryview(staging).cast("B")
    for tensor, buffer in zip(into.tensors, into.buffers, strict=True):
        digest = hashlib.sha256()
        for start, size in pieces(tensor.nbytes, staging.size):
            weights.read_into(host[:size], tensor, start)
            digest.update(host[:size])
            seconds += _timed_copy(buffer[start : start + size], staging[:size])
            advance(size)
        digests.append(digest.hexdigest())
    return seconds, digests


def deliver(src: Replica, dst: Replica, advance: Advance) -> float:
    """Copy each tensor from device to device."""
    seconds = 0.0
    for a, b in zip(src.buffers, dst.buffers, strict=True):
        seconds += _timed_copy(b, a)
        advance(a.size)
    return seconds


def read_back(replica: Replica, staging: pl.Buffer, advance: Advance) -> list[str]:
    """Return the digest of each tensor on a device, read through pinned memory."""
    digests = []
    host = memoryview(staging).cast("B")
    for buffer in replica.buffers:
        digest = hashlib.sha256()
        for start, size in pieces(buffer.size, staging.size):
            pl.copy(staging[:size], buffer[start : start + size])
            digest.update(host[:size])
            advance(size)
        digests.append(digest.hexdigest())
    return digests


def packed_bytes(tensors: Sequence[Tensor]) -> int:
    """Return the size of memory that holds all tensors at their places."""
    return sum(_aligned(tensor.nbytes) for tensor in tensors)


def places(tensors: Sequence[Tensor]) -> list[Place]:
    """Return the place of each tensor in memory that holds all of them: offset and size."""
    found, start = [], 0
    for tensor in tensors:
        found.append((start, tensor.nbytes))
        start += _aligned(tensor.nbytes)
    return found


def inverted_digest(weights: Weights, tensor: Tensor, staging: pl.Buffer) -> str:
    """Return the digest that a tensor of the file has with every bit inverted."""
    digest = hashlib.sha256()
    host = memoryview(staging).cast("B")
    for start, size in pieces(tensor.nbytes, staging.size):
        weights.read_into(host[:size], tensor, start)
        digest.update(np.invert(np.frombuffer(host[:size], np.uint8)).data)
    return digest.hexdigest()


def least_charge(tensors: Sequence[Tensor]) -> int:
    """Return the least that a device is charged for the tensors and a copy list.

    Devices are charged in whole blocks, and small allocations share a block.
    """
    sizes = [tensor.nbytes for tensor in tensors]
    sizes.append(pl.CopyDescriptor.size_for(len(tensors)))
    large = sum(-(-size // BLOCK) for size in sizes if size >= BLOCK)
    small = sum(size for size in sizes if size < BLOCK)
    return (large + -(-small // BLOCK)) * BLOCK


def memcpy_seconds(src: Replica, targets: Sequence[pl.Buffer]) -> float:
    """Copy the same tensors with one thread's memcpy to places in pinned memory."""
    seconds = 0.0
    for buffer, target in zip(src.buffers, targets, strict=True):
        origin, to = (each.view().ctypes.data for each in (buffer, target))
        for start, size in pieces(buffer.size, _PIECE):
            began = perf_counter()
            ctypes.memmove(to + start, origin + start, size)
            seconds += perf_counter() - began
    return seconds


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _timed_copy(dst: pl.Buffer, src: pl.Buffer) -> float:
    start = perf_counter()
    pl.copy(dst, src)
    return perf_counter() - start


def pieces(nbytes: int, most: int) -> Iterator[Place]:
    """Cut a size into pieces of at most ``most`` bytes: yield offset and size of each."""
    for start in range(0, nbytes, most):
        yield start, min(most, nbytes - start)

"""Operations on symmetric memory (``torch.ops.symm_mem``): kernels of CUDA in torch, here operations of the device.

What has no function here is refused by name, as each operation without a kernel of the processor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import _SymmetricMemory

from peerlane.memory import raw
from peerlane.torch import device_module

_WORD = 4  # bytes
_MOST = (1 << 32) - 1

_library: Any = None  # it ends what it has registered when it ends


def register() -> None:
    """Give the operations to torch, for the kind of device that it has."""
    global _library
    _library = torch.library.Library("symm_mem", "IMPL")
    key = "CUDA" if device_module.kind() == "cuda" else "PrivateUse1"
    for each in _OPERATIONS:
        _library.impl(each.__name__, each, key)
    if key != "CUDA":  # torch has its own, for CUDA alone
        _library.impl("get_remote_tensors", get_remote_tensors, key)


def get_remote_tensors(x: torch.Tensor, group_name: str) -> list[torch.Tensor]:
    """Return the tensor of each rank."""
    return _of_all("get_remote_tensors", x, group_name)[1]


def one_shot_all_reduce(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    """Return the sum of all ranks' tensors."""
    return one_shot_all_reduce_out(input, reduce_op, group_name, torch.empty_like(input))


def one_shot_all_reduce_out(
    input: torch.Tensor, reduce_op: str, group_name: str, out: torch.Tensor
) -> torch.Tensor:
    """Write the sum of all ranks' tensors."""
    memory, parts = _of_all("one_shot_all_reduce", input, group_name, reduce_op)
    memory.barrier()
    out.copy_(_sum(parts))
    memory.barrier()
    return out


def one_shot_all_reduce_copy(
    symm_buffer: torch.Tensor, local_input: torch.Tensor, reduce_op: str, group_name: str
) -> torch.Tensor:
    """Return the sum of all ranks' tensors, which are first copied into symmetric memory."""
    out = torch.empty_like(local_input)
    return one_shot_all_reduce_copy_out(symm_buffer, local_input, reduce_op, group_name, out)


def one_shot_all_reduce_copy_out(
    symm_buffer: torch.Tensor, local_input: torch.Tensor, reduce_op: str, group_name: str, out: torch.Tensor
) -> torch.Tensor:
    """Write the sum of all ranks' tensors, which are first copied into symmetric memory."""
    used = symm_buffer.view(-1)[: local_input.numel()].view(local_input.shape)
    used.copy_(local_input)
    return one_shot_all_reduce_out(used, reduce_op, group_name, out)


def two_shot_all_reduce_(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    """Sum all ranks' tensors in place: each rank sums a part and writes it to all."""
    memory, parts = _of_all("two_shot_all_reduce_", input, group_name, reduce_op)
    own = _shares(parts, memory.rank)
    memory.barrier()
    total = _sum(own)
    for each in own:
        each.copy_(total)
    memory.barrier()
    return input


def two_shot_all_reduce_out(
    input: torch.Tensor, reduce_op: str, group_name: str, output: torch.Tensor
) -> torch.Tensor:
    """Write the sum of all ranks' tensors: each rank sums a part in its own tensor, and reads those of the others."""
    memory, parts = _of_all("two_shot_all_reduce_out", input, group_name, reduce_op)
    own = _shares(parts, memory.rank)
    memory.barrier()
    own[memory.rank].copy_(_sum(own))
    memory.barrier()
    for rank, each in enumerate(parts):
        _shares([output], rank, memory.world_size)[0].copy_(_shares([each], rank, memory.world_size)[0])
    memory.barrier()
    return output


def reduce_scatter_out(
    input: torch.Tensor, group_name: str, split_last_dim: bool, output: torch.Tensor
) -> torch.Tensor:
    """Write this rank's part of the sum of all ranks' tensors: of the last dimension, or of all elements."""
    memory, parts = _of_all("reduce_scatter_out", input, group_name)
    size, rank = memory.world_size, memory.rank
    is_shaped = input.dim() == 1 or (input.dim() > 1 and split_last_dim)
    if not is_shaped or list(output.shape) != [*input.shape[:-1], input.shape[-1] // size]:
        raise RuntimeError(
            f"reduce_scatter_out: the input has the sizes {list(input.shape)} and the output {list(output.shape)}; "
            f"the output has the sizes of the input, but the last one divided by {size}, and without "
            "split_last_dim both have one dimension"
        )
    unit = size * _alignment("reduce_scatter_out", input) // input.element_size()
    if input.shape[-1] % unit:
        raise RuntimeError(
            f"reduce_scatter_out: the last dimension is {input.shape[-1]:,}; it must be divisible by {unit}: "
            "16 bytes for each rank, or 8 or 4 where offset and size of the tensor are not multiples of 16 bytes"
        )
    if not input.numel():
        return output
    own = [
        each.chunk(size, -1)[rank] if split_last_dim else each.view(-1).chunk(size)[rank] for each in parts
    ]
    memory.barrier()
    output.copy_(_sum(own).view(output.shape))
    memory.barrier()
    return output


def memset32_(input: torch.Tensor, offset: int, val: int, count: int) -> torch.Tensor:
    """Set words of 32 bits."""
    _check_words("memset32_", input, offset, val, count)
    input[offset : offset + count].fill_(val)
    return input


def stream_write_value32_(input: torch.Tensor, offset: int, val: int) -> torch.Tensor:
    """Set a word of 32 bits; who sees it sees the results of the stream before it, too."""
    _check_words("stream_write_value32_", input, offset, val, 1)
    stream = device_module.stream_of(torch.accelerator.current_stream(input.device))
    raw.write_value(input.data_ptr() + _WORD * offset, val, stream=stream, width=_WORD)
    return input


_OPERATIONS = (
    *(one_shot_all_reduce, one_shot_all_reduce_out, one_shot_all_reduce_copy, one_shot_all_reduce_copy_out),
    *(two_shot_all_reduce_, two_shot_all_reduce_out, reduce_scatter_out, memset32_, stream_write_value32_),
)


def _of_all(
    call: str, tensor: torch.Tensor, group_name: str, reduce_op: str = "sum"
) -> tuple[Any, list[torch.Tensor]]:
    """Return the memory of a tensor, and each rank's tensor there."""
    if reduce_op != "sum":
        raise RuntimeError(f"{call}: the reduction is {reduce_op!r}; torch's kernel knows 'sum' alone")
    memory = _SymmetricMemory.rendezvous(tensor, group_name)
    if memory is None or not tensor.is_contiguous():
        what = "is not in symmetric memory" if memory is None else "is not contiguous"
        raise RuntimeError(
            f"{call}: the tensor {what}; pass a contiguous one of torch.distributed._symmetric_memory.empty"
        )
    _alignment(call, tensor)
    layout = tensor.shape, tensor.dtype, tensor.storage_offset()
    return memory, [memory.get_buffer(rank, *layout) for rank in range(memory.world_size)]


def _sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, parts)


def _shares(tensors: Sequence[torch.Tensor], rank: int, size: int = 0) -> list[torch.Tensor]:
    """Return a rank's part of the elements of each tensor."""
    count = -(-tensors[0].numel() // (size or len(tensors)))
    return [each.view(-1)[count * rank : count * (rank + 1)] for each in tensors]


def _alignment(call: str, tensor: torch.Tensor) -> int:
    """Return how many bytes torch's kernels take at once: at most 16, which divide the tensor's offset and size."""
    ends = tensor.storage_offset() * tensor.element_size(), tensor.nbytes
    bytes_at_once = math.gcd(16, *ends)
    least = max(_WORD, tensor.element_size())
    if bytes_at_once < least:
        raise RuntimeError(
            f"{call}: the tensor begins at byte {ends[0]:,} of its memory and has {ends[1]:,} bytes; both must be "
            f"divisible by {least}"
        )
    return bytes_at_once


def _check_words(call: str, tensor: torch.Tensor, offset: int, val: int, count: int) -> None:
    if tensor.dim() != 1 or tensor.dtype != torch.uint32 or not tensor.is_contiguous():
        raise RuntimeError(
            f"{call}: the input must be a flat, contiguous uint32 tensor; it has the sizes {list(tensor.shape)} and "
            f"the type {tensor.dtype}"
        )
    if offset < 0:
        raise RuntimeError(f"{call}: the offset must be greater than or equal to 0; it is {offset}")
    if count <= 0:
        raise RuntimeError(f"{call}: the count must be a positive integer; it is {count}")
    if not 0 <= val <= _MOST:
        raise RuntimeError(f"{call}: the value is {val}; val must be in the range of 0 to {_MOST} (uint32_t)")
    if offset + count > tensor.numel():
        raise RuntimeError(
            f"{call}: offset + count ({offset} + {count}) exceeded the numel of the input ({tensor.numel()})"
        )

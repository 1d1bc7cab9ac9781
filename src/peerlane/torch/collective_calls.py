"""The collectives of a group on tensors; each function is one call.

With a :class:`peerlane.Group` it is complete on return.  With :class:`OnStream` it is queued on the current stream.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from peerlane.collectives.group import Group
from peerlane.streams.stream import Stream
from peerlane.torch.reductions import Reduction
from peerlane.torch.tensor_bytes import bytes_of, flat, joined, put_back, room_for, sizes_of, span_of, spread


class OnStream:
    """A group whose calls are queued on a stream."""

    def __init__(self, group: Group, stream: Stream) -> None:
        self.rank, self.size = group.rank, group.size
        self._group, self._stream = group, stream

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(getattr(self._group, name), stream=self._stream)


Caller: TypeAlias = "Group | OnStream"


def barrier(group: Caller) -> None:
    """Wait until all ranks have come."""
    group.barrier()


def broadcast(group: Caller, tensor: torch.Tensor, root: int) -> None:
    """Give all ranks the root's elements."""
    contiguous = flat(tensor)
    group.broadcast(bytes_of(contiguous), root)
    if group.rank != root:
        put_back(tensor, contiguous)


def all_reduce(group: Caller, tensor: torch.Tensor, how: Reduction) -> None:
    """Combine the elements of all ranks, in place."""
    contiguous = flat(tensor)
    seen = how.seen(contiguous)
    if how.fold is None:
        group.all_reduce(bytes_of(seen), dtype=how.name, op=how.op)
    else:
        parts = seen.new_empty((group.size, *seen.shape))
        group.all_gather(bytes_of(parts), bytes_of(seen))
        seen.copy_(how.folded(parts))
    how.finish(seen, group.size)
    put_back(tensor, contiguous)


def all_reduce_joined(group: Caller, tensors: Sequence[torch.Tensor], how: Reduction) -> None:
    """Combine several tensors as one."""
    whole = joined(tensors)
    all_reduce(group, whole, how)
    spread(tensors, whole)


def all_reduce_sparse(group: Caller, tensor: torch.Tensor) -> None:
    """Sum sparse tensors, whose numbers of elements may differ."""
    own = tensor.coalesce()
    counts = torch.empty(group.size, dtype=torch.int64)
    group.all_gather(bytes_of(counts), bytes_of(torch.tensor([own._nnz()])))
    parts = []
    for mine in (own.indices().t().contiguous(), own.values().contiguous()):
        rows = [mine.new_empty((count, *mine.shape[1:])) for count in counts.tolist()]
        whole = room_for(rows)
        group.all_gather_v(bytes_of(whole), bytes_of(mine), receives=sizes_of(rows))
        spread(rows, whole)
        parts.append(rows)
    sums = (torch.sparse_coo_tensor(at.t(), values, own.shape) for at, values in zip(*parts, strict=True))
    tensor.copy_(functools.reduce(operator.add, sums).coalesce())


def reduce(group: Caller, tensor: torch.Tensor, root: int, how: Reduction) -> None:
    """Combine the elements of all ranks at the root, in place."""
    contiguous = flat(tensor)
    seen = how.seen(contiguous)
    is_root = group.rank == root
    if how.fold is None:
        source = bytes_of(seen)
        group.reduce(source if is_root else None, source, root, dtype=how.name, op=how.op)
    else:
        parts = [torch.empty_like(seen) for _ in range(group.size)] if is_root else []
        gather(group, parts, seen, root)
        if is_root:
            seen.copy_(how.folded(parts))
    if is_root:
        how.finish(seen, group.size)
        put_back(tensor, contiguous)


def all_gather(group: Caller, parts: Sequence[torch.Tensor], tensor: torch.Tensor) -> None:
    """Gather the elements of all ranks in a list of tensors, which may have different sizes."""
    contiguous, own = [flat(part) for part in parts], flat(tensor)
    spanned = span_of(contiguous)
    if spanned is None:
        whole = room_for(parts)
        group.all_gather_v(bytes_of(whole), bytes_of(own), receives=sizes_of(parts))
        return spread(parts, whole)
    span, at = spanned
    group.all_gather_v(span, bytes_of(own), receives=sizes_of(contiguous), receives_at=at)
    for part, each in zip(parts, contiguous, strict=True):
        put_back(part, each)
    return None


def all_gather_whole(group: Caller, output: torch.Tensor, tensor: torch.Tensor) -> None:
    """Gather the elements of all ranks side by side."""
    contiguous, own = flat(output), flat(tensor)
    group.all_gather(bytes_of(contiguous), bytes_of(own))
    put_back(output, contiguous)


def gather(group: Caller, parts: Sequence[torch.Tensor], tensor: torch.Tensor, root: int) -> None:
    """Gather the elements of all ranks at the root; other ranks pass no parts."""
    contiguous = flat(tensor)
    whole = room_for(parts) if parts else torch.empty(0)
    receives = sizes_of(parts) if parts else [0] * group.size
    sends = [contiguous.nbytes if rank == root else 0 for rank in range(group.size)]
    group.all_to_all_v(bytes_of(whole), bytes_of(contiguous), receives=receives, sends=sends)
    if parts:
        spread(parts, whole)


def scatter(group: Caller, tensor: torch.Tensor, parts: Sequence[torch.Tensor], root: int) -> None:
    """Give each rank one of the root's tensors; other ranks pass no parts."""
    contiguous = flat(tensor)
    whole = joined(parts) if parts else None
    group.scatter(bytes_of(contiguous), bytes_of(whole) if whole is not None else None, root)
    put_back(tensor, contiguous)


def reduce_scatter(
    group: Caller, tensor: torch.Tensor, parts: Sequence[torch.Tensor], how: Reduction
) -> None:
    """Combine lists of tensors of all ranks, and give each rank one of the results; they may have any sizes."""
    contiguous, seen = flat(tensor), [how.seen(flat(part)) for part in parts]
    own = how.seen(contiguous)
    if how.fold is None:
        span, at = span_of(seen) or (bytes_of(joined(seen)), None)
        sizes = sizes_of(seen)
        group.reduce_scatter_v(bytes_of(own), span, sends=sizes, sends_at=at, dtype=how.name, op=how.op)
    else:
        _fold(group, own, joined(seen), sizes_of(seen), how)
    how.finish(own, group.size)
    put_back(tensor, contiguous)


def reduce_scatter_whole(group: Caller, tensor: torch.Tensor, whole: torch.Tensor, how: Reduction) -> None:
    """Combine the elements of all ranks, and give each an equal part."""
    contiguous, seen = flat(tensor), how.seen(flat(whole))
    own = how.seen(contiguous)
    if how.fold is None:
        group.reduce_scatter(bytes_of(own), bytes_of(seen), dtype=how.name, op=how.op)
    else:
        _fold(group, own, seen, [own.nbytes] * group.size, how)
    how.finish(own, group.size)
    put_back(tensor, contiguous)


def _fold(
    group: Caller, own: torch.Tensor, whole: torch.Tensor, sends: Sequence[int], how: Reduction
) -> None:
    parts = own.new_empty((group.size, *own.shape))
    group.all_to_all_v(bytes_of(parts), bytes_of(whole), receives=[own.nbytes] * group.size, sends=sends)
    own.copy_(how.folded(parts))


def all_to_all(
    group: Caller, output: torch.Tensor, source: torch.Tensor, receives: Sequence[int], sends: Sequence[int]
) -> None:
    """Exchange parts of so many bytes between all ranks."""
    contiguous, own = flat(output), flat(source)
    group.all_to_all_v(bytes_of(contiguous), bytes_of(own), receives=receives, sends=sends)
    put_back(output, contiguous)


def all_to_all_lists(group: Caller, outputs: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Exchange tensors between all ranks."""
    whole = room_for(outputs)
    all_to_all(group, whole, joined(sources), sizes_of(outputs), sizes_of(sources))
    spread(outputs, whole)

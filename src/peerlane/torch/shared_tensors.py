"""Tensors of devices in several processes: handles of peerlane travel, as torch sends those of CUDA.

The sender keeps the memory until all copies of a handle were received and no process has it open.  That a process
has it open peerlane knows, and also that it has died.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.multiprocessing import reductions
from torch.multiprocessing.reductions import StorageWeakRef

from peerlane.errors import Error
from peerlane.memory import raw
from peerlane.memory.buffer import Buffer
from peerlane.sharing.handle import Handle
from peerlane.torch import device_module, device_objects

_RECEIPTS = 1 << 21  # bytes: a process that sends has one block of the device for them


class Shared(NamedTuple):
    """A storage on its way to another process.

    Attributes
    ----------
    device : int
    handle : bytes
        Of its memory; empty: it has none.
    nbytes : int
    receipts : bytes
        The handle of the sender's memory for receipts.
    receipt : int
        Which byte there the receiver sets.
    """

    device: int
    handle: bytes
    nbytes: int
    receipts: bytes
    receipt: int


@dataclass(slots=True)
class _Sent:
    handle: Handle
    awaited: set[int] = field(default_factory=set)  # receipts


class _Receipts:
    """Bytes in shared memory: a receiver sets one when it has opened what was sent."""

    def __init__(self, device: int) -> None:
        self._buffer = device_objects.present()[device].allocate(_RECEIPTS)
        self._buffer.fill(0)
        self._bytes = raw.view(self._buffer.address, _RECEIPTS)
        self.handle = bytes(self._buffer.export(allow="user"))
        self._unused, self._free = iter(range(_RECEIPTS)), list[int]()

    def take(self) -> int:
        receipt = self._free.pop() if self._free else next(self._unused, None)
        if receipt is None:
            raise RuntimeError(
                f"{_RECEIPTS:,} sent tensors have not been received; a process cannot send more until some are"
            )
        return receipt

    def is_set(self, receipt: int) -> bool:
        if not self._bytes[receipt]:
            return False
        self._bytes[receipt] = 0
        self._free.append(receipt)
        return True


class _Sharing:
    """What this process has sent and received."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sent: dict[int, _Sent] = {}  # by address
        self.receipts: _Receipts | None = None
        self.storages: dict[bytes, StorageWeakRef] = {}  # of this process, by handle
        self.opened: dict[bytes, tuple[Buffer, memoryview]] = {}  # memory for receipts of others


_sharing = _Sharing()


def _forget() -> None:
    global _sharing
    _sharing = _Sharing()


os.register_at_fork(after_in_child=_forget)


def share(storage: torch.UntypedStorage) -> Shared:
    """Send a storage; waits for the current stream, so that the receiver sees what is queued.

    Raises
    ------
    RuntimeError
        Another process has made the memory.
    """
    device, nbytes, address = storage.device.index, storage.nbytes(), storage.data_ptr()
    if not nbytes:
        return Shared(device, b"", 0, b"", 0)
    torch.accelerator.current_stream(storage.device).synchronize()
    collect()
    with _sharing.lock:
        sent = _sharing.sent.get(address)
        if sent is None:
            sent = _sharing.sent[address] = _export(address, nbytes)
        if _sharing.receipts is None:
            _sharing.receipts = _Receipts(device)
        receipt = _sharing.receipts.take()
        sent.awaited.add(receipt)
        handle = bytes(sent.handle)
        _sharing.storages[handle] = StorageWeakRef(storage)
        return Shared(device, handle, nbytes, _sharing.receipts.handle, receipt)


def _export(address: int, nbytes: int) -> _Sent:
    if not device_module.extension().hold(address):
        raise RuntimeError(
            "a tensor whose memory another process has made cannot be sent on: send a clone of it"
        )
    try:
        return _Sent(raw.buffer(address, nbytes).export(allow="user"))
    except BaseException:
        device_module.extension().let_go(address)
        raise


def receive(shared: Shared) -> torch.UntypedStorage:
    """Return the storage that was sent: the same bytes, and one storage for all that this process receives of it.

    Raises
    ------
    PeerLost
        The sender has ended.
    """
    if not shared.handle:
        return torch.empty(0, dtype=torch.uint8, device=_name(shared.device)).untyped_storage()
    with _sharing.lock:
        storage = _known(shared.handle)
        if storage is None:
            storage = _opened(shared).untyped_storage()
            _sharing.storages[shared.handle] = StorageWeakRef(storage)
        confirm(shared.receipts, shared.receipt)
        return storage


def _name(device: int) -> torch.device:
    return torch.device(device_module.kind(), device)


def _known(handle: bytes) -> torch.UntypedStorage | None:
    for each, reference in list(_sharing.storages.items()):
        if reference.expired():
            del _sharing.storages[each]
    reference = _sharing.storages.get(handle)
    storage: torch.UntypedStorage | None = (
        None if reference is None else torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    )
    return storage


class _Own:
    """Memory of this process that has come back to it, after its tensors had ended."""

    def __init__(self, address: int) -> None:
        self.address = address
        device_module.extension().hold(address)

    def close(self) -> None:
        device_module.extension().let_go(self.address)


def _opened(shared: Shared) -> torch.Tensor:
    own = (address for address, sent in _sharing.sent.items() if bytes(sent.handle) == shared.handle)
    address = next(own, None)
    buffer: Any = (
        Buffer.open(shared.handle, device=device_objects.present()[shared.device])
        if address is None
        else _Own(address)
    )
    bytes_of_it: torch.Tensor = device_module.extension().imported(
        buffer.address, shared.nbytes, shared.device, buffer
    )
    return bytes_of_it


def confirm(receipts: bytes, receipt: int) -> None:
    """Tell the sender that this process has received what it sent; nobody is told if the sender has ended."""
    with _sharing.lock, contextlib.suppress(Error):
        mine = _sharing.receipts
        if mine is not None and mine.handle == receipts:
            mine._bytes[receipt] = 1
            return
        if receipts not in _sharing.opened:
            buffer = Buffer.open(receipts)
            _sharing.opened[receipts] = buffer, raw.view(buffer.address, buffer.nbytes)
        _sharing.opened[receipts][1][receipt] = 1


def collect() -> None:
    """Free what was sent, received and closed by all."""
    with _sharing.lock:
        if _sharing.receipts is None:
            return
        for address, sent in list(_sharing.sent.items()):
            sent.awaited = {each for each in sent.awaited if not _sharing.receipts.is_set(each)}
            if not sent.awaited and not sent.handle.importers:
                del _sharing.sent[address]
                sent.handle.close()
                device_module.extension().let_go(address)


def reduce_tensor(tensor: torch.Tensor) -> tuple[Any, tuple[Any, ...]]:
    """Return what to pickle of a tensor, for ``multiprocessing``."""
    if tensor.device.type != device_module.kind() or tensor.layout is not torch.strided or tensor.is_nested:
        of_others: tuple[Any, tuple[Any, ...]] = _reduce_of_torch(tensor)
        return of_others
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "a tensor that is computed and requires a gradient cannot be sent, because autograd does not cross "
            "processes: send tensor.detach()"
        )
    layout = tensor.storage_offset(), tuple(tensor.size()), tuple(tensor.stride()), tensor.requires_grad
    return _rebuild, (type(tensor), share(tensor.untyped_storage()), tensor.dtype, layout)


def _rebuild(kind: type, shared: Shared, dtype: torch.dtype, layout: tuple[Any, ...]) -> torch.Tensor:
    storage = torch.TypedStorage(wrap_storage=receive(Shared(*shared)), dtype=dtype, _internal=True)
    tensor: torch.Tensor = reductions.rebuild_tensor(kind, storage, layout)
    return tensor


_reduce_of_torch = reductions.reduce_tensor


# torch's own code for CUDA calls these methods of a storage.


def _share_as_cuda(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    shared = share(storage)
    handle = shared.handle or None
    return shared.device, handle, shared.nbytes, 0, shared.receipts, shared.receipt, b"", False


def _receive_as_cuda(
    _kind: type,
    device: Any,
    handle: bytes,
    nbytes: int,
    _offset: int,
    receipts: bytes,
    receipt: int,
    *_event: Any,
) -> torch.UntypedStorage:
    number = device if isinstance(device, int) else torch.device(device).index
    return receive(Shared(number, handle, nbytes, receipts, receipt))


def _confirm_as_cuda(_kind: type, receipts: bytes, receipt: int) -> None:
    confirm(receipts, receipt)


def register() -> None:
    """Let ``torch.multiprocessing`` send tensors of the device."""
    device_objects.free_unused = collect
    if device_module.kind() == "cuda":
        torch.UntypedStorage._share_cuda_ = _share_as_cuda
        torch.UntypedStorage._new_shared_cuda = classmethod(_receive_as_cuda)
        torch.UntypedStorage._release_ipc_counter_cuda = classmethod(_confirm_as_cuda)
        return
    reductions.reduce_tensor = reduce_tensor
    for kind in (torch.Tensor, torch.nn.Parameter, *torch._tensor_classes):
        reductions.reduction.register(kind, reduce_tensor)

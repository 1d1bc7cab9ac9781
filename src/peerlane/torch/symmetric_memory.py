"""Symmetric memory (``torch.distributed._symmetric_memory``): each rank maps the memory of all ranks of a group.

The extension calls this module.  Signals are notifies: a signal and the wait for it are operations of streams.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from peerlane.diagnostics.waits import stream_waits
from peerlane.errors import Error
from peerlane.memory.buffer import Buffer
from peerlane.node.device import Device
from peerlane.ranks.bank import open_bank
from peerlane.ranks.deadlock import wait_state
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream
from peerlane.support import exits
from peerlane.torch import device_module, device_objects
from peerlane.torch.failures import converted
from peerlane.torch.meeting import Meeting
from peerlane.torch.process_group import PeerlaneGroup

_ALIGNMENT = 16  # bytes, of the signal pad
_WORD = 4  # bytes of a signal pad for each channel and rank, as torch counts channels
_MOST_CHANNELS = 1 << 17  # between two ranks
_LINES = 4  # of a channel between two ranks: a signal and its consumption, in both directions
_LAST_SECONDS = 10.0  # how long the end of a process waits
_OVERLAPPING = "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"


@dataclass(slots=True)
class _Allocation:
    device: int
    nbytes: int
    pad: int  #: bytes of the signal pad
    pad_at: int  #: where it begins
    group: str | None  #: of a rendezvous that names none
    buffer: Buffer
    tensor: torch.Tensor  #: its end closes the buffer after what is queued
    shared: dict[str, SymmetricMemory] = field(default_factory=dict)  #: by group


_allocations: dict[int, _Allocation] = {}  # by address
_signalling: set[Stream] = set()  # streams on which signals were queued
atexit.register(_allocations.clear)


def _finish() -> None:
    """Let the end of the process wait for queued signals: other ranks wait for them."""
    end = time.monotonic() + _LAST_SECONDS
    for stream in _signalling:
        with contextlib.suppress(Error):
            stream.record().sync(max(0.0, end - time.monotonic()))


def allocate(nbytes: int, device: int, pad: int, group: str | None) -> int:
    """Return the address of new memory, which a signal pad of zeros follows.

    Raises
    ------
    torch.OutOfMemoryError
    """
    room = _up(nbytes, _ALIGNMENT)
    # The export of a smaller buffer would move its bytes, and kernels find bytes by address.
    whole = _up(room + pad, device_objects.present()[device].granularity)
    buffer = device_objects.allocate(device, whole)
    if isinstance(buffer, str):
        torch.accelerator.empty_cache()
        buffer = device_objects.allocate(device, whole)
    if isinstance(buffer, str):
        raise torch.OutOfMemoryError(
            f"{device_module.kind().upper()} out of memory. {nbytes:,} bytes of symmetric memory and a signal pad of "
            f"{pad:,} were asked for on {device_module.kind()}:{device}. {buffer}"
        )
    buffer[room : room + pad].fill(0)
    tensor = device_module.extension().imported(buffer.address, whole, device, buffer)
    _allocations[buffer.address] = _Allocation(device, nbytes, pad, room, group, buffer, tensor)
    return int(buffer.address)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def free(address: int) -> None:
    """Free memory after what is queued on its device; a rendezvous keeps it as long as that is used."""
    _allocations.pop(address, None)  # at the end of the process all are freed before


def size_of(address: int) -> int:
    """Return the bytes that were asked for."""
    return _allocations[address].nbytes


def has(address: int) -> bool:
    """Return whether an address is that of an allocation."""
    return address in _allocations


def rendezvous(address: int, group_name: str | None) -> SymmetricMemory | None:
    """Exchange memory and signals with all ranks of a group, which all call this.

    Returns None if the memory is no symmetric memory.

    Raises
    ------
    RuntimeError
        No group is named, or the ranks' memory cannot be symmetric.
    DistBackendError
        A rank did not come, or its memory cannot be opened.
    """
    own = _allocations.get(address)
    if own is None:
        return None
    group_name = own.group if group_name is None else group_name
    if group_name is None:
        raise RuntimeError("rendezvous: no group is named; pass one, such as torch.distributed.group.WORLD")
    if group_name not in own.shared:
        own.shared[group_name] = SymmetricMemory(own, group_name)
    return own.shared[group_name]


class SymmetricMemory:
    """The memory of all ranks of a group, and the signals between them.

    Attributes
    ----------
    buffers, pads : list of int
        The addresses of each rank's memory and signal pad.
    nbytes, rank, device : int
    global_ranks : list of int
        The numbers of the group's ranks in the world.
    """

    def __init__(self, own: _Allocation, group_name: str) -> None:
        group = c10d._resolve_process_group(group_name)
        self.rank, self._size = group.rank(), group.size()
        self.nbytes, self.device = own.nbytes, own.device
        self.global_ranks = dist.get_process_group_ranks(group)
        self._session = group.session if isinstance(group, PeerlaneGroup) else None
        self._node_device: Device = device_objects.present()[own.device]
        self._channels: int = min(own.pad // (_WORD * self._size), _MOST_CHANNELS)
        self._kept = [own.tensor]  # as long as this is used
        self._tables = dict[str, torch.Tensor]()
        self._notifies = dict[tuple[_Slot, bool], Notify]()
        self._put = set[_Slot]()
        store = dist.PrefixStore(f"peerlane/symmetric/{group_name}", c10d._get_process_group_store(group))
        self._seconds = store.timeout.total_seconds()
        meeting = Meeting(store, self.rank, self._size, self._seconds, call="rendezvous")
        try:
            with contextlib.ExitStack() as offered:
                self._map(own, meeting, offered)
        except Error as error:
            raise converted("rendezvous", error) from error

    def _map(self, own: _Allocation, meeting: Meeting, offered: contextlib.ExitStack) -> None:
        ranks = self._node_device.backend.ranks
        # Two ranks have a bank of their own, so that the end of a process ends the waits for it alone.
        self._banks = {peer: ranks.create_bank(self._lines) for peer in range(self.rank, self._size)}
        banks = [""] * self._size
        for peer, bank in self._banks.items():
            if peer != self.rank:
                handle = ranks.offer_bank(bank, self._node_device, bank, self._channels, "user")
                offered.callback(handle.close)
                banks[peer] = bytes(handle).decode()
        memory = offered.enter_context(contextlib.closing(own.buffer.export(allow="user")))
        offer = _Offer(own.nbytes, own.pad, self._node_device.ordinal, bytes(memory).decode(), banks)
        offers = [
            _Offer.decoded(rank, text, self._size)
            for rank, text in enumerate(meeting.all_gather("offer", json.dumps(offer).encode()))
        ]
        problem = b""
        try:
            _check_alike(offers)
            self.buffers = [
                own.buffer.address if peer == self.rank else self._opened(each, peer, own.buffer.nbytes)
                for peer, each in enumerate(offers)
            ]
        except (Error, RuntimeError) as error:
            problem = str(error).encode()
            raise
        finally:  # from now on a rank may free its memory, and none waits for one that has failed
            problems = meeting.all_gather("opened", problem)
        failed = {rank: text.decode(errors="replace") for rank, text in enumerate(problems) if text}
        if failed:
            raise RuntimeError(f"rendezvous: other ranks have failed: {failed}")
        self.pads = [each + own.pad_at for each in self.buffers]

    @property
    def _lines(self) -> int:
        return _LINES * self._channels

    def _opened(self, offer: _Offer, peer: int, nbytes: int) -> int:
        buffer = Buffer.open(offer.memory, device=self._node_device, timeout=self._seconds)
        address, size = buffer.address, buffer.nbytes
        self._kept.append(device_module.extension().imported(address, size, self.device, buffer))
        if size != nbytes:
            raise RuntimeError(f"rendezvous: rank {peer} offers {size:,} bytes; it must offer {nbytes:,}")
        if peer < self.rank:
            handle = offer.banks[self.rank]
            self._banks[peer] = open_bank("rendezvous", self._node_device, handle, self._lines, self._seconds)
        return int(address)

    # What torch calls.

    def put_signal(self, peer: int, channel: int, milliseconds: int) -> None:
        """Queue a signal to a rank; the stream waits until the rank has consumed the last one of the channel.

        No milliseconds: without a time-out.
        """
        slot = self._slot("put_signal", self.rank, peer, channel)
        if slot in self._put:
            self._queue_wait(slot, True, milliseconds)
        self._stream().notify(self._notify(slot, False))
        self._put.add(slot)

    def wait_signal(self, peer: int, channel: int, milliseconds: int) -> None:
        """Queue a wait for a signal of a rank, which consumes it; no milliseconds: without a time-out."""
        slot = self._slot("wait_signal", peer, self.rank, channel)
        self._queue_wait(slot, False, milliseconds)
        self._stream().notify(self._notify(slot, True))

    def barrier(self, channel: int, milliseconds: int) -> None:
        """Queue a signal to each other rank, and a wait for one of each."""
        self._slot("barrier", self.rank, self.rank, channel)
        peers = [peer for peer in range(self._size) if peer != self.rank]
        for peer in peers:
            self.put_signal(peer, channel, milliseconds)
        for peer in peers:
            self.wait_signal(peer, channel, milliseconds)

    def buffers_on_device(self) -> int:
        """Return the address on the device of the addresses of all buffers."""
        return self._table("buffers", self.buffers)

    def pads_on_device(self) -> int:
        """Return the address on the device of the addresses of all signal pads."""
        return self._table("pads", self.pads)

    def _table(self, name: str, addresses: list[int]) -> int:
        if name not in self._tables:
            device = torch.device(device_module.kind(), self.device)
            self._tables[name] = torch.tensor(addresses, dtype=torch.uint64, device=device)
        return int(self._tables[name].data_ptr())

    def _slot(self, call: str, source: int, target: int, channel: int) -> _Slot:
        peer = target if source == self.rank else source
        if not 0 <= peer < self._size:
            raise RuntimeError(f"{call}: rank {peer} does not exist; valid are 0 to {self._size - 1}")
        if not 0 <= channel < self._channels:
            raise RuntimeError(
                f"{call}: channel {channel} does not exist; valid are 0 to {self._channels - 1}. For more channels "
                "call torch.distributed._symmetric_memory.set_signal_pad_size before the memory is allocated"
            )
        return _Slot(source, target, channel)

    def _queue_wait(self, slot: _Slot, is_consumption: bool, milliseconds: int) -> None:
        self._stream().wait(self._notify(slot, is_consumption), timeout=milliseconds / 1e3 or None)

    def _notify(self, slot: _Slot, is_consumption: bool) -> Notify:
        """Return the notify of a signal, or of its consumption."""
        key = slot, is_consumption
        if key not in self._notifies:
            source, target, channel = slot
            bank = self._banks[source + target - self.rank]
            line = (channel * 2 + (source > target)) * 2 + is_consumption
            notify = self._node_device.backend.ranks.line(self._node_device, NotifyKind.BINARY, bank, line)
            by, to = (target, source) if is_consumption else (source, target)
            what = "consumption of the signal" if is_consumption else "signal"
            stream_waits.notify_names[notify.id] = f"{what} of channel {channel} from rank {by} to rank {to}"
            if self._session is not None and to == self.rank:
                wait_state.expect(self._session, by, notify.id)
            self._notifies[key] = notify
        return self._notifies[key]

    def _stream(self) -> Stream:
        stream = device_module.stream_of(torch.accelerator.current_stream(self.device))
        if not _signalling:
            exits.before_node_ends(_finish)
        _signalling.add(stream)
        return stream

    def __del__(self) -> None:
        for notify in self.__dict__.get("_notifies", {}).values():
            stream_waits.notify_names.pop(notify.id, None)
            wait_state.awaited.pop(notify.id, None)


class _Slot(NamedTuple):
    """Where one rank puts signals for another one, or for itself."""

    source: int
    target: int
    channel: int


class _Offer(NamedTuple):
    """What a rank offers to the others.

    Attributes
    ----------
    nbytes, pad : int
    device : int
        Of the node.
    memory : str
        A handle.
    banks : list of str
        By rank: the handle of the bank of signals between the two; empty: the other rank offers it.
    """

    nbytes: int
    pad: int
    device: int
    memory: str
    banks: list[str]

    @classmethod
    def decoded(cls, rank: int, text: bytes, size: int) -> _Offer:
        """Read what a rank offers to so many ranks."""
        try:
            nbytes, pad, device, memory, banks = json.loads(text)
            is_right = all(type(each) is int for each in (nbytes, pad, device)) and isinstance(banks, list)
            is_right = is_right and len(banks) == size and all(type(each) is str for each in (memory, *banks))
        except (TypeError, ValueError, RecursionError):
            is_right = False
        if not is_right:
            raise RuntimeError(
                f"rendezvous: the offer of rank {rank} in the store is damaged, or of another version of peerlane"
            )
        return cls(nbytes, pad, device, memory, banks)


def _check_alike(offers: list[_Offer]) -> None:
    if len({(each.nbytes, each.pad) for each in offers}) > 1:
        differing = ", ".join(
            f"rank {rank} has {each.nbytes:,} and {each.pad:,} bytes" for rank, each in enumerate(offers)
        )
        raise RuntimeError(f"rendezvous: memory and signal pads of all ranks must have one size: {differing}")
    devices = [each.device for each in offers]
    if len(set(devices)) < len(devices) and os.environ.get(_OVERLAPPING) != "1":
        raise RuntimeError(
            f"rendezvous: the ranks' memory is on the devices {devices}; torch takes memory on a device of its own "
            f"from each rank. For a test set {_OVERLAPPING}=1"
        )

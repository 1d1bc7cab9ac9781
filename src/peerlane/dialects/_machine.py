"""What every dialect needs of the machine: current device per thread, address to buffer, messages.

All state here belongs to one node: when the process leaves it and enters another, a dialect starts afresh.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable

import peerlane
from peerlane import Buffer, Device, Host, Kind, memory, raw
from peerlane.errors import Error, Fault, InvalidValue

_REMEMBERED = 64


class Context:
    """One use of a device by this process, from the first reference to the last.

    Attributes
    ----------
    device : Device or None
    references : int
        How often it was selected and not yet released.
    is_live : bool
        Never true again once it was false: a later selection makes another context.
    """

    __slots__ = ("device", "is_live", "references")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.references = 0
        self.is_live = True


class _NoContext:
    __slots__ = ()
    is_live = False


class Here(threading.local):
    """What is current in this thread."""

    context: Context | _NoContext = _NoContext()


class Machine:
    """A dialect's view of the node: which device each thread uses, and whose every address is.

    Attributes
    ----------
    here : Here
        What is current in the calling thread; replaced as a whole when the node is.
    lock : RLock
        Held while a table changes in more than one step.
    """

    def __init__(self) -> None:
        self._renew_lock()
        # A thread that held the lock during a fork does not exist in the child, which would wait for ever.
        os.register_at_fork(after_in_child=self._renew_lock)
        self._node: tuple[Device, ...] = ()
        self.forget()

    def _renew_lock(self) -> None:
        self.lock = threading.RLock()

    def forget(self) -> None:
        """Drop all that belongs to the node."""
        self.here = Here()
        self._contexts: dict[int, Context] = {}
        self._buffers: dict[int, tuple[Buffer, Context | None]] = {}

    def devices(self) -> tuple[Device, ...]:
        """Return the devices of this process's node, having forgotten another one's state."""
        present = peerlane.devices()
        if present is not self._node:
            with self.lock:
                if present is not self._node:
                    self.forget()
                    self._node = present
        return present

    def device(self, ordinal: int) -> Device:
        """Return a device by number; ``INVALID_DEVICE`` with the valid ones."""
        present = self.devices()
        if not 0 <= ordinal < len(present):
            raise InvalidValue(
                f"there is no device {ordinal}; this node has {len(present)}, numbered 0 to {len(present) - 1}",
                fault=Fault.INVALID_DEVICE,
            )
        return present[ordinal]

    def select(self, ordinal: int, *, share: bool = False) -> Context:
        """Make a device current in this thread, with one more reference (``share``: only if it has none)."""
        device = self.device(ordinal)
        with self.lock:
            context = self._contexts.setdefault(ordinal, Context(device))
            if not (share and context.references):
                context.references += 1
            self.here.context = context
        return context

    def release(self, ordinal: int) -> bool:
        """Drop one reference; the last one frees the context's memory.  False: there was none."""
        self.device(ordinal)
        with self.lock:
            context = self._contexts.get(ordinal)
            if context is None:
                return False
            context.references -= 1
            if context.references:
                return True
            context.is_live = False
            del self._contexts[ordinal]
            lost = [address for address, (_, owner) in self._buffers.items() if owner is context]
            buffers = [self._buffers.pop(address)[0] for address in lost]
        for buffer in buffers:
            _close(buffer, f"the last reset of {context.device.name}")
        return True

    def current(self) -> Context | None:
        """Return the context of this thread, None if it has none or it was released."""
        self.devices()
        context = self.here.context
        return context if isinstance(context, Context) and context.is_live else None

    def allocate(self, context: Context, nbytes: int, *, peer: bool) -> int | None:
        """Allocate device memory and return its address; None if the context was released meanwhile."""
        buffer = context.device.allocate(nbytes, peer=peer)
        with self.lock:
            if context.is_live:
                self._buffers[buffer.address] = buffer, context
                return buffer.address
        _close(buffer, f"the last reset of {context.device.name}")
        return None

    def allocate_host(self, nbytes: int) -> int:
        """Allocate pinned host memory and return its address."""
        buffer = Host().allocate(nbytes)
        self._buffers[buffer.address] = buffer, None
        return buffer.address

    def owned(self, address: int, *, host: bool) -> Buffer | None:
        """Return the buffer that this dialect allocated at exactly this address."""
        self.devices()
        buffer, context = self._buffers.get(address, (None, None))
        return buffer if host == (context is None) else None

    def free(self, address: int, *, host: bool, call: str) -> bool:
        """Free what was allocated at exactly this address; False if this dialect allocated nothing there."""
        with self.lock:
            if self.owned(address, host=host) is None:
                return False
            buffer, _ = self._buffers.pop(address)
        _close(buffer, call)
        return True

    def describe(self, address: int) -> str:
        """Say in words what an address points at."""
        if address == 0:
            return "NULL"
        try:
            place = raw.locate(address)
        except Error as error:
            freed = error.fault is Fault.FREED_ADDRESS
            return f"{address:#x} ({'freed memory' if freed else 'nothing is allocated there'})"
        if place.kind is Kind.PAGEABLE:
            return f"{address:#x} (pageable host memory)"
        name = memory.record_of(place.allocation) or f"the {place.size:,} bytes at {place.base:#x}"
        offset = address - place.base
        return f"{address:#x} ({f'byte {offset:,}' if offset else 'start'} of {name})"


class Messages:
    """The latest texts of failures: kept per thread, or for all threads together when ``shared``."""

    def __init__(self) -> None:
        self.shared = False
        self._local = threading.local()
        self._common: deque[str] = deque(maxlen=_REMEMBERED)

    def add(self, text: str) -> None:
        """Put a text before the others."""
        self._kept().appendleft(text)

    def take(self) -> Iterable[str]:
        """Return the texts, newest first, and forget them."""
        kept, taken = self._kept(), []
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while True:
                taken.append(kept.popleft())
        return taken

    def _kept(self) -> deque[str]:
        if self.shared:
            return self._common
        try:
            kept: deque[str] = self._local.kept
        except AttributeError:
            kept = self._local.kept = deque(maxlen=_REMEMBERED)
        return kept


def _close(buffer: Buffer, freed_by: str) -> None:
    memory.forget(buffer.id, freed_by)
    buffer.close()

"""Memory that was freed to a pool, kept for reuse until a wait shows that its free is over.

HIP's runtime has the same rules (`hip_mempool_impl.cpp` of ROCm/rocm-systems).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from typing import TypeVar

from peerlane import Buffer, Device, Event
from peerlane.diagnostics.log import event_log
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.streams import AnyStream, Streams
from peerlane.errors import OutOfMemory
from peerlane.node.device import before_counting

_Allocated = TypeVar("_Allocated")
REUSE = FOLLOW_EVENTS, OPPORTUNISTIC, _INTERNAL = (
    1,
    2,
    3,
)  # attributes of a pool, by the number that vendors share
THRESHOLD = 4
_SPARE = 8  # memory is reused for what needs at least 8 of 9 parts of it


class Freed:
    """Memory that was freed in the order of a stream.

    Attributes
    ----------
    kept : Kept
        The pool that keeps it.
    buffer : Buffer
    stream : AnyStream
    event : Event
        Over when the free is.
    safe : set
        The streams that are behind the free: there it may be used at once.
    """

    __slots__ = ("kept", "buffer", "stream", "event", "safe")

    def __init__(self, kept: Kept, buffer: Buffer, stream: AnyStream, event: Event) -> None:
        self.kept, self.buffer, self.stream, self.event, self.safe = kept, buffer, stream, event, {stream}


def _is_over(freed: Freed) -> bool:
    with event_log.quiet():  # the program did not ask
        return freed.event.is_done


class Reuse:
    """All freed memory that pools of a vendor's program keep."""

    def __init__(self, machine: GpuMachine, streams: Streams) -> None:
        self.machine = machine
        self._filled: set[Kept] = set()
        self._observers: list[Callable[[bool], object]] = []
        streams.after_waiting(self._release)
        before_counting.append(self._give_all_back)

    def note(self, kept: Kept, *, is_filled: bool) -> None:
        """Note whether a pool keeps memory."""
        (self._filled.add if is_filled else self._filled.discard)(kept)
        for observer in self._observers:
            observer(bool(self._filled))

    def when_kept(self, observer: Callable[[bool], object]) -> None:
        """Call a function with whether any pool keeps memory, each time that this may have changed."""
        self._observers.append(observer)

    def _of(self, device: Device) -> list[Kept]:
        for left in [
            each for each in tuple(self._filled) if each.device.is_closed
        ]:  # of a node that this process left
            self.note(left, is_filled=False)
        return [each for each in tuple(self._filled) if each.device is device]

    def _release(self, device: Device) -> None:
        if self._filled:
            for kept in self._of(device):
                kept.release()

    def with_room(self, device: Device, allocate: Callable[[], _Allocated]) -> _Allocated:
        """Allocate; if there is no room, give all kept memory back to the device and try once more."""
        try:
            return allocate()
        except OutOfMemory:
            if not self._give_back(device):
                raise
        return allocate()

    def _give_back(self, device: Device) -> bool:
        """Give a device all that its pools keep, in the order of the streams; tell whether there was any."""
        filled = self._of(device)
        for kept in filled:
            kept.release(0, at_once=True)
        return bool(filled)

    def _give_all_back(self) -> None:
        for device in {kept.device for kept in tuple(self._filled)}:
            self._give_back(device)

    def freed_before(self, stream: AnyStream) -> tuple[Freed, ...]:
        """Return the memory that was freed before later work of a stream."""
        filled = tuple(self._filled)
        return tuple(freed for kept in filled for freed in kept.behind(stream)) if filled else ()

    @staticmethod
    def follow(freed: Iterable[Freed], stream: AnyStream) -> None:
        """Note that a stream is behind the free of memory, where pools follow events."""
        for each in freed:
            if each.kept.settings[FOLLOW_EVENTS]:
                each.safe.add(stream)


class Kept:
    """Memory that was freed to a pool and that the device does not have back yet.

    Attributes
    ----------
    nbytes : int
    settings : dict
        The attributes of the pool, by number.
    """

    def __init__(self, reuse: Reuse, device: Device, settings: dict[int, int]) -> None:
        self._reuse = reuse
        self.device, self.settings, self.nbytes = device, settings, 0
        self._freed: list[Freed] = []  # smallest first

    def add(self, buffer: Buffer, stream: AnyStream) -> None:
        """Keep memory that is freed in the order of a stream."""
        with event_log.freed_for_reuse(buffer, stream.neutral):
            freed = Freed(self, buffer, stream, stream.neutral.record())
        with self._reuse.machine.lock:
            bisect.insort(self._freed, freed, key=_size)
            self.nbytes += buffer.size
            self._reuse.note(self, is_filled=True)

    def take(self, size: int, stream: AnyStream) -> Buffer | None:
        """Return memory to be used in the order of a stream, if some was kept that fits."""
        with self._reuse.machine.lock:
            for freed in self._freed[bisect.bisect_left(self._freed, size, key=_size) :]:
                if freed.buffer.size > size + size // _SPARE:
                    break
                is_safe = stream in freed.safe
                if is_safe or (self.settings[OPPORTUNISTIC] and _is_over(freed)):
                    if not is_safe:
                        event_log.reused(freed.buffer)  # the program does not know that the free is over
                    self._remove(freed)
                    return freed.buffer
        return None

    def release(self, least: int | None = None, *, at_once: bool = False) -> None:
        """Give memory back to the device, down to as many bytes as the release threshold says, or ``least``.

        Memory that no stream has come to the free of stays; ``at_once``: it goes, in the order of its stream.
        """
        if least is None:
            least = self.settings[THRESHOLD]
        for freed in tuple(self._freed):
            if self.nbytes <= least:
                return
            is_over = _is_over(freed)
            if is_over or at_once:
                with self._reuse.machine.lock:
                    if freed not in self._freed:
                        continue  # another thread was quicker
                    self._remove(freed)
                freed.buffer.close(stream=None if is_over else freed.stream.neutral)

    def drop(self) -> None:
        """Give all back to the device, whose streams have ended."""
        with self._reuse.machine.lock:
            freed, self._freed, self.nbytes = self._freed, [], 0
            self._reuse.note(self, is_filled=False)
        for each in freed:
            each.buffer.close()

    def behind(self, stream: AnyStream) -> Iterable[Freed]:
        """Return the memory that was freed before later work of a stream."""
        return [freed for freed in self._freed if stream in freed.safe]

    def _remove(self, freed: Freed) -> None:
        self._freed.remove(freed)
        self.nbytes -= freed.buffer.size
        if not self._freed:
            self._reuse.note(self, is_filled=False)


def _size(freed: Freed) -> int:
    return freed.buffer.size

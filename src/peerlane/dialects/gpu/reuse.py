"""Memory that was freed to a pool, kept for reuse until a wait shows that its free is over.

HIP's runtime has the same rules (`hip_mempool_impl.cpp` of ROCm/rocm-systems).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from peerlane import Buffer, Device, Event
from peerlane.backend import host, registry
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.memory import allocations
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


class Reuse:
    """All memory that pools of a vendor's program have."""

    def __init__(self, machine: GpuMachine, streams: Streams) -> None:
        self.machine, self.streams = machine, streams
        self._native: Any = None
        self._pools: weakref.WeakSet[PoolMemory] = weakref.WeakSet()
        streams.after_waiting(self._release)
        before_counting.append(self._give_all_back)
        allocations.before_reading.append(self.follow_quick_calls)

    @property
    def native(self) -> Any:
        """The same for native code."""
        if self._native is None:
            with self.machine.lock:
                self._native = self._native or host.Pools()
        return self._native

    def enter(self, memory: PoolMemory) -> None:
        """Enter the memory of a new pool."""
        self._pools.add(memory)

    def follow_quick_calls(self) -> None:
        """Let records of allocations show what calls of C without Python did, of which no line is known."""
        if self._native is None:
            return
        call = self.machine.vendor.calls["free_async"]
        for allocation, is_in_use, is_reused in self._native.take_changes():
            pool = self.machine.pooled.get(allocation)
            buffer = None if pool is None else pool.memory.buffer(allocation)
            if buffer is None:
                continue
            if is_reused:
                where = buffer.last_address, buffer.size, buffer.device.name
                allocations.reused(allocation, *where, by_line=False)
            if not is_in_use:
                allocations.forget(allocation, call, by_line=False)

    def _of(self, device: Device) -> list[PoolMemory]:
        return [each for each in tuple(self._pools) if each.device is device and each.kept]

    def _release(self, device: Device) -> None:
        if self.native.keep_memory:
            for memory in self._of(device):
                memory.release()

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
        for memory in filled:
            memory.release(0, at_once=True)
        return bool(filled)

    def _give_all_back(self) -> None:
        for device in {each.device for each in tuple(self._pools) if not each.device.is_closed}:
            self._give_back(device)


class PoolMemory:
    """The memory of a pool: in use, or freed and kept."""

    def __init__(self, reuse: Reuse, device: Device) -> None:
        self._reuse, self.device = reuse, device  #: ``device``: whose streams free it
        self._is_native = device.backend.name == registry.DEFAULT
        number = device.backend.number(device.ordinal) if self._is_native else 0
        #: The same for native code, with the attributes of the pool.
        self.native = host.PoolMemory(reuse.native, number)
        self._buffers: dict[int, Buffer] = {}
        self._events: dict[int, Event] = {}  # of frees that native code knows nothing of
        reuse.enter(self)

    @property
    def used(self) -> int:
        """How many bytes are in use."""
        return int(self.native.used)

    @property
    def kept(self) -> int:
        """How many bytes are kept."""
        return int(self.native.kept)

    def buffer(self, allocation: int) -> Buffer | None:
        """Return memory of it, in use or kept, by its number."""
        return self._buffers.get(allocation)

    def is_in_use(self, buffer: Buffer) -> bool:
        """Tell whether memory of it is in use, and not kept."""
        return bool(self.native.is_in_use(buffer.id))

    def enter(self, buffer: Buffer) -> None:
        """Enter memory that the location gave, in use."""
        self._buffers[buffer.id] = buffer
        self.native.add(buffer.id, buffer.address, buffer.size)

    def end(self, buffer: Buffer) -> bool:
        """Drop memory in use that goes back to the location; False if another thread has freed it."""
        return bool(self.native.begin_free(buffer.id)) and self._remove(buffer)

    def remove_closed(self) -> list[Buffer]:
        """Drop memory that ended with a context, and return it."""
        closed = [each for each in tuple(self._buffers.values()) if each.is_closed]
        return [each for each in closed if self._remove(each)]

    def _remove(self, buffer: Buffer) -> bool:
        self._buffers.pop(buffer.id, None)
        self._events.pop(buffer.id, None)
        return bool(self.native.remove(buffer.id))

    def free(self, buffer: Buffer, stream: AnyStream, call: str) -> None:
        """Free memory in the order of a stream, and keep it; nothing happens if another thread has freed it."""
        allocation = buffer.id
        if self.kept > self.used:
            self.release()
        if not self.native.begin_free(allocation):
            return
        try:
            with event_log.freed_for_reuse(buffer, stream.neutral):
                event = stream.neutral.record()
        except BaseException:
            self.native.use(allocation)
            raise
        allocations.forget(allocation, call)
        if not self._is_native:
            self._events[allocation] = event
        self.native.keep(allocation, stream.neutral.id, event if self._is_native else None)

    def take(self, size: int, stream: AnyStream) -> Buffer | None:
        """Return memory to be used in the order of a stream, if some was kept that fits."""
        for allocation, is_safe in self.native.fitting(size, stream.neutral.id):
            if is_safe or (self.native.setting(OPPORTUNISTIC) and self._is_over(allocation)):
                buffer = self._buffers.get(allocation)
                if buffer is not None and self.native.use(allocation):
                    if not is_safe:
                        event_log.reused(buffer)  # the program does not know that the free is over
                    return buffer
        return None

    def _is_over(self, allocation: int) -> bool:
        """Tell whether the free of kept memory is over."""
        freed = self.native.freed(allocation)
        if freed is None:
            return False  # another thread uses it again
        event = self._events.get(allocation)
        with event_log.quiet():  # the program did not ask
            return event.is_done if event is not None else bool(freed[1].query())

    def release(self, least: int | None = None, *, at_once: bool = False) -> None:
        """Give memory back to the device, down to as many bytes as the release threshold says, or ``least``.

        Memory that no stream has come to the free of stays; ``at_once``: it goes, in the order of its stream.
        """
        if least is None:
            least = self.native.setting(THRESHOLD)
        for allocation in self.native.kept_allocations():
            if self.kept <= least:
                return
            is_over = self._is_over(allocation)
            if is_over or at_once:
                self._give_back(allocation, in_order=not is_over)

    def drop(self) -> None:
        """Give all back to the device, whose streams have ended."""
        for allocation in self.native.kept_allocations():
            self._give_back(allocation, in_order=False)

    def _give_back(self, allocation: int, *, in_order: bool) -> None:
        freed, buffer = self.native.freed(allocation), self._buffers.get(allocation)
        if freed is None or buffer is None or not self._remove(buffer):
            return  # another thread was quicker
        self._reuse.machine.drop_pooled(buffer)
        stream = self._reuse.streams.with_queue(freed[0]) if in_order else None
        buffer.close(stream=None if stream is None else stream.queue)

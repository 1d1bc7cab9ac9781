"""What native code records to answer calls of C without Python (docs/design/c-libraries.md)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from peerlane.backend import host
from peerlane.dialects._shared.c_library import Words
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.gpu.gpu import Gpu
from peerlane.dialects.gpu.pools import Pool
from peerlane.dialects.gpu.streams import PER_THREAD_STREAM
from peerlane.streams import callbacks

ASK = -1
_HALF_WORD = 32  # bits


class QuickCalls:
    """Records facts of this thread after calls of C that the dialect has answered, each as of an epoch.

    A method gets the epoch in which the call began, and the call's words.

    ``may``: returns whether native code may answer calls of this thread at all.
    ``not_ready``: returns the code of a query of work that is not over, `ASK` if the dialect must be asked.
    """

    def __init__(
        self,
        dialect: str,
        gpu: Gpu,
        *,
        may: Callable[[], bool] = lambda: True,
        not_ready: Callable[[], int] = lambda: ASK,
    ) -> None:
        self._dialect, self._gpu, self._may, self._not_ready = dialect, gpu, may, not_ready

    def of_streams(self, prefix: str) -> dict[str, Callable[[int, Words], object]]:
        """Return what is recorded after the calls of streams and events that vendors name alike."""
        return {
            f"{prefix}EventRecord": self.record,
            f"{prefix}EventQuery": self.event,
            f"{prefix}EventSynchronize": self.event,
            f"{prefix}StreamWaitEvent": self.wait,
            f"{prefix}StreamQuery": self.stream,
            f"{prefix}StreamSynchronize": self.stream,
            f"{prefix}LaunchHostFunc": self.call,
        }

    def of_pools(
        self, allocate: str, allocate_from: str, free: str
    ) -> dict[str, Callable[[int, Words], object]]:
        """Return what is recorded after the calls of pools, by their names."""
        return {allocate: self.allocate, allocate_from: self.allocate_from, free: self.stream}

    def thread(self, then: int, _: Words = ()) -> bool:
        """Record this thread's device and null stream; return whether native code may answer its calls."""
        machine = self._gpu.machine
        needs_context = machine.vendor.policy.needs_context
        context = machine.current() if needs_context else machine.context()
        if self._gpu.streams.captures.begun or not self._may():
            return False
        number, null = -1, None
        if context is not None:
            if not machine.is_native(context) or context in machine.unusable:
                return False
            number = machine.id_of(context.device.ordinal)
            null = None if context.default_stream is None else context.default_stream.neutral
            context.native.know(number, null)
        stack = machine.pushed if needs_context else None
        registered = bool(machine.registrations)
        may_lack_access = machine.has_pools and machine.vendor.policy.pool_access == "own"
        host.know_c_thread(
            self._dialect,
            then,
            number,
            registered,
            may_lack_access,
            self._not_ready(),
            stack,
            self._gpu.reuse.native,
        )
        if null is not None:
            host.know_c_stream(self._dialect, then, 0, null, self._number_of(context))
        return True

    def _number_of(self, context: Context | None) -> int:
        """Return the handle of a context, 0 where contexts do not count."""
        if context is None or not self._gpu.machine.vendor.policy.own_contexts:
            return 0
        return context.handle

    def constant(self, function: str, size: int) -> Callable[[int, Words], None]:
        """Return what records the bytes that a function has written to its first word, by its last words."""

        def record(then: int, words: Words) -> None:
            if self.thread(then):
                about = 0
                for word in words[1:]:
                    about = about << _HALF_WORD | word & (1 << _HALF_WORD) - 1
                host.know_c_constant(self._dialect, then, function, about, ctypes.string_at(words[0], size))

        return record

    def attribute(self, then: int, number: int, allocation: int, value: bytes) -> None:
        """Record an attribute of the addresses in an allocation."""
        if self.thread(then):
            host.know_c_attribute(self._dialect, then, number, allocation, value)

    def context(self, then: int, words: Words) -> None:
        """Record the context that is the first word."""
        if self.thread(then) and words[0]:
            host.know_c_context(self._dialect, then, self._gpu.contexts.of(words[0]).native)

    def primary(self, then: int, number: int) -> None:
        """Record the primary context of a device, by the program's number."""
        machine = self._gpu.machine
        ordinal = machine.device_of(number).ordinal
        if self.thread(then) and machine.has_primary(ordinal):
            native, flags = machine.context_of(ordinal).native, machine.flags.get(ordinal, 0)
            host.know_c_primary(self._dialect, then, number, native, flags)

    def stream(self, then: int, words: Words) -> bool:
        """Record the stream whose handle is the last word, too; return whether there is one."""
        handle = words[-1]
        is_stream = handle == PER_THREAD_STREAM or handle in self._gpu.machine.resources
        if not self.thread(then) or not is_stream:
            return False
        stream = self._gpu.streams.of(handle)
        host.know_c_stream(self._dialect, then, handle, stream.neutral, self._number_of(stream.context))
        return True

    def call(self, then: int, words: Words) -> None:
        """Record the stream that is the first word, and where its host functions wait."""
        if self.stream(then, words[:1]) if words[0] else self.thread(then):
            host.know_c_callbacks(self._dialect, then, callbacks.runner.queue())

    def event(self, then: int, words: Words) -> None:
        """Record the event that is the first word."""
        if not self.thread(then):
            return
        event = self._gpu.events.of(words[0])
        if event.captured is None and self._gpu.machine.is_native(event.context):
            device, context = event.context.device, self._number_of(event.context)
            number = device.backend.number(device.ordinal)
            host.know_c_event(self._dialect, then, event.handle, event.neutral, event.freed, number, context)

    def allocate(self, then: int, words: Words) -> None:
        """Record the stream that is the last word, and the current pool of its device."""
        if self.stream(then, words) if words[-1] else self.thread(then):
            device = self._gpu.streams.of(words[-1]).context.device
            self._pool(then, self._gpu.pools.current(device), 0, device.backend.number(device.ordinal))

    def allocate_from(self, then: int, words: Words) -> None:
        """Record the stream that is the last word, and the pool before it."""
        if self.stream(then, words) if words[-1] else self.thread(then):
            self._pool(then, self._gpu.pools.of(words[-2]), words[-2], 0)

    def _pool(self, then: int, pool: Pool, handle: int, current_of: int) -> None:
        if pool.is_quick:
            host.know_c_pool(self._dialect, then, handle, current_of, pool.memory.native)

    def record(self, then: int, words: Words) -> None:
        """Record the event and the stream of the record of an event."""
        self.stream(then, words)
        self.event(then, words)

    def wait(self, then: int, words: Words) -> None:
        """Record the stream and the event of a wait."""
        self.stream(then, words[:1])
        self.event(then, words[1:])

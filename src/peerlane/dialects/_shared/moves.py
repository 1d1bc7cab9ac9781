"""What a transfer does; between memory: copies of what this process has mapped, and a call for what it has not."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from peerlane import Event, Stream, devices
from peerlane.backend.ranks import Ranks
from peerlane.diagnostics.log import event_log
from peerlane.errors import Error
from peerlane.memory import raw

MOMENT = 0.005  #: seconds that a query waits: programs query in loops, which take the processor from the copy
_STREAMS_KEPT = 64
#: Bytes whose copy is brief; a call on a stream takes two changes of threads more than a copy.
_MOST_OF_BRIEF_COPIES, _MOST_OF_BRIEF_CALL = 32 << 10, 16 << 20


def ranks() -> Ranks:
    """Return the verbs of the back-end."""
    verbs: Ranks = devices()[0].backend.ranks
    return verbs


class Moves(Protocol):
    """The bytes of a transfer, which may be moved many times."""

    #: Whether :meth:`run` lasts less than a few milliseconds, or not longer than to queue them and to see their end.
    is_brief: bool

    def run(self) -> bool:
        """Move the bytes in this thread; return False if some are to be queued instead."""

    def queue(self, stream: Stream) -> None:
        """Queue them on a stream; after a raise some may be queued."""

    def finish(self, stream: Stream) -> None:
        """Note in this thread the end of what was queued on a stream, which is done; raise what made it fail."""


class Call(Protocol):
    """Moves bytes that this process has not mapped."""

    is_brief: bool  #: as of :class:`Moves`

    def __call__(self) -> None:
        """Move the bytes; raise if it cannot."""

    def logged(self, stream: Stream | None) -> AbstractContextManager[None]:
        """Log the call that the block queues on a stream, or makes now."""

    def is_over(self) -> None:
        """Log that this thread knows of the end."""


class ProcessCall:
    """Moves ordinary memory between this process and another one by the system.

    ``pieces``: this process's address, the other's, and bytes.
    ``on_device``: those of this process's addresses that are of a device, as the program has them, with their bytes.
    ``ended``: makes the exception for a process that has ended.
    ``failed``: makes any other exception from its cause and what to do.
    """

    def __init__(
        self,
        pid: int,
        is_write: bool,
        pieces: Sequence[tuple[int, int, int]],
        on_device: Sequence[tuple[int, int]],
        ended: Callable[[], Exception],
        failed: Callable[[str, str], Exception],
    ) -> None:
        self._pid, self._is_write, self._on_device = pid, is_write, on_device
        self._ended, self._failed = ended, failed
        self._copies = ranks().process_copies(pid, is_write, pieces)
        self.is_brief = self._copies.size <= _MOST_OF_BRIEF_CALL

    def __call__(self) -> None:
        error = self._copies()
        if not error:
            return
        if error == errno.ESRCH:
            raise self._ended()
        why = "not all of it is memory" if error == errno.EFAULT else os.strerror(error)
        raise self._failed(
            f"the system did not copy {self._copies.size:,} bytes between this process and {self._pid}: {why}",
            "register memory that lives; where the system forbids it, put the memory on a virtual device",
        )

    @contextlib.contextmanager
    def logged(self, stream: Stream | None) -> Iterator[None]:
        if not event_log.active:
            yield
            return
        if self._is_write:
            event_log.copies_host_memory(self._pid, writes=True)
        own = [raw.buffer(*piece) for piece in self._on_device]
        access = event_log.channel_access(stream, *(([], own) if self._is_write else (own, [])))
        with access if own else event_log.quiet():
            yield
        event_log.unwatched(read=self._is_write, written=not self._is_write)

    def is_over(self) -> None:
        if event_log.active and not self._is_write:
            event_log.copies_host_memory(self._pid, writes=False)


class MemoryMoves:
    """The copies and the call of a transfer between memory.

    ``copies``: destination, source and bytes.
    ``call``: follows the copies.
    ``then``: copies behind the call.
    ``holding``: kept as long as this.
    """

    def __init__(
        self,
        copies: Sequence[tuple[int, int, int]],
        call: Call | None = None,
        then: Sequence[tuple[int, int, int]] = (),
        holding: object = None,
    ) -> None:
        self._copies, self._call, self._then = copies, call, then
        copied = sum(size for *_, size in (*copies, *then))
        self.is_brief = copied <= _MOST_OF_BRIEF_COPIES and (call is None or call.is_brief)
        self._holding = holding
        self._failure: Exception | None = None  # of the call; the stream has an Error of its own

    def run(self) -> bool:
        """Move the bytes in this thread."""
        for dst, src, size in self._copies:
            raw.quick_copy(dst, src, size, False)
        if self._call is not None:
            with self._call.logged(None):
                self._call()
        for dst, src, size in self._then:
            raw.quick_copy(dst, src, size, False)
        self._note_end()
        return True

    def queue(self, stream: Stream) -> None:
        """Queue them on a stream; after an ``Error`` some may be queued."""
        self._failure = None
        for dst, src, size in self._copies:
            raw.copy(dst, src, size, stream=stream)
        if self._call is not None:
            with self._call.logged(stream):  # without the callback, of which the program learns nothing
                stream.launch_callback(self._make, self._call)
        for dst, src, size in self._then:
            raw.copy(dst, src, size, stream=stream)

    def _make(self, call: Call) -> None:
        # Not the failure, which `finish` raises in frames of the program: the stream keeps what a callback raises.
        try:
            call()
        except Exception as error:  # noqa: BLE001 - `finish` raises it
            self._failure = error.with_traceback(None)
        if self._failure is not None:
            raise RuntimeError(str(self._failure))

    def finish(self, stream: Stream) -> None:
        """Note in this thread the end of what was queued on a stream, which is done; raise what made it fail."""
        try:
            stream.sync()
        except Error as error:
            raise self._take_failure() or error from None
        self._note_end()

    def _take_failure(self) -> Exception | None:
        failure, self._failure = self._failure, None
        return failure

    def _note_end(self) -> None:
        if self._call is not None:
            self._call.is_over()


class End:
    """The end of what a transfer has queued on a stream.

    ``is_eager``: whether the schedule is eager: under ``lazy`` a query would make the operations run.
    ``then``: called at the end.
    """

    def __init__(self, stream: Stream, is_eager: bool, then: Callable[[], None] | None = None) -> None:
        with event_log.quiet():  # neither its lock nor the callbacks order anything in the program
            self._over = None if is_eager else threading.Event()
            if then is not None:
                stream.launch_callback(then)
            if self._over is not None:
                stream.launch_callback(self._over.set)
        self.event: Event = stream.record()

    def is_known(self) -> bool:
        """Return whether it has come, without a query that makes the operations run."""
        return self.event.is_done if self._over is None else self._over.is_set()

    def has_come(self) -> bool:
        """Return whether it has come; wait briefly, to free the processor for others."""
        if not self.event.is_done:
            if self._over is None:
                with contextlib.suppress(Error):  # the stream raises it
                    self.event.sync(MOMENT)
            else:
                self._over.wait(MOMENT)
        return self.event.is_done


class Streams:
    """Streams that transfers have used, for later ones: no two transfers that are under way share one."""

    def __init__(self) -> None:
        self._kept: list[Stream] = []

    def take(self, device: int) -> Stream:
        """Return a stream of no transfer: one that was kept, or a new one of a device."""
        with contextlib.suppress(IndexError):
            while True:
                kept = self._kept.pop()
                if not kept.is_closed:
                    return kept
        present = devices()
        return present[device if device < len(present) else 0].create_stream()

    def keep(self, stream: Stream) -> None:
        """Keep a stream."""
        if len(self._kept) < _STREAMS_KEPT:
            self._kept.append(stream)
        else:
            stream.close()

"""Transfers: copies on a stream, and the notification that follows them."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from peerlane import Event, Stream, devices
from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log
from peerlane.dialects.nixl._board import ranks
from peerlane.dialects.nixl._plugins import PLUGINS, check_notifies
from peerlane.dialects.nixl._regions import OwnRegion, Region, check_live, failure_of
from peerlane.dialects.nixl._status import (
    Failure,
    nixl_status_t,
    nixlBackendError,
    nixlNotPostedError,
    nixlRemoteDisconnectError,
    nixlRepostActiveError,
)
from peerlane.errors import Error
from peerlane.memory import raw

if TYPE_CHECKING:
    from peerlane.dialects.nixl._peers import Peer

_MOMENT, _LONGEST_END = 0.005, 1.0  # seconds
#: To look up a member of an enumeration costs more than all else that asks for a state.
_NOT_POSTED, _ACTIVE, _DONE = (
    nixl_status_t.NIXL_ERR_NOT_POSTED,
    nixl_status_t.NIXL_IN_PROG,
    nixl_status_t.NIXL_SUCCESS,
)

#: Local address and region, remote address and region, bytes.
Row: TypeAlias = "tuple[int, OwnRegion, int, Region, int]"


class Moves(Protocol):
    """The bytes of a transfer, which may be moved many times.

    Attributes
    ----------
    backend : str
        The back-end that moves them.
    most_at_once : int
        How many bytes the posting thread itself moves, where nothing holds operations back.
    """

    backend: str
    most_at_once: int

    def run_at_once(self) -> bool:
        """Move the bytes now; False if they are to be submitted."""

    def submit(self, stream: Stream) -> None:
        """Move the bytes on a stream; after a raise some may be queued."""

    def ended(self) -> Failure | None:
        """Return the cause that the stream, which is done, does not know."""


class MemoryMoves:
    """The bytes of a transfer between the memory of two agents.

    Parameters
    ----------
    peer : Peer
    is_write : bool
    rows : sequence of Row
    """

    backend = "UCX"
    most_at_once = 32 << 10

    def __init__(self, peer: Peer, is_write: bool, rows: Sequence[Row]) -> None:
        self._peer, self._is_write, self._size = peer, is_write, sum(row[4] for row in rows)
        self._copies: list[tuple[int, int, int]] = []
        self._failure: Failure | None = None
        calls: list[tuple[int, int, int]] = []
        bases = {key: each.base() for key, each in {id(row[3]): row[3] for row in rows}.items()}
        for near, mine, far, theirs, size in rows:
            base = bases[id(theirs)]
            if base is None:
                calls.append((mine.host_address(near), far, size))
            elif size:
                at = base + far - theirs.start
                self._copies.append((at, near, size) if is_write else (near, at, size))
        self._call = ranks().process_copies(peer.pid, is_write, calls) if calls else None

    def run_at_once(self) -> bool:
        """Move the bytes now."""
        for dst, src, size in self._copies:
            raw.quick_copy(dst, src, size, False)
        if self._call is not None and (error := self._call()):
            raise self._not_copied(error)
        return True

    def submit(self, stream: Stream) -> None:
        """Move the bytes on a stream."""
        self._failure = None
        for dst, src, size in self._copies:
            raw.copy(dst, src, size, stream=stream)
        if self._call is None:
            return
        if event_log.active and self._is_write:
            event_log.copies_host_memory(self._peer.pid, writes=True)
        with event_log.quiet():  # the program learns nothing of the dialect's callbacks
            stream.launch_callback(self._copy_by_call)
        if event_log.active:
            event_log.unwatched(read=self._is_write, written=not self._is_write)

    def ended(self) -> Failure | None:
        """Return the cause that the stream, which is done, does not know."""
        if self._failure is None and self._call is not None and event_log.active and not self._is_write:
            event_log.copies_host_memory(self._peer.pid, writes=False)
        return self._failure

    def _copy_by_call(self) -> None:
        assert self._call is not None
        if error := self._call():
            self._failure = self._not_copied(error)
            raise self._failure

    def _not_copied(self, error: int) -> Failure:
        if error == errno.ESRCH:
            return nixlRemoteDisconnectError(f"process {self._peer.pid} has ended", "remove the agent")
        why = "not all of it is memory" if error == errno.EFAULT else os.strerror(error)
        return nixlBackendError(
            f"the system did not copy {self._size:,} bytes between this process and {self._peer.pid}: {why}",
            "register memory that lives; where the system forbids it, put the memory on a virtual device",
        )


class Request:
    """One transfer, which may be posted many times.

    Parameters
    ----------
    peer : Peer
    moves : Moves
    rows : sequence of Row
    message : bytes, optional
        The notification.
    new_stream : callable
        Returns a stream; :meth:`release` returns it to the caller.
    """

    def __init__(
        self,
        peer: Peer,
        moves: Moves,
        rows: Sequence[Row],
        message: bytes | None,
        new_stream: Callable[[], Stream],
    ) -> None:
        self.peer, self.moves, self.message, self._new_stream = peer, moves, message, new_stream
        self.site = call_site.position()
        self.descriptors, self.size = len(rows), sum(row[4] for row in rows)
        self._mine = {id(row[1]): row[1] for row in rows}.values()
        self._theirs = {id(row[3]): row[3] for row in rows}.values()
        self._notifies = PLUGINS[moves.backend].is_remote
        # With an event log each transfer has a stream: the log must not order two transfers.
        self._at_once = peer.is_eager and self.size <= moves.most_at_once and not event_log.active
        self._used = [(each.words, each.slot, each.number) for each in (*self._mine, *self._theirs)]
        self._stream: Stream | None = None
        self._event: Event | None = None
        with event_log.quiet():  # its lock orders nothing in the program
            self._over = threading.Event()
        self._lock = threading.RLock()  # callbacks of the stream do not take it
        self._status = _NOT_POSTED
        # Not the exception: with its traceback it would keep the program's frames alive.
        self._failure: tuple[type[Failure], str, str] | None = None
        self.start = self.post_time = self.time = 0.0

    def post(self, message: bytes | None) -> nixl_status_t:
        """Begin the transfer; after a raise nothing has begun."""
        with self._lock:
            return self._post(message)

    def _post(self, message: bytes | None) -> nixl_status_t:
        start = time.monotonic()
        self._check_peer(start)
        if self._event is not None and not self._see(self._event):
            raise nixlRepostActiveError(
                f"the transfer of {self.size:,} bytes with agent {self.peer.name!r} is under way still",
                "post it again when check_xfer_state says DONE",
            )
        for words, slot, number in self._used:
            if words[slot] != number:
                check_live(self._mine, "this agent")
                check_live(self._theirs, f"agent {self.peer.name!r}")
        if message is not None:
            self.message = message
        if self.message is not None and not self._notifies:
            check_notifies(self.moves.backend, self.message)
        self.start, self._failure, self._event = start, None, None
        self._status = _ACTIVE
        try:
            if self._at_once and self.moves.run_at_once():
                if self.message is not None:
                    self.peer.send(self.message)
                self._status = _DONE
                self.post_time = self.time = time.monotonic() - start
                return self._status
            self._submit()
        except (Error, Failure) as error:
            self._fail(error)
        except BaseException:  # an interrupt
            # Queued operations must not go on: no call would report their end.
            if self._stream is not None:
                self._stream.abort(close=True)
                self._stream = None
            self._event, self._status = None, _NOT_POSTED
            raise
        self.post_time = time.monotonic() - start
        # Under `lazy` a query would make it run.  With an event log only the program's own query may learn that it is
        # over: a query by chance would hide a race.
        may_ask = self.peer.is_eager and not event_log.active
        if self._failure is not None or (may_ask and self._event is not None and self._event.is_done):
            return self._known()
        return self._status

    def _submit(self) -> None:
        if self._stream is None:
            self._stream = self._new_stream()
        stream = self._stream
        try:
            self.moves.submit(stream)
        except Error:
            stream.abort(close=True)  # what was queued before the refusal
            self._stream = None
            raise
        self._over.clear()
        if event_log.active:
            stream.record()  # the operation that the notification follows in the log
        if self.message is not None or not self.peer.is_eager:
            with event_log.quiet():  # the program learns nothing of the dialect's callbacks
                stream.launch_callback(self._send_notification, self.message, (stream.id, stream.submitted))
        self._event = stream.record()

    def _send_notification(self, message: bytes | None, past: tuple[int, int]) -> None:
        """Send the notification, as the stream's operation after the copies."""
        if message is not None:
            self.peer.send(message, past)
        self._over.set()

    def _see(self, event: Event) -> bool:
        """Return whether the stream is done, and note its outcome; wait briefly, to free the processor for others."""
        assert self._stream is not None
        if not event.is_done:
            if self.peer.is_eager:
                with contextlib.suppress(Error):  # the stream raises it below
                    event.sync(_MOMENT)
            else:
                self._over.wait(_MOMENT)
            if not event.is_done:
                return False
        try:
            self._stream.sync()
        except Error as error:
            self._fail(self.moves.ended() or error)
        else:
            failure = self.moves.ended()
            if failure is not None:
                self._fail(failure)
            self._status = _DONE
            self.time = time.monotonic() - self.start
        self._event = None  # not earlier: after an interrupt nobody would see the transfer end
        return True

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            what = f"the transfer of {self.size:,} bytes with agent {self.peer.name!r} failed"
            known = error if isinstance(error, Failure) else failure_of(error, what)
            self._failure = type(known), known.cause, known.remedy

    def _check_peer(self, now: float) -> None:
        """Raise if the peer was removed or has ended; a transfer with an ended agent ends too."""
        try:
            self.peer.check_usable(now)
        except nixlRemoteDisconnectError as error:
            stream, self._stream, self._event = self._stream, None, None
            if stream is not None:
                stream.abort()
                with contextlib.suppress(Error):  # the program learns by this error that the transfer is over
                    stream.sync(_LONGEST_END)
                stream.close(wait=False)
            self._fail(error)
            raise

    def status(self) -> nixl_status_t:
        """Return whether it is done; raise its failure."""
        with self._lock:
            return self._known()

    def _known(self) -> nixl_status_t:
        if self._event is not None and not self._see(self._event):
            self._check_peer(time.monotonic())
            return self._status
        self.check_failure()
        if self._status is _NOT_POSTED:
            raise nixlNotPostedError(
                f"the transfer of {self.size:,} bytes with agent {self.peer.name!r} was never posted",
                "call transfer",
            )
        return self._status

    def check_failure(self) -> None:
        """Raise what made the transfer fail, if that is known."""
        if self._failure is not None:
            kind, *texts = self._failure
            raise kind(*texts)

    def release(self) -> Stream | None:
        """End it, also if it is under way; return its stream if that can be used again.

        To release a transfer that is under way proves nothing of its end (facts/nixl 6).  So the checker must not
        learn that it was over by chance: its stream, which would order it before later transfers, is closed.
        """
        with self._lock:
            return self._end()

    def _end(self) -> Stream | None:
        stream, self._stream = self._stream, None
        event, self._event = self._event, None
        if stream is not None and event is not None and (event_log.active or not event.is_done):
            stream.abort(close=True)
            return None
        if stream is not None and self._failure is not None:
            stream.close(wait=False)
            return None
        return stream


def new_stream(regions: Sequence[Region]) -> Stream:
    """Return a stream of the device that has the memory, of the first device for memory of the host."""
    present = devices()
    number = next((each.device for each in regions if each.mem == 1 and each.device < len(present)), 0)
    return present[number].create_stream()

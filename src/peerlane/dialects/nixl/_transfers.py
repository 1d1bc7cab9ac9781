"""Transfers: copies on a stream, and the notification that follows them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from peerlane import Stream
from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.moves import End, MemoryMoves, Moves, ProcessCall
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

if TYPE_CHECKING:
    from peerlane.dialects.nixl._peers import Peer

_LONGEST_END = 1.0  # seconds
#: To look up a member of an enumeration costs more than all else that asks for a state.
_NOT_POSTED, _ACTIVE, _DONE = (
    nixl_status_t.NIXL_ERR_NOT_POSTED,
    nixl_status_t.NIXL_IN_PROG,
    nixl_status_t.NIXL_SUCCESS,
)

#: Local address and region, remote address and region, bytes.
Row: TypeAlias = "tuple[int, OwnRegion, int, Region, int]"


def memory_moves(peer: Peer, is_write: bool, rows: Sequence[Row]) -> MemoryMoves:
    """Return the moves of a transfer between the memory of two agents."""
    copies: list[tuple[int, int, int]] = []
    calls: list[tuple[int, int, int]] = []
    on_device: list[tuple[int, int]] = []
    regions = {id(row[3]): row[3] for row in rows}
    bases = {key: each.base() for key, each in regions.items()}
    for near, mine, far, theirs, size in rows:
        base = bases[id(theirs)]
        if base is None:
            calls.append((mine.host_address(near), far, size))
            if calls[-1][0] != near:
                on_device.append((near, size))
        elif size:
            at = base + far - theirs.start
            copies.append((at, near, size) if is_write else (near, at, size))
    if not calls:
        return MemoryMoves(copies)
    ended = partial(nixlRemoteDisconnectError, f"process {peer.pid} has ended", "remove the agent")
    call = ProcessCall(peer.pid, is_write, calls, on_device, ended, nixlBackendError)
    return MemoryMoves(copies, call)


class Request:
    """One transfer, which may be posted many times.

    ``backend``: the back-end that moves the bytes.
    ``message``: the notification.
    ``new_stream``: returns a stream; :meth:`release` returns it to the caller.
    """

    def __init__(
        self,
        backend: str,
        peer: Peer,
        moves: Moves,
        rows: Sequence[Row],
        message: bytes | None,
        new_stream: Callable[[], Stream],
    ) -> None:
        self.backend, self.peer, self.message, self._moves = backend, peer, message, moves
        self._new_stream = new_stream
        self.site = call_site.position()
        self.descriptors, self.size = len(rows), sum(row[4] for row in rows)
        self._mine = {id(row[1]): row[1] for row in rows}.values()
        self._theirs = {id(row[3]): row[3] for row in rows}.values()
        self._notifies = PLUGINS[backend].is_remote
        # With an event log each transfer has a stream: the log must not order two transfers.
        self._at_once = peer.is_eager and moves.is_brief and not event_log.active
        self._used = [(each.words, each.slot, each.number) for each in (*self._mine, *self._theirs)]
        self._stream: Stream | None = None
        self._end: End | None = None
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
        if self._end is not None and not self._see(self._end):
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
            check_notifies(self.backend, self.message)
        self.start, self._failure, self._end = start, None, None
        self._status = _ACTIVE
        try:
            if self._at_once and self._moves.run():
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
            self._end, self._status = None, _NOT_POSTED
            raise
        self.post_time = time.monotonic() - start
        # Under `lazy` a query would make it run.  With an event log only the program's own query may learn that it is
        # over: a query by chance would hide a race.
        may_ask = self.peer.is_eager and not event_log.active
        if self._failure is not None or (may_ask and self._end is not None and self._end.event.is_done):
            return self._known()
        return self._status

    def _submit(self) -> None:
        if self._stream is None:
            self._stream = self._new_stream()
        stream = self._stream
        try:
            self._moves.queue(stream)
        except Error:
            stream.abort(close=True)  # what was queued before the refusal
            self._stream = None
            raise
        if event_log.active:
            stream.record()  # the operation that the notification follows in the log
        past = stream.id, stream.submitted
        message = self.message
        then = None if message is None else partial(self.peer.send, message, past)
        self._end = End(stream, self.peer.is_eager, then)

    def _see(self, end: End) -> bool:
        """Return whether the stream is done, and note its outcome; wait briefly, to free the processor for others."""
        assert self._stream is not None
        if not end.has_come():
            return False
        try:
            self._moves.finish(self._stream)
        except (Error, Failure) as error:
            self._fail(error)
        else:
            self._status = _DONE
            self.time = time.monotonic() - self.start
        self._end = None  # not earlier: after an interrupt nobody would see the transfer end
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
            stream, self._stream, self._end = self._stream, None, None
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
        if self._end is not None and not self._see(self._end):
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
            return self._let_go()

    def _let_go(self) -> Stream | None:
        stream, self._stream = self._stream, None
        end, self._end = self._end, None
        if stream is not None and end is not None and (event_log.active or not end.is_known()):
            stream.abort(close=True)
            return None
        if stream is not None and self._failure is not None:
            stream.close(wait=False)
            return None
        return stream


def device_of(regions: Iterable[Region]) -> int:
    """Return the device that has the memory; 0 for memory of the host."""
    return next((each.device for each in regions if each.mem == 1), 0)

"""The order of a group's collectives, which run one after the other on whatever streams they are."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from peerlane.collectives.agreement import encoded
from peerlane.collectives.peer_channels import SERIES
from peerlane.collectives.workspace import Workspace
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.ranks import losses, turns
from peerlane.diagnostics.ranks.collective_calls import Kind, of_word
from peerlane.errors import Cancelled, Closed, Error, Refused
from peerlane.ranks.deadlock import wait_state

if TYPE_CHECKING:
    from peerlane.backend.ranks import CallQueue, Mails, Rounds
    from peerlane.collectives.call import Call, Lane
    from peerlane.collectives.choice import CollectiveTransport
    from peerlane.collectives.schedules.operations import Parts
    from peerlane.memory.buffer import Buffer
    from peerlane.ranks.invite import Invitations
    from peerlane.ranks.session import Session
    from peerlane.streams.event import Event
    from peerlane.streams.stream import Stream


#: The calls of all groups in this process, for ranks that one thread drives.
_of_process: weakref.WeakSet[CallOrder] = weakref.WeakSet()
_of_process_lock = threading.Lock()

_CLAIM_SECONDS = 0.1  # a thread that waits for its claim handles signals that often


class _Claim:
    """Keeps other threads from calls of the same kind; written out, as a generator takes three times as long."""

    def __init__(self, claim: Callable[[float], bool], release: Callable[[], None]) -> None:
        self._claim, self._release = claim, release

    def __enter__(self) -> None:
        while not self._claim(_CLAIM_SECONDS):
            pass

    def __exit__(self, *error: object) -> None:
        self._release()


class _OrderLock:
    """Guards an order of calls.  Who releases it closes the workspace of an order that has ended.

    To close it takes time, in which other threads must be able to ask for the order.
    """

    def __init__(self) -> None:
        self._lock, self._closing = threading.Lock(), threading.Lock()
        self._close: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        close, self._close = self._close, None
        if close is None:
            self._lock.release()
            return
        with self._closing:
            self._lock.release()
            close()

    def at_release(self, close: Callable[[], None]) -> None:
        """Let who holds the lock make this call after it has released it."""
        self._close = close

    def await_close(self) -> None:
        """Wait until no thread closes the workspace."""
        with self._closing:
            pass


class CallOrder:
    """The workspace of a group, which the first collective makes, and the last operations that are queued on it.

    Collectives run one after the other.  A message runs after the earlier messages of its lane, and after the earlier
    collectives; a collective runs after all earlier messages.

    Parameters
    ----------
    session : Session
    invitations : Invitations
        They make its channels.
    nbytes : int
        Bytes of the workspace.
    timeout : float or None
        Seconds that a collective waits for a peer at a time.
    serve : callable
        Called with names of methods, what may make their calls from then on, and what ends a call that was begun;
        with None instead of the last two when it may not any more.
    series : str
        The series of its channels, which distinguishes the orders of one group.
    """

    def __init__(
        self,
        session: Session,
        invitations: Invitations,
        nbytes: int,
        timeout: float | None,
        serve: Callable[[Sequence[str], Rounds | Mails | None, Callable[..., None] | None], None],
        series: str = SERIES,
    ) -> None:
        self._session, self._invitations, self._series = session, invitations, series
        self._nbytes, self._timeout = nbytes, timeout
        self._work: Workspace | None = None
        self._lasts: dict[
            Lane | None, Event
        ] = {}  # the last operation of each lane; None: of the collectives
        self._native: CallQueue | None = None  # what queues calls of C without Python
        self._known_words: set[str] = set()  # calls whose words it has
        self._own: dict[Lane | None, Stream] = {}
        self._failure = ""
        self._unraised: Error | None = (
            None  # another rank's thread could not make this rank's workspace: raised at its next call
        )
        self._lock = _OrderLock()
        self._running: dict[Lane | None, threading.Lock] = {}
        self._calls = 0  # on several machines
        self._serve = serve
        self._log = event_log.group_log(
            session.name, f"{invitations.group} {series}", session.rank, session.size
        )
        self._makers: dict[
            tuple[str, ...], Rounds | Mails
        ] = {}  # by the names of the methods that they serve
        with _of_process_lock:
            _of_process.add(self)

    @property
    def workspace(self) -> Workspace | None:
        """The workspace, None before the first collective and after the last one."""
        return self._work

    def run(self, call: Call, transport: CollectiveTransport, stream: Stream | None) -> None:
        """Make a call after the earlier ones, or queue it on a stream.

        All ranks must make the same call.  A collective that fails half-way leaves unknown records behind.  Its
        channels are closed then, so that no peer waits for this rank, and the group has no more collectives.
        """
        if not event_log.active:
            self._run(call, transport, stream)
            return
        where = {} if stream is None else {"stream": stream.id, "sequence": stream.submitted + 1}
        written, read = _touched(call)
        number = event_log.COLLECTIVES.index(call.kind.name.lower())
        began = self._log.begin(number, call.root, written, read, **where)
        with event_log.quiet():
            self._run(call, transport, stream)
        if stream is None:
            self._log.end(began)

    def _run(self, call: Call, transport: CollectiveTransport, stream: Stream | None) -> None:
        work = self.offer(call.name)
        try:
            self._run_in(work, call, transport, stream)
        finally:
            work.channels.confirm()

    def _run_in(
        self, work: Workspace, call: Call, transport: CollectiveTransport, stream: Stream | None
    ) -> None:
        claimed = self._claimed(call, work)
        if stream is None and transport.start(work, call, partial(self._finish, call)):
            return
        with claimed:
            with self._lock:
                self._check_sound(call.name)
                before = self._lasts_before(call.lane)
            try:
                last = self._carry_out(call, transport, work, stream, before)
            except BaseException as error:
                cause = work.failure_of_sending() if isinstance(error, Cancelled) else None
                with self._lock:
                    self._fail(call.name, cause or error)
                if cause is not None:
                    raise cause from None
                raise
            with self._lock:
                self._note_last(call.lane, last)

    def offer(self, call: str) -> Workspace:
        """Make the workspace, which offers its channels to the other ranks, if this is the first call; return it."""
        with self._lock:
            self._check_sound(call)
            is_first = self._work is None
            work = self._workspace(call)
        if is_first:
            self._prepare_neighbours(call)
        return work

    def connect(self, call: str) -> None:
        """Make the channels to all ranks, and wait until they have made theirs."""
        work = self.offer(call)
        with self._ending(call):
            work.channels.connect()

    def native_queue(self) -> CallQueue | None:
        """Return what queues calls of C without Python; None before the first collective, and on several machines."""
        with self._lock:
            work = self._work
            if work is None or self._session.device.backend.ranks.COLLECTIVES not in self._makers:
                return None
            if not work.rounds.is_whole:
                return None
            if self._native is None:
                self._native = work.agreement.native_queue(
                    self._session.device.backend.ranks, work.rounds, work.timeout_ns
                )
                for lane, last in self._lasts.items():
                    self._share_last(lane, last)
            return self._native

    def _share_last(self, lane: Lane | None, last: Event | None) -> None:
        """Let native code have the last operation of a lane, which it records anew."""
        if self._native is not None:
            direction, peer = lane or ("", None)
            self._native.note_last(peer, direction == "to", last)

    def share_mail(self, peer: int, *, sends: bool) -> None:
        """Let the native queue make messages to a peer, or from it, if there were some."""
        with self._lock:
            if self._native is not None and self._work is not None and self._work.mails.has(peer, sends):
                self._native.know_mail(self._work.mails, peer, sends)

    def _lasts_before(self, lane: Lane | None) -> list[Event]:
        return [last for each, last in self._lasts.items() if lane is None or each in (None, lane)]

    def _note_last(self, lane: Lane | None, last: Event | None) -> None:
        if lane is None:
            self._lasts.clear()
            if self._native is not None:
                self._native.forget_lasts()
        self._lasts.pop(lane, None)
        self._share_last(lane, last)
        if last is None:
            self._lasts.pop(None, None)  # it is over too
            self._share_last(None, None)
        else:
            self._lasts[lane] = last
        self._set_plain(not self._lasts)

    def _carry_out(
        self,
        call: Call,
        transport: CollectiveTransport,
        work: Workspace,
        stream: Stream | None,
        before: list[Event],
    ) -> Event | None:
        """Make a call, and return nothing; or queue it on the stream, and return its end."""
        self._agree(call, work, transport.lane_bytes(work, call))
        if call.lane is None:
            # A program's stream would tell that it was cancelled, and not why the other one failed.
            work.sends_aside = stream is None
        if stream is not None:
            return self._queue(call, transport, work, stream, before)
        if transport.run_in_thread(work, call, before):
            return None
        own = self._own_stream(call.lane)
        self._queue(call, transport, work, own, before)
        own.sync()
        return None

    def _claimed(self, call: Call, work: Workspace) -> contextlib.AbstractContextManager[Any]:
        """Return what keeps other threads from calls of the same lane, or from other collectives."""
        lane = call.lane
        if not work.has_rounds:
            with self._lock:
                return self._running.setdefault(lane, threading.Lock())
        if lane is None:
            rounds = self._rounds(call.name, call.kind, work)
            return _Claim(rounds.claim, rounds.release)
        mails, sends = self._mails(call, work), call.sends
        return _Claim(partial(mails.claim, call.root, sends), partial(mails.release, call.root, sends))

    def _finish(self, call: Call) -> None:
        if call.lane is None:
            self.finish_collective(call.name, call.dst, call.src, words=call.words)
        else:
            self.finish_message(call.name, call.sends, call.root, call.buffer)

    def _rounds(self, call: str, kind: Kind, work: Workspace) -> Rounds:
        if not work.is_connected(kind):
            with self._ending(call):
                work.connect_rounds(kind)
        self._let_make(self._session.device.backend.ranks.COLLECTIVES, work.rounds, self.finish_collective)
        return work.rounds

    def _mails(self, call: Call, work: Workspace) -> Mails:
        if not work.mails.has(call.root, call.sends):
            with self._ending(call.name):
                work.make_mail(call.root, sends=call.sends)
        self._let_make(self._session.device.backend.ranks.MESSAGES, work.mails, self.finish_message)
        return work.mails

    def _let_make(self, names: tuple[str, ...], maker: Rounds | Mails, finish: Callable[..., None]) -> None:
        """Let native code make the calls of these methods, if it does not yet."""
        if names in self._makers:
            return
        with self._lock:
            if self._work is not None:  # else another thread has closed the group
                maker.log = self._log
                self._makers[names] = maker
                self._serve(names, maker, finish)

    @contextlib.contextmanager
    def _ending(self, call: str) -> Iterator[None]:
        """End the collectives of the group if the block fails."""
        try:
            yield
        except BaseException as error:
            with self._lock:
                self._fail(call, error)
            raise

    def _set_plain(self, is_plain: bool) -> None:
        """Say whether native code need not wait for anything queued; under the lock."""
        for maker in self._makers.values():
            maker.is_plain = is_plain

    def finish_collective(
        self, call: str, dst: Buffer | None, src: Buffer | None, *, words: str | None = None
    ) -> None:
        """End a collective that the rounds have begun, on a stream, where it may wait for long.

        ``words``: the call in words, by default those that native code has.
        """
        work = self._sound(call)
        rounds = work.rounds

        def queue(own: Stream) -> None:
            work.agreement.calls(call, words or of_word(rounds.begun), rounds.calls, work.connected)
            rounds.queue_begun(own, work.timeout_ns, dst, src)

        self._finish_on_stream(call, None, queue, rounds.release)

    def finish_message(self, call: str, sends: bool, peer: int, whole: Buffer) -> None:
        """End a message that was begun, on a stream."""
        work = self._sound(call)
        mails = work.mails

        def queue(own: Stream) -> None:
            mails.queue_begun(peer, sends, own, work.timeout_ns, whole)

        self._finish_on_stream(
            call, ("to" if sends else "from", peer), queue, partial(mails.release, peer, sends)
        )

    def _finish_on_stream(
        self, call: str, lane: Lane | None, queue: Callable[[Stream], None], release: Callable[[], None]
    ) -> None:
        try:
            with self._ending(call):
                own = self._own_stream(lane)
                queue(own)
                own.sync()
        finally:
            release()

    def _sound(self, call: str) -> Workspace:
        """Return the workspace, which another thread may have closed since the call began."""
        with self._lock:
            self._check_sound(call)
            assert self._work is not None
            return self._work

    def _workspace(self, call: str) -> Workspace:
        try:
            if self._work is None:
                with turns.kept():
                    self._work = Workspace(
                        self._session, self._invitations, self._nbytes, self._timeout, self._series
                    )
        except BaseException as error:
            self._fail(call, error)
            raise
        return self._work

    def _prepare_neighbours(self, call: str) -> None:
        """Offer the channels of the group's other ranks in this process, which this thread may have to call too.

        Their locks are taken one by one, and never under this one's, because they prepare this one.
        """
        neighbours = self._neighbours()
        with self._ending(call):
            for each in neighbours:
                with each._lock:
                    if not each._failure:
                        each._make_for(call)

    def follow_neighbours(self) -> None:
        """Offer this rank's channels if a rank of this process, which made its group earlier, has offered its own."""
        if any(each._work is not None for each in self._neighbours()):
            with self._lock:
                self._make_for("Group")

    def _neighbours(self) -> list[CallOrder]:
        with _of_process_lock:
            return [each for each in _of_process if each is not self and each._is_beside(self)]

    def _make_for(self, call: str) -> None:
        """Make the workspace in the thread of another rank: a refusal is raised where this rank calls."""
        try:
            self._workspace(call)
        except Error as error:
            self._unraised = error

    def _is_beside(self, other: CallOrder) -> bool:
        """Tell whether ``other`` is another rank of the same group in this process."""
        mine, theirs = self._invitations, other._invitations
        is_same_group = mine.group == theirs.group and self._session.size == other._session.size
        return is_same_group and self._series == other._series

    def _agree(self, call: Call, work: Workspace, lane_bytes: Parts | None) -> None:
        """Compare a call with those of the other ranks."""
        agreement, mails = work.agreement, work.mails if work.has_rounds else None
        if call.lane is not None:
            count = mails.count(call.root, call.sends) if mails is not None else None
            agreement.moves(
                call.name, call.root, call.nbytes, out=call.sends, in_collective=False, messages=count
            )
            return
        if work.has_rounds:
            number = work.rounds.count()
        else:
            number = self._calls = self._calls + 1
        agreement.calls(call.name, call.words, number, work.connected)
        self._share_words(call)
        for out, sizes in zip((False, True), lane_bytes or (), strict=False):
            for peer in work.others:
                count = mails.calls(peer, out) if mails is not None else None
                agreement.moves(call.name, peer, sizes[peer], out=out, in_collective=True, messages=count)

    def _share_words(self, call: Call) -> None:
        if self._native is None or call.parts[1] or call.words in self._known_words:
            return
        text, checksum = encoded(call.words)
        number = call.operation.number if call.operation is not None else -1
        self._native.know_words(call.kind, call.size, number, call.root, checksum, text)
        self._known_words.add(call.words)

    def _queue(
        self, call: Call, transport: CollectiveTransport, work: Workspace, stream: Stream, before: list[Event]
    ) -> Event:
        """Queue a call on a stream that stops at a failure, so that no peer is notified of missing bytes."""
        stops = stream
        if stream.on_error != "stop":
            stops = self._own_stream(call.lane)
            stops.wait(stream)
        for event in before:
            stops.wait(event)
        first = stops.submitted + 1
        transport.queue(work, call, stops)
        name = getattr(wait_state.calling, "call", call.name)
        wait_state.queued.append(wait_state.QueuedCollective(stops.id, first, stops.submitted, name))
        last = stops.record()
        if stops is not stream:
            stream.wait(last)
        return last

    def _own_stream(self, lane: Lane | None) -> Stream:
        if lane not in self._own:
            self._own[lane] = self._session.device.create_stream()
        return self._own[lane]

    def _check_sound(self, call: str) -> None:
        unraised, self._unraised = self._unraised, None
        if unraised is not None:
            raise unraised.with_traceback(None)
        if self._work is not None and not self._failure and self._work.has_left:
            self._failure = "an earlier one failed, was interrupted or was cancelled"
            self._end(withdraws=True)
        if self._failure:
            raise Closed(
                f"{call}: the collectives of this group ended with a failure ({self._failure}); make a new group",
                call=call,
                device=self._session.device.name,
                detail=Refused(reason="failed_before", failure=self._failure),
            )

    def _fail(self, call: str, error: BaseException) -> None:
        self._failure = self._failure or f"{call}: {type(error).__name__}: {error}"
        for own in self._own.values():
            own.abort(close=True)
        self._own.clear()
        self._end(withdraws=True)

    def await_peers(self) -> None:
        """Wait until the peers of the channels in use have begun too, for which they need this rank's memory."""
        with self._lock:
            work = None if self._failure else self._work
        if work is not None:
            work.channels.await_peers()

    def end(self, *, withdraws: bool = False) -> None:
        """Close the workspace; queued operations go on.

        ``withdraws``: the group stays, so the peers do not see by its end that this rank makes no more calls.
        """
        with self._lock:
            self._failure = self._failure or "the group was closed"
            self._end(withdraws=withdraws)
        self._lock.await_close()

    def _end(self, *, withdraws: bool) -> None:
        self._set_plain(False)
        for names in self._makers:
            self._serve(names, None, None)
        self._makers.clear()
        work, self._work = self._work, None
        self._native = None
        self._lasts.clear()
        for own in self._own.values():
            own.close(wait=False)
        self._own.clear()
        if work is not None:
            self._lock.at_release(partial(_close, work, withdraws=withdraws))


def _close(work: Workspace, *, withdraws: bool) -> None:
    try:
        if withdraws:
            work.withdraw()
    finally:
        work.close()


def _other_call(pid: int) -> str:
    """Return which other call a rank in a process has made than a rank of this one, which ended their collectives."""
    with _of_process_lock:
        orders = list(_of_process)
    for order in orders:
        work, session = order._work, order._session
        if work is None:
            continue
        for member in session.members:
            if member.rank != session.rank and member.pid_here == pid:
                with contextlib.suppress(ValueError):  # another thread has ended the collectives
                    if text := work.agreement.difference(member.rank):
                        return text
    return ""


losses.other_call = _other_call


def _touched(call: Call) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the buffers that this rank's part of a call writes and reads."""
    written, read = ([] if each is None else [each] for each in (call.dst, call.src))
    if call.parts[1]:
        if call.kind is Kind.REDUCE_SCATTER:
            read = _parts(read, call.parts)
        else:
            written = _parts(written, call.parts)
    if call.source_parts[1]:
        read = _parts(read, call.source_parts)
    return written, read


def _parts(whole: Sequence[Buffer], parts: Parts) -> list[Buffer]:
    return [each[first : first + nbytes] for each in whole for first, nbytes in zip(*parts, strict=True)]

"""A communicator: the group of its ranks, and the streams on which its operations run."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeAlias

from peerlane import Buffer, Channel, Group, Notify, NotifyKind, Stream
from peerlane.backend import host
from peerlane.collectives.group import native_messages, native_queue, ranks_that_left
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.cuda.nccl.codes import (
    INVALID_ARGUMENT,
    REMOTE_ERROR,
    invalid,
    misuse,
    of_driver,
    refusal_of,
)
from peerlane.dialects.cuda.state import before_anew, gpu, machine
from peerlane.dialects.gpu.streams import LEGACY_STREAM, AnyStream, GpuStream, NullStream
from peerlane.errors import Cancelled, Error, Fault
from peerlane.rendezvous import Rendezvous, RendezvousServer
from peerlane.rendezvous.by_file import MeetingFile
from peerlane.support.records import dataclass

_LINGER = 5.0  # seconds that the end of the process waits for the other ranks to leave
_INIT_SECONDS = 60.0

Lane: TypeAlias = "tuple[str, int]"


@dataclass(frozen=True, slots=True)
class Named:
    """Memory that a call has named: a part, the whole allocation, and where that starts."""

    start: int
    whole: Buffer
    part: Buffer


class Communicator(Resource):
    """A communicator of this process.

    Its operations run on streams of its own, which stop at a failure, behind the work of the program's stream; the
    program's stream waits for their end.

    Attributes
    ----------
    rank, size : int
    is_blocking : bool
        Whether calls return when they are over.
    is_finalized : bool
    children : int
        How often it was split or shrunk.
    operations : dict
        The custom reductions, by number.
    windows : list of Resource
    signals : dict
        By rank: the channel over which both raise their signals.
    """

    name = "communicator"

    def __init__(self, context: Context, rank: int, size: int, *, is_blocking: bool) -> None:
        super().__init__(context)
        self.rank, self.size = rank, size
        self.is_blocking = is_blocking
        self.is_finalized = False
        self._native: Any = None  # what native code knows of it, once it may queue its calls
        self._known_lanes: set[Lane] = set()
        self._failure: Refusal | None = None
        self._later = 0  # jobs that go on in other threads
        self.key = ""
        self.children = self.next_window = 0
        self.operations: dict[int, object] = {}
        self.registered: dict[int, tuple[int, int]] = {}
        self.windows: list[Resource] = []
        self.signals: dict[int, Channel] = {}
        self._own_signal: Notify | None = None
        self.named: dict[tuple[int, int], Named] = {}
        self.kept: dict[object, Buffer] = {}
        self.guard = threading.RLock()
        self._group: Group | None = None
        self._rendezvous: Rendezvous | None = None
        self._server: RendezvousServer | None = None
        self._stream: Stream | None = None
        self._position: object = None
        self._lanes: dict[Lane, Stream] = {}
        self._abort_flag = host.AbortFlag()

    @property
    def failure(self) -> Refusal | None:
        """Why it is lost."""
        native = self._native
        if self._failure is None and native is not None:
            error = native.failure()
            if error is not None:
                self.failure = self._refusal_of(error)
        return self._failure

    @failure.setter
    def failure(self, failure: Refusal | None) -> None:
        self._failure = failure
        if failure is not None:
            self._end_native()

    def _end_native(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            native.end()

    def finalize(self) -> None:
        """Refuse all later operations, and leave the other ranks, whose operations with this one fail."""
        self.is_finalized = True
        self._end_native()
        if self._group is not None:
            self._group.close()

    def let_native_queue(self) -> None:
        """Let native code queue the calls that are like those before, where it can."""
        with self.guard:
            group = self._group
            if self._native is not None or group is None or self._failure is not None or self.is_finalized:
                return
            queue = native_queue(group) if group.size > 1 else None
            if queue is not None:
                device = self.context.device
                number = device.backend.number(device.ordinal)
                self._native = host.NcclCommunicator(
                    self.handle, self.context.native, number, self.rank, self.size, self.stream, queue
                )

    def let_native_move(self, kind: str, peer: int, *, sends: bool) -> None:
        """Let native code queue messages of a lane, as :meth:`let_native_queue`."""
        with self.guard:
            if (kind, peer) in self._known_lanes or peer == self.rank or self._native is None:
                return
            native_messages(self.group, peer, sends=sends)
            self._native.know_lane(peer, sends, self._lanes[kind, peer])
            self._known_lanes.add((kind, peer))

    @property
    def is_pending(self) -> bool:
        """Whether the ranks have not met yet, or what they make is not over."""
        return self.failure is None and (self._group is None or bool(self._later))

    @property
    def group(self) -> Group:
        """The group of its ranks; refused as :meth:`refuse_unready`."""
        self.refuse_unready()
        assert self._group is not None
        return self._group

    def refuse_unready(self) -> None:
        """Refuse a use before its ranks have met, once it is finalized, and once it is lost."""
        self.refuse_lost()
        if self._group is None:
            raise invalid(
                f"{self} is not ready: its ranks have not met",
                "end the group, or ask ncclCommGetAsyncError until it no longer gives ncclInProgress",
            )
        if self.is_finalized:
            raise invalid(f"{self} was finalized", "destroy it, and make another one")

    def refuse_lost(self) -> None:
        """Refuse every use once it is lost."""
        failure = self.failure
        if failure is not None:
            raise Refusal(failure.code, str(failure), failure.remedy)

    @property
    def rendezvous(self) -> Rendezvous:
        """The rendezvous of its ranks, once they have met."""
        assert self._rendezvous is not None
        return self._rendezvous

    def make(self, job: Callable[[], object]) -> None:
        """Run the job that makes it; an error leaves it lost."""
        try:
            job()
        except (Error, Refusal) as error:
            refusal = error if isinstance(error, Refusal) else refusal_of(error)
            self.failure = self.failure or Refusal(refusal.code, str(refusal), refusal.remedy)
            raise refusal from None

    def make_later(self, job: Callable[[], object]) -> None:
        """Run the job that makes it in a thread; it is pending meanwhile."""

        def run() -> None:
            with contextlib.suppress(Refusal):  # which ncclCommGetAsyncError returns
                self.make(job)
            with self.guard:
                self._later -= 1

        with self.guard:
            self._later += 1
        threading.Thread(target=run, name="nccl-init", daemon=True).start()

    def meet(self, key: str, call: str) -> None:
        """Meet the other ranks, which pass the same key; ``call`` is what the program called."""
        self.key = key
        file = MeetingFile([key], "nccl")
        with contextlib.ExitStack() as undo:
            if self.rank == 0:
                server = RendezvousServer(self.size)
                undo.callback(server.close)
                file.write(os.fsencode(server.address))
                undo.callback(file.close)
                address = server.address
            else:
                server = None
                address = os.fsdecode(file.read(call, _INIT_SECONDS))
            rendezvous = Rendezvous(address, self.rank, self.size)
            undo.callback(rendezvous.close)
            group = Group(
                self.rank,
                self.size,
                rendezvous=rendezvous,
                device=self.context.device,
                window=1,
                notifies="fifo",
                name=f"nccl-{sha256(key.encode()).hexdigest()[:32]}",
                timeout=_INIT_SECONDS,
            )
            undo.callback(group.close)
            self._refuse_shared_device(group)
            group.barrier()  # connects the ranks, so that no later call has to wait for one that calls nothing
            stream = group.device.create_stream()
            with self.guard:
                self.refuse_lost()  # it may have been aborted meanwhile
                self._abort_flag.put_on(stream)
                undo.pop_all()
                self._server, self._rendezvous, self._group, self._stream = server, rendezvous, group, stream
        file.close()

    def _refuse_shared_device(self, group: Group) -> None:
        ranks: dict[tuple[str, int], int] = {}
        for each in group.members:
            other = ranks.setdefault((each.machine, each.device.ordinal), each.rank)
            if other != each.rank:
                raise misuse(
                    f"ranks {other} and {each.rank} are both on device {machine.id_of(each.device.ordinal)}",
                    "give each rank a device of its own; `peerlane run --devices N` makes as many as there are ranks",
                )

    def stream_of(self, handle: int) -> AnyStream:
        """Return a stream of the program on the communicator's device; NULL is that device's null stream."""
        known = machine.resources.get(handle)
        if type(known) is GpuStream and known.context is self.context:
            return known  # most often
        with of_driver(INVALID_ARGUMENT):
            if gpu.streams.meaning(handle) in (0, LEGACY_STREAM):
                null = gpu.streams.null(self.context)
                gpu.graphs.captured(null)  # refuses it while a blocking stream is captured
                return null
            stream = gpu.streams.of(handle)
        if stream.context.device is not self.context.device:
            raise invalid(
                f"{stream} is not on device {self.context.number}, where {self} is",
                "pass a stream of the communicator's device",
            )
        return stream

    def next_number(self) -> int:
        """Return a number for a window; all ranks make them in one order."""
        with self.guard:
            self.next_window += 1
            return self.next_window

    @property
    def own_signal(self) -> Notify:
        """The signal that this rank raises in itself."""
        with self.guard:
            if self._own_signal is None:
                self._own_signal = self.group.device.create_notify(NotifyKind.FIFO)
            return self._own_signal

    @property
    def stream(self) -> Stream:
        """The stream of its collectives."""
        assert self._stream is not None
        return self._stream

    def is_behind(self, program: AnyStream) -> bool:
        """Tell whether all work of a stream of the program is that of the last collective, or before it."""
        return self._position is not None and self._position == _position_of(program)

    def note_behind(self, program: AnyStream) -> None:
        """Note that a stream of the program waits for the last collective, and has no later work."""
        self._position = _position_of(program)

    def lane(self, kind: str, peer: int) -> Stream:
        """Return the stream of the messages to a rank or from it."""
        with self.guard:
            lane = self._lanes.get((kind, peer))
            if lane is None:
                lane = self._lanes[kind, peer] = self.group.device.create_stream()
                self._abort_flag.put_on(lane)
            return lane

    def lose(self, error: Error) -> None:
        """Note that it is lost with an error, and refuse the call; an earlier failure stays."""
        self.look()
        with self.guard:
            self.failure = self.failure or self._refusal_of(error)
        self.refuse_lost()

    def _refusal_of(self, error: Error) -> Refusal:
        """Return the refusal for an error of its group; unless ranks disagree, it names those that have left."""
        refusal = refusal_of(error)
        left = None if error.fault is Fault.INVALID_VALUE else self._without_left(f": {refusal}")
        return left or refusal

    def refuse_left(self) -> None:
        """Refuse what waits for all ranks once a rank has finalized or ended the communicator."""
        left = self._without_left("")
        if left is not None:
            raise left

    def _without_left(self, consequence: str) -> Refusal | None:
        left = [] if self._group is None else ranks_that_left(self._group)
        if not left:
            return None
        who = f"rank {left[0]} has" if len(left) == 1 else f"ranks {', '.join(map(str, left))} have"
        return Refusal(
            REMOTE_ERROR,
            f"{who} finalized or ended the communicator{consequence}",
            "call ncclCommFinalize and ncclCommDestroy when all ranks have made their last calls",
        )

    def look(self) -> None:
        """Note the failure of an operation, if one has failed."""
        for each in self._streams():
            if self.failure is not None or not each.is_done:
                continue
            try:
                each.sync()
            except Cancelled:
                continue  # behind a failure of another stream
            except Error as error:
                self.failure = self._refusal_of(error)

    def _streams(self) -> list[Stream]:
        with self.guard:
            return [*filter(None, [self._stream]), *self._lanes.values()]

    def wait(self) -> None:
        """Wait until its operations are over; what they failed with is noted."""
        for each in self._streams():
            with contextlib.suppress(Error):
                each.record().sync()
        self.look()

    def cancel(self) -> None:
        """Cancel its operations; the streams of the program go on."""
        with self.guard:  # not while the streams are waited for
            aborted, self._abort_flag = self._abort_flag, host.AbortFlag()
        aborted.set()
        for each in self._streams():
            _cancel(each)
            self._abort_flag.put_on(each)

    def abort(self) -> None:
        """Cancel its operations, and end it in this process; the streams of the program go on."""
        self._abort_flag.set()
        self.abandon()

    def end(self) -> None:
        """Wait for its operations, and end it in this process."""
        self.wait()
        self.abandon()

    def abandon(self) -> None:
        """Cancel its operations, and end it in this process; other ranks' operations with this one fail."""
        with self.guard:
            if self.failure is None:
                self.failure = misuse(f"{self} was ended", "make another one")
            group, self._group = self._group, None
            rendezvous, self._rendezvous = self._rendezvous, None
            server, self._server = self._server, None
            windows, self.windows = self.windows, []
        with contextlib.ExitStack() as ends:
            if server is not None:
                ends.callback(server.linger, _LINGER)
            if rendezvous is not None:
                ends.callback(rendezvous.close)
            if group is not None:
                ends.callback(group.close)
            for buffer in self.kept.values():
                ends.callback(buffer.close)
            for each in self._streams():
                ends.callback(_cancel, each, close=True)
            for window in windows:
                ends.callback(window.abandon)


def _abandon_all() -> None:
    """End the communicators that the program has left."""
    with machine.lock:
        left = [each for each in machine.resources.values() if isinstance(each, Communicator)]
    for each in left:
        machine.drop(each, "the start of another test")
        with contextlib.suppress(Error):
            each.abandon()


before_anew.append(_abandon_all)


def _cancel(stream: Stream, *, close: bool = False) -> None:
    stream.abort(close=close)
    with contextlib.suppress(Error):  # nobody asks for the cancellation
        stream.sync()


def _position_of(program: AnyStream) -> object:
    """Return what changes with each operation before which the stream's next one must not run."""
    if isinstance(program, NullStream):
        return None  # which follows all blocking streams
    before = program.null.neutral.submitted if program.is_blocking else 0
    return program.handle, program.neutral.submitted, before

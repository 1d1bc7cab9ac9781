"""Groups of calls: what a thread calls within one runs at its end (facts/cuda 8.3)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeAlias

from peerlane import Buffer, Device, Event, Stream, copy
from peerlane.backend import host
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.message import Message
from peerlane.dialects.cuda.nccl.codes import UNHANDLED_CUDA_ERROR, misuse, of_driver
from peerlane.dialects.cuda.nccl.communicator import Communicator
from peerlane.dialects.cuda.nccl.state import call
from peerlane.dialects.cuda.state import gpu, machine
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.errors import Error
from peerlane.ranks.deadlock.wait_state import calling

Job: TypeAlias = "Callable[[], object]"
SENDS, RECEIVES = "sends", "receives"


@dataclass(slots=True)
class Operation:
    """A call that puts work onto a stream."""

    name: str  #: of the call
    communicator: Communicator
    stream: AnyStream
    submit: Callable[[Stream], None]  #: queues the work on a stream of the communicator
    #: What it runs behind: ``("sends", 3)``, earlier sends to rank 3.  None: earlier collectives.
    lane: tuple[str, int] | None = None
    content: Buffer | None = None  #: what a message moves, from or to memory of this rank
    at_line: Callable[[Job], object] = lambda job: job()  #: makes a call at the program's line of this one


@dataclass(slots=True)
class _Group:
    process: object  # what changes when the tests of a process begin anew
    depth: int = 1
    failure: Refusal | None = None  #: why a call that it had accepted cannot run
    jobs: list[tuple[Communicator, Job]] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


class _OfThread(threading.local):
    group: _Group | None = None
    has_begun: bool = False  # whether the last call has begun what goes on in another thread


_thread = _OfThread()


def _set_group(group: _Group | None) -> _Group | None:
    _thread.group = group
    host.take_nccl_group(group is not None)
    return group


def _open_group() -> _Group | None:
    group = _thread.group
    if group is not None:
        return group if group.process is machine.thread else _set_group(None)
    taken = host.take_nccl_group(False)
    return None if taken is None else _go_on_with(*taken)


def _go_on_with(depth: int, native: Sequence[tuple[str, tuple[int, ...], int]]) -> _Group:
    """Make the calls that native code has kept of a group, now that it meets one which it cannot serve."""
    group = _thread.group = _Group(machine.thread, depth)
    for name, words, line in native:
        failed = event_log.at_call_site(line, partial(recall, name, words))
        if not isinstance(failed, Message):
            continue
        failure = misuse(f"{name}, earlier in the group, can no longer run: {failed.cause}", failed.remedy)
        group.failure = group.failure or failure
        communicator = machine.resources.get(words[-2])
        if isinstance(communicator, Communicator):  # the call had returned ncclSuccess
            communicator.failure = communicator.failure or failure
    return group


def recall(name: str, words: tuple[int, ...]) -> object:
    """Make a call of C again, whose last arguments are communicator and stream; return the message if it fails.

    `c_library` sets this function.
    """
    raise NotImplementedError


def take_begun() -> bool:
    """Return whether the call that ends now has begun what goes on: then it returns ncclInProgress."""
    has_begun, _thread.has_begun = _thread.has_begun, False
    return has_begun


@call
def ncclGroupStart() -> None:
    """Begin a group of this thread, or go one deeper."""
    group = _open_group()
    if group is None:
        _set_group(_Group(machine.thread))
    else:
        group.depth += 1


@call
def ncclGroupEnd() -> None:
    """End a group; the outermost one makes its communicators and queues its operations."""
    group = _open_group()
    if group is None:
        raise misuse("this thread has begun no group", "call ncclGroupStart first")
    group.depth -= 1
    if group.depth:
        return
    _set_group(None)
    if group.jobs and group.operations:
        raise misuse(
            f"the group makes communicators and calls {group.operations[0].name}",
            "make communicators in a group of their own",
        )
    waited = []
    for communicator, job in group.jobs:
        if communicator.is_blocking:
            waited.append(job)
        else:
            communicator.make_later(job)
            _thread.has_begun = True
    together(waited)
    _launch(group.operations, group.failure)


def make(communicator: Communicator, job: Job) -> None:
    """Make a communicator, by a job that waits for its ranks: as the group ends, in a thread, or now."""
    group = _open_group()
    if group is not None:
        group.jobs.append((communicator, partial(communicator.make, job)))
    elif communicator.is_blocking:
        communicator.make(job)
    else:
        communicator.make_later(job)
        _thread.has_begun = True


def collective(job: Job, communicator: Communicator) -> None:
    """Run what waits for all ranks: at the end of the group, or now."""
    group = _open_group()
    if group is not None:
        group.jobs.append((communicator, job))
    else:
        job()


def run(*operations: Operation) -> None:
    """Queue what a call asks for, or keep it until the group of this thread ends."""
    group = _open_group()
    if group is None:
        _launch(operations, None)
        return
    for each in operations:
        each.at_line = event_log.present_line()
    group.operations += operations


def together(jobs: Sequence[Job]) -> None:
    """Run jobs that wait for one another, each in a thread; raise the first failure once all are over."""
    if len(jobs) < 2:
        for job in jobs:
            job()
        return
    failures: list[Refusal | Error] = []

    def run(job: Job) -> None:
        try:
            job()
        except (Refusal, Error) as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for each in threads:
        each.start()
    for each in threads:
        while each.is_alive():
            each.join(0.1)  # so that Ctrl-C is seen
    if failures:
        raise failures[0]


def _launch(operations: Sequence[Operation], failure: Refusal | None) -> None:
    if (
        failure is None
        and len(operations) == 1
        and operations[0].lane is None
        and operations[0].stream.capture is None
    ):
        _queue_one(operations[0])  # without the cost of a group
        return
    by_communicator: dict[Communicator, list[Operation]] = {}
    for each in operations:
        by_communicator.setdefault(each.communicator, []).append(each)
    pairs = {each: _to_itself(each, some) for each, some in by_communicator.items()}
    for communicator, some in by_communicator.items():
        work = _Work(communicator, some, pairs[communicator])
        try:
            if any(each.stream.capture is not None for each in some):
                _capture(work)
            else:
                work.queue()
        except Refusal as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _queue_one(operation: Operation) -> None:
    communicator, own, program = (
        operation.communicator,
        operation.communicator.stream,
        operation.stream.neutral,
    )
    try:
        if not communicator.is_behind(operation.stream):
            own.wait(program)
        _submit(operation, own)
        program.wait(own)
        communicator.note_behind(operation.stream)
        communicator.let_native_queue()
    except Error as error:
        communicator.lose(error)


@dataclass(slots=True)
class _Work:
    """What a communicator does in a group, also as a node of a graph: on hardware it is a kernel."""

    communicator: Communicator
    operations: Sequence[Operation]
    pairs: Sequence[_Pair]  #: both ends of each message of this rank to itself

    kind: ClassVar[str] = "KERNEL"

    def queue(self) -> None:
        """Queue the operations side by side, but for collectives, which run in their order before messages.

        They run behind earlier work of all streams of the group, and before later work of all.
        """
        try:
            _queue_each(self.communicator, self.operations, self.pairs)
        except Error as error:
            self.communicator.lose(error)

    def prepared(self, _: Device) -> Callable[[AnyStream], None]:
        """Check the communicator; return what queues the operations on a stream of a launch."""
        failure = self.communicator.failure
        if failure is not None:
            raise gpu.vendor.invalid(f"{self.operations[0].name}: {failure}", failure.remedy)
        return self._launch

    def _launch(self, stream: AnyStream) -> None:
        operations = [replace(each, stream=stream) for each in self.operations]
        with suppress(Refusal):  # which ncclCommGetAsyncError returns
            _Work(self.communicator, operations, self.pairs).queue()


def _capture(work: _Work) -> None:
    """Add work to the capture of its streams; later operations of all of them follow it."""
    first, *others = dict.fromkeys(each.stream for each in work.operations)
    capture = first.capture
    if capture is None or any(each.capture is not capture for each in others):
        raise misuse(
            f"{work.operations[0].name}: only some streams of the group are in one capture",
            "let all streams of a communicator join the capture before the group",
        )
    with of_driver(UNHANDLED_CUDA_ERROR):
        for each in others:
            capture.join(first, capture.dependencies[each])
        node = capture.add(first, work)
        for each in others:
            capture.join(each, (node,))


def _queue_each(communicator: Communicator, operations: Sequence[Operation], pairs: Sequence[_Pair]) -> None:
    programs = {each.stream.neutral.id: each.stream.neutral for each in operations}.values()
    begun = [each.record() for each in programs]
    ends: list[Event] = []
    own = communicator.stream
    collectives = [each for each in operations if each.lane is None]
    if collectives or pairs:
        _follow(own, begun)
        for each in collectives:
            _submit(each, own)
        for received, sent in pairs:
            _copy_to_itself(received, sent, own)
        ends.append(own.record())
    lanes: dict[tuple[str, int], Stream] = {}
    for each in operations:
        if each.lane is None or _is_to_itself(each):
            continue
        lane = lanes.get(each.lane)
        if lane is None:
            lane = lanes[each.lane] = communicator.lane(*each.lane)
            _follow(lane, begun)
        _submit(each, lane)
    ends += [each.record() for each in lanes.values()]
    for program in programs:
        _follow(program, ends)
    communicator.let_native_queue()
    for kind, peer in lanes:
        communicator.let_native_move(kind, peer, sends=kind == SENDS)


def _follow(stream: Stream, events: Iterable[Event]) -> None:
    for each in events:
        stream.wait(each)


def _submit(operation: Operation, stream: Stream) -> None:
    calling.call = operation.name  # reports of its waits have this name
    try:
        operation.at_line(partial(operation.submit, stream))
    finally:
        del calling.call


_Pair: TypeAlias = "tuple[Operation, Operation]"


def _copy_to_itself(received: Operation, sent: Operation, stream: Stream) -> None:
    """Queue a message of a rank to itself: the log has its read at the line that sends, its write at the other."""
    source, target = sent.content, received.content
    assert source is not None and target is not None

    def read() -> None:
        with event_log.channel_access(stream, (), (source,)):
            stream.record()  # the log has one access for an operation

    def write() -> None:
        with event_log.channel_access(stream, (target,), ()):
            copy(target, source, stream=stream)

    sent.at_line(read)
    received.at_line(write)


def _is_to_itself(operation: Operation) -> bool:
    return operation.lane in ((SENDS, operation.communicator.rank), (RECEIVES, operation.communicator.rank))


def _to_itself(communicator: Communicator, operations: Sequence[Operation]) -> list[_Pair]:
    """Return both ends of each message of a rank to itself; refuse ends that do not agree."""
    sent, received = (
        [each for each in operations if each.lane == (kind, communicator.rank)] for kind in (SENDS, RECEIVES)
    )
    sizes = [[each.content.size for each in some if each.content is not None] for some in (sent, received)]
    if sizes[0] != sizes[1]:
        raise misuse(
            f"rank {communicator.rank} sends itself messages of {sizes[0]} bytes, and receives {sizes[1]}",
            "call ncclSend and ncclRecv for both ends in one group, with equal counts",
        )
    return list(zip(received, sent, strict=True))

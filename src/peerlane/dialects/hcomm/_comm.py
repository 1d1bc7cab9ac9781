"""``hcomm``: communicators, and the threads and channels that they have (facts/hcomm 2.2, 2.4, 2.5)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Annotated

from peerlane import Buffer, Channel, Group, Notify, NotifyKind, Stream
from peerlane.backend import host
from peerlane.diagnostics.waits import stream_waits
from peerlane.dialects._shared.call import Check, Refusal
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._arguments import HANDLE, meaning
from peerlane.dialects.hcomm._codes import AGAIN, NOT_FOUND, PARA, RUNTIME, SUSPENDING
from peerlane.dialects.hcomm._header import CommEngine, CommProtocol
from peerlane.dialects.hcomm._meeting import Meeting
from peerlane.dialects.hcomm._regions import FarAddresses, Regions, device_memory, far_address, unregistered
from peerlane.dialects.hcomm._servers import Servers, of_machines
from peerlane.dialects.hcomm._settings import Settings, exec_timeout, notifies_kind
from peerlane.dialects.hcomm._state import HcommResource, drop, object_of
from peerlane.errors import Busy, Error
from peerlane.memory.far_buffer import FarBuffer
from peerlane.ranks.channel import is_busy
from peerlane.rendezvous import Rendezvous

BUFFER_TAG = "HcclBuffer"
WINDOW_TAG = "window"
_CPU = int(CommEngine.COMM_ENGINE_CPU)
#: A network card reaches registered memory only; a copy engine reaches all memory of its device.
_BY_CARD = frozenset(map(int, (CommProtocol.COMM_PROTOCOL_ROCE, CommProtocol.COMM_PROTOCOL_UBOE)))


class HcommThread(HcommResource):
    """A communication thread: a stream, or for engine CPU the thread that calls."""

    __slots__ = ("_last", "_notifies", "comm", "engine", "is_cpu", "notifies", "owns_stream", "stream")

    name = "communication thread"

    def __init__(
        self, context: Context, comm: Comm | None, engine: int, stream: Stream | None, notifies: int
    ) -> None:
        super().__init__(context)
        #: ``comm``: None for one of the basic layer.
        #: ``notifies``: how many notifies it has.
        self.comm, self.engine, self.notifies = comm, engine, notifies
        self.is_cpu = engine == _CPU  #: whether its operations run in the caller
        self.owns_stream = stream is None and not self.is_cpu
        #: The queue of its operations; for engine CPU, they run once this stream is done.
        self.stream = context.device.create_stream() if self.owns_stream else stream
        self._notifies: dict[int, Notify] = {}
        self._last = 0

    @property
    def is_owned(self) -> bool:  # type: ignore[override]
        """Whether a program has to destroy it; a communicator ends what belongs to it."""
        return self.comm is None

    @property
    def is_busy(self) -> bool:
        """Whether one of its operations is not over; the program's own operations on its stream do not count."""
        stream = self.stream
        if stream is None or stream.is_closed:
            return False
        return stream.completed < max(self._last, host.last_by_lane(stream))

    @property
    def exec_timeout(self) -> float | None:
        """Seconds that a call may block, None for ever."""
        return self.comm.settings.exec_timeout if self.comm is not None else exec_timeout()

    def stream_after_earlier_work(self) -> Stream | None:
        """Return the stream for the next operation; for engine CPU wait until its stream is done, and return None."""
        stream = self.stream
        if not self.is_cpu:
            assert stream is not None
            return stream
        if stream is not None and not stream.is_closed and not stream.is_done:
            with contextlib.suppress(Error):  # a synchronization of the stream reports its failures
                stream.record().sync(self.exec_timeout)
        return None

    def note(self) -> None:
        """Note that an operation was queued."""
        if self.stream is not None:
            self._last = self.stream.submitted

    def notify(self, index: int, call: str) -> Notify:
        """Return one of its notifies: HCCL_E_PARA."""
        if index >= self.notifies:
            known = f"valid are 0 to {self.notifies - 1}" if self.notifies else "it has none"
            raise PARA.refusal(
                f"{index:,} is not a notify of {self}; {known}",
                f"acquire the thread with more notifies ({call})",
            )
        with machine.lock:
            notify = self._notifies.get(index)
            if notify is None:
                kind = NotifyKind[notifies_kind().upper()]
                notify = self._notifies[index] = self.context.device.create_notify(kind)
                stream_waits.notify_names[notify.id] = f"notify {index} of thread {self.handle:#x}"
            return notify

    def end(self) -> None:
        """Close its notifies and its own stream; operations on a stream of the program go on."""
        host.forget_c_threads()
        notifies, self._notifies = self._notifies, {}
        for each in notifies.values():
            stream_waits.notify_names.pop(each.id, None)
            each.close()
        if self.owns_stream and self.stream is not None:
            with contextlib.suppress(Error):
                self.stream.abort(close=True)

    abandon = end


class HcommChannel(HcommResource):
    """A channel to a rank."""

    __slots__ = ("_neutral", "comm", "engine", "imported", "is_cpu", "own", "protocol", "remote", "why")

    name = "channel"

    def __init__(
        self, context: Context, comm: Comm | None, engine: int, protocol: int, own: Regions, imported: Regions
    ) -> None:
        super().__init__(context)
        #: ``comm``: None for one of the basic layer.
        #: ``own``, ``imported``: this rank's registered memory; the peer's memory that the program imported, or that
        #: windows reach.
        self.comm, self.engine, self.protocol, self.own, self.imported = comm, engine, protocol, own, imported
        self.is_cpu = engine == _CPU  #: whether its operations run in the caller
        self.remote = Regions({})  #: the peer's memory that it reaches
        self._neutral: Channel | None = None
        self.why = "is connecting"  #: why it is not connected

    def connect(self, neutral: Channel) -> None:
        """Take the neutral channel, which makes this one ready."""
        memories = {tag: each for tag, each in neutral.memories.items() if tag != WINDOW_TAG}
        known = {} if self.comm is None else self.comm.far_addresses
        starts = {
            tag: far_address(known, neutral.peer, tag, each.size)
            for tag, each in memories.items()
            if isinstance(each, FarBuffer) or not self._is_within_server(neutral.peer)
        }
        self.remote = Regions(memories, starts)
        self._neutral = neutral

    def _is_within_server(self, peer: int) -> bool:
        return self.comm is None or self.comm.servers.are_one(self.comm.group.rank, peer)

    @property
    def is_ready(self) -> bool:
        """Whether it is connected."""
        return self._neutral is not None

    @property
    def neutral(self) -> Channel:
        """The neutral channel: HCCL_E_AGAIN as long as it is not connected."""
        if self._neutral is None:
            raise AGAIN.refusal(f"{self} {self.why}", "ask HcommChannelGetStatus until it gives 0")
        return self._neutral

    @property
    def is_owned(self) -> bool:  # type: ignore[override]
        """Whether a program has to destroy it; a communicator ends what belongs to it."""
        return self.comm is None

    @property
    def is_by_card(self) -> bool:
        """Whether bytes go through a network card."""
        return self.is_cpu or self.protocol in _BY_CARD

    @property
    def is_busy(self) -> bool:
        """Whether a nonblocking operation, which only a fence waits for, is not over."""
        return self._neutral is not None and is_busy(self._neutral)

    @property
    def exec_timeout(self) -> float | None:
        """Seconds that a call may block, None for ever."""
        return self.comm.settings.exec_timeout if self.comm is not None else exec_timeout()

    def theirs(self, name: str, address: int, nbytes: int) -> tuple[Buffer, int]:
        """Return the peer's memory that has the bytes, and their offset in it: HCCL_E_NOT_FOUND."""
        location = self.remote.locate(address, nbytes) or self.imported.locate(address, nbytes)
        if location is None:
            why = self.remote.why_ended(address, nbytes) or self.imported.why_ended(address, nbytes)
            if why:
                raise NOT_FOUND.refusal(
                    f"{name}: {why}", "keep memory registered until its peers are done with it"
                )
            whose = f"rank {self.neutral.peer} that the channel reaches"
            raise unregistered(name, address, nbytes, self.remote, whose)
        return location

    def ours(self, name: str, address: int, nbytes: int) -> Buffer:
        """Return this rank's bytes: HCCL_E_NOT_FOUND."""
        part = self.own.part(address, nbytes)
        if part is not None:
            return part
        if self.is_by_card:
            raise unregistered(name, address, nbytes, self.own, "this rank that is registered")
        return device_memory(name, address, nbytes)

    def end(self) -> None:
        """Close this end."""
        host.forget_c_threads()
        if self._neutral is not None:
            self._neutral.close()


class Comm(HcommResource):
    """A communicator: a group of ranks, with the resources that this rank has taken of it."""

    name = "communicator"

    def __init__(
        self, context: Context, meeting: Meeting, settings: Settings, servers: Servers | None
    ) -> None:
        super().__init__(context)
        self.group: Group = meeting.group
        self.servers = servers or of_machines(meeting.group.members)
        #: By rank, tag and bytes: the numbers that stand for addresses of memory in other servers.
        self.far_addresses: FarAddresses = {}
        self.settings = settings
        self.comm_name = settings.name or meeting.key  #: the name by which the vendor's calls know it
        self._meeting = meeting
        self.buffer: Buffer | None = None  #: the HcclBuffer, once a call needed it
        self.memories: dict[int, tuple[str, Buffer]] = {}  #: by handle: (tag, registered memory)
        self.regions = Regions({})  #: this rank's memory that peers reach
        self.threads: list[HcommThread] = []
        self.streams: dict[tuple[int, int], HcommThread] = {}
        self.channels: dict[tuple[int, int, int], HcommChannel] = {}  #: by (engine, rank, protocol)
        #: By direction and rank: the stream for the messages of batches.
        self.sides: dict[tuple[bool, int], Stream] = {}
        #: By tag and engine: the memory of an engine's context.
        self.contexts: dict[tuple[str, int], Buffer] = {}
        self.parts: list[HcommResource] = []  #: the windows, teams and team windows, which end with it
        self.next_window = 0  #: the number of the next window
        self._reached: dict[int, Regions] = {}
        self.notifies = 0  #: how many notifies its threads have
        #: ``guard``: held while a table changes.
        #: ``acquiring``: held while channels are made.
        self.guard, self.acquiring = threading.RLock(), threading.Lock()
        self.owner: int | None = None  #: the thread that has locked it
        #: The digest of its rank table, and the rank; None without a rank table.
        self.table_key: object = None
        self.is_suspended = False
        self._busy = 0

    @property
    def key(self) -> str:
        """A text that is the same in all its ranks, and that no other communicator has."""
        return self._meeting.key

    @property
    def rendezvous(self) -> Rendezvous:
        """The rendezvous of its ranks."""
        return self._meeting.rendezvous

    def reached(self, rank: int) -> Regions:
        """Return the parts of windows that channels to a rank reach."""
        with self.guard:
            return self._reached.setdefault(rank, Regions({}))

    def hccl_buffer(self) -> Buffer:
        """Return the HcclBuffer, which is allocated when it is first needed (facts/hcomm 2.3)."""
        with self.guard:
            if self.buffer is None:
                buffer = self.group.device.allocate(self.settings.buffer_bytes, peer=True)
                self.group.register(buffer, BUFFER_TAG)
                self.regions.add(BUFFER_TAG, buffer)
                self.buffer = buffer
            return self.buffer

    def forget_freed(self) -> None:
        """Deregister freed memory: new channels do not reach it, and its tags are free again."""
        with self.guard:
            freed = [(handle, tag) for handle, (tag, memory) in self.memories.items() if memory.is_closed]
            for handle, tag in freed:
                del self.memories[handle]
                self.regions.remove(tag)
                self.group.deregister(tag)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Mark the communicator as busy: one of its calls blocks the caller."""
        with self.guard:
            self._busy += 1
        try:
            yield
        finally:
            with self.guard:
                self._busy -= 1

    def why_busy(self) -> str:
        """Return which operation is under way; empty if none is."""
        if self._busy:
            return (
                f"{self._busy} call{'s' * (self._busy > 1)} of it {'block' if self._busy > 1 else 'blocks'}"
            )
        for each in self.threads:
            if each.is_busy:
                return f"{each} has operations that are not over"
        for channel in list(self.channels.values()):
            if channel.is_busy:
                return f"{channel} has operations that no fence has waited for"
        return ""

    def end(self) -> None:
        """Close everything it has; a thread of this process that waits for other ranks fails at once."""
        parts: list[HcommResource] = [*self.channels.values(), *self.threads, *self.parts]
        for part in parts:
            machine.drop(part, "HcclCommDestroy")
        with contextlib.ExitStack() as ends:
            for memory in (self.buffer, *self.contexts.values()):
                if memory is not None:
                    ends.callback(memory.close)
            for side in self.sides.values():
                ends.callback(side.abort, close=True)
            ends.callback(self.group.close)
            ends.callback(self._meeting.close)
            for part in parts:
                ends.callback(part.abandon)


def comm_of(handle: int) -> Comm:
    """Return the communicator of a handle."""
    return object_of(Comm, handle)


def thread_of(handle: int) -> HcommThread:
    """Return the thread of a handle."""
    return object_of(HcommThread, handle)


def channel_of(handle: int) -> HcommChannel:
    """Return the channel of a handle."""
    return object_of(HcommChannel, handle)


class Caller:
    """The calling thread, which runs operations of engine CPU that have no communication thread."""

    def stream_after_earlier_work(self) -> Stream | None:
        """Return no stream."""
        return None

    def note(self) -> None:
        """Note nothing."""


CALLER = Caller()


def pair(thread: int, channel: int) -> tuple[HcommThread | Caller, HcommChannel]:
    """Return the thread and the channel of two handles: HCCL_E_PARA for a thread of another engine.

    For a channel of engine CPU the handle of the thread may be 0.
    """
    link = object_of(HcommChannel, channel)
    refuse_suspended(link.comm)
    if not thread and link.is_cpu:
        return CALLER, link
    worker = object_of(HcommThread, thread)
    if worker.is_cpu is not link.is_cpu:
        raise PARA.refusal(
            f"{worker} is of engine {worker.engine}, and {link} of {link.engine}",
            "acquire both for one engine",
        )
    return worker, link


def current_context() -> Context:
    """Return the context of this thread: HCCL_E_RUNTIME, for the runtime has no device."""
    try:
        return machine.context()
    except Refusal as error:
        raise RUNTIME.refusal(str(error), error.remedy) from None


def destroyed(comm: Comm) -> Refusal:
    return NOT_FOUND.refusal(f"{comm} was destroyed while it waited for its channels", "make it anew")


@contextlib.contextmanager
def refuse_if_destroyed(comm: Comm) -> Iterator[None]:
    """Replace errors by HCCL_E_NOT_FOUND if the communicator was destroyed meanwhile."""
    try:
        yield
    except Error as error:
        if machine.resources.get(comm.handle) is not comm:
            raise destroyed(comm) from None
        raise error


def refuse_suspended(comm: Comm | None) -> None:
    """Refuse operations of a suspended communicator: HCCL_E_SUSPENDING."""
    if comm is not None and comm.is_suspended:
        raise SUSPENDING.refusal(f"{comm} is suspended", "call HcclCommResume first")


def refuse_rank(rank: int, size: int, *, most: int = 1024) -> None:
    """Refuse a size that no communicator has, and a rank beyond it: HCCL_E_PARA."""
    if not 1 <= size <= most or rank >= size:
        raise PARA.refusal(
            f"rank is {rank:,} of {size:,}; valid are sizes of 1 to {most:,} and ranks below that",
            "pass each rank's own number, 0 to nRanks - 1",
        )


def active_comm(handle: int) -> Comm:
    """Return the communicator of a handle: HCCL_E_SUSPENDING for one that is suspended."""
    comm = comm_of(handle)
    refuse_suspended(comm)
    return comm


CommHandle = Annotated[Comm, HANDLE, meaning(Comm)]
ActiveComm = Annotated[Comm, HANDLE, Check(lambda _name: active_comm)]
ThreadHandle = Annotated[HcommThread, HANDLE, meaning(HcommThread)]
ChannelHandle = Annotated[HcommChannel, HANDLE, meaning(HcommChannel)]


class Promised(HcommResource):
    """The handle of a communicator that the end of a group will make."""

    __slots__ = ()

    name = "communicator that HcclGroupEnd makes"


def give(
    context: Context,
    meeting: Meeting,
    settings: Settings,
    promised: Promised | None = None,
    *,
    servers: Servers | None = None,
) -> int:
    """Return the handle of a new communicator, or that of ``promised``; HCCL_E_RUNTIME if its device was reset.

    ``servers``: by default each machine is one.
    """
    comm = Comm(context, meeting, settings, servers)
    try:
        comm.servers.refuse_split(comm.group.members)
    except Refusal:
        comm.abandon()
        raise
    refuse_name(comm.comm_name, comm)
    if promised is None:
        return keep(comm)
    with machine.lock:
        if machine.resources.get(promised.handle) is promised:
            comm.handle, comm.created_at = promised.handle, promised.created_at
            machine.resources[comm.handle] = comm
            return comm.handle
    comm.abandon()
    raise _reset(context)


def keep(resource: HcommResource) -> int:
    """Return the handle of a new object; HCCL_E_RUNTIME if its device was reset meanwhile."""
    if not machine.keep(resource):
        resource.abandon()
        raise _reset(resource.context)
    return resource.handle


def _reset(context: Context) -> Refusal:
    return RUNTIME.refusal(
        f"device {context.device.ordinal} was reset by another thread during the call",
        "reset it when no thread uses it any more",
    )


def refuse_name(name: str, comm: Comm) -> None:
    """Refuse a second communicator of a name and rank in this process: HCCL_E_PARA."""
    for each in comms():
        if each.comm_name == name and each.group.rank == comm.group.rank:
            comm.abandon()
            raise PARA.refusal(
                f"this process has a communicator called {name!r} already, {each}",
                "give each its own hcclCommName, or destroy the other one first",
            )


def comms() -> list[Comm]:
    """Return the communicators of this process."""
    with machine.lock:
        return [each for each in machine.resources.values() if isinstance(each, Comm)]


def find_comm(name: str) -> Comm | None:
    """Return the communicator of a name, or None; among several, one of this thread's context, else of its device."""
    current = machine.thread.context
    device = current.device if isinstance(current, Context) else None
    named = [each for each in comms() if each.comm_name == name]
    return max(named, key=lambda each: (each.context is current, each.context.device is device), default=None)


def comm_named(name: str) -> Comm:
    """Return the communicator of a name, as ``find_comm``: HCCL_E_NOT_FOUND."""
    comm = find_comm(name)
    if comm is None:
        known = ", ".join(repr(each.comm_name) for each in comms()) or "none"
        raise NOT_FOUND.refusal(
            f"no communicator is called {name!r}; there are: {known}", "ask HcclGetCommName"
        )
    return comm


def refuse_busy(comm: Comm) -> None:
    """Refuse while operations are under way: HCCL_E_AGAIN."""
    why = comm.why_busy()
    if why:
        raise AGAIN.refusal(
            f"{comm} is busy: {why}",
            "synchronize the streams of its threads, or fence the channel, then destroy it",
        )


def destroy(comm: Comm, call: str) -> None:
    """End a communicator: HCCL_E_AGAIN while operations are under way."""
    with comm.guard:
        refuse_busy(comm)
        drop(comm, call)
    left: Error | None = None
    for channel in comm.channels.values():
        try:
            channel.end()
        except Busy as error:  # recorded strict notifies that no wait consumed: the channel ends all the same
            left = left or error
    comm.end()
    if left is not None:
        raise left

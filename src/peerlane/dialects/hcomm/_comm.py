"""``hcomm``: communicators (facts/hcomm 2.2)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from peerlane import Buffer, Group, Stream
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context, Thing
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._codes import AGAIN, NOT_FOUND, PARA, RUNTIME, SUSPENDING
from peerlane.dialects.hcomm._meeting import Meeting
from peerlane.dialects.hcomm._regions import Regions
from peerlane.dialects.hcomm._settings import Settings
from peerlane.dialects.hcomm._state import thing
from peerlane.errors import Busy, Error

if TYPE_CHECKING:
    from peerlane.dialects.hcomm._channels import HcommChannel
    from peerlane.dialects.hcomm._teams import Team
    from peerlane.dialects.hcomm._threads import HcommThread
    from peerlane.dialects.hcomm._windows import Window

BUFFER_TAG = "HcclBuffer"


class Comm(Thing):
    """A communicator: a group of ranks, with the resources that this rank has taken of it.

    Attributes
    ----------
    comm_name : str
        The name by which the vendor's calls know it.
    group : Group
    settings : Settings
    buffer : Buffer or None
        The HcclBuffer, once somebody asked for it.
    memories : dict
        By handle: (tag, registered memory).
    regions : Regions
        This rank's memory that peers reach.
    threads : list of HcommThread
    channels : dict
        By (engine, rank, protocol).
    notifies : int
        How many its threads have.
    guard : RLock
        Held while a table changes.
    acquiring : Lock
        Held while channels are made.
    contexts : dict
        By tag and engine: the memory of an engine's context.
    windows : list of Window
    next_window : int
        The number of the next one.
    teams : list of Team
    sides : dict
        By way and rank: a stream on which messages of batches go beside one another.
    owner : int or None
        The thread that has locked it.
    is_suspended : bool
    made_of : object
        What tells the rank table that it was made of; None without one.
    """

    __slots__ = (
        *(
            "_busy",
            "_meeting",
            "acquiring",
            "buffer",
            "channels",
            "contexts",
            "group",
            "guard",
            "memories",
            "notifies",
        ),
        *("comm_name", "is_suspended", "made_of", "owner", "regions", "settings", "sides", "streams"),
        *("_reached", "next_window", "teams", "threads", "windows"),
    )

    name = "communicator"
    is_counted = False

    def __init__(self, context: Context, meeting: Meeting, settings: Settings) -> None:
        super().__init__(context)
        self.group: Group = meeting.group
        self.settings = settings
        self.comm_name = settings.name or meeting.key
        self._meeting = meeting
        self.buffer: Buffer | None = None
        self.memories: dict[int, tuple[str, Buffer]] = {}
        self.regions = Regions({})
        self.threads: list[HcommThread] = []
        self.streams: dict[tuple[int, int], HcommThread] = {}
        self.channels: dict[tuple[int, int, int], HcommChannel] = {}
        self.sides: dict[tuple[bool, int], Stream] = {}
        self.contexts: dict[tuple[str, int], Buffer] = {}
        self.windows: list[Window] = []
        self.next_window = 0
        self.teams: list[Team] = []
        self._reached: dict[int, Regions] = {}
        self.notifies = 0
        self.guard, self.acquiring = threading.RLock(), threading.Lock()
        self.owner: int | None = None
        self.made_of: object = None
        self.is_suspended = False
        self._busy = 0

    @property
    def key(self) -> str:
        """What is the same in all ranks, and no other communicator's."""
        return self._meeting.key

    @property
    def line(self) -> Any:
        """Where its ranks tell one another what they need."""
        return self._meeting.line

    def reached(self, rank: int) -> Regions:
        """Return a rank's parts of windows, as its channels reach them."""
        with self.guard:
            return self._reached.setdefault(rank, Regions({}))

    def hccl_buffer(self) -> Buffer:
        """Return the HcclBuffer, which is allocated when it is first needed (facts/hcomm 2.3)."""
        with self.guard:
            if self.buffer is None:
                made = self.group.device.allocate(self.settings.buffer_bytes, peer=True)
                self.group.register(made, BUFFER_TAG)
                self.regions.add(BUFFER_TAG, made)
                self.buffer = made
            return self.buffer

    def forget_freed(self) -> None:
        """Offer memory that was freed to no more channels; its tags are free again."""
        with self.guard:
            freed = [(handle, tag) for handle, (tag, memory) in self.memories.items() if memory.is_closed]
            for handle, tag in freed:
                del self.memories[handle]
                self.regions.remove(tag)
                self.group.deregister(tag)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Be busy: a call of this communicator blocks its caller."""
        with self.guard:
            self._busy += 1
        try:
            yield
        finally:
            with self.guard:
                self._busy -= 1

    def why_busy(self) -> str:
        """Say which operation is under way, nothing if none is."""
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
        """Let go of everything; who waits in this process for the other ranks is told at once."""
        parts: list[Thing] = [*self.channels.values(), *self.threads, *self.windows]
        parts += [part for team in self.teams for part in (team, *team.windows)]
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

    def abandon(self) -> None:
        """As :meth:`end`; nobody is told of failures."""
        with contextlib.suppress(Error):
            self.end()


def comm_of(handle: int) -> Comm:
    """Return the communicator that a handle means."""
    return thing(handle, Comm)


def current_context() -> Context:
    """Return the context of this thread: HCCL_E_RUNTIME, for the runtime has no device."""
    try:
        return machine.context()
    except Refusal as error:
        raise Refusal(RUNTIME, str(error), error.remedy) from None


def destroyed(comm: Comm) -> Refusal:
    return Refusal(NOT_FOUND, f"{comm} was destroyed while it waited for its channels", "make it anew")


@contextlib.contextmanager
def living(comm: Comm) -> Iterator[None]:
    """Tell what fails because a communicator is destroyed meanwhile: HCCL_E_NOT_FOUND."""
    try:
        yield
    except Error as error:
        if machine.things.get(comm.handle) is not comm:
            raise destroyed(comm) from None
        raise error


def refuse_suspended(comm: Comm | None) -> None:
    """Refuse operations of a suspended communicator: HCCL_E_SUSPENDING."""
    if comm is not None and comm.is_suspended:
        raise Refusal(SUSPENDING, f"{comm} is suspended", "call HcclCommResume first")


def refuse_rank(rank: int, size: int, *, most: int = 1024) -> None:
    """Refuse a rank of no communicator: HCCL_E_PARA."""
    if not 1 <= size <= most or rank >= size:
        raise Refusal(
            PARA,
            f"rank is {rank:,} of {size:,}; valid are sizes of 1 to {most:,} and ranks below that",
            "pass each rank's own number, 0 to nRanks - 1",
        )


class Promised(Thing):
    """The place of a communicator that the end of a group makes."""

    __slots__ = ()

    name = "communicator that HcclGroupEnd makes"
    is_counted = False


def give(context: Context, meeting: Meeting, settings: Settings, promised: Promised | None = None) -> int:
    """Give out a communicator, by the number of ``promised``; HCCL_E_RUNTIME if its device was reset meanwhile."""
    made = Comm(context, meeting, settings)
    refuse_name(made.comm_name, made)
    if promised is None:
        return keep(made)
    with machine.lock:
        if machine.things.get(promised.handle) is promised:
            made.handle, made.made_at = promised.handle, promised.made_at
            machine.things[made.handle] = made
            return made.handle
    made.abandon()
    raise _reset(context)


def keep(made: Thing) -> int:
    """Give a thing out by its number; HCCL_E_RUNTIME if its device was reset meanwhile."""
    if not machine.keep(made):
        made.abandon()
        raise _reset(made.context)
    return made.handle


def _reset(context: Context) -> Refusal:
    return Refusal(
        RUNTIME,
        f"device {context.device.ordinal} was reset by another thread during the call",
        "reset it when no thread uses it any more",
    )


def refuse_name(name: str, made: Comm) -> None:
    """Refuse a second communicator of a name and rank in this process: HCCL_E_PARA."""
    for each in comms():
        if each.comm_name == name and each.group.rank == made.group.rank:
            made.abandon()
            raise Refusal(
                PARA,
                f"this process has a communicator called {name!r} already, {each}",
                "give each its own hcclCommName, or destroy the other one first",
            )


def comms() -> list[Comm]:
    """Return the communicators of this process."""
    with machine.lock:
        return [each for each in machine.things.values() if isinstance(each, Comm)]


def comm_named(name: str) -> Comm:
    """Return the communicator of a name: HCCL_E_NOT_FOUND."""
    found = next((each for each in comms() if each.comm_name == name), None)
    if found is None:
        known = ", ".join(repr(each.comm_name) for each in comms()) or "none"
        raise Refusal(
            NOT_FOUND, f"no communicator is called {name!r}; there are: {known}", "ask HcclGetCommName"
        )
    return found


def refuse_busy(comm: Comm) -> None:
    """Refuse while operations are under way: HCCL_E_AGAIN."""
    why = comm.why_busy()
    if why:
        raise Refusal(
            AGAIN,
            f"{comm} is busy: {why}",
            "synchronize the streams of its threads, or fence the channel, then destroy it",
        )


def destroy(comm: Comm, call: str) -> None:
    """End a communicator: HCCL_E_AGAIN while operations are under way."""
    with comm.guard:
        refuse_busy(comm)
        if not machine.drop(comm, call):
            thing(comm.handle, Comm)  # somebody else was quicker
    left: Error | None = None
    for channel in comm.channels.values():
        try:
            channel.end()
        except Busy as error:  # strict notifies that nobody waited for: it ends all the same
            left = left or error
    comm.end()
    if left is not None:
        raise left

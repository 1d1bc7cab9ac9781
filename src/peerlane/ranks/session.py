"""Sessions: the base of groups, with the ranks' processes, their devices, and the memory that they lend."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Protocol

from peerlane.backend import host
from peerlane.backend.facts import Caps
from peerlane.diagnostics.log import event_log
from peerlane.errors import BadArgument, Fault, InvalidValue, OutOfMemory, Refused, Unsupported, was_closed
from peerlane.memory.buffer import Buffer
from peerlane.node.device import Device, devices
from peerlane.ranks.arguments import check_memory, check_texts
from peerlane.ranks.lending import WINDOW, Loan, Memories, borrow, lent_by
from peerlane.ranks.wire import MAX_TAG, Shared
from peerlane.support.own_process import OwnProcess
from peerlane.support.records import dataclass

if TYPE_CHECKING:
    from peerlane.backend.ranks import Bank
    from peerlane.ranks.membership import Membership
    from peerlane.rendezvous.meet import Meeting
    from peerlane.streams.notify import NotifyKind


_LEAST_IMPORTED = 16


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a group: its process and its device.

    Attributes
    ----------
    rank : int
    pid : int
        Its process's number on its own machine.
    device : Device
        This process's device of the same ordinal.
    machine : str
        The identity of its machine; ``PEERLANE_MACHINE`` there overrides it.
    is_here : bool
        Whether that is this process's machine.

    Examples
    --------
    >>> with pl.Group(0, 1, rendezvous=lambda part: [part]) as group:
    ...     [member] = group.members
    ...     print(member.rank, member.device.ordinal, member.is_here)
    0 0 True
    """

    rank: int
    pid: int
    device: Device
    machine: str
    is_here: bool

    @property
    def pid_here(self) -> int:
        """Its process's number on this machine; 0 if it is on another one."""
        return self.pid if self.is_here else 0


class Closing(Protocol):
    """An object that is closed with its session."""

    def close(self) -> None:
        """Close it."""
        ...


class Session(OwnProcess):
    """A rank's connection with the other ranks: their processes and devices, and the memory that they lend.

    Channels, deadlock detection and collectives are built on it; a :class:`peerlane.Group` is one.
    """

    _elsewhere = "each rank makes its own, with the name of the group"

    name: str
    rank: int
    size: int
    device: Device
    window: Buffer
    members: tuple[Member, ...]

    _meeting: Meeting
    _key: str  # the same in all ranks, and different for each group
    _pid: int
    _kind: NotifyKind  # the kind of its channels' notifies
    _patience: float  # seconds to wait for other ranks
    _membership: Membership | None  # None: it is the only rank, or has not joined the others
    _channels: list[Closing]
    _registered: Memories
    _imported: dict[tuple[int, str], Buffer]
    _most_imported: int  # with so many, look which of them are closed
    _lock: threading.Lock
    _owns_window: bool
    _is_closed: bool

    def _begin(
        self, meeting: Meeting, name: str, kind: NotifyKind, device: Device | None, patience: float
    ) -> None:
        self._meeting, self._kind, self._patience = meeting, kind, patience
        self.name, self._key = name, f"{name}.{meeting.number}"
        self.rank, self.size = meeting.rendezvous.rank, meeting.rendezvous.size
        present = devices()
        self.device = device if device is not None else present[meeting.local_rank % len(present)]
        if Caps.SHARE not in self.device.caps:
            raise Unsupported(
                f"Group: {self.device.name} cannot be shared between ranks; use devices of back-end 'virtual'",
                call="Group",
                device=self.device.name,
                detail=Refused(reason="not_shareable", device=self.device.name),
            )
        self._pid, self._is_closed = os.getpid(), False
        self.members, self._membership = (), None
        self._channels, self._imported, self._most_imported = [], {}, _LEAST_IMPORTED
        self._lock = threading.Lock()

    def _lend_window(self, window: int | Buffer, undo: contextlib.ExitStack) -> None:
        self.window = self._make_window(window, undo)
        self._registered = {WINDOW: Loan(self.window, is_fixed=True)}

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        return self._is_closed or self.device.is_closed

    def _check_open(self, call: str) -> None:
        host.check_usable()
        if self.is_closed:
            raise was_closed(call, self, self.device.name)

    def register(self, buffer: Buffer, tag: str) -> None:
        """Offer a buffer to peers under a tag, over channels that are created from now on.

        ``buffer``: device memory of this process.
        ``tag``: 1 to 255 characters; not ``"window"``, which names the window.
        Raises InvalidValue, TypeError, Closed: the tag is taken or not valid, or the buffer is host memory or closed.
        """
        call = "Group.register"
        self._check_open(call)
        check_memory(call, buffer)
        check_texts(call, tag=tag)
        if not 1 <= len(tag) <= MAX_TAG:
            raise InvalidValue(
                f"{call}: the tag is {tag!r}; valid are 1 to {MAX_TAG} characters",
                call=call,
                detail=BadArgument("tag", tag, least=1, most=MAX_TAG, rule="characters"),
            )
        with self._lock:
            if tag in self._registered:
                raise InvalidValue(
                    f"{call}: the tag {tag!r} is taken by {self._registered[tag].buffer!r}; choose another one, or "
                    "deregister that first",
                    call=call,
                    detail=Refused(reason="tag_taken", tag=tag),
                )
            self._registered[tag] = Loan(buffer)

    def deregister(self, tag: str) -> None:
        """Take a buffer back: new channels do not offer it, and peers' uses over present channels are refused.

        A queued use of a peer fails when its stream reaches it; the peer's synchronization raises it.  A running copy
        goes on.

        Raises InvalidValue: no buffer has this tag, or it is the window.
        """
        call = "Group.deregister"
        check_texts(call, tag=tag)
        with self._lock:
            if tag == WINDOW or tag not in self._registered:
                known = ", ".join(repr(each) for each in self._registered if each != WINDOW) or "none"
                raise InvalidValue(
                    f"{call}: no buffer has the tag {tag!r}; registered: {known}",
                    call=call,
                    detail=BadArgument(
                        "tag", tag, choices=tuple(each for each in self._registered if each != WINDOW)
                    ),
                )
            loan = self._registered.pop(tag)
        loan.take_back()

    def _forget(self, channel: Closing) -> None:
        """Drop a closed channel."""
        with self._lock:
            if channel in self._channels:
                self._channels.remove(channel)

    def _end_memory(self, ends: contextlib.ExitStack) -> None:
        """Register the ends of lent and borrowed memory with ``ends``."""
        if self._owns_window:
            ends.callback(self.window.close)
        for loan in self._registered.values():
            ends.callback(loan.take_back)
        for buffer in self._imported.values():
            ends.callback(buffer.close)

    def _make_window(self, window: int | Buffer, undo: contextlib.ExitStack) -> Buffer:
        self._owns_window = not isinstance(window, Buffer)
        if isinstance(window, Buffer):
            check_memory("Group", window)
            if window.device is not self.device:
                raise InvalidValue(
                    f"Group: the window {window!r} is not on {self.device.name}, this rank's device; pass device=",
                    fault=Fault.WRONG_DEVICE,
                    call="Group",
                    detail=Refused(reason="wrong_device", device=self.device.name, window=repr(window)),
                )
            return window
        if isinstance(window, bool) or not isinstance(window, int):
            raise TypeError(f"Group: window must be bytes or a Buffer, not {type(window).__name__}")
        buffer = self.device.allocate(window, peer=True)
        undo.callback(buffer.close)
        return buffer

    def _open_route(self, peer: Device) -> None:
        if peer is not self.device and self.device.can_access(peer):
            with contextlib.suppress(
                OutOfMemory
            ):  # the device has the most peers that it may: bytes are staged
                self.device.peers.add(peer)

    def _offered(self, peer: int, memories: Memories) -> dict[str, Buffer | Shared]:
        """Return the memories for a peer, by tag.

        They are handles, or the buffers themselves if the peer is in this process or on another machine.
        """
        pid = self.members[peer].pid_here
        with self._lock:
            if not pid:
                if (
                    event_log.active
                ):  # the bytes get blocks of their own now, not when the peer has noted theirs
                    for loan in memories.values():
                        loan.offer([])
                return {tag: loan.part(lent_by(self.rank, tag)) for tag, loan in memories.items()}
            if pid == self._pid:
                return {tag: loan.for_own_process(lent_by(self.rank, tag)) for tag, loan in memories.items()}
            lent = {tag: (loan.offer([pid]), loan.buffer.size) for tag, loan in memories.items()}
            return {tag: Shared(bytes(of[0]).decode(), size, of[1]) for tag, (of, size) in lent.items()}

    def _forget_closed(self) -> None:
        """Forget memory that was taken back, whose present users keep it, whenever as many more were imported."""
        if len(self._imported) >= self._most_imported:
            self._imported = {key: each for key, each in self._imported.items() if not each.is_closed}
            self._most_imported = 2 * len(self._imported) + _LEAST_IMPORTED

    def _borrowed(
        self, peer: int, tag: str, shared: Shared, seconds: float, banks: dict[str, Bank]
    ) -> Buffer:
        """Return a peer's memory by its handle; it is opened once, however many channels use it."""
        with self._lock:
            memory = self._imported.get((peer, shared.handle))
            if memory is None:
                self._forget_closed()
                memory = Buffer.open(shared.handle, timeout=seconds)
                if shared.terms is not None:
                    name = lent_by(peer, tag)
                    borrow("Group.channel", memory, shared.terms, seconds, name=name, banks=banks)
                self._imported[peer, shared.handle] = memory
            return memory

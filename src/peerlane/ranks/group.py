"""Groups: the ranks of a program that write into each other's memory."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from peerlane import _core
from peerlane.collectives import Collectives
from peerlane.devices.device import Device, before_leaving, devices
from peerlane.diagnostics import losses
from peerlane.errors import Closed, Error, Fault, InvalidValue, OutOfMemory
from peerlane.memory.buffer import Buffer
from peerlane.ranks.arguments import (
    LONGEST_NAME,
    check_agree,
    check_memory,
    check_texts,
    checked_count,
    checked_name,
    checked_rank,
    of_each,
)
from peerlane.ranks.channel import Channel
from peerlane.ranks.channel_setup import WINDOW, Begun, Ends, Memories, lent_by
from peerlane.ranks.conversation import Conversation
from peerlane.ranks.deadlock import detect
from peerlane.ranks.invite import GivenUp, accept_all, give_up
from peerlane.ranks.lending import Loan, borrow
from peerlane.ranks.membership import Departures
from peerlane.ranks.wire import MAX_TAG, PROTOCOL, Hello, Shared
from peerlane.streams.notify import NotifyKind
from peerlane.support.timeouts import checked_timeout

if TYPE_CHECKING:
    from peerlane.rendezvous import Rendezvous
    from peerlane.rendezvous.meet import Exchange, Meeting

_KINDS = {kind.name.lower(): kind for kind in NotifyKind}
_open: weakref.WeakSet[Group] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a group: its process and its device."""

    rank: int
    pid: int
    device: Device


class Group(Collectives):
    """The ranks of a program, one device each, that write into each other's memory over channels.

    Made by all ranks at about the same time.  Ranks are processes, threads of one process, or both; they are on
    one node.  A rank that dies ends what others wait for from it with ``PeerLost``.

    Parameters
    ----------
    rank, size : int, optional
        Which rank this is, of how many (at most 1,024); by default what the launcher said.
    rendezvous : str, callable or Rendezvous, optional
        How the ranks find one another: ``"tcp://host:port"``, where rank 0 listens until all have come; a callable
        ``exchange(bytes) -> list[bytes]`` that is called once by all ranks and returns what each of them gave (an
        all-gather of bytes, by any means); a :class:`peerlane.rendezvous.Rendezvous`; by default what ``peerlane
        launch``, ``torchrun``, ``mpirun`` or ``srun`` says, else ranks that one process started.
    device : Device, optional
        This rank's; by default the one whose number is the rank on this machine, counted round.
    window : int or Buffer
        Bytes of the memory that peers write to, or that memory itself, on this rank's device.
    notifies : str
        What the notifies of its channels are: ``"binary"``: records count as one until one is consumed; ``"strict"``:
        doubled and left over ones are failures; ``"fifo"``: the records of one end of a channel queue up, whatever
        notifies they are of, and a wait takes the next one, and fails if it is another notify's (facts/hcomm 3.9).
        The same in all ranks.
    workspace : int
        Bytes of scratch memory for collectives, allocated by the first one; longer ones go through it in pieces.  The
        same in all ranks.
    wait_timeout : float, optional
        Seconds that a collective waits for a peer at a time; then it fails with ``WaitTimeout``.
    name : str
        Tells the groups of a program apart that are made at the same time.
    timeout : float, optional
        Seconds in which all ranks must come.

    Attributes
    ----------
    rank, size : int
    device : Device
    window : Buffer
    members : tuple of Member
        All ranks.
    name : str

    Raises
    ------
    InvalidValue
        An argument, or what the launcher said, is impossible; ranks disagree (``BAD_CONFIG``), or are in different
        nodes (``NODE_MISMATCH``); the text shows both.
    WaitTimeout, PeerLost
        A rank did not come in time, or died; the text names it.
    BadHandle, AccessDenied
        A rank is of another version of peerlane (``HANDLE_VERSION``), or of another user.
    """

    def __init__(
        self,
        rank: int | None = None,
        size: int | None = None,
        *,
        rendezvous: str | Exchange | Rendezvous | None = None,
        device: Device | None = None,
        window: int | Buffer = 1 << 20,
        notifies: str = "binary",
        workspace: int = 8 << 20,
        wait_timeout: float | None = None,
        name: str = "world",
        timeout: float | None = 60.0,
    ) -> None:
        from peerlane.rendezvous.meet import meet

        call = "Group"
        check_texts(call, notifies=notifies, name=name)
        kind = _KINDS.get(notifies)
        if kind is None:
            raise InvalidValue(f"{call}: notifies is {notifies!r}; valid are {', '.join(_KINDS)}", call=call)
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            raise InvalidValue(
                f"{call}: name is {name!r}; valid are 1 to {LONGEST_NAME} printable characters", call=call
            )
        if device is not None and not isinstance(device, Device):
            raise TypeError(f"{call}: device must be a Device or None, not {type(device).__name__}")
        checked_timeout(call, timeout)
        self._prepare_collectives(call, workspace, wait_timeout)
        with contextlib.ExitStack() as undo:
            patience = 1e9 if timeout is None else timeout
            meeting = meet(call, rank, size, rendezvous, name=name, timeout=patience)
            undo.push(meeting.give_up)
            self.name, self._key = name, f"{name}.{meeting.number}"
            self._fill(meeting, kind, device, patience)
            self.window = self._make_window(window, undo)
            self._registered: Memories = {WINDOW: Loan(self.window, is_fixed=True)}
            self.members = self._meet_members(patience)
            undo.pop_all()
        _open.add(self)
        detect.watch(self)
        # At the exit before the rendezvous, which was made just now, closes.
        atexit.unregister(_close_all)
        atexit.register(_close_all)

    def _fill(self, meeting: Meeting, kind: NotifyKind, device: Device | None, patience: float) -> None:
        self._meeting, self._kind, self._patience = meeting, kind, patience
        self.rank, self.size = meeting.line.rank, meeting.line.size
        present = devices()
        self.device = device if device is not None else present[meeting.local_rank % len(present)]
        self._pid, self._is_closed = os.getpid(), False
        self._departures: Departures | None = None
        self._conversation = Conversation(self)
        self._counts: dict[tuple[int, str], int] = {}
        self._channels: list[Channel] = []
        self._imported: dict[tuple[int, str], Buffer] = {}
        self._lock = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        return self._is_closed or self.device.is_closed

    def register(self, buffer: Buffer, tag: str) -> None:
        """Let peers reach a buffer by a tag, over channels that are made from now on.

        Parameters
        ----------
        buffer : Buffer
            Device memory of this process.
        tag : str
            1 to 255 characters; not ``"window"``, which is the window.

        Raises
        ------
        InvalidValue, TypeError, Closed
            The tag is taken or impossible; the buffer is host memory, or closed.
        """
        call = "Group.register"
        self._check_open(call)
        check_memory(call, buffer)
        check_texts(call, tag=tag)
        if not 1 <= len(tag) <= MAX_TAG:
            raise InvalidValue(f"{call}: the tag is {tag!r}; valid are 1 to {MAX_TAG} characters", call=call)
        with self._lock:
            if tag in self._registered:
                raise InvalidValue(
                    f"{call}: the tag {tag!r} is taken by {self._registered[tag].buffer!r}; choose another one, or "
                    "deregister that first",
                    call=call,
                )
            self._registered[tag] = Loan(buffer)

    def deregister(self, tag: str) -> None:
        """Take a buffer back: no more channels reach it, and what peers do with it over those that do is refused.

        What they have queued fails when its turn comes, and at their synchronization; a copy that runs goes on.

        Raises
        ------
        InvalidValue
            Nothing has this tag, or it is the window.
        """
        call = "Group.deregister"
        check_texts(call, tag=tag)
        with self._lock:
            if tag == WINDOW or tag not in self._registered:
                known = ", ".join(repr(each) for each in self._registered if each != WINDOW) or "none"
                raise InvalidValue(f"{call}: no buffer has the tag {tag!r}; registered: {known}", call=call)
            loan = self._registered.pop(tag)
        loan.take_back()

    def channel(self, peer: int, *, notifies: int = 8, timeout: float | None = None) -> Channel:
        """Return a new channel to a rank; the other end calls it too, in any order with others.

        The n-th call of one end meets the n-th of the other.

        Parameters
        ----------
        peer : int
            A rank; this one's own is fine.
        notifies : int
            How many this end can wait for, 0 to 1,024; the other end may choose another number.
        timeout : float, optional
            Seconds for the other end to come; by default those of the group.

        Raises
        ------
        InvalidValue
            No such rank, or that many notifies cannot be.
        WaitTimeout, PeerLost
            The other end did not come; it died, or closed its group.
        Closed
            The group is closed.
        """
        return self.channels([peer], notifies=notifies, timeout=timeout)[0]

    def channels(
        self,
        peers: Sequence[int],
        *,
        notifies: int | Sequence[int] = 8,
        names: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> list[Channel]:
        """Return new channels to several ranks.

        All invitations are given before the first answer is waited for, so no order in which ranks make their
        channels can deadlock.  Parameters and errors are those of :meth:`channel`; after an error none was made.

        Parameters
        ----------
        notifies : int or sequence of int
            For all, or of each.
        names : sequence of str, optional
            Of each: the n-th channel of a name meets the n-th of that name at the other end.
        """
        call = "Group.channel"
        self._check_open(call)
        wanted = [self._checked_peer(call, peer) for peer in peers]
        counts = [checked_count(call, each) for each in of_each(call, "notifies", notifies, len(wanted))]
        titles = [checked_name(call, each) for each in of_each(call, "names", names or "", len(wanted))]
        checked_timeout(call, timeout)
        patience = self._patience if timeout is None else timeout
        deadline = time.monotonic() + patience
        begun: list[Begun] = []
        made: dict[int, Channel] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(give_up, self, begun, made)
            for peer, count, title in zip(wanted, counts, titles, strict=True):
                series = f"named.{title}" if title else "invite"
                begun.append(self._invite(series, peer, self._registered, count, self._kind))
            left = list(range(len(begun)))
            while left:
                left = accept_all(self, call, begun, made, left, deadline)
            undo.pop_all()
        found = [made[at] for at in range(len(begun))]
        with self._lock:
            self._channels += found
        return found

    def _invite(self, series: str, peer: int, memories: Memories, notifies: int, kind: NotifyKind) -> Begun:
        """Offer a peer the next channel of a series, without waiting for it."""
        memories = dict(memories)  # one may be taken back meanwhile
        begun = Begun(self._next(series, peer), Ends(self, peer, notifies, kind))
        try:
            self._conversation.say(
                f"{begun.key}.{peer}", begun.ends.invitation(self._offered(peer, memories), memories).encode()
            )
        except BaseException:
            self._conversation.withdraw(begun)
            begun.ends.close()
            raise
        return begun

    def _next(self, series: str, peer: int) -> str:
        with self._lock:
            number = self._counts[peer, series] = self._counts.get((peer, series), 0) + 1
        return f"{series}.{number}"

    def _forget(self, channel: Channel) -> None:
        """Hold a channel that was closed no longer."""
        with self._lock:
            if channel in self._channels:
                self._channels.remove(channel)

    def _decline(self, series: str, peer: int) -> None:
        """Tell a peer that this rank cannot make the next channel of a series."""
        with contextlib.suppress(Error):
            self._conversation.say(f"{self._next(series, peer)}.{peer}", b"")

    def _accept(self, call: str, begun: Begun, deadline: float) -> Channel:
        """Return the channel that was offered, when the peer has offered its end."""
        said = self._conversation.hear(call, f"{begun.key}.{self.rank}", begun.ends.peer, deadline)
        if not said:
            raise GivenUp(
                f"{call}: rank {begun.ends.peer} could not make its end, or has ended it; it was told why",
                call=call,
            )
        left = max(0.0, deadline - time.monotonic())
        return Channel._make(begun.ends, *begun.ends.accept(call, said, left))

    def close(self) -> None:
        """End its channels, its window and its end of the rendezvous; idempotent.  What is queued goes on.

        Peers that wait for this rank are told, with ``PeerLost``, and what they do with its memory is refused.

        Raises
        ------
        Busy
            ``NOTIFY_LEFT``: strict notifies were recorded and not consumed; it is closed all the same.
        """
        if self._is_closed or self._pid != os.getpid():
            self._is_closed = True
            return
        self._is_closed = True
        with contextlib.ExitStack() as ends:
            ends.callback(self._meeting.close)
            ends.callback(self._conversation.close)  # from now on peers are told that this rank has left
            if self._departures is not None:
                ends.callback(self._departures.close)
            if self._owns_window:
                ends.callback(self.window.close)
            for loan in self._registered.values():
                ends.callback(loan.take_back)
            for buffer in self._imported.values():
                ends.callback(buffer.close)
            ends.callback(self._end_collectives)
            for channel in list(self._channels):
                ends.callback(channel.close)

    def __enter__(self) -> Group:
        self._check_open("Group")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(Error):  # what is left over is no news then
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self._channels)} channels"
        return f"<Group {self.name!r}: rank {self.rank} of {self.size} on {self.device.name}, {state}>"

    def _check_open(self, call: str) -> None:
        _core.check_usable()
        if self.is_closed:
            raise Closed(f"{call}: {self!r} was closed", call=call, device=self.device.name)

    def _checked_peer(self, call: str, peer: object) -> int:
        return checked_rank(call, peer, self.size)

    def _make_window(self, window: int | Buffer, undo: contextlib.ExitStack) -> Buffer:
        self._owns_window = not isinstance(window, Buffer)
        if isinstance(window, Buffer):
            check_memory("Group", window)
            if window.device is not self.device:
                raise InvalidValue(
                    f"Group: the window {window!r} is not on {self.device.name}, this rank's device; pass device=",
                    fault=Fault.WRONG_DEVICE,
                    call="Group",
                )
            return window
        if isinstance(window, bool) or not isinstance(window, int):
            raise TypeError(f"Group: window must be bytes or a Buffer, not {type(window).__name__}")
        made = self.device.allocate(window, peer=True)
        undo.callback(made.close)
        return made

    def _meet_members(self, patience: float) -> tuple[Member, ...]:
        hello = Hello(
            PROTOCOL,
            f"{self.device.backend.node_hash:016x}",
            self._pid,
            _core.start_time(self._pid),
            self.device.ordinal,
            self._kind.name.lower(),
        )
        deadline = time.monotonic() + patience
        self._conversation.say("hello", hello.encode())
        present, members, hellos = devices(), [], []
        for rank in range(self.size):
            said = Hello.decode("Group", rank, self._conversation.hear("Group", "hello", rank, deadline))
            check_agree(self.rank, hello, rank, said)
            hellos.append(said)
            if said.device >= len(present):
                raise InvalidValue(f"Group: rank {rank} says device {said.device}, which this node lacks")
            members.append(Member(rank, said.pid, present[said.device]))
            losses.note(said.pid, rank)
            self._open_route(present[said.device])
        if self.size > 1:
            self._watch(hellos, patience, deadline)
        if self.rank == 0:  # all have read all of it
            self._conversation.end_meeting()
        return tuple(members)

    def _watch(self, hellos: list[Hello], patience: float, deadline: float) -> None:
        if self.rank != 0:
            text = self._conversation.hear("Group", "departures", 0, deadline).decode("ascii", "replace")
            self._departures = Departures.open(self.device, self.rank, hellos, text, patience)
            self._meeting.is_agreed = True
            self._conversation.say("watching", b"")
            return
        self._departures = Departures(self.device, hellos)
        with self._departures.offered(self.device, hellos) as text:
            self._meeting.is_agreed = True
            self._conversation.say("departures", text.encode())
            for rank in range(1, self.size):
                self._conversation.hear("Group", "watching", rank, deadline)

    def _open_route(self, peer: Device) -> None:
        if peer is not self.device and self.device.can_access(peer):
            with contextlib.suppress(OutOfMemory):  # as many peers as the profile allows: bytes are staged
                self.device.peers.add(peer)

    def _offered(self, peer: int, memories: Memories) -> dict[str, Buffer | Shared]:
        """Return what a peer may reach, by tag: handles that let it, or the buffers themselves in one process."""
        pid = self.members[peer].pid
        with self._lock:
            if pid == self._pid:
                return {tag: loan.here(lent_by(self.rank, tag)) for tag, loan in memories.items()}
            lent = {tag: (loan.offer([pid]), loan.buffer.size) for tag, loan in memories.items()}
            return {tag: Shared(bytes(of[0]).decode(), size, of[1]) for tag, (of, size) in lent.items()}

    def _import(
        self, peer: int, tag: str, shared: Shared, seconds: float, banks: dict[str, _core.Signal]
    ) -> Buffer:
        """Return a peer's memory by its handle, opened once whatever the number of channels."""
        with self._lock:
            found = self._imported.get((peer, shared.handle))
            if found is None:
                for key in [key for key, each in self._imported.items() if each.is_closed]:
                    del self._imported[key]  # taken back; who uses it still holds it
                found = Buffer.open(shared.handle, timeout=seconds)
                if shared.terms is not None:
                    name = lent_by(peer, tag)
                    borrow("Group.channel", found, shared.terms, seconds, name=name, banks=banks)
                self._imported[peer, shared.handle] = found
            return found


def _close_all() -> None:
    """Say goodbye to the others: who ends without is taken for lost."""
    for group in list(_open):
        with contextlib.suppress(Error):
            group.close()


before_leaving.append(_close_all)

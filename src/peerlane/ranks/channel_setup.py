"""The two ends of a channel while it is made: what each offers, and what it makes of the other's offer."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from peerlane import _core
from peerlane.backend.facts import HandleKind
from peerlane.backends.virtual.messages.sharing import Lent
from peerlane.backends.virtual.node import schedule
from peerlane.diagnostics import observers
from peerlane.diagnostics import wait_state as streams_wait
from peerlane.errors import BadHandle, Fault
from peerlane.memory.buffer import Buffer
from peerlane.ranks.deadlock import wait_state
from peerlane.ranks.late_delivery import HeldBack
from peerlane.ranks.lending import Loan
from peerlane.ranks.wire import Invitation, Shared
from peerlane.sharing.handle import Handle
from peerlane.sharing.open import open_offer
from peerlane.streams.notify import Notify, NotifyKind

if TYPE_CHECKING:
    from peerlane.devices.device import Device
    from peerlane.ranks.group import Group

WINDOW = "window"  #: the tag of a rank's window

#: Both ends in one process: objects by token, until the end that offers them is closed.
_here: dict[int, tuple[list[Notify], dict[str, Buffer]]] = {}
_tokens = itertools.count(1)

#: Buffers that peers may reach, by tag.
Memories: TypeAlias = "dict[str, Loan]"

#: The peer's memories by tag, its notifies, and what was opened.
Answer: TypeAlias = "tuple[Mapping[str, Buffer], list[Notify], list[_core.Signal]]"


def lent_by(rank: int, tag: str) -> Lent:
    """Name a rank's memory in a text."""
    what = "the window" if tag == WINDOW else f"the memory {tag!r}"
    return Lent(f"rank {rank}", what, "it was deregistered, or the group was closed")


class Ends:
    """What one end of a channel holds before it is answered: its notifies, and their handle for the peer.

    Parameters
    ----------
    group : Group
    peer : int
    notifies : int
    kind : NotifyKind

    Attributes
    ----------
    is_late : bool
        Whether this end may put off what it gives to the channel.
    held : HeldBack or None
        Where it then lies, if the peer is another process; from :meth:`accept` on.
    """

    is_late: bool
    held: HeldBack | None

    def __init__(self, group: Group, peer: int, notifies: int, kind: NotifyKind) -> None:
        self.group, self.peer = group, peer
        self.is_own_process = group.members[peer].pid == group._pid
        self._bank: _core.Signal | None = None
        self._handles: list[Handle] = []
        self._token = 0
        self._kind = kind
        self.is_late = schedule.present().startswith("seeded")
        self.held, self._held_in = None, None
        self._offered: list[Buffer] = []
        if self.is_late and not self.is_own_process:
            self._held_in = _core.Signal(group.device.backend.ledger, _core.HELD_LINES)
        if notifies and not self.is_own_process:
            self._bank = _core.Signal(group.device.backend.ledger, _bank_lines(kind, notifies))
            assert group._departures is not None  # somebody is in another process
            self._bank.belong_to(group._departures.members)
        self.lines = _lines(group.device, kind, notifies, self._bank)
        for index, line in enumerate(self.lines):
            streams_wait.notify_names[line.id] = f"notify {index} from rank {peer} to rank {group.rank}"
            pid = group.members[peer].pid
            wait_state.awaited[line.id] = wait_state.Awaited(group._key, group.rank, peer, pid)

    def invitation(self, offered: Mapping[str, Buffer | Shared], lent: Memories) -> Invitation:
        """Return what the other end needs, made of what this rank offers it and lends."""
        count = len(self.lines)
        if self.is_own_process:
            here = {tag: each for tag, each in offered.items() if isinstance(each, Buffer)}
            self._token = next(_tokens)
            _here[self._token] = self.lines, here
            return Invitation(count, "", {}, self._token)
        memories = {tag: each for tag, each in offered.items() if isinstance(each, Shared)}
        if self._held_in is not None:
            self._offered = [lent[tag].part(lent_by(self.group.rank, tag)) for tag in memories]
        bank = self._offer(self._bank, count)
        return Invitation(count, bank, memories, held=self._offer(self._held_in, 0))

    def _offer(self, bank: _core.Signal | None, detail: int) -> str:
        if bank is None:
            return ""
        device, pid = self.group.device, self.group.members[self.peer].pid

        def offer(everyone: bool) -> Any:
            return device.backend.offer_signal(HandleKind.NOTIFIES, bank, device.ordinal, detail, everyone)

        handle: Handle = device.backend.make_handle(
            self, [pid], offer, told=self.lines if bank is self._bank else ()
        )
        self._handles.append(handle)
        return bytes(handle).decode()

    def accept(self, call: str, answer: bytes, seconds: float) -> Answer:
        """Open what the other end offers."""
        said = Invitation.decode(call, self.peer, answer)
        if self.is_own_process:
            lines, memories = self._taken(call, said)
            return memories, lines, []
        if WINDOW not in said.memories:
            raise self._false(call, "it offers no window")
        banks: dict[str, _core.Signal] = {}
        memories = {
            tag: self.group._import(self.peer, tag, each, seconds, banks)
            for tag, each in said.memories.items()
        }
        opened = []
        if said.held:
            opened.append(self._open_bank(call, said.held, 0, _core.HELD_LINES, seconds))
            if self._bank is not None:
                self._bank.expect(_core.HeldBack(opened[0]), self._offered)
        self._offered = []  # a buffer that its program drops is freed
        bank = None
        if said.notifies:
            length = _bank_lines(self._kind, said.notifies)
            bank = self._open_bank(call, said.bank, said.notifies, length, seconds)
            opened.append(bank)
        outgoing = _lines(self.group.device, self._kind, said.notifies, bank)
        for index, line in enumerate(outgoing):
            streams_wait.notify_names[line.id] = (
                f"notify {index} from rank {self.group.rank} to rank {self.peer}"
            )
            if observers.active:
                observers.tell("import", line)
        if self._held_in is not None:
            self.held = HeldBack(self._held_in, list(memories.values()))
        return memories, outgoing, opened

    def _taken(self, call: str, said: Invitation) -> tuple[list[Notify], dict[str, Buffer]]:
        found = _here.get(said.token)
        if found is None:
            raise BadHandle(
                f"{call}: rank {self.peer} of this process has closed its end",
                fault=Fault.STALE_HANDLE,
                call=call,
            )
        return found

    def _open_bank(self, call: str, handle: str, notifies: int, lines: int, seconds: float) -> _core.Signal:
        offer, _ = open_offer(call, handle, HandleKind.NOTIFIES, None, seconds, reaches=False)
        with contextlib.closing(offer):
            if offer.detail != notifies:
                raise self._false(call, f"it says {notifies} notifies, and offers {offer.detail}")
            return offer.signal(self.group.device.backend.ledger, lines)

    def _false(self, call: str, why: str) -> BadHandle:
        return BadHandle(
            f"{call}: what rank {self.peer} said cannot be: {why}", fault=Fault.FALSE_CLAIM, call=call
        )

    def close(self) -> None:
        """Let go of everything; idempotent."""
        _here.pop(self._token, None)
        for line in self.lines:
            streams_wait.notify_names.pop(line.id, None)
            wait_state.awaited.pop(line.id, None)
            line.close()
        for handle in self._handles:
            handle.close()
        for bank in (self._bank, self._held_in):
            if bank is not None:
                bank.let_go()
        self.lines, self._bank, self.held, self._held_in, self._offered = [], None, None, None, []


def _bank_lines(kind: NotifyKind, notifies: int) -> int:
    return _core.COMPLETION_LINES if kind is NotifyKind.FIFO else notifies


def _lines(device: Device, kind: NotifyKind, count: int, bank: _core.Signal | None) -> list[Notify]:
    """Return the notifies of one end, in a bank or of this process alone."""
    if not count:
        return []
    if kind is NotifyKind.FIFO:
        queue = _core.Completions(bank)
        return [device.backend.notify_queued(device, queue, number) for number in range(count)]
    if bank is None:
        return [device.create_notify(kind) for _ in range(count)]
    return [device.backend.notify_line(device, kind, bank, index) for index in range(count)]


@dataclass(frozen=True, slots=True)
class Begun:
    """A channel whose other end has not answered yet: the key of its invitation, and this end."""

    key: str
    ends: Ends

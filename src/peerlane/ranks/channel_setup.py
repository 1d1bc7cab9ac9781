"""The setup of a channel: each end offers its notifies and memory, and opens the other end's offer.

An offer has the objects themselves if both ends are in one process, handles of shared memory if they are on one
machine, and an address for messages if they are on two.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from peerlane.backend.facts import Route
from peerlane.diagnostics.log import event_log, observers
from peerlane.diagnostics.ranks import losses
from peerlane.diagnostics.waits import stream_waits
from peerlane.errors import BadHandle, Fault, PeerLost, Refused
from peerlane.memory.buffer import Buffer
from peerlane.memory.far_buffer import FarBuffer
from peerlane.ranks import far_engine, far_network
from peerlane.ranks.bank import open_bank
from peerlane.ranks.deadlock import wait_state
from peerlane.ranks.far_wire import FarInvitation
from peerlane.ranks.late_delivery import LateEntries, LazyDelivery, SeededDelivery
from peerlane.ranks.lending import WINDOW, lent_by
from peerlane.ranks.transport import FarNotifies, MappedTransport, MessageTransport, Transport
from peerlane.ranks.wire import Invitation, Shared
from peerlane.streams.notify import NotifyKind
from peerlane.support.records import dataclass

if TYPE_CHECKING:
    from peerlane.backend.ranks import Bank, FarEnd, Notifies, Undelivered
    from peerlane.ranks.late_delivery import LateDelivery
    from peerlane.ranks.lending import Memories
    from peerlane.ranks.session import Session
    from peerlane.sharing.handle import Handle


class OfferInProcess(NamedTuple):
    """What an end offers to another one of its process, and what its taker waits for."""

    notifies: Notifies
    memories: dict[str, Buffer]
    awaited: list[Notifies]


#: For channels within one process: the offers by token, until the end that offers them is closed.
_offers_in_process: dict[int, OfferInProcess] = {}
_tokens = itertools.count(1)


class Answer(NamedTuple):
    """The other end's offer, opened: its memories by tag, its notifies, and the opened banks."""

    memories: Mapping[str, Buffer]
    notifies: Notifies
    opened: list[Bank]


class End:
    """One end of a channel until the other end answers: its notifies, and their handle for the peer."""

    late: LateDelivery | None  #: how this end's writes and records arrive, if late; from :meth:`accept` on
    #: What delivers the peer's late writes, if the peer is another process; from :meth:`accept` on.
    arriving: Undelivered | None
    transport: Transport  #: how operations reach the peer

    def __init__(
        self, session: Session, peer: int, notifies: int, kind: NotifyKind, *, collective: bool
    ) -> None:
        self.session, self.peer = session, peer
        self._ranks = ranks = session.device.backend.ranks
        member = session.members[peer]
        self.is_far = not member.is_here  #: whether the peer is on another machine
        self.is_own_process = member.pid_here == session._pid
        self._far: FarEnd | None = None
        self._far_number = 0  # in losses
        #: The version of the engine that reaches it there; empty before :meth:`invitation`, and without one.
        self.engine_version = ""
        self.transport = MappedTransport(ranks)
        self._bank: Bank | None = None
        self._handles: list[Handle] = []
        self._token = 0
        self._outgoing_id = 0  # of the first outgoing notify, if this end has named them
        self.kind, self.is_for_collectives = kind, collective
        # Under `lazy` a collective delivers its own result.
        self._is_drawn = ranks.lateness == "seeded"
        self._withholds = is_withheld = ranks.lateness == "lazy" and not collective
        self.late, self.arriving, self._late_bank = None, None, None
        self._offered: list[Buffer] = []
        shares_memory = member.is_here and not self.is_own_process
        if shares_memory and (self._is_drawn or is_withheld):
            self._late_bank = ranks.create_bank(ranks.LATE_LINES)
        if notifies and shares_memory:
            self._bank = ranks.create_bank(ranks.lines_of_notifies(kind, notifies))
            assert session._membership is not None  # some rank is in another process
            number = peer if session._numbers is None else session._numbers[peer]
            ranks.end_waits_with(session._membership.members, number, self._bank)
        #: The notifies that this end waits for.
        self.incoming: Notifies = ranks.notifies(session.device, kind, notifies, self._bank)
        if first := self.incoming.first_id:
            stream_waits.notify_names[first] = stream_waits.ChannelNotifies(first, peer, session.rank)
            wait_state.expect(session, peer, first, is_in_collective=collective)

    def invitation(
        self, offered: Mapping[str, Buffer | Shared], lent: Memories, deadline: float
    ) -> Invitation | FarInvitation:
        """Return the invitation for the other end, with the memories that this rank offers and lends."""
        count = len(self.incoming)
        if self.is_far:
            return self._far_invitation(
                {tag: each for tag, each in offered.items() if isinstance(each, Buffer)}, deadline
            )
        if self.is_own_process:
            buffers = {tag: each for tag, each in offered.items() if isinstance(each, Buffer)}
            self._token = next(_tokens)
            _offers_in_process[self._token] = OfferInProcess(self.incoming, buffers, [])
            return Invitation(count, "", {}, self._token)
        memories = {tag: each for tag, each in offered.items() if isinstance(each, Shared)}
        if self._late_bank is not None:
            self._offered = [lent[tag].part(lent_by(self.session.rank, tag)) for tag in memories]
        bank = self._offer(self._bank, count)
        return Invitation(count, bank, memories, held=self._offer(self._late_bank, 0))

    def _far_invitation(self, offered: Mapping[str, Buffer], deadline: float) -> FarInvitation:
        membership, master = self.session._membership, self.session._meeting.master
        assert membership is not None  # the peer is in another process
        call, peer = "Group.channel", membership.addresses[self.peer]
        names = far_network.interfaces(master=master, peer=peer)
        far_network.wait_until_up(call, names, deadline)
        far_network.check_route(call, names, peer, f"rank {self.peer}")
        engine = far_engine.start(self._ranks, names)
        self.engine_version = engine.version
        members = membership.members
        end = self._far = self._ranks.far_end(
            list(offered.values()), self.incoming, self._withholds, members, self.peer
        )
        self.transport = MessageTransport(end)
        memories = tuple((tag, each.size) for tag, each in offered.items())
        ranges = (
            tuple(tuple(event_log.ranges_of(each)) for each in offered.values()) if event_log.active else ()
        )
        return FarInvitation(
            len(self.incoming),
            engine.version,
            engine.address,
            end.process,
            end.number,
            end.secret,
            memories,
            ranges,
        )

    def _offer(self, bank: Bank | None, count: int) -> str:
        if bank is None:
            return ""
        session = self.session
        is_observed = observers.active and bank is self._bank
        allowed = [self.incoming[index] for index in range(count)] if is_observed else []
        allow = [session.members[self.peer].pid]
        handle = session.device.backend.ranks.offer_bank(self, session.device, bank, count, allow, allowed)
        self._handles.append(handle)
        return bytes(handle).decode()

    def accept(self, call: str, answer: bytes, seconds: float) -> Answer:
        """Open the other end's offer."""
        if self._far is not None:
            return self._accept_far(call, answer, self._far)
        invitation, ranks = Invitation.decode(call, self.peer, answer), self._ranks
        if self.is_own_process:
            offer = self._taken(call, invitation)
            if self._is_drawn:
                self.late = SeededDelivery(self.session.device, None, self.transport)
            return Answer(offer.memories, offer.notifies, [])
        if WINDOW not in invitation.memories:
            raise self._false(call, "it offers no window")
        banks: dict[str, Bank] = {}
        memories = {
            tag: self.session._borrowed(self.peer, tag, each, seconds, banks)
            for tag, each in invitation.memories.items()
        }
        opened = []
        if invitation.held:
            opened.append(self._open_bank(call, invitation.held, 0, ranks.LATE_LINES, seconds))
            self.arriving = ranks.undelivered(ranks.late_area(opened[0]), self._offered, True)
            if self._bank is not None:
                ranks.deliver_at_waits(self._bank, self.arriving)
        self._offered = []  # keep no buffer alive that the program drops
        bank = None
        if invitation.notifies:
            length = ranks.lines_of_notifies(self.kind, invitation.notifies)
            bank = self._open_bank(call, invitation.bank, invitation.notifies, length, seconds)
            opened.append(bank)
        outgoing = ranks.notifies(self.session.device, self.kind, invitation.notifies, bank)
        if first := outgoing.first_id:
            self._outgoing_id = first
            stream_waits.notify_names[first] = stream_waits.ChannelNotifies(
                first, self.session.rank, self.peer
            )
        if observers.active:
            for notify in outgoing:
                observers.send("import", notify)
        if self._late_bank is not None:
            theirs = list(memories.values())
            entries = LateEntries(ranks, self._late_bank, theirs)
            if self._is_drawn:
                self.late = SeededDelivery(self.session.device, entries, self.transport)
            else:
                self.late = LazyDelivery(ranks, entries, theirs)
        return Answer(memories, outgoing, opened)

    def _accept_far(self, call: str, answer: bytes, end: FarEnd) -> Answer:
        invitation, session = FarInvitation.decode(call, self.peer, answer), self.session
        self.check_engine(call, invitation.version)
        memories = {
            tag: FarBuffer._make(
                end, session.device, number, 0, size, f"{lent_by(self.peer, tag).what} of rank {self.peer}"
            )
            for number, (tag, size) in enumerate(invitation.memories)
        }
        if WINDOW not in memories:
            raise self._false(call, "it offers no window")
        member = session.members[self.peer]
        far = losses.FarRank(
            self.peer, member.machine, member.pid, [memories[tag].name for tag, _ in invitation.memories], end
        )
        self._far_number = losses.note_far(far)
        try:
            end.open(
                invitation.address, invitation.process, invitation.number, invitation.secret, self._far_number
            )
        except RuntimeError as error:
            raise PeerLost(
                f"{call}: there is no way to rank {self.peer} on machine {member.machine}: {error}",
                call=call,
                detail=Refused(reason="no_way", rank=self.peer, machine=member.machine, said=str(error)),
            ) from None
        if self._is_drawn:
            self.late = SeededDelivery(session.device, None, self.transport)
        if event_log.active:
            end.set_blocks([list(each) for each in invitation.ranges])
        return Answer(memories, FarNotifies(invitation.notifies, self.kind, end.peer_bank), [])

    def check_engine(self, call: str, version: str) -> None:
        """Refuse a peer whose engine is of another version; `Unsupported`."""
        machine = self.session.members[self.peer].machine
        far_engine.check_equal(call, self.engine_version, f"rank {self.peer} on machine {machine}", version)

    @property
    def far_bank(self) -> int:
        """What event logs call the notifies of a peer on another machine; 0: it is on this one."""
        return 0 if self._far is None else self._far.peer_bank

    def serve_far(self, channel: object, window: Buffer, notifies: int) -> None:
        """Let fast methods send to a peer on another machine."""
        if self._far is not None and isinstance(window, FarBuffer):
            self._ranks.serve_far(channel, self._far, window.number, window.size, notifies)

    def transports(self) -> list[str]:
        """Return the transports that the engine took to a peer on another machine; none to one of this machine."""
        return [] if self._far is None else self._far.transports()

    def route(self) -> Route | None:
        """Return the route to a peer on another machine; None if the peer's memory is mapped here."""
        if self._far is None:
            return None
        member = self.session.members[self.peer]
        transports = ", ".join(self.transports()) or "not known yet"
        return Route("far", f"rank {self.peer} is on machine {member.machine}; UCX goes by {transports}")

    def _taken(self, call: str, invitation: Invitation) -> OfferInProcess:
        offer = _offers_in_process.get(invitation.token)
        if offer is not None:
            offer.awaited.append(self.incoming)
        if offer is None or invitation.token not in _offers_in_process:  # it may have been closed just now
            raise BadHandle(
                f"{call}: rank {self.peer} of this process has closed its end",
                fault=Fault.STALE_HANDLE,
                call=call,
                detail=Refused(reason="peer_closed", rank=self.peer),
            )
        return offer

    def _open_bank(self, call: str, handle: str, notifies: int, lines: int, seconds: float) -> Bank:
        def check(offered: int) -> None:
            if offered != notifies:
                raise self._false(call, f"it says {notifies} notifies, and offers {offered}")

        return open_bank(call, self.session.device, handle, lines, seconds, check)

    def _false(self, call: str, why: str) -> BadHandle:
        return BadHandle(
            f"{call}: the message of rank {self.peer} is impossible: {why}",
            fault=Fault.FALSE_CLAIM,
            call=call,
            detail=Refused(reason="false_claim", rank=self.peer, why=str(why)),
        )

    def close(self) -> None:
        """Release all objects; idempotent."""
        if offer := _offers_in_process.pop(self._token, None):
            for notifies in offer.awaited:  # this end may not have taken the offer of who waits for them
                notifies.abandon()
        for first in (self._outgoing_id, self.incoming.first_id):
            stream_waits.notify_names.pop(first, None)
        wait_state.awaited.pop(self.incoming.first_id, None)
        self.incoming.close()
        if self._far is not None:
            self._far.close()
            losses.forget_far(self._far_number)
            self._far_number = 0
        for handle in self._handles:
            handle.close()
        for bank in (self._bank, self._late_bank):
            if bank is not None:
                bank.let_go()
        self._bank, self._late_bank, self._offered = None, None, []
        self.late, self.arriving = None, None


@dataclass(frozen=True, slots=True)
class Begun:
    """A channel whose other end has not answered yet: the key of its invitation, and this end."""

    key: str
    end: End

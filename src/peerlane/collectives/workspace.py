"""The base of collectives: scratch memory of each rank, channels to all peers, and the use of slots."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from peerlane.backend.ranks import MailLane
from peerlane.collectives.agreement import Agreement, bytes_for
from peerlane.collectives.machines import Machines
from peerlane.collectives.peer_channels import Channels
from peerlane.collectives.slots import DEPTH, NOTIFIES, Board, Lanes
from peerlane.diagnostics.ranks import losses
from peerlane.diagnostics.ranks.collective_calls import Kind
from peerlane.errors import (
    Closed,
    Error,
    WaitTimeout,
)
from peerlane.ranks.channel import notifies_of
from peerlane.ranks.lending import WINDOW, Loan
from peerlane.support.timeouts import in_nanoseconds

if TYPE_CHECKING:
    from peerlane.backend.ranks import Farewell, Mails, Rounds
    from peerlane.collectives.schedules.operations import Unrolled
    from peerlane.memory.buffer import Buffer
    from peerlane.ranks.channel import Channel
    from peerlane.ranks.invite import Invitations
    from peerlane.ranks.lending import Memories
    from peerlane.ranks.session import Session
    from peerlane.streams.stream import Stream

SMALLEST_SLOT = 4096
_LINE_BYTES = 64

#: Indices of the notifies of each channel, behind those of boards and lanes.
_BARRIER = NOTIFIES
_MAIL_DEPTH = 16  # pieces of messages under way at a time, in one direction
_MAIL_SENT, _MAIL_TAKEN = NOTIFIES + 2, NOTIFIES + _MAIL_DEPTH + 2
_OPENED = NOTIFIES + 2 * _MAIL_DEPTH + 2
_ROUNDS = _OPENED + 1  # those behind are the lines of rounds

_LEAST_LONG_SLOT, _MOST_LONG_SLOT = 64 << 10, 1 << 20


class Workspace:
    """Scratch memory of this rank, which peers write to and read, and the channels to them.

    Methods with ``stream`` queue their operations there, or are complete on return if it is None.

    Parameters
    ----------
    session : Session
    invitations : Invitations
        They make its channels.
    nbytes : int
        Bytes of scratch memory, approximately.
    timeout : float or None
        Seconds that it waits for a peer at a time.
    series : str
        The series of its channels.

    Attributes
    ----------
    rank, size : int
    timeout : float or None
    timeout_ns : int
        The same for operations of streams; 0: for ever.
    slot : int
        Bytes that one rank can leave in another's memory at a time; a multiple of 64.
    others : list of int
        The other ranks in cyclic order, from the one after this.
    machines : Machines
        How the ranks lie on machines.
    board : Board
    lanes : Lanes
    has_rounds : bool
        Whether all ranks are on one machine.
    mails : Mails
        Messages between the ranks of one machine.
    agreement : Agreement
    sends_aside : bool
        Whether the present collective may use :meth:`sending`.
    newest : dict
        By transport: the newest call that is short.
    """

    def __init__(
        self, session: Session, invitations: Invitations, nbytes: int, timeout: float | None, series: str
    ) -> None:
        self.rank, self.size, self.timeout = session.rank, session.size, timeout
        self.timeout_ns = in_nanoseconds("Group", timeout)
        self.machines = Machines(self.rank, [each.machine for each in session.members])
        self.others = [(self.rank + step) % self.size for step in range(1, self.size)]
        self._ranks = session.device.backend.ranks
        self._pids = [each.pid_here for each in session.members]
        far = frozenset(each.rank for each in session.members if not each.is_here)
        lines = 0 if far else self._ranks.ROUND_LINES
        long_slot = min(max(nbytes // 8, _LEAST_LONG_SLOT), _MOST_LONG_SLOT)
        for_rounds = self._ranks.bytes_of_rounds(long_slot) if lines else 0
        areas = 3 if lines else 2  # of slots: for the board, for lanes, and for mails
        share = max(0, nbytes - for_rounds) // (areas * DEPTH * self.size)
        self.slot = max(SMALLEST_SLOT, share - share % SMALLEST_SLOT)
        area = self.size * DEPTH * self.slot
        with contextlib.ExitStack() as undo:
            for peer in self.others:  # otherwise they wait for this rank until their time-out
                undo.callback(invitations.decline, series, peer)
            posts_at, posts_bytes = areas * area, bytes_for(self.size, has_far=bool(far))
            self._slots_at = -(-(posts_at + posts_bytes) // SMALLEST_SLOT) * SMALLEST_SLOT
            memory = session.device.allocate(self._slots_at + for_rounds, peer=True)
            undo.callback(memory.close)
            posts = memory[posts_at : posts_at + posts_bytes]
            posts.fill(0)
            self._memories: Memories = {WINDOW: Loan(memory, ends=False)}
            self.channels = Channels(
                session, invitations, self._memories, self.others, _ROUNDS + lines, series, _OPENED
            )
            undo.pop_all()
        self.board, self.lanes = Board(self, memory[:area]), Lanes(self, memory[area : 2 * area], area)
        self._mail_area = 2 * area
        self._mail_slot = DEPTH * self.slot // _MAIL_DEPTH // _LINE_BYTES * _LINE_BYTES
        self.mails: Mails = self._ranks.mails(self.size)
        self.has_rounds = bool(lines)
        self.agreement = Agreement(self.rank, self.size, posts, posts_at, self.channels, far)
        self._barriers = 0
        self._rounds: Rounds | None = None
        #: What tells peers that this rank will not do what they wait for: those of collectives, and each of messages.
        self._farewell_of_rounds: Farewell = self._ranks.farewell([])
        self._farewells: dict[int | None, Farewell] = {None: self._farewell_of_rounds}
        self._barrier_neighbours = self._ranks.barrier_neighbours(self.rank, self.size)
        #: The ranks with which collectives are connected, and this one compares its calls.
        self.connected: Sequence[int] = () if lines else sorted(self.others)
        self._lock = threading.Lock()
        self._device = session.device
        self._sending: Stream | None = None
        self.sends_aside = False
        self.newest: dict[object, Unrolled] = {}

    @property
    def rounds(self) -> Rounds:
        """The rounds of the ranks of one machine, after the first :meth:`connect_rounds`."""
        assert self._rounds is not None
        return self._rounds

    def is_connected(self, kind: Kind) -> bool:
        """Whether the rounds are connected with the ranks that this kind of call needs."""
        connected = self.connected
        return len(connected) == len(self.others) or set(connected).issuperset(self._partners(kind))

    def _partners(self, kind: Kind) -> Sequence[int]:
        return self._barrier_neighbours if kind is Kind.BARRIER else self.others

    def connect_rounds(self, kind: Kind) -> None:
        """Connect the rounds with the ranks that this kind of call needs: a barrier of many needs only some."""
        peers = self._partners(kind)
        channels = self.channels.to(peers)
        with self._lock:
            if self._rounds is None:
                self._rounds = self._ranks.rounds(
                    *(self.rank, self.size, self._memories[WINDOW].buffer[self._slots_at :]),
                    [self._pids[peer] for peer in self.others],
                    self._farewell_of_rounds,
                )
            for channel in channels:
                if channel.peer not in self.connected:
                    incoming, outgoing = notifies_of(channel)
                    self._rounds.connect(channel.peer, self._slots_of(channel), incoming, outgoing, _ROUNDS)
                    self._farewell_of_rounds.add(outgoing)
                    self.connected = sorted((*self.connected, channel.peer))

    def _slots_of(self, channel: Channel) -> Buffer:
        try:
            return channel.window[self._slots_at :]
        except Closed as error:  # a rank of this process has closed its group meanwhile
            peer = channel.peer
            text = f"Group: rank {peer} did not come: it has closed its group"
            raise losses.lost(self._pids[peer], text, call="Group", rank=peer) from error

    def make_mail(self, peer: int, *, sends: bool) -> None:
        """Make the mail to a peer or from it, once; the first use makes the channel."""
        channel = self.channels[peer]
        incoming, outgoing = notifies_of(channel)
        sent, taken = (outgoing, incoming) if sends else (incoming, outgoing)
        memory = channel.window if sends else self._memories[WINDOW].buffer
        nbytes = _MAIL_DEPTH * self._mail_slot
        at = self._mail_area + (self.rank if sends else peer) * nbytes
        farewell = self._farewell_to(peer)
        with self._lock:
            if not self.mails.has(peer, sends):
                lane = MailLane(
                    *(self.rank, self.size, peer, sends),
                    sent=(sent, _MAIL_SENT),
                    taken=(taken, _MAIL_TAKEN),
                    depth=_MAIL_DEPTH,
                    slots=memory[at : at + nbytes],
                    pid=self._pids[peer],
                )
                self._ranks.add_mail(self.mails, lane, farewell)

    def _farewell_to(self, peer: int) -> Farewell:
        """Return what tells a peer that this rank will not do what it waits for."""
        if peer not in self._farewells:
            self._farewells[peer] = self._ranks.farewell([notifies_of(self.channels[peer])[1]])
        return self._farewells[peer]

    def end_with(self, stream: Stream, peer: int | None) -> None:
        """Let peers know if what was queued for one of them, or for all, is cancelled."""
        if self.has_rounds:
            farewell = self._farewell_of_rounds if peer is None else self._farewell_to(peer)
            farewell.behind(stream)

    @property
    def has_left(self) -> bool:
        """Whether peers know that this rank will not do what they wait for."""
        for each in self._farewells.values():  # noqa: SIM110 - each call asks, and any() takes four times as long
            if each.is_sent:
                return True
        return False

    def sending(self) -> Stream:
        """Return a stream for what is sent while a collective's own stream goes on."""
        if self._sending is None:
            self._sending = self._device.create_stream()
        return self._sending

    def failure_of_sending(self) -> Error | None:
        """Return what failed on that stream, which cancels a collective that waits for it."""
        try:
            if self._sending is not None:
                self._sending.sync(0.0)
        except WaitTimeout:
            return None
        except Error as failure:
            return failure
        return None

    def next_barrier(self) -> int:
        """Return the notify for the next barrier, which alternates between two."""
        self._barriers ^= 1
        return _BARRIER + self._barriers

    def withdraw(self) -> None:
        """Tell all peers that this rank will not do what they wait for.

        A rank makes a channel when it first uses it.  A peer that has opened this rank's offer waits for it all the
        same, so this rank opens the peer's: the end of the channel then ends that wait.
        """
        self._send_farewells()  # before those that may take long
        self.channels.withdraw()
        self.channels.open_present()

    def _send_farewells(self) -> None:
        for farewell in list(self._farewells.values()):
            farewell.send()

    def close(self) -> None:
        """Close the channels and the memory.  Records of peers that were not consumed are not a mistake here."""
        if self._rounds is not None:  # which frames that somebody looked at may keep
            self._rounds.let_go()
        self.mails.let_go()
        with contextlib.ExitStack() as ends:
            for loan in self._memories.values():
                ends.callback(loan.buffer.close)
                ends.callback(loan.withdraw)
            if self._sending is not None:
                ends.callback(self._sending.close, wait=False)
            ends.callback(self.agreement.close)
            ends.callback(self.channels.close)
            ends.callback(self._send_farewells)  # what is queued keeps their lines

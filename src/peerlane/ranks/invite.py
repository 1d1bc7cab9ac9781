"""Invites peers to channels: a call makes all its channels or none, and offers again what a peer has withdrawn."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from peerlane.diagnostics.ranks import losses, turns
from peerlane.errors import BadHandle, Error, PeerLost
from peerlane.ranks.arguments import checked_count, checked_name, checked_rank, of_each
from peerlane.ranks.channel import Channel
from peerlane.ranks.channel_setup import Begun, End
from peerlane.support.timeouts import checked_timeout

if TYPE_CHECKING:
    from peerlane.ranks.conversation import Conversation
    from peerlane.ranks.lending import Memories
    from peerlane.ranks.session import Session
    from peerlane.streams.notify import NotifyKind

_YES = b"yes"  # an empty message instead: the end is withdrawn


class Withdrawn(PeerLost):
    """The peer has withdrawn its invitation, or never made one."""


class Asked(NamedTuple):
    """A channel to offer: its series, the peer, and how many notifies this end can wait for."""

    series: str
    peer: int
    notifies: int


class Invitations:
    """A rank's offers of channels to its peers, and the channels that come of them."""

    def __init__(self, session: Session, conversation: Conversation) -> None:
        self._session, self._conversation = session, conversation
        #: ``group``: the group's key: the same in all its ranks, and different for each group.
        #: ``kind``: the kind of the notifies of the session's channels.
        #: ``patience``: seconds to wait for a peer.
        self.group, self.kind, self.patience = session._key, session._kind, session._patience
        self._counts: dict[tuple[int, str], int] = {}
        self._lock = threading.Lock()

    def channels(
        self,
        peers: Sequence[int],
        notifies: int | Sequence[int],
        names: Sequence[str] | None,
        timeout: float | None,
    ) -> list[Channel]:
        """Return new channels to several ranks; invite all of them before waiting for the first answer."""
        call, session = "Group.channel", self._session
        session._check_open(call)
        wanted = [checked_rank(call, peer, session.size) for peer in peers]
        counts = [checked_count(call, each) for each in of_each(call, "notifies", notifies, len(wanted))]
        titles = [checked_name(call, each) for each in of_each(call, "names", names or "", len(wanted))]
        checked_timeout(call, timeout)
        deadline = time.monotonic() + (self.patience if timeout is None else timeout)
        begun: list[Begun] = []
        channels: dict[int, Channel] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(self._give_up, begun, channels)
            asked = [
                Asked(f"named.{title}" if title else "invite", peer, count)
                for peer, count, title in zip(wanted, counts, titles, strict=True)
            ]
            begun += self.invite(asked, session._registered, self.kind, deadline)
            left = list(range(len(begun)))
            while left:
                left = self._accept_all(call, begun, channels, left, deadline)
            undo.pop_all()
        opened = [channels[at] for at in range(len(begun))]
        with session._lock:
            session._channels += opened
        return opened

    def invite(
        self,
        asked: Sequence[Asked],
        memories: Memories,
        kind: NotifyKind,
        deadline: float,
        *,
        collective: bool = False,
    ) -> list[Begun]:
        """Offer channels, in one message, without waiting for the peers; ``collective``: for collectives.

        ``deadline``: how long this machine's network may take to come up.  After an error nothing is offered.
        """
        memories = dict(memories)  # a memory may be deregistered meanwhile
        begun, messages = list[Begun](), dict[str, bytes]()
        try:
            for series, peer, notifies in asked:
                end = End(self._session, peer, notifies, kind, collective=collective)
                each = Begun(self._next(series, peer), end)
                begun.append(each)
                offered = end.invitation(self._session._offered(peer, memories), memories, deadline)
                messages[f"{each.key}.{peer}"] = offered.encode()
            self._conversation.send_all(messages)
        except BaseException:
            for each in begun:
                self._conversation.withdraw(each)
                each.end.close()
            raise
        return begun

    def _next(self, series: str, peer: int) -> str:
        with self._lock:
            number = self._counts[peer, series] = self._counts.get((peer, series), 0) + 1
        return f"{series}.{number}"

    def decline(self, series: str, peer: int) -> None:
        """Tell a peer that this rank cannot make the next channel of a series."""
        with contextlib.suppress(Error):
            self._conversation.send(f"{self._next(series, peer)}.{peer}", b"")

    def withdraw(self, *begun: Begun) -> None:
        """Withdraw invitations: the next call of a peer then meets the next one of this rank."""
        self._conversation.withdraw(*begun)

    def accept(self, call: str, begun: Begun, deadline: float, answer: bytes | None = None) -> Channel:
        """Wait until the peer has offered its end, and make the channel; ``answer``: the offer, if it has come.

        Raises Withdrawn: the peer has withdrawn its invitation meanwhile.
        """
        peer = begun.end.peer
        answer = (
            self._answer(call, begun, deadline) if answer is None else self._offer_in(call, begun, answer)
        )
        if answer is None:
            raise Withdrawn(
                f"{call}: rank {peer} could not make its end, or has closed it; the error there says why",
                call=call,
            )
        try:
            return self._make(call, begun, answer, deadline)
        except BadHandle:
            if self._answer(call, begun, deadline) is not None:
                raise
            raise Withdrawn(
                f"{call}: rank {peer} has closed its end; the error there says why", call=call
            ) from None

    def present(self, begun: Sequence[Begun]) -> dict[int, bytes]:
        """Return the offers of the peers of these channels that have come, by the peer."""
        return self._conversation.present({each.end.peer: self._word(each) for each in begun})

    def _word(self, begun: Begun) -> str:
        return f"{begun.key}.{self._session.rank}"

    def _answer(self, call: str, begun: Begun, deadline: float) -> bytes | None:
        """Wait for the peer's invitation; None if the peer has withdrawn it."""
        end = begun.end
        awaits = "collective" if end.is_for_collectives else "channel"
        answer = self._conversation.receive(call, self._word(begun), end.peer, deadline, awaits=awaits)
        return self._offer_in(call, begun, answer)

    def _offer_in(self, call: str, begun: Begun, answer: bytes) -> bytes | None:
        if answer.startswith(b"{"):
            return answer
        if answer:  # the peer may have withdrawn because of this version
            begun.end.check_engine(call, answer.decode("ascii", "replace"))
        return None

    def _make(self, call: str, begun: Begun, answer: bytes, deadline: float) -> Channel:
        left, end = max(0.0, deadline - time.monotonic()), begun.end
        try:
            with turns.inside():
                return Channel._make(end, end.accept(call, answer, left))
        except PeerLost as error:
            if end.is_far:  # its text names the rank
                raise
            pid, device = self._session.members[end.peer].pid_here, self._session.device.name
            raise losses.recorder_lost(pid, device, call) from error

    def forget(self, *begun: Begun, own: bool = False) -> None:
        """Delete the peers' messages about channels, which are read only once; ``own``: this rank's, too."""
        self._conversation.forget(*begun, own=own)

    def _accept_all(
        self, call: str, begun: list[Begun], channels: dict[int, Channel], left: list[int], deadline: float
    ) -> list[int]:
        """Make the remaining channels; offer again, and return, those that a peer has withdrawn."""
        for at in left:
            each = begun[at]
            try:
                channels[at] = self.accept(call, each, deadline)
            except Withdrawn:
                continue
            self._conversation.send(f"have.{each.key}.{each.end.peer}", _YES)
        again = []
        for at in left:
            is_complete = at in channels and self._has(call, begun[at], deadline)
            self.forget(begun[at], own=not is_complete)
            if not is_complete:
                again.append(at)
        for at in again:
            before = begun[at]
            channels.pop(at, None)
            series, count = before.key.rpartition(".")[0], len(before.end.incoming)
            before.end.close()
            asked = [Asked(series, before.end.peer, count)]
            (begun[at],) = self.invite(asked, self._session._registered, self.kind, deadline)
        return again

    def _has(self, call: str, begun: Begun, deadline: float) -> bool:
        """Wait until the peer has its end; False if it has withdrawn."""
        word = f"have.{begun.key}.{self._session.rank}"
        try:
            return bool(self._conversation.receive(call, word, begun.end.peer, deadline))
        except PeerLost:
            return True  # if the rank has ended meanwhile, the first wait for it fails

    def _give_up(self, begun: list[Begun], channels: dict[int, Channel]) -> None:
        """Withdraw invitations, and close the channels that have come of them."""
        for each in begun:
            self.withdraw(each)
            each.end.close()
        for channel in channels.values():
            with contextlib.suppress(Error):
                channel.close()

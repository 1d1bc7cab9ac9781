"""The messages that ranks of a group send each other over their rendezvous: to meet, and to make channels.

The rendezvous may serve a program for months, so no message stays there.  Those of the meeting are gathered, or
deleted once all ranks have read them, those about a channel once the peer has, and the rest when the group is
closed.  In a part of a group, and in a group over several machines, each rank also puts a key when it closes its
group; the last rank to do so deletes these keys.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from peerlane.diagnostics.ranks import losses
from peerlane.errors import Error, MeetingWait, PeerLost, WaitTimeout
from peerlane.ranks.deadlock import detect
from peerlane.ranks.deadlock.wait_state import MessageWait, PeerHasLeft
from peerlane.support.late import Late

if TYPE_CHECKING:
    import peerlane.rendezvous.client as client
    import peerlane.rendezvous.late_ranks as late_ranks
    from peerlane.ranks.channel_setup import Begun
    from peerlane.ranks.session import Session
else:  # it loads sockets; a program without ranks needs none
    client = Late("peerlane.rendezvous.client")
    late_ranks = Late("peerlane.rendezvous.late_ranks")

_AT_MEETING = frozenset(("hello", "membership", "watching"))  # the messages before there is a session
_LOOK_SECONDS = 0.5
_NO_FOLDER = "\x1f"  # stands for a slash in the name of a channel, which cannot have this character


class _Often:
    """Limits how often a thread that waits looks up the end of a rank elsewhere."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _LOOK_SECONDS

    def is_time(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOOK_SECONDS
        return True


class Conversation:
    """A rank's part in the exchange of messages.

    ``session``: a session with a rendezvous and a rank.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._held: dict[str, bytes] | None = None
        self._brought: dict[str, bytes] = {}
        self._read = set[str]()  # keys of messages that were brought, so the rendezvous lacks them

    @contextlib.contextmanager
    def held(self) -> Iterator[dict[str, bytes]]:
        """Keep what :meth:`send_all` gets during the block; the caller brings them to the peers by other means."""
        self._held = {}
        try:
            yield self._held
        finally:
            self._held = None

    def bring(self, peer: int, messages: Mapping[str, bytes]) -> None:
        """Take messages that a peer has kept; those for other ranks are dropped."""
        for word, value in messages.items():
            if word.rpartition(".")[2] == str(self._session.rank):
                self._brought[self._key(word, peer)] = value

    def _taken(self, key: str) -> bytes:
        self._read.add(key)
        client.log_got(self._session._meeting.rendezvous, [key])
        return self._brought.pop(key)

    def send(self, word: str, value: bytes) -> None:
        """Send a message to the other ranks."""
        self._session._meeting.rendezvous.put(self._key(word, self._session.rank), value)

    def send_all(self, messages: Mapping[str, bytes]) -> None:
        """Send messages to the other ranks, by their words, in one request."""
        rendezvous = self._session._meeting.rendezvous
        values = {self._key(word, self._session.rank): value for word, value in messages.items()}
        if self._held is None:
            client.put_all(rendezvous, values)
            return
        client.log_put(rendezvous, values)
        self._held |= messages

    def present(self, messages: Mapping[int, str]) -> dict[int, bytes]:
        """Return the messages of peers that are there, by the peer, in one request; ``messages`` has their words."""
        rendezvous = self._session._meeting.rendezvous
        keys = {peer: self._key(word, peer) for peer, word in messages.items()}
        there = {key: self._taken(key) for key in keys.values() if key in self._brought}
        if len(there) < len(keys):
            there |= client.get_present(rendezvous, [key for key in keys.values() if key not in there])
        return {peer: there[key] for peer, key in keys.items() if key in there}

    def receive(self, call: str, word: str, peer: int, deadline: float, *, awaits: str = "channel") -> bytes:
        """Wait for a message of a peer; ``awaits`` is that of :class:`MessageWait`.

        Raises WaitTimeout: it did not come in time.
        Raises PeerLost: the peer has left.
        Raises Deadlock: the ranks wait for one another.
        """
        session, rendezvous = self._session, self._session._meeting.rendezvous
        if self._key(word, peer) in self._brought:
            return self._taken(self._key(word, peer))
        has_left = functools.partial(self._has_left, peer, _Often())
        number = peer if session._numbers is None else session._numbers[peer]
        coming = MessageWait(session, call, self._key(word, peer), number, deadline, has_left, awaits)
        seconds = max(0.0, deadline - time.monotonic())
        with detect.waiting_for(coming):
            try:
                coming.check()
                if session._numbers is not None:
                    return client.get_of(rendezvous, coming.key, number, seconds)
                return rendezvous.get(coming.key, timeout=seconds)
            except PeerHasLeft:
                with contextlib.suppress(WaitTimeout, PeerLost):  # the message may have come before
                    return rendezvous.get(coming.key, timeout=0)
                text = f"{call}: rank {peer} did not come: it has closed its group"
                raise losses.lost(session.members[peer].pid_here, text, call=call, rank=peer) from None
            except (WaitTimeout, PeerLost) as error:
                is_late = isinstance(error, WaitTimeout)
                late = "" if word in _AT_MEETING else ": it has not made its end"
                why = f"{late} within {seconds:.3g} s" if is_late else f": {error}"
                failure = error.retold(f"{call}: rank {peer} did not come{why}")
                failure.call = call
                if is_late:
                    failure.detail = MeetingWait(
                        "rank", word, session.rank, session.size, seconds, awaited=(peer,)
                    )
                raise failure from None

    def gather(self, call: str, word: str, value: bytes, deadline: float) -> list[bytes]:
        """Exchange messages with all ranks; return theirs, in the order of ranks.

        Raises WaitTimeout, PeerLost, Deadlock: as :meth:`receive`; the text names all ranks that did not come in
            time.
        """
        seconds = max(0.0, deadline - time.monotonic())
        try:
            return self._session._meeting.rendezvous.gather(self._key(word, 0), value, timeout=seconds)
        except WaitTimeout as error:
            waited = error.detail
            late = waited.awaited if isinstance(waited, MeetingWait) else ()
            raise self.late(error, call, word, late, seconds) from None
        except PeerLost as error:
            failure = error.retold(f"{call}: not all ranks came: {error}")
        failure.call = call
        raise failure from None

    def late(self, error: WaitTimeout, call: str, word: str, ranks: Collection[int], seconds: float) -> Error:
        """Return a time-out whose text names the ranks that did not come."""
        failure = error.retold(f"{call}: {late_ranks.named(ranks)} did not come within {seconds:.3g} s")
        failure.call = call
        failure.detail = MeetingWait(
            "rank", word, self._session.rank, self._session.size, seconds, awaited=tuple(sorted(ranks))
        )
        return failure

    def gather_soon(self, word: str, value: bytes, seconds: float) -> list[bytes] | None:
        """Exchange messages with all ranks if they come about now; None, in all of them, if one does not.

        Then :meth:`receive` waits for each of them, because its errors say which group the missing rank should join.
        """
        try:
            return self._session._meeting.rendezvous.gather(self._key(word, 0), value, timeout=seconds)
        except (WaitTimeout, PeerLost):
            return None

    def withdraw(self, *begun: Begun) -> None:
        """Take invitations back, in one request: the next call of a peer meets the next one of this rank.

        Instead the peer gets the version of this end's engine, if it has one.
        """
        messages = dict[str, bytes]()
        for each in begun:
            # The peer asks for the second message first, and deletes both when it has it.
            messages[f"have.{each.key}.{each.end.peer}"] = b""
            messages[f"{each.key}.{each.end.peer}"] = each.end.engine_version.encode()
        with contextlib.suppress(Error):
            self.send_all(messages)

    def forget(self, *begun: Begun, own: bool = False) -> None:
        """Delete the peers' messages about channels, which are read only once; ``own``: this rank's, too."""
        rank, keys = self._session.rank, list[str]()
        for each in begun:
            peer = each.end.peer
            if self._key(f"{each.key}.{rank}", peer) in self._read:
                continue
            messages = [(rank, peer), (peer, rank)] if own else [(rank, peer)]
            words = (f"{each.key}.{{}}", f"have.{each.key}.{{}}")
            keys += (self._key(word.format(to), who) for to, who in messages for word in words)
        with contextlib.suppress(Error):  # of no keys it is no request
            client.delete_unanswered(self._session._meeting.rendezvous, keys)

    def end_meeting(self) -> None:
        """Delete the messages of the meeting; rank 0 calls it when all ranks have read them."""
        self._clear(self._folder_of_meeting())

    def leave(self) -> None:
        """Tell the ranks of other machines that this one closes its group; those of this machine see it."""
        if self._are_elsewhere():
            with contextlib.suppress(Error):
                self._session._meeting.rendezvous.put(self._key_of_end(self._session.rank), b"")

    def close(self) -> None:
        """Delete this rank's messages to its peers, if the rendezvous goes on."""
        if not self._session._meeting.owns_rendezvous:
            with contextlib.suppress(Error):
                self._clear(self._folder(self._session.rank))
                if self._are_elsewhere() and self._have_all_left():
                    self._clear(self._folder_of_ends())

    def _are_elsewhere(self) -> bool:
        membership = self._session._membership
        return membership is not None and len(membership.local_ranks) < self._session.size

    def _have_all_left(self) -> bool:
        membership = self._session._membership
        assert membership is not None  # some ranks are elsewhere
        elsewhere = (rank for rank in range(self._session.size) if rank not in membership.local_ranks)
        return all(map(membership.has_left, membership.local_ranks)) and all(
            map(self._has_announced_end, elsewhere)
        )

    def _has_left(self, peer: int, often: _Often) -> bool:
        """Tell whether a rank has closed its group; one elsewhere is looked up only now and then."""
        membership = self._session._membership
        if membership is None:
            return False
        if peer in membership.local_ranks:
            return membership.has_left(peer)
        return often.is_time() and self._has_announced_end(peer)

    def _has_announced_end(self, rank: int) -> bool:
        try:
            self._session._meeting.rendezvous.get(self._key_of_end(rank), timeout=0)
        except (WaitTimeout, PeerLost):
            return False
        return True

    def _clear(self, folder: str) -> None:
        client.clear(self._session._meeting.rendezvous, folder)

    def _key(self, word: str, rank: int) -> str:
        if word in _AT_MEETING:
            return f"{self._folder_of_meeting()}/{word}.{rank}"
        return f"{self._folder(rank)}/{word.replace('/', _NO_FOLDER)}"

    def _folder(self, rank: int) -> str:
        return f"{self._session._key}/{rank}"

    def _key_of_end(self, rank: int) -> str:
        return f"{self._folder_of_ends()}/{rank}"

    def _folder_of_ends(self) -> str:
        return f"{self._session._key}.left"

    def _folder_of_meeting(self) -> str:
        return f"{self._session._key}.meeting"

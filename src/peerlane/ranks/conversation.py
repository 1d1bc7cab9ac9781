"""What the ranks of a group say to one another over their rendezvous: how to meet, and how to reach their channels.

The rendezvous may serve a program for months, so nothing stays there: what is said at the meeting goes once all have
read it, what is said of a channel goes once the peer has read it, and the rest goes when the group is closed.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from peerlane.diagnostics import losses
from peerlane.errors import Error, PeerLost, WaitTimeout
from peerlane.ranks.deadlock import detect
from peerlane.ranks.deadlock.wait_state import Coming

if TYPE_CHECKING:
    from peerlane.ranks.channel_setup import Begun
    from peerlane.ranks.session import Session

_AT_MEETING = frozenset(("hello", "membership", "watching"))  # what ranks say before there is a session
_NO_FOLDER = "\x1f"  # for a slash in the name of a channel, which has no such character
_LOOK = 0.3  # seconds between two looks whether a rank that is waited for has left


class Conversation:
    """A rank's part.

    Parameters
    ----------
    session : Session
        Whose rendezvous and rank are known.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def say(self, word: str, value: bytes) -> None:
        """Let the others read a value."""
        self._session._meeting.line.put(self._key(word, self._session.rank), value)

    def hear(self, call: str, word: str, peer: int, deadline: float) -> bytes:
        """Wait for what a peer says.

        Raises
        ------
        WaitTimeout, PeerLost
            It did not say it in time; it has left.
        Deadlock
            All wait for one another.
        """
        session = self._session
        key = self._key(word, peer)
        with detect.waiting_for(Coming(session, call, key, peer, deadline)):
            while True:
                session._check_open(call)  # another thread may have closed it
                left = max(0.0, deadline - time.monotonic())
                has_left = session._membership is not None and session._membership.has_left(peer)
                try:
                    return session._meeting.line.get(key, timeout=0 if has_left else min(left, _LOOK))
                except (WaitTimeout, PeerLost) as error:
                    if has_left:
                        text = f"{call}: rank {peer} did not come: it has closed its group"
                        raise losses.lost(session.members[peer].pid, text, call=call) from None
                    is_late = isinstance(error, WaitTimeout)
                    if left <= _LOOK or not is_late:
                        why = "it has not made its end in the time given" if is_late else error
                        raise error.retold(f"{call}: rank {peer} did not come: {why}") from None

    def withdraw(self, begun: Begun) -> None:
        """Take an invitation back: the next call of the peer meets the next one of this rank."""
        with contextlib.suppress(Error):
            # The peer asks for the second one first, and deletes both when it has it.
            self.say(f"have.{begun.key}.{begun.end.peer}", b"")
            self.say(f"{begun.key}.{begun.end.peer}", b"")

    def forget(self, begun: Begun, *, own: bool = False) -> None:
        """Delete what the peer said of a channel, which nobody asks for again; ``own``: and what this rank said."""
        rank, peer = self._session.rank, begun.end.peer
        said = [(rank, peer), (peer, rank)] if own else [(rank, peer)]
        words = (f"{begun.key}.{{}}", f"have.{begun.key}.{{}}")
        with contextlib.suppress(Error):
            self._session._meeting.line.delete(
                *(self._key(word.format(to), who) for to, who in said for word in words)
            )

    def end_meeting(self) -> None:
        """Delete what was said at the meeting; by rank 0, when all have read it."""
        self._session._meeting.line._clear(self._folder_of_meeting())

    def close(self) -> None:
        """Delete what this rank said to its peers, if the rendezvous goes on."""
        if not self._session._meeting.owns_line:
            with contextlib.suppress(Error):
                self._session._meeting.line._clear(self._folder(self._session.rank))

    def _key(self, word: str, rank: int) -> str:
        if word in _AT_MEETING:
            return f"{self._folder_of_meeting()}/{word}.{rank}"
        return f"{self._folder(rank)}/{word.replace('/', _NO_FOLDER)}"

    def _folder(self, rank: int) -> str:
        return f"{self._session._key}/{rank}"

    def _folder_of_meeting(self) -> str:
        return f"{self._session._key}.meeting"

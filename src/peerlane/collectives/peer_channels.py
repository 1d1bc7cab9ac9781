"""The channels of a group's collectives."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.ranks import losses
from peerlane.errors import (
    BadHandle,
    Busy,
    Cancelled,
    Closed,
    Deadlock,
    Error,
    Fault,
    InvalidValue,
    PeerLost,
    Refused,
    WaitTimeout,
)
from peerlane.ranks.invite import Asked, Withdrawn
from peerlane.ranks.lending import WINDOW
from peerlane.streams.notify import NotifyKind

if TYPE_CHECKING:
    from peerlane.ranks.channel import Channel
    from peerlane.ranks.channel_setup import Begun
    from peerlane.ranks.invite import Invitations
    from peerlane.ranks.lending import Memories
    from peerlane.ranks.session import Session

SERIES = "collectives"  # the series of a group's own channels

_LEAVING_SECONDS = 0.1  # for all peers together


class Channels(dict[int, "Channel"]):
    """The channels of the collectives, by peer.  All are offered at once, and each is made when it is first used.

    So two ranks can communicate before the others come, and no order of first uses can deadlock.
    """

    def __init__(
        self,
        session: Session,
        invitations: Invitations,
        memories: Memories,
        peers: list[int],
        notifies: int,
        series: str,
        opened: int,
    ) -> None:
        super().__init__()
        self._session, self._invitations = session, invitations
        self._peers, self._begun = peers, dict[int, "Begun"]()
        self._opened = opened  # the notify by which each end says that it has opened the other's memory
        self._unconfirmed: list[
            Channel
        ] = []  # whose peers do not know that this rank has opened their memory
        self._awaited = set["Channel"]()  # whose peers have opened this rank's memory
        self._making = {peer: threading.Lock() for peer in peers}
        self._nbytes = memories[WINDOW].buffer.size
        # Binary notifies: several steps are under way here, and the first record may be waited for last.
        kind = NotifyKind.BINARY if invitations.kind is NotifyKind.FIFO else invitations.kind
        deadline = time.monotonic() + invitations.patience
        asked = [Asked(series, peer, notifies) for peer in peers]
        for begun in invitations.invite(asked, memories, kind, deadline, collective=True):
            self._begun[begun.end.peer] = begun

    def __missing__(self, peer: int) -> Channel:
        channel = self._channel_to(peer)
        self._invitations.forget(self._begun[peer])
        return channel

    def _channel_to(self, peer: int, answer: bytes | None = None, seconds: float | None = None) -> Channel:
        """Make the channel to a peer; ``seconds``: at most that long, by default for the patience of the group."""
        deadline = time.monotonic() + (self._invitations.patience if seconds is None else seconds)
        # A message to the peer and one from it may both be the first use.
        with _held(self._making[peer], -1 if seconds is None else seconds):
            channel = self.get(peer)
            if channel is None:
                try:
                    channel = self._invitations.accept("Group", self._begun[peer], deadline, answer)
                except Withdrawn as error:  # the peer offers no more channels
                    raise self._lost(peer, str(error), error.call) from None
                except BadHandle as error:
                    if error.fault is not Fault.STALE_HANDLE:
                        raise
                    text = f"Group: rank {peer} has gone: {error}"
                    raise self._lost(peer, text, "Group") from None
                self._check_equal(peer, channel)
                self._unconfirmed.append(channel)
                self[peer] = channel
        return channel

    def _lost(self, peer: int, text: str, call: str | None) -> PeerLost:
        return losses.lost(self._session.members[peer].pid_here, text, call=call, rank=peer)

    def _check_equal(self, peer: int, channel: Channel) -> None:
        if channel.window.size != self._nbytes:
            channel.close()
            raise InvalidValue(
                f"Group: the workspace of rank {peer} has {channel.window.size:,} bytes, that of rank "
                f"{self._session.rank} {self._nbytes:,}; give all ranks the same workspace=",
                fault=Fault.BAD_CONFIG,
                call="Group",
                detail=Refused(
                    reason="workspaces_differ",
                    rank=self._session.rank,
                    size=self._nbytes,
                    peer=peer,
                    peer_size=channel.window.size,
                ),
            )

    def everyone(self) -> list[Channel]:
        """Return the channels to all peers."""
        return self.to(self._peers)

    def to(self, peers: Sequence[int]) -> list[Channel]:
        """Return the channels to these peers."""
        at_first = missing = self._missing(peers)
        while missing:
            answers = self._invitations.present(missing) if len(missing) > 1 else {}
            for peer, answer in answers.items():
                self._channel_to(peer, answer)
            if not answers:
                self._channel_to(missing[0].end.peer)
            missing = self._missing(peers)
        if at_first:
            self._invitations.forget(*at_first)
        return [self[peer] for peer in peers]

    def _missing(self, peers: Sequence[int]) -> list[Begun]:
        return [self._begun[peer] for peer in peers if peer not in self]

    def confirm(self) -> None:
        """Tell the peers of new channels that this rank has what it needs of theirs: they may close their groups."""
        opened, self._unconfirmed = self._unconfirmed, []
        # await_peers waits quietly, so a record in the log would seem to have no wait.
        with event_log.quiet():
            for channel in opened:
                with contextlib.suppress(Error):  # the peer has gone, and waits no more
                    channel.notify(self._opened)

    def connect(self) -> None:
        """Make all channels, and wait until all peers have opened this rank's memory, or have left."""
        self.everyone()
        self.confirm()
        self.await_peers()

    def await_peers(self) -> None:
        """Wait until the peers of the channels that were made have opened this rank's memory, or have left."""
        deadline = time.monotonic() + self._invitations.patience
        with event_log.quiet():
            for channel in [each for each in self.values() if each not in self._awaited]:
                try:
                    channel.wait(self._opened, timeout=max(0.0, deadline - time.monotonic()))
                    self._awaited.add(channel)
                except Deadlock:  # nobody who could still come has anything to do before
                    return
                except (PeerLost, WaitTimeout, Closed):
                    continue

    def withdraw(self) -> None:
        """Tell peers that have not made their ends yet that there will be no channels."""
        self._invitations.withdraw(*self._begun.values())

    def open_present(self) -> None:
        """Make the channels whose peers have offered them, as far as these peers answer soon.

        A peer that does not answer takes at most half of the time that is left, so that the others have some, too.
        """
        deadline = time.monotonic() + _LEAVING_SECONDS
        missing = self._missing(self._peers)
        with contextlib.suppress(Error):
            for peer, answer in self._invitations.present(missing).items() if missing else ():
                with contextlib.suppress(Error, TimeoutError):
                    self._channel_to(peer, answer, max(0.0, deadline - time.monotonic()) / 2)

    def close(self) -> None:
        """Close all channels.  Records that were not consumed are not a mistake here."""
        with contextlib.ExitStack() as ends:
            for begun in self._begun.values():
                ends.callback(begun.end.close)
            for channel in self.values():
                ends.callback(_close_quietly, channel)


@contextlib.contextmanager
def _held(lock: threading.Lock, seconds: float) -> Iterator[None]:
    if not lock.acquire(timeout=seconds):
        raise TimeoutError
    try:
        yield
    finally:
        lock.release()


def _close_quietly(channel: Channel) -> None:
    # The stream of a failed collective has reported its failure, and a peer that has closed needs no more words.
    with contextlib.suppress(Busy, Cancelled, Closed):
        channel.close()

"""Some ranks of a group as a group of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from peerlane.collectives.call_order import CallOrder
from peerlane.collectives.duplicate import Duplicate
from peerlane.collectives.group import Group
from peerlane.errors import BadHandle, Fault, Refused
from peerlane.ranks.conversation import Conversation
from peerlane.ranks.invite import Invitations
from peerlane.ranks.membership import Membership
from peerlane.rendezvous import frames


class Part(Group):
    """Ranks of a group, or all of them, whose collectives and messages are independent of the group's own.

    It has the rendezvous and the processes of the group, so its ranks need not meet.  The loss of a rank outside of
    it does not end its waits.  It has no window.  The group's end closes it.

    Parameters
    ----------
    group : Group
        All of its ranks are on one machine.
    ranks : sequence of int
        Their numbers in the group, in the order of the part's ranks; this rank is one of them.
    name : str
        In texts.
    number : int
        Of the parts of this name; the same in all their ranks.
    wait_timeout : float
        As of :class:`peerlane.Group`.
    timeout : float
        Seconds to wait for a rank's end of a channel.
    """

    def __init__(
        self,
        group: Group,
        ranks: Sequence[int],
        *,
        name: str,
        number: int,
        wait_timeout: float,
        timeout: float,
    ) -> None:
        self._group = group
        for each in ("device", "window", "_choose", "_workspace_bytes", "_kind", "_pid"):
            setattr(self, each, getattr(group, each))
        self.rank, self.size = ranks.index(group.rank), len(ranks)
        self.name, self._key, self._patience = name, f"{name}.{number}", timeout
        self._numbers = tuple(ranks)
        self.members = tuple(replace(group.members[each], rank=rank) for rank, each in enumerate(ranks))
        self._meeting = replace(group._meeting, owns_rendezvous=False, server=None, file=None)
        whole = group._membership
        self._membership = whole.part(ranks) if isinstance(whole, Membership) else None  # None: it is alone
        self._begin_memory()
        self._registered, self._owns_window, self._is_closed = {}, False, False
        self._duplicates, self._parts = [], []
        self._conversation = Conversation(self)
        self._invitations = Invitations(self, self._conversation)
        self._order = CallOrder(self, self._invitations, self._workspace_bytes, wait_timeout, self._serve)
        group._parts.append(self)
        self._order.follow_neighbours()

    @staticmethod
    def is_possible(group: Group) -> bool:
        """Tell whether a group can have parts now: it is open, and the process that serves its rendezvous runs."""
        membership = group._membership
        return not group.is_closed and not (isinstance(membership, Membership) and membership.has_ended(0))

    def duplicate_with_offers(self) -> tuple[Duplicate, bytes]:
        """Return a duplicate, and the offers of its channels, which the caller brings to the part's other ranks."""
        with self._conversation.held() as held:
            duplicate = Duplicate(self)
        entries = {word.encode(): value for word, value in held.items()}
        return duplicate, b"".join(frames.encode_entries(entries))

    def take_offers(self, rank: int, offers: bytes) -> None:
        """Take what :meth:`duplicate_with_offers` has returned in a rank of the part.

        Raises
        ------
        BadHandle
            ``FALSE_CLAIM``: it is something else.
        """
        try:
            self._conversation.bring(rank, frames.decode_entries(offers))
        except frames.BadFrame as error:
            raise BadHandle(
                f"Group: the message of rank {rank} is impossible: {error}",
                fault=Fault.FALSE_CLAIM,
                call="Group",
                detail=Refused(reason="false_claim", rank=rank, why=str(error)),
            ) from None

    @property
    def _has_left(self) -> bool:
        return self._group._has_left

    def _leave(self) -> None:
        super()._leave()
        with contextlib.suppress(ValueError):  # it has left before
            self._group._parts.remove(self)

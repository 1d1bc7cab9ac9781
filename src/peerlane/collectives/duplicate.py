"""A second order of calls in a group."""

from __future__ import annotations

from peerlane.collectives.call_order import CallOrder
from peerlane.collectives.group import Group


class Duplicate(Group):
    """The ranks of a group again, whose collectives and messages are independent of the group's own.

    A failure ends the calls of one of them only.  It has the group's meeting and membership, so it is made without
    the other ranks; all of them make the same duplicates in the same order.  It offers its channels at once, so a
    short message does not wait for a call of its receiver.  The group's end closes it.

    Parameters
    ----------
    group : Group
    wait_timeout : float or None
        As of :class:`peerlane.Group`.
    """

    def __init__(self, group: Group, *, wait_timeout: float | None = None) -> None:
        self._group = group
        for name in ("name", "rank", "size", "device", "window", "members", "_membership", "_choose", "_pid"):
            setattr(self, name, getattr(group, name))
        self._is_closed = False
        self._channels, self._duplicates, self._parts = [], [], []
        group._duplicates.append(self)
        self._order = CallOrder(
            *(group, group._invitations, group._workspace_bytes, wait_timeout, self._serve),
            series=f"duplicate {len(group._duplicates)}",
        )
        if self.size > 1:
            self._order.offer("Group")

    def connect(self) -> None:
        """Make the channels to all ranks, and wait until they have made theirs.

        From then on a short message waits for nobody, and its sender may end before it is received.
        """
        if self.size > 1:
            self._order.connect("Group")

    def _leave(self) -> None:
        """End its calls; idempotent.  The group stays as it is."""
        if not self._is_closed:
            self._is_closed = True
            self._order.end(withdraws=not self._has_left)

    @property
    def _has_left(self) -> bool:
        return self._group._has_left

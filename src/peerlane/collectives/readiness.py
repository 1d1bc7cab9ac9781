"""Whether a group's messages would wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerlane.backend.ranks import Mails
    from peerlane.collectives.group import Group


def mails_of(group: Group) -> Mails | None:
    """Return the messages of a group of one machine, None before its first collective: they know what would wait."""
    work = group._order.workspace
    return work.mails if work is not None and work.has_rounds else None

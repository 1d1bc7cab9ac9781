"""How offered channels come to be: all of a call or none, and anew where the other end has given up meanwhile."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from peerlane.errors import BadHandle, Error, PeerLost
from peerlane.ranks.channel import Channel
from peerlane.ranks.channel_setup import Begun

if TYPE_CHECKING:
    from peerlane.ranks.group import Group

_YES = b"yes"  # empty: it has given up


class GivenUp(PeerLost):
    """The peer has taken its invitation back, or never made one."""


def accept(group: Group, call: str, begun: Begun, deadline: float) -> Channel:
    """Make an offered channel; GivenUp if the peer takes its invitation back meanwhile."""
    try:
        return group._accept(call, begun, deadline)
    except BadHandle:
        if group._conversation.hear(call, f"{begun.key}.{group.rank}", begun.ends.peer, deadline):
            raise
        raise GivenUp(
            f"{call}: rank {begun.ends.peer} has ended its end; it was told why", call=call
        ) from None


def accept_all(
    group: Group, call: str, begun: list[Begun], made: dict[int, Channel], left: list[int], deadline: float
) -> list[int]:
    """Make the channels that are left; return those whose peer had given up, which are offered anew."""
    for at in left:
        each = begun[at]
        try:
            made[at] = accept(group, call, each, deadline)
        except GivenUp:
            continue
        group._conversation.say(f"have.{each.key}.{each.ends.peer}", _YES)
    again = []
    for at in left:
        is_made = at in made and _has(group, call, begun[at], deadline)
        group._conversation.forget(begun[at], own=not is_made)
        if not is_made:
            again.append(at)
    for at in again:
        before = begun[at]
        made.pop(at, None)
        series, count = before.key.rpartition(".")[0], len(before.ends.lines)
        before.ends.close()
        begun[at] = group._invite(series, before.ends.peer, group._registered, count, group._kind)
    return again


def _has(group: Group, call: str, begun: Begun, deadline: float) -> bool:
    """Wait until the peer has its end; False if it has given up."""
    try:
        return bool(
            group._conversation.hear(call, f"have.{begun.key}.{group.rank}", begun.ends.peer, deadline)
        )
    except PeerLost:
        return True  # a rank that has ended meanwhile will be missed when somebody waits for it


def give_up(group: Group, begun: list[Begun], made: dict[int, Channel]) -> None:
    """Take invitations back, and end what was made of them."""
    for each in begun:
        group._conversation.withdraw(each)
        each.ends.close()
    for channel in made.values():
        with contextlib.suppress(Error):
            channel.close()

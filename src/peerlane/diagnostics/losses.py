"""Ranks that have ended or left their group: what an error says of them, and what ``peerlane launch`` is told.

Launch names the rank that failed first.  A rank that closes its group because of an error may take longer to end
than the ranks that fail over it, so launch has to know who lost whom.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from peerlane.errors import PeerLost
from peerlane.support.processes import start_time


@dataclass(frozen=True, slots=True)
class Member:
    """The process of a rank.

    Attributes
    ----------
    name : str
        For texts.
    rank : int
        In its group.
    session : int
        The session of the process: launch gives each of its ranks one, whose number is the rank's pid.
    """

    name: str
    rank: int
    session: int


#: Called with the sessions of this process and of a rank that it has lost; set by the rendezvous.
tell_launcher: Callable[[int, int], None] | None = None

_members: dict[int, Member] = {}  # by pid
_told: set[tuple[int, int]] = set()  # by whom, of which session: a forked child is another process


def note(pid: int, rank: int) -> None:
    """Note that a process is a rank of a group of this one."""
    name = "a rank of this process" if pid == os.getpid() else f"rank {rank}"
    try:
        session = os.getsid(pid)
    except OSError:  # it has ended
        session = 0
    _members[pid] = Member(name, rank, session)


def lost(pid: int, text: str, *, call: str | None = None, device: str | None = None) -> PeerLost:
    """Return the exception for a process that this one waited for, and tell launch of it."""
    made = PeerLost(text, call=call, device=device)
    member = _members.get(pid)
    if member is not None:
        made.rank = member.rank
        if pid != os.getpid():
            _tell(member.session)
    return made


def recorder_lost(pid: int, device: str, call: str | None = None) -> PeerLost:
    """Return the exception for a record that only processes which have ended could have made."""
    member = _members.get(pid)
    if member is None:
        text = f"process {pid} has ended, and no other one could still record what is waited for"
    elif start_time(pid):
        text = f"{member.name} (process {pid}) has closed its end of the channel"
    else:
        text = f"{member.name} (process {pid}) has died"
    return lost(pid, text, call=call, device=device)


def _tell(session: int) -> None:
    who = os.getpid(), session
    if session and who not in _told:
        _told.add(who)
        if tell_launcher is not None:
            tell_launcher(os.getsid(0), session)

"""Lost ranks, which ended or left their group: their errors, and the report to ``peerlane launch``.

Launch names the rank that failed first.  A rank that closes its group because of an error may end later than the
ranks that fail because of it, so each rank reports to launch which rank it has lost.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from peerlane.errors import LostProcess, PeerLost
from peerlane.support.processes import start_time
from peerlane.support.records import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """The process of a rank."""

    name: str  #: its name in texts
    rank: int  #: its number in its group
    #: The process's session: launch starts each rank in a session of its own, whose number is the rank's pid.
    session: int


class FarRank(NamedTuple):
    """A rank of another machine: at the other end of a channel, or a member of a group."""

    rank: int
    machine: str
    pid: int
    memories: list[str]  #: the names of the memories that it offers
    end: Any  #: this end of the channel, which records whether the rank is lost; None for a member of a group

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on machine {self.machine})"


class _Closed(NamedTuple):
    """A closed end, of which only the reason is kept."""

    why_lost: str


#: By numbers that no pid has; native code names the other end of a channel so.
_far: dict[int, FarRank] = {}
_released: deque[int] = deque()
_MOST_RELEASED = 1000
_far_numbers = itertools.count(1 << 30)


def note_far(far: FarRank) -> int:
    """Keep a rank of another machine; return its number."""
    number = next(_far_numbers)
    _far[number] = far
    return number


def forget_far(number: int) -> None:
    """Release a rank of another machine.  Its name stays for late failures, until a thousand others were released."""
    far = _far.get(number)
    if far is None:
        return
    if far.end is not None:
        _far[number] = far._replace(end=_Closed(far.end.why_lost))
    _released.append(number)
    if len(_released) > _MOST_RELEASED:
        _far.pop(_released.popleft(), None)


def far_of(number: int) -> FarRank | None:
    """Return the other end of a channel by its number."""
    return _far.get(number)


def far_lost(number: int, *, call: str | None = None, device: str | None = None) -> PeerLost:
    """Return the exception for a wait or an operation whose other end, on another machine, is closed or lost."""
    far = _far.get(number)
    if far is None:
        return lost(0, "the other end of the channel is lost", call=call, device=device)
    why = far.end.why_lost if far.end is not None else _why_lost(far)
    how = f"is lost: {why}" if why else "has closed its end of the channel"
    return lost(0, f"{far} {how}", call=call, device=device, rank=far.rank)


def _why_lost(member: FarRank) -> str:
    """Return why a member is lost, by a channel of this process; another process may have noticed it first."""
    known = (
        each.end.why_lost for each in list(_far.values()) if each.end is not None and each[:3] == member[:3]
    )
    return next(filter(None, known), "its connection with another rank of this machine has ended")


#: Called with the sessions of this process and of the rank that it has lost; the rendezvous sets it.
report_to_launcher: Callable[[int, int], None] | None = None

#: Returns for a pid which collective that process called where this one called another, in words, or ``""``; the
#: collectives set it.
other_call: Callable[[int], str] | None = None

_members: dict[int, Member] = {}  # by pid
#: (pid, lost session): the pid, because a forked child inherits this set.
_reported: set[tuple[int, int]] = set()


def note(pid: int, rank: int) -> None:
    """Note that a process of this machine is a rank of one of this process's groups."""
    name = "a rank of this process" if pid == os.getpid() else f"rank {rank}"
    try:
        session = os.getsid(pid)
    except OSError:  # it has ended
        session = 0
    _members[pid] = Member(name, rank, session)


def lost(
    pid: int, text: str, *, call: str | None = None, device: str | None = None, rank: int | None = None
) -> PeerLost:
    """Return the exception for a lost process that this one waited for, and report the loss to launch.

    ``pid`` is 0 for a process of another machine: ``rank`` names it, and its own machine reports it.
    """
    loss = PeerLost(text, call=call, device=device, detail=LostProcess(pid))
    loss.rank = rank
    member = _members.get(pid)
    if member is not None:
        loss.rank = member.rank
        if pid != os.getpid():
            _report(member.session)
    return loss


def recorder_lost(pid: int, device: str, call: str | None = None) -> PeerLost:
    """Return the exception for a wait for a record that only processes which have ended could have made."""
    if pid in _far:
        return far_lost(pid, call=call, device=device)
    member = _members.get(pid)
    why = other_call(pid) if other_call is not None else ""
    if member is None:
        text = f"process {pid} has ended, and no other process could still make the record that is waited for"
    elif start_time(pid):
        text = f"{member.name} (process {pid}) has closed its end of the channel{why}"
    else:
        text = f"{member.name} (process {pid}) has died{why}"
    return lost(pid, text, call=call, device=device)


def _report(session: int) -> None:
    who = os.getpid(), session
    if session and who not in _reported:
        _reported.add(who)
        if report_to_launcher is not None:
            report_to_launcher(os.getsid(0), session)

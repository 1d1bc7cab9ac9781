"""How a rank joins its group: the ranks exchange their processes and settings, and watch each other from then on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from peerlane.diagnostics.ranks import losses
from peerlane.errors import InvalidValue, MeetingWait, PeerLost, Refused, WaitTimeout
from peerlane.node.device import devices
from peerlane.ranks.arguments import check_agree
from peerlane.ranks.membership import Membership
from peerlane.ranks.session import Member
from peerlane.ranks.wire import PROTOCOL, Hello
from peerlane.support.machine_identity import own_machine
from peerlane.support.network import own_address
from peerlane.support.processes import start_time

if TYPE_CHECKING:
    from peerlane.ranks.conversation import Conversation
    from peerlane.ranks.session import Session
    from peerlane.rendezvous.late_ranks import LateRanks

_TOGETHER_SECONDS = 0.25


def join(session: Session, conversation: Conversation) -> None:
    """Meet the other ranks: set the session's members, and watch their processes from now on.

    Raises InvalidValue, BadHandle, WaitTimeout, PeerLost: as the constructor of :class:`peerlane.Group`.
    """
    hello = Hello(
        PROTOCOL,
        f"{session.device.backend.node_hash:016x}",
        session._pid,
        start_time(session._pid),
        session.device.ordinal,
        session._kind.name.lower(),
        own_machine(),
        own_address(master=session._meeting.master),
    )
    deadline = time.monotonic() + session._patience
    seconds = min(_TOGETHER_SECONDS, session._patience)
    messages = conversation.gather_soon("hello", hello.encode(), seconds)
    is_gathered = messages is not None
    coming: Iterable[tuple[int, bytes]]
    if messages is not None:
        coming = enumerate(messages)
    else:
        conversation.send("hello", hello.encode())
        if session._meeting.late is not None:
            _show_late(session._meeting.late, session, conversation, deadline)
        coming = _hellos(session, conversation, deadline)
    present, hellos = devices(), dict[int, Hello]()
    for rank, encoded in coming:
        message = hellos[rank] = Hello.decode("Group", rank, encoded)
        check_agree(session.rank, hello, rank, message)
        if message.device >= len(present):
            raise InvalidValue(
                f"Group: rank {rank} says device {message.device}, which this node lacks",
                detail=Refused(reason="no_such_device", rank=rank, device=message.device),
            )
    members = []
    for rank in range(session.size):
        message = hellos[rank]
        is_local = message.machine == hello.machine
        members.append(Member(rank, message.pid, present[message.device], message.machine, is_local))
        if is_local:
            losses.note(message.pid, rank)
            session._open_route(present[message.device])
    if session.size > 1:
        _watch(session, conversation, [hellos[rank] for rank in range(session.size)], deadline)
    if session.rank == 0 and not is_gathered:  # all ranks have read the messages
        conversation.end_meeting()
    session.members = tuple(members)


def _show_late(late: LateRanks, session: Session, conversation: Conversation, deadline: float) -> None:
    """Wait for all ranks until the line about those that have not come is due, and show it."""
    try:
        for _ in _messages(session, conversation, min(deadline, late.due)):
            pass
    except WaitTimeout:
        if late.due < deadline:
            late.look(_absent(session, conversation))


def _hellos(session: Session, conversation: Conversation, deadline: float) -> Iterator[tuple[int, bytes]]:
    """Yield all ranks and their messages as they come; the error of a time-out names all that have not come."""
    try:
        yield from _messages(session, conversation, deadline)
    except WaitTimeout as error:
        absent = set(error.detail.awaited) if isinstance(error.detail, MeetingWait) else set[int]()
        with contextlib.suppress(PeerLost):  # the server's process may have timed out, and ended
            absent |= _absent(session, conversation)
        raise conversation.late(error, "Group", "hello", absent, session._patience) from None


def _messages(session: Session, conversation: Conversation, deadline: float) -> Iterator[tuple[int, bytes]]:
    """Yield all ranks and their messages as they come, with few requests.

    A launcher starts ranks in order, so the last one that has not come is probably the last to come.
    """
    missing: Sequence[int] = range(session.size)
    while missing:
        try:
            there = conversation.present(dict.fromkeys(missing, "hello"))
        except PeerLost as error:
            failure = error.retold(f"Group: rank {missing[-1]} did not come: {error}")
            failure.call = "Group"
            raise failure from None
        yield from there.items()
        missing = [rank for rank in missing if rank not in there]
        if missing:
            conversation.receive("Group", "hello", missing[-1], deadline)


def _absent(session: Session, conversation: Conversation) -> set[int]:
    """Return the ranks that have not come to the meeting."""
    hellos = dict.fromkeys(range(session.size), "hello")
    came = set(conversation.present(hellos))
    if session._meeting.has_rank_0:  # it sends its message only when all others have come to its address
        came.add(0)
    return hellos.keys() - came


def _watch(session: Session, conversation: Conversation, hellos: list[Hello], deadline: float) -> None:
    """Share a membership with the ranks of this machine, the first of which creates it."""
    machine = hellos[session.rank].machine
    local_ranks = [rank for rank, each in enumerate(hellos) if each.machine == machine]
    first = local_ranks[0]
    with contextlib.ExitStack() as until_opened:
        text = ""
        if session.rank == first:
            session._membership = Membership(session.device, session.rank, hellos, local_ranks)
            text = until_opened.enter_context(session._membership.offered())
        texts = conversation.gather("Group", "membership", text.encode(), deadline)
        session._meeting.is_agreed = True
        if session.rank != first:
            offer = texts[first].decode("ascii", "replace")
            session._membership = Membership.open(
                session.device, session.rank, hellos, local_ranks, offer, session._patience
            )
        conversation.gather("Group", "watching", b"", deadline)

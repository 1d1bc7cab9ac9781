"""How the ranks of a program find each other: by a callable, an address, or a launcher's variables."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from peerlane.errors import AccessDenied, Error, Fault, InvalidValue, Refused, WaitTimeout
from peerlane.rendezvous import by_file, by_tcp
from peerlane.rendezvous.by_machines import LINGER_SECONDS, relay, rendezvous_of_job, secret_of, with_reason
from peerlane.rendezvous.client import Rendezvous
from peerlane.rendezvous.late_ranks import LateRanks
from peerlane.rendezvous.launchers import Assignment, assignment_of
from peerlane.rendezvous.server import RendezvousServer
from peerlane.rendezvous.serving import Serving
from peerlane.rendezvous.whereabouts import Whereabouts
from peerlane.support.machine_identity import own_machine

Exchange: TypeAlias = "Callable[[bytes], list[bytes]]"

_counts: Counter[tuple[str, ...]] = Counter()  # the number of meetings, by address, name and rank
_of_launchers: dict[tuple[int, str, int], Rendezvous] = {}  # of launchers, by process, address and rank
_lock = threading.Lock()


@dataclass
class Meeting:
    """A rank's client of a rendezvous, and the server or file to close with it."""

    rendezvous: Rendezvous
    local_rank: int  #: this rank's number among those on this machine
    number: int = 0  #: the number of earlier meetings of this name, if the rendezvous serves several
    owns_rendezvous: bool = True
    counted: tuple[str, ...] = ()  #: the key that it was counted by; empty if it was not counted
    is_agreed: bool = False  #: whether the other ranks may consider the meeting complete
    server: Serving[Any] | None = None
    #: The host of the address at which the ranks met; empty if they did not meet by an address.
    master: str = ""
    file: by_file.MeetingFile | None = None
    late: LateRanks | None = None  #: if no launcher started the ranks
    has_rank_0: bool = False  #: whether rank 0 has answered this rank, which is another one

    def close(self, seconds: float = LINGER_SECONDS) -> None:
        """Leave; a rank that serves others goes on until they have left too, at most for ``seconds``."""
        try:
            if self.owns_rendezvous:
                self.rendezvous.close()
        finally:
            if self.file is not None:
                self.file.close()
            if self.server is not None:
                self.server.linger(seconds)

    def give_up(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Leave because of an error; do not linger after an interrupt.

        If other ranks did not come in time, the meeting is not counted: a new call meets the ranks that come late.
        """
        if isinstance(error, WaitTimeout) and not self.is_agreed and self.counted:
            _take_back(self.counted, self.number)
        self.close(LINGER_SECONDS if isinstance(error, Error) else 0.0)


def meet(
    call: str,
    rank: int | None,
    size: int | None,
    how: Rendezvous | str | Exchange | None,
    *,
    name: str = "",
    timeout: float = 60.0,
    environ: Mapping[str, str] = os.environ,
) -> Meeting:
    """Bring the ranks of a program together; all of them call it.

    ``call``: the name of the public call, for texts.
    ``rank``, ``size``: by default those that the launcher set.
    ``how``: one of these: an open rendezvous; ``"tcp://host:port"``, where rank 0 listens during the call; a callable
        that each rank calls once, with bytes, and that returns the bytes of all ranks, in their order; or None, for
        ranks that ``peerlane launch``, ``torchrun``, ``mpirun`` or ``srun`` started.
    ``name``: identifies the meeting among those of one launcher or rendezvous.  Meetings of one name are
        distinguished by their order, which must be the same in all ranks.
    ``timeout``: seconds.
    Raises InvalidValue: this rank or the size is unknown, or the address is impossible; or ``BAD_CONFIG``.
    Raises WaitTimeout: a rank did not come in time.
    Raises AccessDenied: the ranks are on several machines and have no secret, or not the same one; or a callable
        brings them together.
    """
    if isinstance(how, Rendezvous):
        _check_same(call, rank, size, how.rank, how.size)
        return _by_rendezvous(how, name, environ)
    if how is None and environ.get("PEERLANE_RENDEZVOUS") and rank is None:
        rendezvous = Rendezvous.from_environment(environ)
        _check_same(call, rank, size, rendezvous.rank, rendezvous.size)
        return _by_rendezvous(rendezvous, name, environ)
    me = _who(call, rank, size, environ)
    if how is None or isinstance(how, str):
        late = LateRanks(call, me.rank, me.size) if not me.variable else None
        if how is None:
            meeting = _by_launcher(call, me, name, timeout, environ, late)
        else:
            meeting = _by_address(call, me, how, timeout, environ, late)
        meeting.late = late
        return meeting
    if not callable(how):
        raise TypeError(
            f"{call}: rendezvous must be a Rendezvous, an address, a callable or None, not {type(how).__name__}"
        )
    return _by_exchange(call, me, how, environ)


def rendezvous_of_launcher(
    call: str, timeout: float, environ: Mapping[str, str] = os.environ
) -> Rendezvous | None:
    """Return this process's client of the rendezvous that all machines of its launcher's job share.

    It stays open until the process ends.  None: there is no launcher, its variables do not show several machines, or
    there is no secret.

    Raises Error: as :func:`~peerlane.rendezvous.by_machines.rendezvous_of_job`.
    """
    assigned = assignment_of(environ)
    if assigned is None or not assigned.spans:
        return None
    address = environ.get("PEERLANE_RENDEZVOUS")
    if address is None:
        return rendezvous_of_job(call, assigned, timeout, environ) if secret_of(environ) else None
    key = os.getpid(), address, assigned.rank
    with _lock:
        if key not in _of_launchers:
            _of_launchers[key] = Rendezvous.from_environment(environ)
            atexit.register(_of_launchers[key].close)
        return _of_launchers[key]


def _who(call: str, rank: int | None, size: int | None, environ: Mapping[str, str]) -> Assignment:
    for word, value in (("rank", rank), ("size", size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{call}: {word} must be an int or None, not {type(value).__name__}")
    assigned = assignment_of(environ) if rank is None or size is None else None
    if assigned is None and (rank is None or size is None):
        raise InvalidValue(
            f"{call}: neither arguments nor a launcher give this process's rank and size; pass both, or start the "
            "program with `peerlane launch -n N`, torchrun or mpirun",
            fault=Fault.BAD_CONFIG,
            call=call,
            detail=Refused(reason="not_told", rank=rank, size=size),
        )
    own_rank = rank if rank is not None else assigned.rank if assigned else 0
    own_size = size if size is not None else assigned.size if assigned else 0
    if not 1 <= own_size <= 1024 or not 0 <= own_rank < own_size:
        raise InvalidValue(
            f"{call}: rank is {own_rank} of {own_size}; valid are sizes of 1 to 1,024 and ranks from 0",
            call=call,
            detail=Refused(reason="bad_rank", rank=own_rank, size=own_size, most=1024),
        )
    if assigned is None:
        return Assignment(own_rank, own_size, own_rank)
    return replace(assigned, rank=own_rank, size=own_size)


def _check_same(call: str, rank: int | None, size: int | None, has_rank: int, has_size: int) -> None:
    if rank not in (None, has_rank) or size not in (None, has_size):
        raise InvalidValue(
            f"{call}: rank {rank} of {size} was asked for, and the rendezvous is that of rank {has_rank} of "
            f"{has_size}",
            call=call,
            detail=Refused(reason="ranks_differ", rank=rank, size=size, has_rank=has_rank, has_size=has_size),
        )


def _count(*where: str) -> int:
    with _lock:
        _counts[where] += 1
        return _counts[where] - 1


def _take_back(where: tuple[str, ...], number: int) -> None:
    with _lock:
        if _counts[where] == number + 1:
            _counts[where] = number


def _by_rendezvous(rendezvous: Rendezvous, name: str, environ: Mapping[str, str]) -> Meeting:
    assigned = assignment_of(environ)
    return _at_rendezvous(rendezvous, assigned.local_rank if assigned else rendezvous.rank, name)


def _at_rendezvous(rendezvous: Rendezvous, local_rank: int, name: str) -> Meeting:
    where = rendezvous.address, name, str(rendezvous.rank)
    return Meeting(rendezvous, local_rank, _count(*where), owns_rendezvous=False, counted=where)


def _by_exchange(call: str, me: Assignment, exchange: Exchange, environ: Mapping[str, str]) -> Meeting:
    machine = own_machine(environ)
    server = RendezvousServer(me.size) if me.rank == 0 else None
    try:
        messages = exchange(Whereabouts(machine, server.address if server else "").encode())
        if not isinstance(messages, (list, tuple)) or len(messages) != me.size:
            returned = (
                f"{len(messages)} values" if isinstance(messages, (list, tuple)) else type(messages).__name__
            )
            raise InvalidValue(
                f"{call}: exchange returned {returned}, and must return the bytes of all {me.size} ranks, in their "
                "order",
                call=call,
                detail=Refused(reason="wrong_exchange", returned=returned, ranks=me.size),
            )
        all_whereabouts = [
            Whereabouts.decode(call, f"rank {rank}", each, serves=rank == 0)
            for rank, each in enumerate(messages)
        ]
        for rank, whereabouts in enumerate(all_whereabouts):
            if whereabouts.machine != machine:
                raise AccessDenied(
                    f"{call}: rank {rank} is on machine {whereabouts.machine!r}, and this rank on {machine!r}: a "
                    "callable brings the ranks of one machine together; for several pass "
                    "rendezvous='tcp://host:port' to all ranks and set PEERLANE_SECRET",
                    fault=Fault.PEER_UNREACHABLE,
                    call=call,
                    detail=Refused(
                        reason="several_machines", rank=rank, machine=whereabouts.machine, own_machine=machine
                    ),
                )
        return Meeting(Rendezvous(all_whereabouts[0].address, me.rank, me.size), me.local_rank, server=server)
    except BaseException:
        if server:
            server.close()
        raise


def _by_address(
    call: str,
    me: Assignment,
    address: str,
    timeout: float,
    environ: Mapping[str, str],
    late: LateRanks | None,
) -> Meeting:
    host, port = by_tcp.parse(call, address)
    machine, secret = own_machine(environ), secret_of(environ)
    if me.rank != 0:
        return _by_asking(call, me, (host, port), machine, secret, timeout, late)
    # The port of the address is needed again by the next group.
    others = f"{host}:0" if secret else None
    server = with_reason(
        f"{call}: rank 0 cannot serve other machines",
        call,
        lambda: RendezvousServer(me.size, machines=others, secret=secret),
    )
    try:
        whereabouts = Whereabouts(machine, server.address, server.machines[1] if server.machines else 0)
        by_tcp.announce(call, (host, port), me.size, whereabouts, timeout, secret, late)
        return Meeting(Rendezvous(server.address, 0, me.size), me.local_rank, server=server, master=host)
    except BaseException:
        server.close()
        raise


def _by_asking(
    call: str,
    me: Assignment,
    where: tuple[str, int],
    machine: str,
    secret: bytes | None,
    timeout: float,
    late: LateRanks | None,
) -> Meeting:
    ends = time.monotonic() + timeout
    whereabouts = by_tcp.ask(call, where, me.rank, me.size, machine, timeout, secret, late)
    if whereabouts.machine == machine:
        rendezvous = Rendezvous(whereabouts.address, me.rank, me.size)
        return Meeting(rendezvous, me.local_rank, master=where[0], has_rank_0=True)
    if not whereabouts.port or secret is None:
        raise by_tcp.unserved_machine(call, "rank 0", whereabouts.machine, machine)
    left = max(0.1, ends - time.monotonic())
    own = relay(call, where[0], whereabouts.port, secret, left)
    try:
        rendezvous = Rendezvous(own.address, me.rank, me.size)
        return Meeting(rendezvous, me.local_rank, server=own, master=where[0], has_rank_0=True)
    except BaseException:
        own.close()
        raise


def _by_launcher(
    call: str, me: Assignment, name: str, timeout: float, environ: Mapping[str, str], late: LateRanks | None
) -> Meeting:
    if me.spans:
        return _at_rendezvous(rendezvous_of_job(call, me, timeout, environ), me.local_rank, name)
    # MASTER_PORT of these launchers must not be used: torch listens there.
    is_others = environ.get("TORCHELASTIC_RUN_ID") or environ.get("PEERLANE_RENDEZVOUS")
    if me.variable and not is_others and environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        address = f"tcp://{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
        return _by_address(call, me, address, timeout, environ, late)
    machine, where = own_machine(environ), ("", name, str(me.size), str(me.rank))
    number = _count(*where)
    file = by_file.MeetingFile(me.job if any(me.job) else (), f"{name}\0{me.size}\0{number}", me.variable)
    if me.rank != 0:
        try:
            message = file.read(call, timeout, late=late)
        except WaitTimeout:
            _take_back(where, number)
            raise
        rendezvous = Rendezvous(Whereabouts.decode(call, "rank 0", message).address, me.rank, me.size)
        return Meeting(rendezvous, me.local_rank, number, counted=where)
    server = RendezvousServer(me.size)
    try:
        file.write(Whereabouts(machine, server.address).encode())
        rendezvous = Rendezvous(server.address, 0, me.size)
        return Meeting(rendezvous, me.local_rank, number, counted=where, server=server, file=file)
    except BaseException:
        file.close()
        server.close()
        raise

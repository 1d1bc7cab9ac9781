"""How the ranks of a program find each other: by a callable, an address, or a launcher's variables."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from peerlane.errors import BadHandle, Error, Fault, InvalidValue, Refused, Unsupported, WaitTimeout
from peerlane.rendezvous import by_file, by_tcp
from peerlane.rendezvous.client import Rendezvous
from peerlane.rendezvous.server import RendezvousServer

Exchange: TypeAlias = "Callable[[bytes], list[bytes]]"

_MAGIC = b"peerlane rendezvous 1\n"
_LONGEST = 4096
_counts: Counter[tuple[str, ...]] = Counter()  # the number of meetings, by place, name and rank
_lock = threading.Lock()

_LINGER = 5.0  # seconds: other ranks may still need the rendezvous when rank 0 ends
#: By launcher, its variables for (rank, size, ranks on this machine, rank on this machine), and those that identify a
#: job.  MPICH has none of the latter, but its ranks have a common ancestor.
_LAUNCHERS: tuple[tuple[tuple[str, str, str, str], tuple[str, ...]], ...] = (
    (
        ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
    ),
    (
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
        ),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    (("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"), ()),
    (
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"),
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)


@dataclass
class Meeting:
    """A rank's client of a rendezvous, and the server or file to close with it.

    Attributes
    ----------
    line : Rendezvous
    local_rank : int
        This rank's number among those on this machine.
    number : int
        The number of earlier meetings of this name, if the rendezvous serves several.
    counted : tuple of str
        The key that it was counted by; empty if it was not counted.
    is_agreed : bool
        Whether the other ranks may consider the meeting complete.
    """

    line: Rendezvous
    local_rank: int
    number: int = 0
    owns_line: bool = True
    counted: tuple[str, ...] = ()
    is_agreed: bool = False
    server: RendezvousServer | None = None
    place: by_file.MeetingFile | None = None

    def close(self, seconds: float = _LINGER) -> None:
        """Leave; rank 0 serves until the others have left too, at most for ``seconds``."""
        try:
            if self.owns_line:
                self.line.close()
        finally:
            if self.place is not None:
                self.place.close()
            if self.server is not None:
                self.server.linger(seconds)

    def give_up(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Leave because of an error; do not linger after an interrupt.

        If other ranks did not come in time, the meeting is not counted: a new call meets the ranks that come late.
        """
        if isinstance(error, WaitTimeout) and not self.is_agreed and self.counted:
            _take_back(self.counted, self.number)
        self.close(_LINGER if isinstance(error, Error) else 0.0)


@dataclass(frozen=True)
class _Told:
    rank: int
    size: int
    local_rank: int
    job: tuple[str, ...]
    variable: str = ""  # the variable that has the rank


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

    Parameters
    ----------
    call : str
        The name of the public call, for texts.
    rank, size : int, optional
        By default those that the launcher set.
    how : Rendezvous, str, callable or None
        One of these: an open rendezvous; ``"tcp://host:port"``, where rank 0 listens during the call; a callable that
        each rank calls once, with bytes, and that returns the bytes of all ranks, in their order; or None, for ranks
        that ``peerlane launch``, ``torchrun``, ``mpirun`` or ``srun`` started on one machine.
    name : str
        Identifies the meeting among those of one launcher or rendezvous.  Meetings of one name are told apart by
        their order, which must be the same in all ranks.
    timeout : float
        Seconds.

    Raises
    ------
    InvalidValue
        This rank or the size is unknown, or the address is impossible; or ``BAD_CONFIG``.
    WaitTimeout
        A rank did not come in time.
    Unsupported
        The ranks are on several machines.
    """
    if isinstance(how, Rendezvous):
        _check_same(call, rank, size, how.rank, how.size)
        return _by_line(how, name, environ)
    if how is None and environ.get("PEERLANE_RENDEZVOUS") and rank is None:
        line = Rendezvous.from_environment(environ)
        _check_same(call, rank, size, line.rank, line.size)
        return _by_line(line, name, environ)
    me = _who(call, rank, size, environ)
    if how is None:
        return _by_launcher(call, me, name, timeout, environ)
    if isinstance(how, str):
        return _by_address(call, me, how, timeout)
    if not callable(how):
        raise TypeError(
            f"{call}: rendezvous must be a Rendezvous, an address, a callable or None, not {type(how).__name__}"
        )
    return _by_exchange(call, me, how)


def _told(environ: Mapping[str, str], *, needs_all: bool = True) -> _Told | None:
    """Return a launcher's variables for this process, None without a launcher.

    ``needs_all``: all its ranks must be on this machine.  Not so for a group of some of them.
    """
    for (rank, size, local_size, local_rank), job in _LAUNCHERS:
        values = [environ.get(each, "") for each in (rank, size)]
        if not all(value.isascii() and value.isdigit() and len(value) < 8 for value in values):
            continue
        here, local = (environ.get(each, "") for each in (local_size, local_rank))
        if needs_all and here.isdigit() and int(here) != int(values[1]):
            raise Unsupported(
                f"Group: {local_size} is {here} and {size} is {values[1]}: the ranks are on several machines, and a "
                "group is of one",
                detail=Refused(reason="several_machines", size=int(values[1]), local_size=int(here)),
            )
        number = int(local) if local.isdigit() and len(local) < 8 else int(values[0])
        found = tuple(environ.get(each, "") for each in job)
        return _Told(int(values[0]), int(values[1]), number, found, rank)
    return None


def _who(call: str, rank: int | None, size: int | None, environ: Mapping[str, str]) -> _Told:
    for word, value in (("rank", rank), ("size", size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{call}: {word} must be an int or None, not {type(value).__name__}")
    told = _told(environ) if rank is None or size is None else None
    if told is None and (rank is None or size is None):
        raise InvalidValue(
            f"{call}: neither arguments nor a launcher give this process's rank and size; pass both, or start the "
            "program with `peerlane launch -n N`, torchrun or mpirun",
            fault=Fault.BAD_CONFIG,
            call=call,
            detail=Refused(reason="not_told", rank=rank, size=size),
        )
    found_rank = rank if rank is not None else told.rank if told else 0
    found_size = size if size is not None else told.size if told else 0
    if not 1 <= found_size <= 1024 or not 0 <= found_rank < found_size:
        raise InvalidValue(
            f"{call}: rank is {found_rank} of {found_size}; valid are sizes of 1 to 1,024 and ranks from 0",
            call=call,
            detail=Refused(reason="bad_rank", rank=found_rank, size=found_size, most=1024),
        )
    local = told.local_rank if told else found_rank
    return _Told(found_rank, found_size, local, *((told.job, told.variable) if told else ((),)))


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


def _by_line(line: Rendezvous, name: str, environ: Mapping[str, str]) -> Meeting:
    told = _told(environ, needs_all=False)
    where = line.address, name, str(line.rank)
    local_rank = told.local_rank if told else line.rank
    return Meeting(line, local_rank, _count(*where), owns_line=False, counted=where)


def _by_exchange(call: str, me: _Told, exchange: Exchange) -> Meeting:
    server = RendezvousServer(me.size) if me.rank == 0 else None
    try:
        mine = _MAGIC + server.address.encode() if server else b""
        found = exchange(mine)
        if not isinstance(found, (list, tuple)) or len(found) != me.size:
            said = f"{len(found)} values" if isinstance(found, (list, tuple)) else type(found).__name__
            raise InvalidValue(
                f"{call}: exchange returned {said}, and must return the bytes of all {me.size} ranks, in their order",
                call=call,
                detail=Refused(reason="wrong_exchange", returned=said, ranks=me.size),
            )
        return Meeting(Rendezvous(_address(call, found[0]), me.rank, me.size), me.local_rank, server=server)
    except BaseException:
        if server:
            server.close()
        raise


def _by_address(call: str, me: _Told, address: str, timeout: float) -> Meeting:
    host, port = by_tcp.parse(call, address)
    if me.rank != 0:
        found = by_tcp.ask(call, host, port, me.rank, me.size, timeout)
        return Meeting(Rendezvous(_address(call, found), me.rank, me.size), me.local_rank)
    server = RendezvousServer(me.size)
    try:
        by_tcp.tell(call, host, port, me.size, _MAGIC + server.address.encode(), timeout)
        return Meeting(Rendezvous(server.address, 0, me.size), me.local_rank, server=server)
    except BaseException:
        server.close()
        raise


def _by_launcher(call: str, me: _Told, name: str, timeout: float, environ: Mapping[str, str]) -> Meeting:
    # MASTER_PORT of these launchers must not be used: torch listens there.
    is_others = environ.get("TORCHELASTIC_RUN_ID") or environ.get("PEERLANE_RENDEZVOUS")
    if me.variable and not is_others and environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        address = f"tcp://{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
        return _by_address(call, me, address, timeout)
    where = "", name, str(me.size), str(me.rank)
    number = _count(*where)
    place = by_file.MeetingFile(me.job if any(me.job) else (), f"{name}\0{me.size}\0{number}", me.variable)
    if me.rank != 0:
        try:
            found = place.read(call, timeout)
        except WaitTimeout:
            _take_back(where, number)
            raise
        line = Rendezvous(_address(call, found), me.rank, me.size)
        return Meeting(line, me.local_rank, number, counted=where)
    server = RendezvousServer(me.size)
    try:
        place.write(_MAGIC + server.address.encode())
        line = Rendezvous(server.address, 0, me.size)
        return Meeting(line, me.local_rank, number, counted=where, server=server, place=place)
    except BaseException:
        place.close()
        server.close()
        raise


def _address(call: str, found: object) -> str:
    """Return the address in rank 0's message, which may be any bytes."""
    if isinstance(found, (bytes, bytearray)) and bytes(found[: len(_MAGIC)]) == _MAGIC:
        rest = bytes(found[len(_MAGIC) :])
        if 0 < len(rest) <= _LONGEST and b"\0" not in rest:
            return os.fsdecode(rest)
    raise BadHandle(
        f"{call}: rank 0's message is not the address of a rendezvous of this version of peerlane",
        fault=Fault.HANDLE_VERSION,
        call=call,
        detail=Refused(reason="no_address"),
    )

"""The rendezvous of a job whose launcher started ranks on several machines: one for all groups of the job.

Rank 0 serves it.  The first rank of each other machine runs a relay to it.  The others of a machine find their first
rank's socket in a file.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from peerlane.errors import BadArgument, Error, Fault, InvalidValue, Refused
from peerlane.rendezvous.by_file import MeetingFile
from peerlane.rendezvous.client import Rendezvous
from peerlane.rendezvous.launchers import Assignment
from peerlane.rendezvous.relay import RendezvousRelay
from peerlane.rendezvous.server import RendezvousServer, checked_secret
from peerlane.rendezvous.serving import Serving
from peerlane.rendezvous.whereabouts import Whereabouts
from peerlane.support.machine_identity import own_machine

LINGER_SECONDS = 5.0  # other ranks may still need the rendezvous when the process that serves them ends

_T = TypeVar("_T")
_jobs: dict[tuple[object, ...], _Job] = {}
_lock = threading.Lock()


def secret_of(environ: Mapping[str, str]) -> bytes | None:
    """Return the secret that all machines of a job know, None if it has none."""
    secret = environ.get("PEERLANE_SECRET")
    return os.fsencode(secret) if secret else None


def rendezvous_of_job(call: str, me: Assignment, timeout: float, environ: Mapping[str, str]) -> Rendezvous:
    """Return this process's client of its job's rendezvous, which stays open until the process ends.

    Raises InvalidValue: ``BAD_CONFIG``: a variable is missing or impossible; the text names it.
    Raises AccessDenied: there is no secret, or rank 0 has another one.
    Raises BadHandle: what listens on rank 0's machine is not a rendezvous of this version.
    Raises Busy: another process listens at rank 0's port.
    Raises WaitTimeout: rank 0, or the first rank of this machine, did not come in time.
    """
    host, port = _where(call, me, environ)
    secret = checked_secret(call, secret_of(environ))
    machine = own_machine(environ)
    key = os.getpid(), machine, me.rank, me.size, me.job, host, port
    with _lock:
        job = _jobs.get(key)
        if job is None:
            job = _jobs[key] = _Job(call, me, (host, port), secret, machine, timeout)
        return job.rendezvous


class _Job:
    """What a process keeps open for its job: its client, and on a machine's first rank what serves the others."""

    def __init__(
        self, call: str, me: Assignment, where: tuple[str, int], secret: bytes, machine: str, timeout: float
    ) -> None:
        name = f"{machine}\0{me.size}\0{where[0]}\0{where[1]}"
        self._file = MeetingFile(me.job if any(me.job) else (), name, me.variable)
        self._serving: Serving[Any] | None = None
        try:
            if me.local_rank == 0 or me.rank == 0:
                self._serving = _serve(call, me, where, secret, timeout)
                address = self._serving.address
                self._file.write(Whereabouts(machine, address).encode())
            else:
                message = self._file.read(call, timeout, whose="the first rank of this machine")
                address = Whereabouts.decode(call, "the first rank of this machine", message).address
            self.rendezvous = Rendezvous(address, me.rank, me.size)
        except BaseException:
            self._file.close()
            if self._serving is not None:
                self._serving.close()
            raise
        atexit.register(self._close)

    def _close(self) -> None:
        try:
            self.rendezvous.close()
        finally:
            self._file.close()
            if self._serving is not None:
                self._serving.linger(LINGER_SECONDS)


def _serve(call: str, me: Assignment, where: tuple[str, int], secret: bytes, timeout: float) -> Serving[Any]:
    host, port = where
    if me.rank != 0:
        return relay(call, host, port, secret, timeout)
    everywhere = f"{_wildcard(host)}:{port}"
    return with_reason(
        f"{call}: PEERLANE_PORT, the same on all machines, chooses the port",
        call,
        lambda: RendezvousServer(me.size, machines=everywhere, secret=secret),
    )


def relay(call: str, host: str, port: int, secret: bytes, timeout: float) -> RendezvousRelay:
    """Return a relay of this process to rank 0's machine; errors as :class:`RendezvousRelay` has them."""
    return with_reason(
        f"{call}: rank 0 cannot be reached",
        call,
        lambda: RendezvousRelay(f"{host}:{port}", secret=secret, timeout=timeout),
    )


def with_reason(why: str, call: str, make: Callable[[], _T]) -> _T:
    """Return what ``make`` returns; its errors begin with ``why``, and name ``call``."""
    try:
        return make()
    except Error as error:
        renamed = error.retold(f"{why}: {error}")
        renamed.call = call
        raise renamed from None


def _where(call: str, me: Assignment, environ: Mapping[str, str]) -> tuple[str, int]:
    """Return the host and the port of rank 0's machine, by the variables."""
    host, own, of_master = (environ.get(name, "") for name in ("MASTER_ADDR", "PEERLANE_PORT", "MASTER_PORT"))
    missing = [] if host else ["MASTER_ADDR, the address of rank 0's machine"]
    if not own and not of_master:
        missing.append("PEERLANE_PORT, a free port there")
    if not me.local and me.rank != 0:
        missing.append("LOCAL_RANK, each rank's number on its machine")
    if missing:
        raise InvalidValue(
            f"{call}: the ranks are on several machines, and {me.variable} alone does not say where they meet; set "
            f"{' and '.join(missing)}, or start them with `peerlane launch --hosts`",
            fault=Fault.BAD_CONFIG,
            call=call,
            detail=Refused(
                reason="several_machines",
                size=me.size,
                variables=tuple(each.partition(",")[0] for each in missing),
            ),
        )
    name, port, more = ("PEERLANE_PORT", own, 0) if own else ("MASTER_PORT", of_master, 1)
    most = (1 << 16) - 1 - more
    if not (port.isascii() and port.isdigit() and len(port) < 8 and 1 <= int(port) <= most):
        raise InvalidValue(
            f"{call}: {name} is {port[:40]!r}; valid are 1 to {most}",
            fault=Fault.BAD_CONFIG,
            call=call,
            detail=BadArgument(name, port, least=1, most=most),
        )
    return host, int(port) + more


def _wildcard(host: str) -> str:
    """Return all networks of this machine: under some launchers rank 0's address is another one elsewhere."""
    try:
        families = {each[0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return "0.0.0.0"
    return "::" if families == {socket.AF_INET6} else "0.0.0.0"

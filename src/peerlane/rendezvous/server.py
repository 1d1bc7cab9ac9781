"""The server of a rendezvous."""

from __future__ import annotations

import socket
from collections.abc import Callable

from peerlane.errors import AccessDenied, BadArgument, Fault, InvalidValue, Refused
from peerlane.rendezvous.by_tcp import listen
from peerlane.rendezvous.frames import MAX_SIZE
from peerlane.rendezvous.link import LEAST_SECRET
from peerlane.rendezvous.meeting_loop import MeetingLoop
from peerlane.rendezvous.serving import Serving

UNREACHABLE_SECONDS = 10.0
LEAST_UNREACHABLE = 0.5


class RendezvousServer(Serving[MeetingLoop]):
    """Serves a rendezvous of ``size`` ranks until it is closed.

    ``peerlane launch`` has one.  Processes that were started otherwise need ``environment(rank)``, or the address,
    their rank and the size.  The socket lies in the runtime directory; `close` removes it, or the next server does if
    this process is killed.

    Parameters
    ----------
    size : int
        The number of ranks, 1 to 65,536.
    start : bool
        Begin to serve at once.  A process that forks its ranks passes False, forks, and then calls `start`, because a
        fork while threads run is unsafe.  Ranks that come meanwhile wait.
    follow : bool
        Count a rank as lost if its process ends without closing its `Rendezvous`.  If False, only `end_rank` reports
        the end of a rank.
    machines : str, optional
        ``"host:port"``, where a `RendezvousRelay` of another machine connects; port 0 takes a free one.  The host is
        the network that is served, ``"0.0.0.0"`` for all.
    secret : bytes, optional
        What all machines know, at least 16 bytes; needed with ``machines``.
    unreachable : float
        Seconds of silence after which another machine counts as lost, from 0.5.

    Attributes
    ----------
    address : str
        The path of the socket.
    machines : tuple of (str, int), optional
        The host and the port where relays connect.

    Raises
    ------
    TypeError, InvalidValue
        An argument has the wrong type, or is not valid.
    AccessDenied
        The runtime directory is open to other users; or there is no secret, and other machines are to come.
    Busy
        Another process listens at ``machines``.
    OutOfMemory, Error
        ``OUT_OF_RESOURCES``: the socket cannot be made there, or no thread can be started.
    """

    def __init__(
        self,
        size: int,
        *,
        start: bool = True,
        follow: bool = True,
        machines: str | None = None,
        secret: bytes | None = None,
        unreachable: float = UNREACHABLE_SECONDS,
    ) -> None:
        call = "RendezvousServer"
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"{call}: size must be an int, not {type(size).__name__}")
        if not 1 <= size <= MAX_SIZE:
            raise InvalidValue(
                f"{call}: size is {size}; valid are 1 to {MAX_SIZE:,}",
                detail=BadArgument("size", size, least=1, most=MAX_SIZE),
            )
        self.machines: tuple[str, int] | None = None
        listener: socket.socket | None = None
        if machines is not None:
            secret = checked_secret(call, secret)
            unreachable = checked_unreachable(call, unreachable)
            listener = listen(call, *host_and_port(call, "machines", machines))
            self.machines = listener.getsockname()[:2]
        try:
            super().__init__(lambda local: MeetingLoop(local, size, follow=follow))
        except BaseException:
            if listener is not None:
                listener.close()
            raise
        if listener is not None and secret is not None:
            self._loop.listen_for_machines(listener, secret, unreachable)
        if start:
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    def end_rank(self, rank: int, fate: str, *, lost: bool) -> None:
        """Report that the process of a rank has ended; asynchronous.

        Parameters
        ----------
        rank : int
            The rank.
        fate : str
            How it ended, for texts: ``"rank 1 (pid 17) was killed by SIGKILL"``.
        lost : bool
            Whether all waiting calls fail, or only those that wait for this rank.

        Raises
        ------
        InvalidValue
            There is no such rank.
        """
        self._check_rank("RendezvousServer.end_rank", rank)
        meeting = self._loop.meeting
        self._loop.post(lambda: (meeting.lose if lost else meeting.end)(rank, fate))


def serve_relays(server: RendezvousServer, listener: socket.socket, secret: bytes) -> None:
    """Let a server that has not started serve other machines too, at a socket that listens already."""
    server._loop.listen_for_machines(listener, secret, UNREACHABLE_SECONDS)


def serve_launcher(
    server: RendezvousServer,
    show: Callable[[bytes], None],
    lose: Callable[[str, int, int], None],
    end: Callable[[int, bytes], None],
    lose_machine: Callable[[str, str], None],
) -> None:
    """Let a server that has not started serve the ranks of this process, a launcher, which puts no values itself.

    ``show``, ``lose``, ``end``: the serving thread calls them with the ranks' reports, as
        `peerlane.rendezvous.reports.Reports` describes.
    ``lose_machine``: the serving thread calls it with the name of a machine that is lost, and the reason.
    """
    server._loop.on_lost_machine = lose_machine
    server._loop.hangs.is_launcher = True
    reports = server._loop.meeting.reports
    reports.show, reports.lose, reports.end = show, lose, end


def checked_secret(call: str, secret: bytes | None) -> bytes:
    """Return a secret that connections between machines may have; raise TypeError, AccessDenied, or InvalidValue."""
    if secret is None:
        raise AccessDenied(
            f"{call}: other machines need a secret, for anybody can reach a port: set PEERLANE_SECRET to the same "
            f"{LEAST_SECRET} bytes or more on all machines, or let `peerlane launch --hosts` make one",
            fault=Fault.PEER_UNREACHABLE,
            call=call,
            detail=Refused(reason="no_secret", least=LEAST_SECRET),
        )
    if not isinstance(secret, bytes):
        raise TypeError(f"{call}: secret must be bytes, not {type(secret).__name__}")
    if len(secret) < LEAST_SECRET:
        raise InvalidValue(
            f"{call}: the secret has {len(secret)} bytes; {LEAST_SECRET} are the least",
            call=call,
            detail=Refused(reason="short_secret", size=len(secret), least=LEAST_SECRET),
        )
    return secret


def checked_unreachable(call: str, seconds: float) -> float:
    """Return seconds of silence; raise TypeError or InvalidValue."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{call}: unreachable must be a number of seconds, not {type(seconds).__name__}")
    if not LEAST_UNREACHABLE <= seconds < float("inf"):
        raise InvalidValue(
            f"{call}: unreachable is {seconds!r} s; valid are {LEAST_UNREACHABLE:g} s or more",
            call=call,
            detail=BadArgument("unreachable", seconds, least=LEAST_UNREACHABLE, rule="seconds"),
        )
    return seconds


def host_and_port(call: str, name: str, text: str) -> tuple[str, int]:
    """Return the two parts of ``"host:port"``; raise TypeError or InvalidValue."""
    if not isinstance(text, str):
        raise TypeError(f"{call}: {name} must be a str, not {type(text).__name__}")
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InvalidValue(
            f"{call}: {name} is {text[:200]!r}; valid is host:port",
            call=call,
            detail=BadArgument(name, text, rule="host:port"),
        )
    return host.strip("[]"), int(port)

"""The server of a rendezvous: an owner-only Unix socket, served by a thread of its own."""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from peerlane.errors import BadArgument, Closed, Error, Fault, InvalidValue, Refused
from peerlane.rendezvous import peers
from peerlane.rendezvous.frames import MAX_SIZE
from peerlane.rendezvous.loop import Loop
from peerlane.support.runtime_directory import runtime_directory

STALE_SECONDS = 10.0

_numbers = itertools.count()


class RendezvousServer:
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
        Count a rank as lost if its process ends without closing its `Rendezvous`.  If False, only `end_rank` tells
        the end of a rank.

    Attributes
    ----------
    address : str
        The path of the socket.

    Raises
    ------
    TypeError, InvalidValue
        ``size`` is not an int, or not valid.
    AccessDenied
        The runtime directory is open to other users.
    Error
        ``OUT_OF_RESOURCES``: the socket cannot be made there.
    """

    def __init__(self, size: int, *, start: bool = True, follow: bool = True) -> None:
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"RendezvousServer: size must be an int, not {type(size).__name__}")
        if not 1 <= size <= MAX_SIZE:
            raise InvalidValue(
                f"RendezvousServer: size is {size}; valid are 1 to {MAX_SIZE:,}",
                detail=BadArgument("size", size, least=1, most=MAX_SIZE),
            )
        self.size = size
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_closing = False
        self._path = (
            runtime_directory() / f"rendezvous-{self._pid}-{next(_numbers)}-{os.urandom(4).hex()}.sock"
        )
        self.address = str(self._path)
        _remove_stale(self._path.parent)
        self._loop = Loop(_listen(self._path), size, follow=follow)
        atexit.register(self.close)
        if start:
            self.start()

    def start(self) -> None:
        """Begin to serve; idempotent.

        Raises
        ------
        Closed
            The server was closed.
        """
        with self._lock:
            if self._is_closing:
                raise Closed(
                    f"RendezvousServer.start: the rendezvous at {self.address} was closed",
                    detail=Refused(reason="closed", what=repr(self)),
                )
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop.serve, name="peerlane-rendezvous", daemon=True
                )
                self._thread.start()

    def environment(self, rank: int) -> dict[str, str]:
        """Return the variables that ``Rendezvous.from_environment`` reads in the process of a rank.

        Raises
        ------
        InvalidValue
            There is no such rank.
        """
        self._check_rank("RendezvousServer.environment", rank)
        return {
            "PEERLANE_RENDEZVOUS": self.address,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(rank),
        }

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

    def linger(self, seconds: float) -> None:
        """Serve until every rank has left, then close; return at once.

        Parameters
        ----------
        seconds : float
            The most seconds that the end of this process waits for that.
        """
        left = threading.Event()
        if self._is_closing:
            return
        self._loop.post(lambda: self._loop.meeting.when_left(left.set))

        def close_then() -> None:
            left.wait()
            self.close()

        threading.Thread(target=close_then, name="peerlane-rendezvous-end", daemon=True).start()
        atexit.register(_await_end, self._pid, left, seconds)

    def close(self) -> None:
        """Stop serving and remove the socket; waiting calls raise `PeerLost`.  Idempotent.

        In a forked child it does nothing: the server belongs to the parent.
        """
        if self._pid != os.getpid():
            return
        atexit.unregister(self.close)
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            thread = self._thread
        if thread is None:
            self._loop.release()
        else:
            self._loop.end()
            thread.join()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def __enter__(self) -> RendezvousServer:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closing else "serving" if self._thread else "not started"
        return f"<RendezvousServer of {self.size} at {self.address}, {state}>"

    def _check_rank(self, call: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise InvalidValue(
                f"{call}: rank is {rank}; valid are 0 to {self.size - 1}",
                detail=BadArgument("rank", rank, least=0, most=self.size - 1),
            )


def serve_launcher(
    server: RendezvousServer, show: Callable[[bytes], None], lose: Callable[[int, int], None]
) -> None:
    """Let a server that has not started serve the ranks of this process, a launcher, which puts no values itself.

    Parameters
    ----------
    server : RendezvousServer
    show, lose : callable
        The serving thread calls them with the ranks' reports, as `peerlane.rendezvous.reports.Reports` says.
    """
    server._loop.hangs.is_launcher = True
    server._loop.meeting.reports.show, server._loop.meeting.reports.lose = show, lose


def _await_end(pid: int, left: threading.Event, seconds: float) -> None:
    if pid == os.getpid():
        left.wait(seconds)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with peers.reachable(path) as short:
            listener.bind(short)
        path.chmod(0o600)  # before listen(): no process can connect until then
        listener.listen(512)
    except OSError as error:
        listener.close()
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        raise Error(
            f"cannot make the socket of a rendezvous at {path}: {error.strerror}; make room there, or set "
            "PEERLANE_RUNTIME_DIR to another directory",
            fault=Fault.OUT_OF_RESOURCES,
            detail=Refused(reason="no_socket", path=str(path), errno=error.errno),
        ) from error
    return listener


def _remove_stale(directory: Path) -> None:
    """Remove the sockets of servers that were killed."""
    for path in directory.glob("rendezvous-*.sock"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            # A young socket may belong to a server between bind() and listen().
            if stat.S_ISSOCK(status.st_mode) and time.time() - status.st_mtime > STALE_SECONDS:
                with socket.socket(socket.AF_UNIX) as probe, peers.reachable(path) as short:
                    probe.setblocking(False)
                    if probe.connect_ex(short) == errno.ECONNREFUSED:
                        path.unlink()

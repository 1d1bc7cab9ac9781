"""An owner-only Unix socket in the runtime directory, served by a thread of its own."""

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
from typing import Any, Generic, TypeVar

from peerlane.diagnostics.log import event_log
from peerlane.errors import BadArgument, Closed, Error, Fault, InvalidValue, Refused
from peerlane.rendezvous import peers
from peerlane.rendezvous.loop import Loop
from peerlane.support.runtime_directory import existing_runtime_directory, runtime_directory
from peerlane.support.system_limits import no_thread, of_system

STALE_SECONDS = 10.0

_Loop = TypeVar("_Loop", bound=Loop)
_Self = TypeVar("_Self", bound="Serving[Any]")
_numbers = itertools.count()


class Serving(Generic[_Loop]):
    """Serves the ranks of this machine until it is closed.

    ``make_loop``: makes the loop that serves a listening socket.
    Raises AccessDenied: the runtime directory is open to other users.
    Raises OutOfMemory, Error: ``OUT_OF_RESOURCES``: the socket cannot be made there.
    """

    def __init__(self, make_loop: Callable[[socket.socket], _Loop]) -> None:
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_closing = False
        self._left: threading.Event | None = None  # once it lingers
        self._patience = 0.0
        self._path = (
            runtime_directory() / f"rendezvous-{self._pid}-{next(_numbers)}-{os.urandom(4).hex()}.sock"
        )
        self.address = str(self._path)  #: the path of the socket
        _remove_stale(self._path.parent)
        listener = _listen(self._path)
        try:
            self._loop = make_loop(listener)
        except OSError as error:
            listener.close()
            self._path.unlink(missing_ok=True)
            raise _no_socket(self._path, error) from error
        self.size = self._loop.size
        atexit.register(self._end)

    def start(self) -> None:
        """Begin to serve; idempotent.

        Raises Closed: it was closed.
        Raises OutOfMemory: ``OUT_OF_RESOURCES``: no thread can be started; it may be tried again, or closed.
        """
        with self._lock:
            if self._is_closing:
                raise Closed(
                    f"{type(self).__name__}.start: the rendezvous at {self.address} was closed",
                    detail=Refused(reason="closed", what=repr(self)),
                )
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="peerlane-rendezvous", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise no_thread(f"{type(self).__name__}.start") from error
                self._thread = thread

    def _serve(self) -> None:
        with event_log.quiet():  # the calls of the ranks log their messages
            self._loop.serve()

    def environment(self, rank: int, local_rank: int | None = None) -> dict[str, str]:
        """Return the variables that ``Rendezvous.from_environment`` reads in the process of a rank.

        ``local_rank``: its number among those on this machine; ``rank`` by default.
        Raises InvalidValue: there is no such rank.
        """
        self._check_rank(f"{type(self).__name__}.environment", rank)
        return variables_of_rank(self.address, rank, self.size, rank if local_rank is None else local_rank)

    def linger(self, seconds: float) -> None:
        """Serve until every rank, or every process of a relay's machine, has left, then close; return at once.

        ``seconds``: the most seconds that the end of this process waits for that.
        """
        if self._is_closing or self._left is not None:
            return
        left, self._patience = threading.Event(), seconds
        self._left = left
        self._loop.post(lambda: self._loop.when_left(left.set))

        def close_then() -> None:
            left.wait()
            self.close()

        with contextlib.suppress(RuntimeError):  # no thread is left: the end of the process waits and closes
            threading.Thread(target=close_then, name="peerlane-rendezvous-end", daemon=True).start()

    def _end(self) -> None:
        if self._left is not None and self._pid == os.getpid():
            self._left.wait(self._patience)
        self.close()

    def close(self) -> None:
        """Stop serving and remove the socket; waiting calls raise `PeerLost`.  Idempotent.

        In a forked child it does nothing: it belongs to the parent.
        """
        if self._pid != os.getpid():
            return
        atexit.unregister(self._end)
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

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closing else "serving" if self._thread else "not started"
        return f"<{type(self).__name__} of {self.size} at {self.address}, {state}>"

    def _check_rank(self, call: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise InvalidValue(
                f"{call}: rank is {rank}; valid are 0 to {self.size - 1}",
                detail=BadArgument("rank", rank, least=0, most=self.size - 1),
            )


def variables_of_rank(address: str, rank: int, size: int, local_rank: int) -> dict[str, str]:
    """Return the variables by which the process of a rank finds its rendezvous."""
    return {
        "PEERLANE_RENDEZVOUS": address,
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local_rank),
    }


def _listen(path: Path) -> socket.socket:
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise _no_socket(path, error) from error
    try:
        with peers.reachable(path) as short:
            listener.bind(short)
        path.chmod(0o600)  # before listen(): no process can connect until then
        listener.listen(512)
    except OSError as error:
        listener.close()
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        raise _no_socket(path, error) from error
    return listener


def _no_socket(path: Path, error: OSError) -> Error:
    kind, remedy = of_system(error)
    return kind(
        f"cannot make the socket of a rendezvous at {path}: {error.strerror}; {remedy}",
        fault=Fault.OUT_OF_RESOURCES,
        detail=Refused(reason="no_socket", path=str(path), errno=error.errno),
    )


def remove_sockets_of(pid: int) -> None:
    """Remove the sockets of the servers of a process that was killed."""
    directory = existing_runtime_directory()
    for path in directory.glob(f"rendezvous-{pid}-*.sock") if directory is not None else ():
        with contextlib.suppress(OSError):
            path.unlink()


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

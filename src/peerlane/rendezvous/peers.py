"""The process at the other end of a Unix socket."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_CREDENTIALS = struct.Struct("=iII")
_SO_PEERPIDFD = 77  # since Linux 6.5; Python has no name for it


def credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the uid of the peer, as they were when it connected or listened.

    The pid is 0 if the peer is in a pid namespace that cannot be seen from here.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return pid, uid


def open_pidfd(connection: socket.socket, pid: int) -> int:
    """Return a descriptor that is readable once the peer has ended.

    Raises ProcessLookupError: the peer has ended already.
    """
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except ProcessLookupError:
        raise
    except OSError:  # an older kernel; there is a small risk that another process has the pid by now
        return os.pidfd_open(pid)


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield a name for ``path`` that fits into a socket's address, which has room for 107 bytes only.

    Raises OSError: its directory cannot be opened.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)

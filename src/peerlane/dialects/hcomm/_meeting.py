"""How the ranks of a communicator find one another, by root info or at an address that they are told."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

from peerlane import Device, Group
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._enums import CONSTANTS
from peerlane.dialects.hcomm._settings import Settings
from peerlane.rendezvous import Rendezvous, RendezvousServer
from peerlane.rendezvous.by_file import MeetingFile

_HEAD = struct.Struct("<12sI16s")  # magic, version, token
_MAGIC = b"peerlanehccl"
_VERSION = 1
_BYTES = CONSTANTS["HCCL_ROOT_INFO_BYTES"]
_LINGER = 5.0
End: TypeAlias = "Callable[[bool], None]"

#: By token: the process that made a root info.  By digest: how often a meeting was made.
_roots: dict[bytes, int] = {}
_used: dict[str, int] = {}
_taken: set[tuple[bytes, int]] = set()
_servers: dict[str, tuple[RendezvousServer, MeetingFile]] = {}
_lock = threading.Lock()


def new_root_info() -> bytes:
    """Return 4,108 bytes by which ranks find this process."""
    token = os.urandom(16)
    with _lock:
        _roots[token] = os.getpid()
    return _HEAD.pack(_MAGIC, _VERSION, token).ljust(_BYTES, b"\0")


def token_in(info: bytes) -> bytes:
    """Return the token of a root info: HCCL_E_PARA for other bytes."""
    remedy = "pass the bytes that HcclGetRootInfo returned in the root, unchanged"
    if len(info) != _BYTES:
        raise Refusal(PARA, f"the root info has {len(info):,} bytes, and must have {_BYTES:,}", remedy)
    magic, version, token = _HEAD.unpack_from(info)
    if magic != _MAGIC or info[_HEAD.size :].strip(b"\0"):
        raise Refusal(PARA, "these bytes are not a root info of peerlane", remedy)
    if version != _VERSION:
        raise Refusal(
            PARA,
            f"the root info is of version {version}, this process makes version {_VERSION}",
            "use one version of peerlane in all ranks",
        )
    assert isinstance(token, bytes)
    return token


def is_root(token: bytes) -> bool:
    """Tell whether this process made the root info."""
    return _roots.get(token) == os.getpid()


@contextlib.contextmanager
def using(token: bytes, rank: int) -> Iterator[None]:
    """Take the place of a rank, which exists once: HCCL_E_PARA; an error inside the block frees it again."""
    with _lock:
        if (token, rank) in _taken:
            raise Refusal(
                PARA,
                f"rank {rank} of this root info has been used in this process",
                "call HcclGetRootInfo for each communicator, and give each rank once",
            )
        _taken.add((token, rank))
    try:
        yield
    except BaseException:
        with _lock:
            _taken.discard((token, rank))
        raise


def next_use(digest: str) -> int:
    """Count what ranks of a communicator make together: all make it in one order."""
    with _lock:
        _used[digest] = _used.get(digest, 0) + 1
        return _used[digest]


def take_back(digest: str, use: int) -> None:
    """Forget a use that came to nothing."""
    with _lock:
        if _used.get(digest) == use:
            _used[digest] = use - 1


class Meeting:
    """A rank's end of the rendezvous of a communicator, and of the group that is made over it.

    Attributes
    ----------
    key : str
        The same in all ranks, and no other communicator's.
    line : Rendezvous
    group : Group
    """

    def __init__(self, key: str, line: Rendezvous, group: Group, end: End) -> None:
        self.key, self.line, self.group, self._end = key, line, group, end

    def close(self) -> None:
        """Leave; the process that serves goes on until the others have left."""
        try:
            self.line.close()
        finally:
            self._end(True)


def by_place(
    call: str, key: str, rank: int, size: int, device: Device, settings: Settings, *, hosts: bool
) -> Meeting:
    """Meet where a key says: one process hosts, the others look there.

    Parameters
    ----------
    call : str
        For texts.
    key : str
        The same in all ranks, and of no other communicator.
    rank, size : int
    device : Device
    settings : Settings
    hosts : bool
        Whether this process serves; the first of its ranks that comes does.
    """
    place = MeetingFile([key], "hccl")
    end: End = nothing
    if hosts:
        address, end = _served(key, place, size)
    else:
        address = os.fsdecode(place.read(call, settings.connect_timeout))
    return meet(address, rank, size, key, device, settings, end)


def nothing(_met: bool) -> None:
    """Do nothing: this rank does not serve."""


def meet(
    address: str, rank: int, size: int, key: str, device: Device, settings: Settings, end: End = nothing
) -> Meeting:
    """Meet at an address; ``end`` is called when this rank leaves, with whether all had met."""
    with contextlib.ExitStack() as undo:
        undo.callback(end, False)
        line = Rendezvous(address, rank, size)
        undo.callback(line.close)
        group = Group(
            rank,
            size,
            rendezvous=line,
            device=device,
            window=1,
            notifies=settings.notifies,
            wait_timeout=settings.exec_timeout,
            name=f"hccl-{key[:48]}",
            timeout=settings.connect_timeout,
        )
        undo.pop_all()
    return Meeting(key, line, group, end)


def serve(size: int) -> tuple[RendezvousServer, End]:
    """Serve a rendezvous; return it, and the function that ends it."""
    server = RendezvousServer(size)
    return server, lambda met: _stop(server, met)


def _stop(server: RendezvousServer, met: bool) -> None:
    """Serve until all have left if all have met; else let the waiting ranks fail at once."""
    if met:
        server.linger(_LINGER)
    else:
        server.close()


def _served(key: str, place: MeetingFile, size: int) -> tuple[str, End]:
    """Serve in this process, once for all of its ranks."""
    with _lock:
        found = _servers.get(key)
        if found is not None:
            return found[0].address, nothing
        server = RendezvousServer(size)
        try:
            place.write(os.fsencode(server.address))
        except BaseException:
            server.close()
            raise
        _servers[key] = server, place

    def end(met: bool) -> None:
        with _lock:
            _servers.pop(key, None)
        place.close()
        _stop(server, met)

    return server.address, end


def digest_of(content: bytes) -> str:
    """Return a hash of bytes."""
    return hashlib.sha256(content).hexdigest()[:32]


def forget() -> None:
    """Be as in a new process."""
    with _lock:
        _roots.clear()
        _used.clear()
        _taken.clear()

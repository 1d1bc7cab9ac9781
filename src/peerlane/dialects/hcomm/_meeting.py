"""How the ranks of a communicator find one another, by root info or at an address that they are told."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from peerlane import Device, Group
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._enums import CONSTANTS
from peerlane.dialects.hcomm._places import Door, Place, door, place_of, reached
from peerlane.dialects.hcomm._settings import Settings
from peerlane.rendezvous import Rendezvous, RendezvousRelay, RendezvousServer
from peerlane.rendezvous.by_file import MeetingFile
from peerlane.support.machine_identity import own_machine

_HEAD = struct.Struct("<12sI16sI")  # magic, version, token, bytes that follow
_MAGIC = b"peerlanehccl"
_VERSION = 2
_BYTES = CONSTANTS["HCCL_ROOT_INFO_BYTES"]
_LINGER = 5.0
End: TypeAlias = "Callable[[bool], None]"

#: By token: the process that made a root info, and its port for other machines.  By digest: how often a meeting was
#: made.
_roots: dict[bytes, tuple[int, Door | None]] = {}
_used: dict[str, int] = {}
_taken: set[tuple[bytes, int]] = set()
_servers: dict[bytes, tuple[RendezvousServer, MeetingFile]] = {}
_lock = threading.Lock()


class RootInfo(NamedTuple):
    """What a root info says.

    Attributes
    ----------
    token : bytes
        The same in all ranks, and no other root info's.
    place : Place
        Where the root is; nobody serves it yet.
    """

    token: bytes
    place: Place


def new_root_info() -> bytes:
    """Return 4,108 bytes by which ranks find this process, from other machines too if its address is known."""
    token, by = os.urandom(16), door("HcclGetRootInfo")
    outside = (by.host, by.port, by.secret.hex()) if by is not None else ("", 0, "")
    said = Place(own_machine(), "", *outside).encode()
    with _lock:
        _roots[token] = os.getpid(), by
    return (_HEAD.pack(_MAGIC, _VERSION, token, len(said)) + said).ljust(_BYTES, b"\0")


def root_info(info: bytes) -> RootInfo:
    """Return what a root info says: HCCL_E_PARA for other bytes."""
    remedy = "pass the bytes that HcclGetRootInfo returned in the root, unchanged"
    if len(info) != _BYTES:
        raise Refusal(PARA, f"the root info has {len(info):,} bytes, and must have {_BYTES:,}", remedy)
    magic, version, token, length = _HEAD.unpack_from(info)
    if magic == _MAGIC and version != _VERSION:
        raise Refusal(
            PARA,
            f"the root info is of version {version}, this process makes version {_VERSION}",
            "use one version of peerlane in all ranks",
        )
    said, rest = info[_HEAD.size :][:length], info[_HEAD.size :][length:]
    place = Place.decode(said)
    if magic != _MAGIC or place is None or rest.strip(b"\0"):
        raise Refusal(PARA, "these bytes are not a root info of peerlane", remedy)
    assert isinstance(token, bytes)
    return RootInfo(token, place)


def is_root(token: bytes) -> bool:
    """Tell whether this process made the root info."""
    return _roots.get(token, (0, None))[0] == os.getpid()


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


def by_root_info(
    call: str, info: RootInfo, rank: int, size: int, device: Device, settings: Settings
) -> Meeting:
    """Meet where a root info says: the root's process serves, once for all of its ranks; the others look there."""
    key, place = info.token.hex(), info.place
    end: End = nothing
    file = MeetingFile([key], "hccl")
    if is_root(info.token):
        path, end = _served(info.token, file, size)
        place = place._replace(path=path)
    elif place.machine == own_machine():
        place = place._replace(path=os.fsdecode(file.read(call, settings.connect_timeout)))
    return meet(call, place, rank, size, key, device, settings, end)


def nothing(_met: bool) -> None:
    """Do nothing: this rank does not serve."""


def meet(
    call: str,
    place: Place,
    rank: int,
    size: int,
    key: str,
    device: Device,
    settings: Settings,
    end: End = nothing,
) -> Meeting:
    """Meet at a place; ``end`` is called when this rank leaves, with whether all had met.

    ``key``: the same in all ranks, and no other communicator's.
    """
    with contextlib.ExitStack() as undo:
        undo.callback(lambda: end(False))
        line, relay = reached(call, place, rank, size, settings.connect_timeout)
        if relay is not None:
            undo.callback(relay.close)
            end = partial(_stop, relay)
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


def serve(call: str, size: int, *, spans: bool) -> tuple[RendezvousServer, Place, End]:
    """Serve a rendezvous, to other machines too if ``spans``; return it, its place, and the function that ends it."""
    by = door(call) if spans else None
    server = RendezvousServer(size) if by is None else by.serve(size)
    return server, place_of(server, by), partial(_stop, server)


def _stop(server: RendezvousServer | RendezvousRelay, met: bool) -> None:
    """Serve until all have left if all have met; else let the waiting ranks fail at once."""
    if met:
        server.linger(_LINGER)
    else:
        server.close()


def _served(token: bytes, file: MeetingFile, size: int) -> tuple[str, End]:
    """Serve in this process, once for all of its ranks; return the path of the socket."""
    with _lock:
        found = _servers.get(token)
        if found is not None:
            return found[0].address, nothing
        by = _roots[token][1]
        server = RendezvousServer(size) if by is None else by.serve(size)
        try:
            file.write(os.fsencode(server.address))
        except BaseException:
            server.close()
            raise
        _servers[token] = server, file

    def end(met: bool) -> None:
        with _lock:
            _servers.pop(token, None)
        file.close()
        _stop(server, met)

    return server.address, end


def digest_of(content: bytes) -> str:
    """Return a hash of bytes."""
    return hashlib.sha256(content).hexdigest()[:32]


def forget() -> None:
    """Be as in a new process."""
    with _lock:
        for _, by in _roots.values():
            if by is not None:
                by.close()
        _roots.clear()
        _used.clear()
        _taken.clear()

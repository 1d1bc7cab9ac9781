"""How the ranks of a communicator meet: at the address in a root info, or at one that another rank has sent."""

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
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._header import CONSTANTS
from peerlane.dialects.hcomm._rendezvous import (
    RelayPort,
    RendezvousAddress,
    address_of,
    client_of,
    relay_port,
)
from peerlane.dialects.hcomm._settings import Settings
from peerlane.rendezvous import Rendezvous, RendezvousRelay, RendezvousServer
from peerlane.rendezvous.by_file import MeetingFile
from peerlane.support.machine_identity import own_machine

_HEAD = struct.Struct("<12sI16sI")  # magic, version, token, bytes that follow
_MAGIC = b"peerlanehccl"
_VERSION = 2
_BYTES = CONSTANTS["HCCL_ROOT_INFO_BYTES"]
_LINGER = 5.0
#: Ends the serving of a rendezvous; takes whether all ranks have met.
End: TypeAlias = "Callable[[bool], None]"

#: By token of a root info: its process, and the port for relays.  By digest: how many meetings were begun.
_roots: dict[bytes, tuple[int, RelayPort | None]] = {}
_used: dict[str, int] = {}
_taken: set[tuple[bytes, int]] = set()
_servers: dict[bytes, tuple[RendezvousServer, MeetingFile]] = {}
_lock = threading.Lock()


class RootInfo(NamedTuple):
    """The contents of a root info."""

    token: bytes  #: the same in all ranks; no other root info has it
    #: The machine and port of the root, without a socket: the root does not serve yet.
    address: RendezvousAddress


def new_root_info() -> bytes:
    """Return 4,108 bytes by which ranks find this process, from other machines too if its address is known."""
    token, port = os.urandom(16), relay_port("HcclGetRootInfo")
    outside = (port.host, port.port, port.secret.hex()) if port is not None else ("", 0, "")
    address = RendezvousAddress(own_machine(), "", *outside).encode()
    with _lock:
        _roots[token] = os.getpid(), port
    return (_HEAD.pack(_MAGIC, _VERSION, token, len(address)) + address).ljust(_BYTES, b"\0")


def root_info(info: bytes) -> RootInfo:
    """Return the contents of a root info: HCCL_E_PARA for other bytes."""
    remedy = "pass the bytes that HcclGetRootInfo returned in the root, unchanged"
    if len(info) != _BYTES:
        raise PARA.refusal(f"the root info has {len(info):,} bytes, and must have {_BYTES:,}", remedy)
    magic, version, token, length = _HEAD.unpack_from(info)
    if magic == _MAGIC and version != _VERSION:
        raise PARA.refusal(
            f"the root info is of version {version}, this process makes version {_VERSION}",
            "use one version of peerlane in all ranks",
        )
    encoded, rest = info[_HEAD.size :][:length], info[_HEAD.size :][length:]
    address = RendezvousAddress.decode(encoded)
    if magic != _MAGIC or address is None or rest.strip(b"\0"):
        raise PARA.refusal("these bytes are not a root info of peerlane", remedy)
    assert isinstance(token, bytes)
    return RootInfo(token, address)


def is_root(token: bytes) -> bool:
    """Tell whether this process made the root info."""
    return _roots.get(token, (0, None))[0] == os.getpid()


@contextlib.contextmanager
def using(token: bytes, rank: int) -> Iterator[None]:
    """Reserve a rank of a root info: HCCL_E_PARA if it is taken; an error inside the block frees it again."""
    with _lock:
        if (token, rank) in _taken:
            raise PARA.refusal(
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
    """Return the number of a common act of the ranks of a communicator: all of them act in one order."""
    with _lock:
        _used[digest] = _used.get(digest, 0) + 1
        return _used[digest]


def take_back(digest: str, use: int) -> None:
    """Forget the number of an act that failed."""
    with _lock:
        if _used.get(digest) == use:
            _used[digest] = use - 1


class Meeting:
    """A rank's end of the rendezvous of a communicator, and its group."""

    def __init__(self, key: str, rendezvous: Rendezvous, group: Group, end: End) -> None:
        #: ``key``: the same in all ranks; no other communicator has it.
        self.key, self.rendezvous, self.group, self._end = key, rendezvous, group, end

    def close(self) -> None:
        """Leave; the serving process goes on until the others have left."""
        try:
            self.rendezvous.close()
        finally:
            self._end(True)


def by_root_info(
    call: str, info: RootInfo, rank: int, size: int, device: Device, settings: Settings
) -> Meeting:
    """Meet by a root info: the root's process serves, once for all of its ranks, and the others connect to it."""
    key, address = info.token.hex(), info.address
    end: End = nothing
    file = MeetingFile([key], "hccl")
    if is_root(info.token):
        path, end = _served(info.token, file, size)
        address = address._replace(path=path)
    elif address.machine == own_machine():
        address = address._replace(path=os.fsdecode(file.read(call, settings.connect_timeout)))
    return meet(call, address, rank, size, key, device, settings, end)


def nothing(_met: bool) -> None:
    """Do nothing: this rank does not serve."""


def meet(
    call: str,
    address: RendezvousAddress,
    rank: int,
    size: int,
    key: str,
    device: Device,
    settings: Settings,
    end: End = nothing,
) -> Meeting:
    """Meet at an address; ``end(met)`` is called when this rank leaves, ``met`` being whether all had come.

    ``key``: the same in all ranks; no other communicator has it.
    """
    with contextlib.ExitStack() as undo:
        undo.callback(lambda: end(False))
        rendezvous, relay = client_of(call, address, rank, size, settings.connect_timeout)
        if relay is not None:
            undo.callback(relay.close)
            end = partial(_stop, relay)
        undo.callback(rendezvous.close)
        group = Group(
            rank,
            size,
            rendezvous=rendezvous,
            device=device,
            window=1,
            notifies=settings.notifies,
            wait_timeout=settings.exec_timeout,
            name=f"hccl-{key[:48]}",
            timeout=settings.connect_timeout,
        )
        undo.pop_all()
    return Meeting(key, rendezvous, group, end)


def serve(call: str, size: int, *, spans: bool) -> tuple[RendezvousServer, RendezvousAddress, End]:
    """Serve a rendezvous, to other machines too if ``spans``; return it, its address, and its :data:`End`."""
    port = relay_port(call) if spans else None
    server = RendezvousServer(size) if port is None else port.serve(size)
    return server, address_of(server, port), partial(_stop, server)


def _stop(server: RendezvousServer | RendezvousRelay, met: bool) -> None:
    """Serve until all have left if all have met; else let the waiting ranks fail at once."""
    if met:
        server.linger(_LINGER)
    else:
        server.close()


def _served(token: bytes, file: MeetingFile, size: int) -> tuple[str, End]:
    """Serve in this process, once for all of its ranks; return the path of the socket."""
    with _lock:
        serving = _servers.get(token)
        if serving is not None:
            return serving[0].address, nothing
        port = _roots[token][1]
        server = RendezvousServer(size) if port is None else port.serve(size)
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
    """Forget all root infos and meetings, as a new process has none."""
    with _lock:
        for _, port in _roots.values():
            if port is not None:
                port.close()
        _roots.clear()
        _used.clear()
        _taken.clear()

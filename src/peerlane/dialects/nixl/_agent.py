"""``nixlAgent``: the vendor's native agent, under ``nixl_agent`` (facts/nixl 4 to 8)."""

from __future__ import annotations

import itertools
import operator
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from peerlane import devices
from peerlane.diagnostics import call_site, live_objects
from peerlane.diagnostics.live_objects import LiveObject
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.moves import Moves, Streams
from peerlane.dialects.nixl import _listener
from peerlane.dialects.nixl._board import OwnBoard, Past, log_received, log_sent, logged
from peerlane.dialects.nixl._descs import _List, nixlRegDList, nixlRemoteDList, nixlXferDList
from peerlane.dialects.nixl._files import FileMoves, FileRegion, path_of
from peerlane.dialects.nixl._metadata import Metadata, Row, decode, encode
from peerlane.dialects.nixl._peers import Peer, Self, local_agents
from peerlane.dialects.nixl._plugins import (
    PLUGINS,
    check_notifies,
    in_order,
    moves,
    plugin_of,
    settings_of,
    takes,
)
from peerlane.dialects.nixl._regions import WHOLE, OwnRegion, Region, Regions, check_memory, is_strict
from peerlane.dialects.nixl._status import (
    DEFAULT_COMM_PORT,
    NIXL_INIT_AGENT,
    checked,
    nixl_mem_t,
    nixl_status_t,
    nixl_thread_sync_t,
    nixl_xfer_op_t,
    nixlBackendError,
    nixlInvalidParamError,
    nixlNotAllowedError,
    nixlNoTelemetryError,
    nixlNotFoundError,
    nixlNotPostedError,
    nixlNotSupportedError,
)
from peerlane.dialects.nixl._transfers import Request, device_of, memory_moves

_numbers = itertools.count(
    0x1000, 0x10
)  # one counter for all agents: a handle of another agent is recognised
_YES = ("y", "yes", "on", "1", "true", "enable")
#: After so many calls without a notification a call sleeps for so many seconds: a sender may need the processor.  The
#: calls last longer than a transfer of 16 MiB, else two programs that answer each other would sleep by turns.
_IDLE, _REST = 5000, 5e-5


class nixlAgentConfig:
    """The configuration of an agent."""

    __slots__ = (
        "captureTelemetry",
        "etcdWatchTimeout",
        "listenPort",
        "lthrDelay",
        "pthrDelay",
        "syncMode",
        "useListenThread",
        "useProgThread",
    )

    def __init__(
        self,
        useProgThread: bool = False,
        useListenThread: bool = False,
        listenPort: int = DEFAULT_COMM_PORT,
        syncMode: nixl_thread_sync_t = nixl_thread_sync_t.NIXL_THREAD_SYNC_NONE,
        pthrDelay: int = 0,
        lthrDelay: int = 100_000,
        captureTelemetry: bool = False,
    ) -> None:
        self.useProgThread, self.useListenThread, self.listenPort = useProgThread, useListenThread, listenPort
        self.syncMode, self.pthrDelay, self.lthrDelay = syncMode, pthrDelay, lthrDelay
        self.captureTelemetry = captureTelemetry
        self.etcdWatchTimeout = timedelta(seconds=5)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("listenPort", "pthrDelay", "lthrDelay"):
            if not hasattr(type(value), "__index__"):
                checked("nixlAgentConfig", name, value, int)
            value = operator.index(value)
            if not 0 <= value < 1 << 64:
                raise TypeError(f"nixlAgentConfig: {name} is 0 or more, not {value}")
        elif name in ("captureTelemetry", "useListenThread", "useProgThread"):
            if value is not None and not hasattr(type(value), "__bool__"):  # a list, say, or a str
                checked("nixlAgentConfig", name, value, bool)
            value = bool(value)
        elif name == "syncMode":
            checked("nixlAgentConfig", name, value, nixl_thread_sync_t)
        elif name == "etcdWatchTimeout":
            if isinstance(value, float):
                value = timedelta(seconds=value)
            checked("nixlAgentConfig", name, value, timedelta)
        object.__setattr__(self, name, value)


class nixlXferTelemetry:
    """Times of a transfer in microseconds, its bytes, and its descriptors after merging."""

    __slots__ = ("backendName", "descCount", "postDuration", "startTime", "totalBytes", "xferDuration")

    def __init__(self) -> None:
        self.startTime = self.postDuration = self.xferDuration = self.totalBytes = self.descCount = 0
        self.backendName = ""


class _Prepared:
    """A checked descriptor list, of this agent (``peer`` None) or of a peer; ``rows``: by back-end."""

    def __init__(
        self, peer: Peer | None, mem: nixl_mem_t, rows: dict[str, list[tuple[int, int, Region]]]
    ) -> None:
        self.peer, self.mem, self.rows = peer, mem, rows


class _Resources:
    """The resources of an agent, which end with it."""

    def __init__(self) -> None:
        self.board = OwnBoard()
        self.regions: Regions[OwnRegion] = Regions()
        self.peers: dict[str, Peer] = {}
        self.requests: dict[int, Request] = {}
        self.streams = Streams()
        self.listener: _listener.Listener | None = None
        self.pid, self.is_closed = os.getpid(), False

    def close(self) -> None:
        """End all of them."""
        self.is_closed = True
        if os.getpid() != self.pid:  # the child of a fork owns none of them
            return
        if self.listener is not None:
            self.listener.close()
        for request in self.requests.values():
            request.release()
        self.requests.clear()
        for peer in self.peers.values():
            peer.remove()
        for region in self.regions:
            region.end()
            self.board.end(region.slot)
        self.board.close()


def _text(call: str, name: str, value: Any) -> str:
    return _bytes(call, name, value).decode(errors="surrogateescape")


def _flag(call: str, name: str, value: Any) -> bool:
    """Return whether a flag is set; as the vendor's bindings, take None and numbers, too."""
    if isinstance(value, np.ndarray) or not (value is None or hasattr(type(value), "__bool__")):
        checked(call, name, value, bool)
    return bool(value)


def _bytes(call: str, name: str, value: Any) -> bytes:
    checked(call, name, value, str, bytes, bytearray)
    try:
        return value.encode() if isinstance(value, str) else bytes(value)
    except UnicodeEncodeError as error:
        raise TypeError(f"{call}: {name} is no text of Unicode ({value!r:.60})") from error


class nixlAgent:
    """An agent: what it has registered, the agents that it knows, its transfers and notifications.

    Raises ValueError: the name is empty.
    """

    def __init__(self, name: str, config: nixlAgentConfig) -> None:
        name = _text("nixlAgent", "the name", name)
        _bytes("nixlAgent", "the name", name)  # refuses a name that metadata cannot have
        checked("nixlAgent", "the configuration", config, nixlAgentConfig)
        if not name:
            raise ValueError("an agent needs a non-empty name; pass one that the other agents do not have")
        self.name = name
        self._lock = threading.RLock()
        self._inbox: dict[str, list[bytes]] = {}
        self._paths: set[int] = set()  # the numbers of registered paths
        self._idle = 0  # calls in a row without a notification
        self._backends: dict[int, str] = {}
        self._params: dict[int, dict[str, str]] = {}
        self._settings: dict[str, dict[str, Any]] = {}  # what the parameters say, by plugin
        self._prepared: dict[int, _Prepared] = {}
        chosen = os.environ.get("NIXL_TELEMETRY_ENABLE")
        self._telemetry = config.captureTelemetry if chosen is None else chosen.lower() in _YES
        self._own = _Resources()
        self.board, self.regions, self._peers = self._own.board, self._own.regions, self._own.peers
        self._requests = self._own.requests
        weakref.finalize(self, self._own.close).atexit = False
        local_agents[self.board.ident] = self
        self._self: Self | None = None
        self._has_registered = self._has_notifications = False
        self.is_charged = True
        if config.useListenThread:
            self._own.listener = _listener.Listener(config.listenPort, weakref.ref(self))

    @property
    def port(self) -> int:
        """The port of the listening thread; 0 without one."""
        return 0 if self._own.listener is None else self._own.listener.port

    # Back-ends.

    @property
    def backend_names(self) -> set[str]:
        """The back-ends that were created."""
        return set(self._backends.values())

    def getAvailPlugins(self) -> list[str]:
        """Return the names of the plugins."""
        return sorted(PLUGINS)

    def getPluginParams(self, plugin: str) -> tuple[dict[str, str], list[str]]:
        """Return a plugin's parameters with their defaults, and its kinds of memory."""
        record = plugin_of(_text("getPluginParams", "the plugin", plugin))
        return dict(record.params), [mem.name for mem in record.mems]

    def createBackend(self, plugin: str, params: Mapping[str, str]) -> int:
        """Create a back-end of a plugin; return its handle."""
        checked("createBackend", "the parameters", params, dict)
        for key, value in params.items():
            checked("createBackend", "a parameter's name", key, str)
            checked("createBackend", f"the parameter {key!r}", value, str)
        record = plugin_of(_text("createBackend", "the plugin", plugin))
        if plugin in self._backends.values():
            raise nixlInvalidParamError(
                f"back-end {plugin!r} was created already", "use the one that is there"
            )
        self._settings[plugin] = settings_of(plugin, params)
        handle = next(_numbers)
        self._backends[handle], self._params[handle] = plugin, dict(params)
        self._has_notifications = self._has_notifications or record.is_remote
        return handle

    def getBackendParams(self, backend: int) -> tuple[dict[str, str], list[str]]:
        """Return a back-end's parameters, and its kinds of memory."""
        return dict(self._params[backend]), [mem.name for mem in PLUGINS[self._backend(backend)].backend_mems]

    def _backend(self, handle: object) -> str:
        if handle not in self._backends:
            raise nixlInvalidParamError(
                f"{handle!r} is not a back-end of agent {self.name!r}", "call createBackend"
            )
        return self._backends[handle]

    def _among(self, call: str, backends: Iterable[int]) -> set[str]:
        """Return the names of back-ends; all back-ends if the argument is empty."""
        if not isinstance(backends, Iterable):
            raise TypeError(f"{call}: the back-ends are a list of handles, not {backends!r}")
        return {self._backend(each) for each in backends} or self.backend_names

    # Memory.

    def registerMem(self, descs: nixlRegDList, backends: Sequence[int] = ()) -> nixl_status_t:
        """Register memory; after a refusal nothing is registered."""
        checked("registerMem", "descs", descs, nixlRegDList)
        mem = descs.getType()
        names = frozenset(name for name in self._among("registerMem", backends) if takes(name, mem))
        if not names:
            raise (nixlBackendError if backends else nixlNotFoundError)(
                f"no back-end takes {mem.name}; agent {self.name!r} has "
                f"{', '.join(in_order(self.backend_names)) or 'none'}",
                "register memory that a back-end takes",
            )
        if descs.isEmpty():
            raise nixlBackendError("the list has no descriptor", "pass one descriptor or more")
        if mem is not nixl_mem_t.FILE_SEG:
            check_memory(mem, descs.rows)
        with self._lock:
            self.board.check_room(len(descs.rows))
            regions: list[OwnRegion] = []
            try:
                for row in descs.rows:
                    regions.append(self._region(mem, row, names))
            except nixlBackendError:
                for region in regions:
                    self._end(region)
                raise
            self._has_registered = True
            self.regions.add(regions)
        return nixl_status_t.NIXL_SUCCESS

    def _region(self, mem: nixl_mem_t, row: Sequence[Any], names: frozenset[str]) -> OwnRegion:
        address, size, device, meta = row
        slot, number = self.board.begin()
        region = mem, device, address, _length(mem, size), slot, number, self.board.words
        try:
            if mem is not nixl_mem_t.FILE_SEG:
                return OwnRegion(*region, backends=names)
            path = path_of(meta)
            if path is None:
                return FileRegion(*region, backends=names)
            if device in self._paths:
                raise nixlBackendError(
                    f"file {path.name!r} was registered with the number {device}, which another path has",
                    "pass another number as the device for each path",
                )
            opened = FileRegion(*region, backends=names, path=path)
            self._paths.add(device)
            return opened
        except nixlBackendError:
            self.board.end(slot)
            raise

    def _end(self, region: OwnRegion) -> None:
        self.board.end(region.slot)
        region.end()
        if isinstance(region, FileRegion) and region.path is not None:
            self._paths.discard(region.device)

    def _registered(self, descs: nixlRegDList, backend: str) -> list[OwnRegion]:
        """Return the regions that a back-end has of exactly these descriptors."""
        mem, regions = descs.getType(), dict[OwnRegion, None]()
        for address, size, device, _ in descs.rows:
            same = self.regions.of(backend, mem, (device, address, _length(mem, size)))
            each = next((each for each in same if each not in regions), None)
            if each is None:
                raise nixlNotFoundError(
                    f"{size:,} bytes at {address:#x} of device {device} ({mem.name}) were not registered "
                    f"as one piece by agent {self.name!r} with {backend}",
                    "pass the list that register_memory returned",
                )
            regions[each] = None
        return list(regions)

    def deregisterMem(self, descs: nixlRegDList, backends: Sequence[int] = ()) -> nixl_status_t:
        """Deregister memory, by default from all back-ends that have it; after a refusal all is registered still."""
        checked("deregisterMem", "descs", descs, nixlRegDList)
        names = in_order(self._among("deregisterMem", backends))
        with self._lock:
            registered: dict[str, list[OwnRegion]] = {}
            missing = (
                None
                if names
                else nixlNotFoundError(f"agent {self.name!r} has no back-end", "create one first")
            )
            for name in names:
                try:
                    registered[name] = self._registered(descs, name)
                except nixlNotFoundError as error:
                    missing = missing or error
            if missing is not None and (backends or not registered):
                raise missing
            for name, regions in registered.items():
                for region in regions:
                    self.regions.remove(region, name)
                    if not region.backends:
                        self._end(region)
        return nixl_status_t.NIXL_SUCCESS

    def queryMem(self, descs: nixlRegDList, backend: int) -> list[dict[str, str] | None]:
        """Return size, mode and time of each file; None if there is no such file."""
        checked("queryMem", "descs", descs, nixlRegDList)
        if self._backend(backend) != "POSIX":
            raise nixlNotSupportedError(
                "back-end 'UCX' knows nothing of memory", "query files with back-end 'POSIX'"
            )
        files: list[dict[str, str] | None] = []
        for *_, meta in descs.rows:
            try:
                state = Path(meta.decode()).stat() if meta else None
            except (OSError, ValueError):
                state = None
            files.append(
                state
                and {
                    "mtime": str(int(state.st_mtime)),
                    "mode": str(state.st_mode),
                    "size": str(state.st_size),
                }
            )
        return files

    # Metadata.

    def _metadata(self, regions: Iterable[OwnRegion], connects: bool, backends: set[str]) -> bytes:
        regions = [each for each in regions if "UCX" in each.backends]
        ends = is_strict()
        rows = (
            Row(each.mem, each.device, each.start, each.size, each.slot, each.number, each.part(ends))
            for each in regions
        )
        remote = tuple(name for name in backends if PLUGINS[name].is_remote)
        content = encode(Metadata(self.name, self.board.origin, connects, remote), rows)
        if (
            event_log.active
        ):  # a reader of these bytes comes after what this thread has done, however it received them
            event_log.post(event_log.key_of("nixl metadata", content))
            if any(each.mem == 0 for each in regions):
                event_log.lends_host_memory()
        return content

    def getLocalMD(self) -> bytes:
        """Return the metadata of this agent."""
        if not self._has_notifications:
            raise nixlInvalidParamError(
                f"agent {self.name!r} has no back-end that reaches other agents", "call create_backend('UCX')"
            )
        with self._lock:
            return self._metadata(self.regions, True, self.backend_names)

    def getLocalPartialMD(
        self, descs: nixlRegDList, inc_conn_info: bool = False, backends: Sequence[int] = ()
    ) -> bytes:
        """Return the metadata of some registrations; without any only how to reach the agent."""
        checked("getLocalPartialMD", "descs", descs, nixlRegDList)
        connects = _flag("getLocalPartialMD", "inc_conn_info", inc_conn_info)
        mem, among = descs.getType(), self._among("getLocalPartialMD", backends)
        names = {name for name in among if PLUGINS[name].is_remote}
        if not descs.isEmpty() and not any(takes(name, mem) for name in names):
            raise nixlBackendError(
                f"no back-end reaches {mem.name} of another agent",
                "pass memory that 'UCX' has, or an empty list",
            )
        with self._lock:
            regions = [self._registered(descs, name) for name in names if self.regions.has(name, mem)]
            own = itertools.chain.from_iterable(regions)
            return self._metadata(own, connects or descs.isEmpty(), names)

    def loadRemoteMD(self, metadata: bytes) -> bytes:
        """Load the metadata of another agent, or more of it; return its name.  After a refusal nothing is changed."""
        loaded, rows = decode(_bytes("loadRemoteMD", "the metadata", metadata))
        if loaded.name == self.name:
            raise nixlInvalidParamError(
                f"the metadata is of an agent {loaded.name!r}, which is this agent's name",
                "an agent knows itself; give other agents other names",
            )
        if not self.backend_names & set(loaded.backends):
            raise nixlBackendError(
                f"agent {loaded.name!r} can be reached by {', '.join(loaded.backends) or 'no back-end'}, and "
                f"{self.name!r} has {', '.join(self.backend_names) or 'none'}",
                "create a back-end that both have",
            )
        with self._lock:
            known = self._peers.get(loaded.name)
            if known is not None:
                if known.ident != loaded.origin.ident:
                    raise nixlNotAllowedError(
                        f"another agent {loaded.name!r} is known already",
                        "remove that one first, or name them apart",
                    )
                known.learn(rows)
            elif not loaded.connects:
                raise nixlNotFoundError(
                    f"agent {loaded.name!r} is not known, and this partial metadata does not say how to reach it",
                    "load metadata with inc_conn_info=True first",
                )
            else:
                peer = Peer(self.name, loaded, self._is_eager)
                peer.learn(rows)
                self._peers[loaded.name] = peer
        if event_log.active:
            event_log.take(event_log.key_of("nixl metadata", bytes(metadata)), 1)
        return loaded.name.encode()

    def invalidateRemoteMD(self, agent: str) -> nixl_status_t:
        """Forget an agent, if it is known."""
        with self._lock:
            peer = self._peers.pop(_text("invalidateRemoteMD", "the agent", agent), None)
        if peer is not None:
            peer.remove()
        return nixl_status_t.NIXL_SUCCESS

    def checkRemoteMD(self, agent: str, descs: nixlXferDList) -> nixl_status_t:
        """Return whether an agent is known, with this memory."""
        name = _text("checkRemoteMD", "the agent", agent)
        checked("checkRemoteMD", "descs", descs, nixlXferDList)
        if name == self.name:  # the vendor's agent knows of itself only whether it has registered something
            known = self._has_registered and descs.isEmpty()
            return nixl_status_t.NIXL_SUCCESS if known else nixl_status_t.NIXL_ERR_NOT_FOUND
        try:
            peer = self._peer(name)
            if not descs.isEmpty():
                peer.regions.find("UCX", descs.rows, descs.getType(), name)
        except nixlNotFoundError:
            return nixl_status_t.NIXL_ERR_NOT_FOUND
        return nixl_status_t.NIXL_SUCCESS

    def makeConnection(self, agent: str, backends: Sequence[int]) -> nixl_status_t:
        """Check that an agent is known; the connection is there from the start."""
        self._among("makeConnection", backends)
        name = _text("makeConnection", "the agent", agent)
        if name == self.name:
            raise nixlNotFoundError(f"{name!r} is this agent", "use its memory without a connection")
        self._peer(name)
        return nixl_status_t.NIXL_SUCCESS

    @property
    def _is_eager(self) -> bool:
        return not devices()[0].backend.ranks.lateness

    def _peer(self, name: str) -> Peer:
        if name == self.name:
            if self._self is None:
                self._self = Self(self, self._is_eager)
            return self._self
        peer = self._peers.get(name)
        if peer is None:
            known = ", ".join(map(repr, list(self._peers))) or "none"  # the listener adds some
            raise nixlNotFoundError(
                f"agent {self.name!r} does not know agent {name!r}; known are {known}",
                "call add_remote_agent with its metadata first",
            )
        return peer

    # Metadata by sockets.

    def sendLocalMD(self, ip_addr: str = "", port: int = 0) -> None:
        """Send this agent's metadata to the listening agent at an address."""
        self._call_listener("sendLocalMD", ip_addr, port, "LOAD", self.getLocalMD)

    def sendLocalPartialMD(
        self,
        descs: nixlRegDList,
        inc_conn_info: bool = False,
        backends: Sequence[int] = (),
        ip_addr: str = "",
        port: int = 0,
        label: str = "",
    ) -> None:
        """Send metadata of some registrations."""
        _text("sendLocalPartialMD", "the label", label)
        metadata = self.getLocalPartialMD(descs, inc_conn_info, backends)
        self._call_listener("sendLocalPartialMD", ip_addr, port, "LOAD", lambda: metadata)

    def fetchRemoteMD(self, remote_agent: str, ip_addr: str = "", port: int = 0, label: str = "") -> None:
        """Ask the listening agent at an address for its metadata."""
        name = _text("fetchRemoteMD", "the agent", remote_agent)
        _text("fetchRemoteMD", "the label", label)
        self._call_listener("fetchRemoteMD", ip_addr, port, "SEND", name.encode)

    def invalidateLocalMD(self, ip_addr: str = "", port: int = 0) -> None:
        """Let the listening agent at an address forget this one."""
        self._call_listener("invalidateLocalMD", ip_addr, port, "GONE", self.name.encode)

    def _call_listener(self, call: str, ip_addr: str, port: int, verb: str, body: Any) -> None:
        address = _text(call, "ip_addr", ip_addr)
        checked(call, "port", port, int)
        if not address:
            raise nixlInvalidParamError(
                f"{call}: there is no central metadata server here",
                "pass the address and the port of an agent",
            )
        if self._own.listener is not None:
            self._own.listener.ask(address, port, verb, body())

    # Transfers.

    def prepXferDlist(self, agent_name: Any, *more: Any) -> int:
        """Check a descriptor list of this agent or a peer; return its handle.

        Called with (agent, list, back-ends), (list, back-ends), or (agent, kind of memory, Nx5 array, back-ends).
        """
        if isinstance(agent_name, _List):
            agent_name, more = NIXL_INIT_AGENT, (agent_name, *more)
        name = _text("prepXferDlist", "the agent", agent_name)
        if more and isinstance(more[0], nixl_mem_t):
            mem, rows, backends = more[0], _strided(more[1]), more[2:]
        else:
            checked("prepXferDlist", "descs", more[0] if more else None, nixlXferDList)
            mem, rows, backends = more[0].getType(), more[0].rows, more[1:]
        peer = None if name == NIXL_INIT_AGENT else self._peer(name)
        names = self._able("prepXferDlist", (mem,), *backends)
        return self._keep(_Prepared(peer, mem, self._located(names, peer, mem, rows, stays=True)))

    def _able(self, call: str, mems: Iterable[nixl_mem_t], backends: Sequence[int] = ()) -> list[str]:
        """Return the back-ends that have memory of these kinds."""
        among = in_order(self._among(call, backends))
        names = [name for name in among if all(takes(name, mem) for mem in mems)]
        if not names:
            raise nixlNotFoundError(
                f"{call}: no back-end takes {' and '.join(mem.name for mem in mems)}; this call may use "
                f"{', '.join(among) or 'none'} of agent {self.name!r}",
                "create and name 'POSIX' for files, 'UCX' for the memory of other agents",
            )
        return names

    def _located(
        self,
        backends: Sequence[str],
        peer: Peer | None,
        mem: nixl_mem_t,
        rows: Sequence[Sequence[int]],
        *,
        stays: bool = False,
    ) -> dict[str, list[tuple[int, int, Any]]]:
        """Return the rows with their regions by the back-ends that have all; nixlNotFoundError if none has."""
        if not rows:
            raise nixlNotFoundError("the list has no descriptor", "pass one descriptor or more")
        regions: Any = self.regions if peer is None else peer.regions
        whose = f"agent {(self if peer is None else peer).name!r}"
        located: dict[str, list[tuple[int, int, Any]]] = {}
        missing: nixlNotFoundError | None = None
        for name in backends:
            try:
                known = regions.find(name, rows, mem, whose, stays=stays)
                located[name] = [(*row[:2], each) for row, each in zip(rows, known, strict=True)]
            except nixlNotFoundError as error:
                missing = missing or error
        if missing is not None and not located:
            raise missing
        return located

    def _keep(self, resource: Any) -> int:
        handle = next(_numbers)
        (self._requests if isinstance(resource, Request) else self._prepared)[handle] = resource
        return handle

    def releasedDlistH(self, handle: int) -> nixl_status_t:
        """Forget a prepared list."""
        if self._prepared.pop(handle, None) is None:
            raise nixlInvalidParamError(
                f"{handle!r} is not a prepared list of agent {self.name!r}", "release it once"
            )
        return nixl_status_t.NIXL_SUCCESS

    def makeXferReq(
        self,
        operation: nixl_xfer_op_t,
        local_side: int,
        local_indices: Any,
        remote_side: int,
        remote_indices: Any,
        notif_msg: bytes = b"",
        backend: Sequence[int] = (),
        skip_desc_merg: bool = False,
    ) -> int:
        """Make a transfer of prepared descriptors; neighbours become one unless ``skip_desc_merg``."""
        checked("makeXferReq", "operation", operation, nixl_xfer_op_t)
        apart = _flag("makeXferReq", "skip_desc_merge", skip_desc_merg)
        message = _bytes("makeXferReq", "the notification", notif_msg) or None
        local, remote = self._prepared.get(local_side), self._prepared.get(remote_side)
        if local is None or remote is None or local.peer is not None or remote.peer is None:
            raise nixlInvalidParamError(
                "the local side must be prepared for 'NIXL_INIT_AGENT', and the remote side for an agent's name",
                "swap the two handles, or prepare them again if they were released",
            )
        peer = remote.peer
        if peer.is_removed:
            peer.check_usable(time.monotonic())
        common = [
            name for name in self._among("makeXferReq", backend) if name in local.rows and name in remote.rows
        ]
        if not common:
            raise nixlInvalidParamError(
                f"no back-end of agent {self.name!r} has both sides: the local one is {local.mem.name} of "
                f"{', '.join(local.rows)}, the other one {remote.mem.name} of {', '.join(remote.rows)}",
                "register both with one back-end, and prepare the lists again",
            )
        near, far = _numbers_of("local", local_indices), _numbers_of("remote", remote_indices)
        if not near and not far:
            raise nixlInvalidParamError("there are no indices", "pass one or more for each side")
        _check_counts(near, far)
        moving = self._moving(common, local.mem, remote.mem, message)
        mine, theirs = _picked("local", local.rows[moving], near), _picked("remote", remote.rows[moving], far)
        _check_sizes(mine, theirs)
        rows = _paired(mine, theirs)
        return self._request(moving, peer, operation, rows if apart else _merged(rows), message)

    def _moving(
        self, names: Iterable[str], local: nixl_mem_t, remote: nixl_mem_t, message: bytes | None
    ) -> str:
        """Return which of some back-ends, one or more, is to move the bytes of a transfer."""
        able = in_order(names)
        name = next((name for name in able if moves(name, local, remote)), able[0])
        check_notifies(name, message)
        return name

    def createXferReq(
        self,
        operation: nixl_xfer_op_t,
        local_descs: nixlXferDList,
        remote_descs: nixlXferDList,
        remote_agent: str,
        notif_msg: bytes = b"",
        backend: Sequence[int] = (),
    ) -> int:
        """Make a transfer of two descriptor lists."""
        checked("createXferReq", "operation", operation, nixl_xfer_op_t)
        for name, descs in (("local_descs", local_descs), ("remote_descs", remote_descs)):
            checked("createXferReq", name, descs, nixlXferDList)
        name = _text("createXferReq", "the agent", remote_agent)
        message = _bytes("createXferReq", "the notification", notif_msg) or None
        _check_counts(local_descs.rows, remote_descs.rows)
        _check_sizes(local_descs.rows, remote_descs.rows)
        peer = self._peer(name)
        local, remote = local_descs.getType(), remote_descs.getType()
        able = self._able("createXferReq", (local, remote), backend)
        mine = self._located(able, None, local, local_descs.rows)
        theirs = self._located(list(mine), peer, remote, remote_descs.rows)
        moving = self._moving(theirs, local, remote, message)
        return self._request(moving, peer, operation, _paired(mine[moving], theirs[moving]), message)

    def _request(
        self, backend: str, peer: Peer, operation: nixl_xfer_op_t, rows: list[Any], message: bytes | None
    ) -> int:
        local, remote = rows[0][1].mem, rows[0][3].mem
        if not moves(backend, local, remote):
            raise nixlInvalidParamError(
                f"{backend!r} moves no bytes between {local.name} of this agent and {remote.name}",
                "for files pass memory as the local side, and files of this agent as the other one",
            )
        is_write = operation is nixl_xfer_op_t.NIXL_WRITE
        if backend == "POSIX":
            bytes_of: Moves = FileMoves(is_write, rows, self._settings[backend]["ios_pool_size"])
        else:
            bytes_of = memory_moves(peer, is_write, rows)
        device = device_of(region for row in rows for region in (row[1], row[3]))
        take = partial(self._own.streams.take, device)
        return self._keep(Request(backend, peer, bytes_of, rows, message, take))

    def _asked(self, handle: int) -> Request:
        request = self._requests.get(handle)
        if request is None:
            raise nixlInvalidParamError(
                f"{handle!r} is not a transfer of agent {self.name!r}", "pass a handle that was not released"
            )
        return request

    def postXferReq(self, reqh: int, notif_msg: bytes = b"") -> nixl_status_t:
        """Begin a transfer."""
        request = self._requests.get(reqh)
        if request is None:
            request = self._asked(reqh)
        if type(notif_msg) is not bytes:  # to check it costs a tenth of a short transfer
            notif_msg = _bytes("postXferReq", "the notification", notif_msg)
        return request.post(notif_msg or None)

    def getXferStatus(self, reqh: int) -> nixl_status_t:
        """Return whether a transfer is done."""
        return self._asked(reqh).status()

    def releaseXferReq(self, reqh: int) -> nixl_status_t:
        """Forget a transfer; one that is under way ends, and its notification is not sent."""
        if self._own.is_closed:  # the agent has ended, and its transfers with it
            return nixl_status_t.NIXL_SUCCESS
        request = self._asked(reqh)
        del self._requests[reqh]
        stream = request.release()
        if stream is not None:
            self._own.streams.keep(stream)
        return nixl_status_t.NIXL_SUCCESS

    def queryXferBackend(self, reqh: int) -> int:
        """Return the handle of the back-end that moves the bytes."""
        backend = self._asked(reqh).backend
        return next(handle for handle, name in self._backends.items() if name == backend)

    def estimateXferCost(self, reqh: int) -> tuple[int, int, int]:
        """Return (0, 0, -1): nothing is estimated."""
        backend = self._asked(reqh).backend
        if not PLUGINS[backend].is_remote:
            raise nixlNotSupportedError(f"{backend!r} estimates no costs", "ask for transfers of 'UCX' only")
        return 0, 0, -1

    def getXferTelemetry(self, reqh: int) -> nixlXferTelemetry:
        """Return the times and sizes of a transfer."""
        if not self._telemetry:
            raise nixlNoTelemetryError(
                f"agent {self.name!r} keeps no telemetry",
                "pass capture_telemetry=True, or set NIXL_TELEMETRY_ENABLE=y",
            )
        request = self._asked(reqh)
        if not request.start:
            raise nixlNotPostedError("the transfer was never posted", "call transfer first")
        request.check_failure()
        telemetry = nixlXferTelemetry()
        telemetry.startTime = int(request.start * 1e6)
        telemetry.postDuration = max(1, int(request.post_time * 1e6))
        telemetry.xferDuration = max(
            telemetry.postDuration, int((request.time or time.monotonic() - request.start) * 1e6)
        )
        telemetry.totalBytes, telemetry.descCount, telemetry.backendName = (
            request.size,
            request.descriptors,
            request.backend,
        )
        return telemetry

    def transfers(self) -> Iterable[Request]:
        """Return the transfers that were not released."""
        return self._requests.values()

    # Memory views.

    def prepMemView(self, dlist: nixlXferDList | nixlRemoteDList, backends: Sequence[int] = ()) -> int:
        """Refuse: virtual devices do not run kernels that move memory."""
        checked("prepMemView", "dlist", dlist, nixlXferDList, nixlRemoteDList)
        raise nixlBackendError(
            "a memory view is for kernels of a GPU, which virtual devices do not run",
            "ask nixl._bindings.HAVE_UCX_GPU_DEVICE_API first, and use transfers",
        )

    def releaseMemView(self, mvh: int) -> None:
        """Do nothing: there is no memory view."""
        checked("releaseMemView", "mvh", mvh, int, bool)

    # Notifications.

    def post(self, sender: str, message: bytes, past: Past) -> None:
        """Receive a notification of an agent of this process; ``past``: the stream operation that it follows."""
        if event_log.active:
            logged_message = logged(message, self.board.ident, -1, next(_numbers))
            log_sent(logged_message.key, past)
            message = logged_message
        with self._lock:
            self._inbox.setdefault(sender, []).append(message)

    def getNotifs(
        self, notif_map: dict[str, list[bytes]], backends: Sequence[int] = ()
    ) -> dict[str, list[bytes]]:
        """Add the notifications that have come to a mapping of agents to messages; return it."""
        if backends and not any(PLUGINS[name].is_remote for name in self._among("getNotifs", backends)):
            raise self._silent()
        fresh = self.fetch(notif_map)
        if event_log.active:
            for messages in fresh.values():
                for message in messages:
                    log_received(message)
        return fresh

    def fetch(self, notif_map: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        """As :meth:`getNotifs`; the caller has to log which of them the program has seen."""
        fresh: dict[str, list[bytes]] = {}
        if not self._has_notifications:
            raise self._silent()
        with self._lock:
            self.board.collect(self._inbox)
            if self._inbox:
                fresh, self._inbox = self._inbox, fresh
        self._idle = 0 if fresh else self._idle + 1
        if self._idle > _IDLE:
            time.sleep(_REST)
        if not notif_map:
            return fresh
        notifs = {name: list(messages) for name, messages in notif_map.items()}
        for name, messages in fresh.items():
            notifs.setdefault(name, []).extend(messages)
        return notifs

    def _silent(self) -> nixlBackendError:
        return nixlBackendError(
            f"agent {self.name!r} has no back-end that sends notifications", "call create_backend('UCX')"
        )

    def genNotif(self, remote_agent: str, msg: bytes, backends: Sequence[int] = ()) -> nixl_status_t:
        """Send a notification of its own: it may overtake transfers that are under way."""
        name, message = _text("genNotif", "the agent", remote_agent), _bytes("genNotif", "the message", msg)
        if backends != () and (isinstance(backends, int) or not isinstance(backends, Iterable)):
            raise TypeError(
                f"genNotif: the back-ends are a list of handles, not {backends!r}; send_notif of NIXL 1.5.1 passes "
                "one handle, so call it without backend"
            )
        if not self._has_notifications:
            raise self._silent()
        peer = self._peer(name)
        peer.check_usable(time.monotonic())
        peer.send(message)
        return nixl_status_t.NIXL_SUCCESS


def _living() -> Iterator[LiveObject]:
    """Return registrations and transfers of this process that have not ended."""
    for agent in list(local_agents.values()):
        if not isinstance(agent, nixlAgent) or not agent.is_charged:
            continue
        of = f"of agent {agent.name!r}"
        for region in agent.regions:
            text = f"registered memory {of}: {region}"
            size = 0 if region.mem is nixl_mem_t.FILE_SEG else region.size  # a file is no memory
            yield LiveObject("registered memory", text, size, "", call_site.at(region.site))
        for request in list(agent.transfers()):
            text = f"transfer {of} with {request.peer.name!r}: {request.size:,} bytes"
            yield LiveObject("transfer", text, request.size, "", call_site.at(request.site))


live_objects.add_source(_living)


def begin_anew() -> None:
    """Report none of the present agents as left over by a test."""
    for agent in list(local_agents.values()):
        if isinstance(agent, nixlAgent):
            agent.is_charged = False


class _OfParent:
    """An agent of the parent after a fork: its memory, boards and streams are the parent's."""

    name: str

    def releaseXferReq(self, reqh: int) -> nixl_status_t:
        """Do nothing: the transfer is the parent's."""
        return nixl_status_t.NIXL_SUCCESS

    releasedDlistH = releaseXferReq

    def __getattr__(self, name: str) -> NoReturn:
        if name not in vars(nixlAgent):
            raise AttributeError(name)
        raise nixlNotAllowedError(
            f"{name}: agent {self.name!r} was made before this process was forked, and is its parent's",
            "make the agents of a process in that process; or start it by 'spawn'",
        )


def _after_fork() -> None:
    for agent in list(local_agents.values()):
        agent.__class__ = _OfParent  # type: ignore[assignment]
    local_agents.clear()


os.register_at_fork(after_in_child=_after_fork)


def _strided(descs: Any) -> list[tuple[int, int, int]]:
    """Return the descriptors of rows (address, bytes, device, stride, count)."""
    array = np.asarray(descs)
    if array.dtype not in (np.uint64, np.int64):
        raise ValueError(f"descs must be a Nx5 numpy array of uint64 or int64, not of {array.dtype}")
    if array.ndim != 2 or array.shape[1] != 5:
        raise ValueError(f"descs must be a Nx5 numpy array, not one of shape {array.shape}")
    rows = array.astype(np.uint64).tolist()
    return [(at + i * stride, size, device) for at, size, device, stride, count in rows for i in range(count)]


def _length(mem: nixl_mem_t, size: int) -> int:
    """Return the bytes that a row stands for: 0 of a file are all that follow."""
    return size or WHOLE if mem is nixl_mem_t.FILE_SEG else size


def _numbers_of(side: str, indices: Any) -> list[int]:
    is_array = isinstance(indices, np.ndarray)
    if is_array and indices.ndim != 1:
        raise ValueError(f"the {side} indices are an array of one dimension, not of shape {indices.shape}")
    is_list = isinstance(indices, Sequence) and not isinstance(indices, (str, bytes, bytearray))
    chosen = np.asarray(indices) if is_array or is_list else np.asarray(0.5)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise RuntimeError(f"the {side} indices are a list or an array of ints, not {indices!r:.60}")
    numbers: list[int] = chosen.tolist()
    return numbers


def _picked(side: str, rows: list[Any], numbers: Iterable[int]) -> list[Any]:
    for each in numbers:
        if not 0 <= each < len(rows):
            raise nixlInvalidParamError(
                f"the {side} index {each} is out of range", f"pass indices from 0 to {len(rows) - 1}"
            )
    return [rows[each] for each in numbers]


def _check_counts(mine: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Refuse two sides that differ in the number of their rows."""
    if len(mine) != len(theirs):
        raise nixlInvalidParamError(
            f"there are {len(mine)} descriptors of this agent and {len(theirs)} of the other",
            "pass as many of each",
        )


def _check_sizes(mine: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Refuse two sides of which a row differs in its bytes (its second element)."""
    for at, (near, far) in enumerate(zip(mine, theirs, strict=True)):
        if near[1] != far[1]:
            raise nixlInvalidParamError(
                f"descriptor {at} has {near[1]:,} bytes here and {far[1]:,} there", "pass equal sizes"
            )


def _paired(mine: Sequence[Any], theirs: Sequence[Any]) -> list[Any]:
    return [
        (near, region, far, region_there, size)
        for (near, size, region), (far, _, region_there) in zip(mine, theirs, strict=True)
    ]


def _merged(rows: list[Any]) -> list[Any]:
    merged = rows[:1]
    for row in rows[1:]:
        near, region, far, far_region, size = merged[-1]
        if row[1] is region and row[3] is far_region and (row[0] - near, row[2] - far) == (size, size):
            merged[-1] = (near, region, far, far_region, size + row[4])
        else:
            merged.append(row)
    return merged

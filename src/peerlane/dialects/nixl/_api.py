"""``nixl._api``: the vendor's Python agent (facts/nixl 4 to 8).

A method raises what the vendor's raises: an exception of ``nixl._bindings``, KeyError for a name that a table of the
agent lacks, TypeError for an argument of another type.  After a raise nothing is half-made.
"""

from __future__ import annotations

import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum
from typing import Any, NoReturn, TypeVar

import numpy as np

from peerlane.dialects.nixl import _bindings as nixlBind
from peerlane.dialects.nixl._agent import nixlXferTelemetry
from peerlane.dialects.nixl._board import log_received
from peerlane.dialects.nixl._descs import _List, nixlRegDList, nixlRemoteDList, nixlXferDList
from peerlane.dialects.nixl._status import (
    DEFAULT_COMM_PORT,
    NIXL_INIT_AGENT,
    nixl_mem_t,
    nixl_status_t,
    nixl_xfer_op_t,
)
from peerlane.dialects.nixl._status import nixl_thread_sync_t as _sync_t
from peerlane.dialects.nixl.logging import get_logger

logger = get_logger(__name__.rpartition(".")[2])

nixl_backend_handle = int

_T = TypeVar("_T")


_MEMS = {
    "DRAM": nixl_mem_t.DRAM_SEG,
    "VRAM": nixl_mem_t.VRAM_SEG,
    "FILE": nixl_mem_t.FILE_SEG,
    "BLOCK": nixl_mem_t.BLK_SEG,
    "OBJ": nixl_mem_t.OBJ_SEG,
    "cpu": nixl_mem_t.DRAM_SEG,
    "cuda": nixl_mem_t.VRAM_SEG,
}
_OPERATIONS = {"WRITE": nixl_xfer_op_t.NIXL_WRITE, "READ": nixl_xfer_op_t.NIXL_READ}
_DONE, _ACTIVE = nixl_status_t.NIXL_SUCCESS, nixl_status_t.NIXL_IN_PROG


def _state(status: nixl_status_t) -> str:
    # A dict would cost more: to hash a member of an enumeration is a call of a Python function.
    if status is _DONE:
        return "DONE"
    return "PROC" if status is _ACTIVE else "ERR"


class nixl_thread_sync_t(Enum):
    """Whether several threads may use one agent; agents of peerlane may always be."""

    NIXL_THREAD_SYNC_NONE = _sync_t.NIXL_THREAD_SYNC_NONE
    NIXL_THREAD_SYNC_STRICT = _sync_t.NIXL_THREAD_SYNC_STRICT
    NIXL_THREAD_SYNC_RW = _sync_t.NIXL_THREAD_SYNC_RW
    NIXL_THREAD_SYNC_DEFAULT = _sync_t.NIXL_THREAD_SYNC_DEFAULT


class _Handle(ABC):
    """A number of an agent; the agent forgets it with the last reference to the handle."""

    __slots__ = ("_agent", "_handle", "_released")

    def __init__(self, agent: Any, value: int) -> None:
        self._agent, self._handle, self._released = agent, int(value), False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(0x{self._handle:x}, released={self._released})"

    @abstractmethod
    def _release(self) -> None:
        """Let the agent forget the number."""

    def release(self) -> None:
        """Let the agent forget the number; idempotent."""
        if not self._released:
            self._release()
            self._released = True

    def __del__(self) -> None:
        if not getattr(self, "_released", True):
            try:
                self.release()
            except Exception:  # noqa: BLE001 - as the vendor's: a finalizer raises nothing
                logger.error("%r could not be released", self)


class nixl_prepped_dlist_handle(_Handle):
    """A prepared descriptor list."""

    __slots__ = ()

    def _release(self) -> None:
        self._agent.releasedDlistH(self._handle)


class nixl_xfer_handle(_Handle):
    """A transfer."""

    __slots__ = ()

    def _release(self) -> None:
        self._agent.releaseXferReq(self._handle)


def _check_handle(handle: Any) -> None:
    """Raise AttributeError, as the vendor's layer does, if the argument is not a handle."""
    if not isinstance(handle, _Handle):
        raise AttributeError(
            f"a handle is what an agent returned, not {type(handle).__name__} ({handle!r:.60})"
        )


def _number(handle: Any) -> int:
    try:
        number: int = handle._handle
    except AttributeError:  # a check of the class before would cost more than the rest of a call
        _check_handle(handle)
        raise
    return number


class _Names(dict[str, _T]):
    """A table of an agent: an unknown name raises KeyError, whose text lists the known names."""

    def __init__(self, what: str, *entries: Any) -> None:
        super().__init__(*entries)
        self._what = what

    def __missing__(self, name: object) -> NoReturn:
        raise KeyError(f"{name!r} is not {self._what}; there are {', '.join(map(repr, self)) or 'none'}")


class nixl_agent_config:
    """How an agent works.

    Parameters
    ----------
    enable_prog_thread : bool
        Taken and not needed: bytes move, and notifications arrive, whatever this process does.
    enable_listen_thread : bool
        Whether other agents may exchange metadata with this one by sockets.
    listen_port : int
        Where; 0 for any port.
    capture_telemetry : bool
        Whether ``get_xfer_telemetry`` answers; ``NIXL_TELEMETRY_ENABLE`` overrides it.
    num_threads : int
        Noted among the back-end's parameters.
    backends : list of str
        The back-ends to create; those that there are not are skipped with a warning.
    sync_mode : nixl_thread_sync_t, optional

    Raises
    ------
    TypeError
        ``sync_mode`` is of another type.
    """

    def __init__(
        self,
        enable_prog_thread: bool = True,
        enable_listen_thread: bool = False,
        listen_port: int = DEFAULT_COMM_PORT,
        capture_telemetry: bool = False,
        num_threads: int = 0,
        backends: list[str] = ["UCX"],  # noqa: B006 - the vendor's signature
        sync_mode: nixl_thread_sync_t | None = None,
    ) -> None:
        if sync_mode is not None and not isinstance(sync_mode, nixl_thread_sync_t):
            raise TypeError(f"sync_mode must be a nixl_thread_sync_t (got {type(sync_mode).__name__!r})")
        self.backends, self.num_threads, self.sync_mode = backends, num_threads, sync_mode
        self.enable_pthread, self.enable_listen, self.port = (
            enable_prog_thread,
            enable_listen_thread,
            listen_port,
        )
        self.capture_telemetry = capture_telemetry


class nixl_agent:
    """An agent: it registers memory, learns of other agents by their metadata, and moves bytes between them.

    Parameters
    ----------
    agent_name : str
        Unique among the agents that know one another.
    nixl_conf : nixl_agent_config, optional
    instantiate_all : bool
        Create a back-end of each plugin; ignored beside ``nixl_conf``.

    Raises
    ------
    ValueError
        The name is empty.
    RuntimeError
        The port of the listening thread is taken.
    """

    def __init__(
        self, agent_name: str, nixl_conf: nixl_agent_config | None = None, instantiate_all: bool = False
    ) -> None:
        if nixl_conf and instantiate_all:
            logger.warning("instantiate_all is ignored beside a configuration")
        chosen = nixl_conf or nixl_agent_config()
        sync = chosen.sync_mode or (
            nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
            if chosen.enable_listen
            else nixl_thread_sync_t.NIXL_THREAD_SYNC_NONE
        )
        config = nixlBind.nixlAgentConfig(
            chosen.enable_pthread, chosen.enable_listen, chosen.port, sync.value
        )
        config.captureTelemetry = chosen.capture_telemetry
        self.agent = nixlBind.nixlAgent(agent_name, config)
        self.name = agent_name
        self.notifs: dict[str, list[bytes]] = {}
        self.backends: dict[str, nixl_backend_handle] = _Names(
            "a back-end of this agent (pass a list of names)"
        )
        self.backend_mems: dict[str, list[str]] = {}
        self.backend_options: dict[str, dict[str, str]] = {}
        self.plugin_list = self.agent.getAvailPlugins()
        self.plugin_b_options: dict[str, dict[str, str]] = {}
        self.plugin_mem_types: dict[str, list[str]] = {}
        self.nixl_mems: dict[str, nixl_mem_t] = _Names("a kind of memory", _MEMS)
        self.nixl_ops: dict[str, nixl_xfer_op_t] = _Names("an operation", _OPERATIONS)
        for name in self.plugin_list if instantiate_all and not nixl_conf else chosen.backends:
            if name in self.plugin_list:
                threads = name == "UCX" and chosen.num_threads > 0
                self.create_backend(name, {"num_threads": str(chosen.num_threads)} if threads else {})
            else:
                logger.warning("back-end %s is skipped: plugins are %s", name, ", ".join(self.plugin_list))

    def _handles(self, backends: Iterable[str]) -> list[int]:
        if not isinstance(backends, Iterable):
            raise TypeError(f"the back-ends are a list of names such as ['UCX'], not {backends!r:.60}")
        return [self.backends[name] for name in backends]

    def get_plugin_list(self) -> list[str]:
        """Return the names of the plugins: UCX moves bytes between agents, POSIX between memory and files."""
        return self.plugin_list

    def get_plugin_mem_types(self, backend: str) -> list[str]:
        """Return the kinds of memory of a plugin, none if there is no such plugin."""
        self._look_up(backend)
        return self.plugin_mem_types.get(backend, [])

    def get_plugin_params(self, backend: str) -> dict[str, str]:
        """Return the parameters of a plugin with their defaults, none if there is no such plugin."""
        self._look_up(backend)
        return self.plugin_b_options.get(backend, {})

    def _look_up(self, plugin: str) -> None:
        if plugin not in self.plugin_list:
            logger.warning("there is no plugin %s; there are %s", plugin, ", ".join(self.plugin_list))
        elif plugin not in self.plugin_mem_types:
            self.plugin_b_options[plugin], self.plugin_mem_types[plugin] = self.agent.getPluginParams(plugin)

    def get_backend_mem_types(self, backend: str) -> list[str]:
        """Return the kinds of memory of a back-end, none if it was not created."""
        return self._created(backend, self.backend_mems, [])

    def get_backend_params(self, backend: str) -> dict[str, str]:
        """Return the parameters that a back-end was created with, none if it was not created."""
        return self._created(backend, self.backend_options, {})

    def _created(self, backend: str, table: dict[str, _T], otherwise: _T) -> _T:
        if backend not in table:
            logger.warning(
                "back-end %s was not created; there are %s", backend, ", ".join(self.backends) or "none"
            )
        return table.get(backend, otherwise)

    def create_backend(self, backend: str, initParams: dict[str, str] = {}) -> None:  # noqa: B006
        """Create a back-end of a plugin.

        Raises
        ------
        nixlNotFoundError
            There is no such plugin.
        nixlInvalidParamError
            It was created already.
        nixlBackendError
            A parameter has no such value.
        TypeError
            A parameter is not a str.
        """
        self.backends[backend] = self.agent.createBackend(backend, initParams)
        self.backend_options[backend], self.backend_mems[backend] = self.agent.getBackendParams(
            self.backends[backend]
        )

    def register_memory(
        self,
        reg_list: Any,
        mem_type: str | None = None,
        backends: list[str] = [],  # noqa: B006
    ) -> nixlRegDList:
        """Register memory for transfers; return its list, for ``deregister_memory``.

        Parameters
        ----------
        reg_list, mem_type
            As of :meth:`get_reg_descs`.
        backends : list of str
            By default all that take this kind of memory.

        Raises
        ------
        nixlBackendError
            The list is empty, the addresses are not such memory, or a file cannot be opened.
        nixlNotFoundError
            No back-end takes the kind of memory.
        TypeError
            The list cannot be made into descriptors; the log says why.
        KeyError
            An unknown kind of memory or back-end.
        """
        descs: Any = self.get_reg_descs(reg_list, mem_type)
        self.agent.registerMem(descs, self._handles(backends))
        return descs  # type: ignore[no-any-return]

    def deregister_memory(self, dereg_list: nixlRegDList, backends: list[str] = []) -> None:  # noqa: B006
        """Deregister memory, by default from all back-ends; other agents' later transfers of it are refused.

        Raises
        ------
        nixlNotFoundError
            A piece was not registered exactly so; all is registered still.
        TypeError, KeyError
            Another type, or an unknown back-end.
        """
        self.agent.deregisterMem(dereg_list, self._handles(backends))

    def query_memory(
        self, reg_list: Any, backend: str, mem_type: str | None = None
    ) -> list[dict[str, str] | None]:
        """Return size, mode and time of each file that the lists' meta names, None for one that there is not.

        Raises
        ------
        ValueError
            The back-end was not created.
        nixlNotSupportedError
            The back-end is not POSIX.
        """
        descs: Any = self.get_reg_descs(reg_list, mem_type)
        if backend not in self.backends:
            raise ValueError(
                f"Backend '{backend}' not found. Available backends: {list(self.backends)}; call create_backend first"
            )
        return self.agent.queryMem(descs, self.backends[backend])

    def make_connection(self, remote_agent: str, backends: list[str] = []) -> None:  # noqa: B006
        """Check that an agent is known; agents of peerlane need no connection.

        Raises
        ------
        nixlNotFoundError
            It is not known.
        KeyError
            An unknown back-end.
        """
        self.agent.makeConnection(remote_agent, self._handles(backends))

    def prep_xfer_dlist(
        self,
        agent_name: str,
        xfer_list: Any,
        mem_type: str | None = None,
        backends: list[str] = [],  # noqa: B006
    ) -> nixl_prepped_dlist_handle:
        """Check descriptors once, for many transfers; return a handle.

        Parameters
        ----------
        agent_name : str
            ``"NIXL_INIT_AGENT"`` or ``""`` for the local side of transfers; for the remote side the other agent's
            name, or this agent's own for transfers within it.
        xfer_list, mem_type
            As of :meth:`get_xfer_descs`; or an array of rows (address, bytes, device, stride, count).
        backends : list of str

        Raises
        ------
        nixlNotFoundError
            The agent is not known, a descriptor lies in no registered memory, or the list is empty.
        ValueError
            Such an array without ``mem_type``, or of other numbers than uint64 and int64.
        TypeError, KeyError
            As of :meth:`register_memory`.
        """
        name = NIXL_INIT_AGENT if agent_name == "NIXL_INIT_AGENT" else agent_name
        handles = self._handles(backends)
        if isinstance(xfer_list, np.ndarray) and xfer_list.ndim == 2 and xfer_list.shape[1] == 5:
            if mem_type is None:
                raise ValueError("Please specify a mem type for strided descriptors, such as 'DRAM'")
            number = self.agent.prepXferDlist(name, self.nixl_mems[mem_type], xfer_list, handles)
        else:
            number = self.agent.prepXferDlist(name, self.get_xfer_descs(xfer_list, mem_type), handles)
        return nixl_prepped_dlist_handle(self.agent, number)

    def estimate_xfer_cost(self, req_handle: nixl_xfer_handle) -> tuple[int, int, str]:
        """Return (0, 0, "UNKNOWN"), as the vendor's UCX does: nothing is estimated.

        Raises
        ------
        nixlNotSupportedError
            The back-end is POSIX.
        """
        duration, margin, _ = self.agent.estimateXferCost(_number(req_handle))
        return duration, margin, "UNKNOWN"

    def make_prepped_xfer(
        self,
        operation: str,
        local_xfer_side: nixl_prepped_dlist_handle,
        local_indices: list[int] | np.ndarray,
        remote_xfer_side: nixl_prepped_dlist_handle,
        remote_indices: list[int] | np.ndarray,
        notif_msg: bytes = b"",
        backends: list[str] = [],  # noqa: B006
        skip_desc_merge: bool = False,
    ) -> nixl_xfer_handle:
        """Make a transfer of prepared descriptors; neighbours become one.

        Parameters
        ----------
        operation : str
            ``"WRITE"`` or ``"READ"``.
        local_xfer_side, remote_xfer_side : nixl_prepped_dlist_handle
        local_indices, remote_indices : list of int or array
            Which descriptors; as many of each.
        notif_msg : bytes
            The notification for the other agent once the bytes are there; none if it is empty.
        backends : list of str
        skip_desc_merge : bool
            Leave neighbours apart.

        Raises
        ------
        nixlInvalidParamError
            A side is the wrong one or was released, an index is out of range, or counts or sizes differ.
        nixlNotFoundError
            The agent was removed.
        KeyError
            Another operation, or an unknown back-end.
        RuntimeError, ValueError
            The indices are not ints, or an array of several dimensions.
        """
        op, handles = self.nixl_ops[operation], self._handles(backends)
        sides = _number(local_xfer_side), local_indices, _number(remote_xfer_side), remote_indices
        return nixl_xfer_handle(
            self.agent, self.agent.makeXferReq(op, *sides, notif_msg, handles, skip_desc_merge)
        )

    def initialize_xfer(
        self,
        operation: str,
        local_descs: nixlXferDList,
        remote_descs: nixlXferDList,
        remote_agent: str,
        notif_msg: bytes = b"",
        backends: list[str] = [],  # noqa: B006
    ) -> nixl_xfer_handle:
        """Make a transfer of two descriptor lists.

        Parameters
        ----------
        operation : str
            ``"WRITE"`` or ``"READ"``.
        local_descs, remote_descs : nixlXferDList
            Of :meth:`get_xfer_descs`; as many descriptors in each, of equal sizes.
        remote_agent : str
            The other agent's name, or this agent's own.
        notif_msg, backends
            As of :meth:`make_prepped_xfer`.

        Raises
        ------
        nixlNotFoundError
            The agent is not known, or a descriptor lies in no registered memory.
        nixlInvalidParamError
            Counts or sizes differ, or the back-end does not move bytes between these kinds of memory.
        nixlBackendError
            There is a notification, and POSIX sends none.
        KeyError, TypeError
            Another operation, an unknown back-end, or another type.
        """
        op, handles = self.nixl_ops[operation], self._handles(backends)
        number = self.agent.createXferReq(op, local_descs, remote_descs, remote_agent, notif_msg, handles)
        return nixl_xfer_handle(self.agent, number)

    def transfer(self, handle: nixl_xfer_handle, notif_msg: bytes = b"") -> str:
        """Begin a transfer; ``notif_msg`` replaces its notification from now on.

        Returns
        -------
        str
            ``"DONE"`` if it is over already, else ``"PROC"``.  Small ones often are.

        Raises
        ------
        nixlRepostActiveError
            It is under way.
        nixlNotFoundError
            The agent was removed since the transfer was made.
        nixlRemoteDisconnectError
            The agent has ended.
        nixlNotAllowedError
            Either side has deregistered memory that it uses (the vendor lets this pass); or it has more descriptors
            of files than ``ios_pool_size``.
        nixlBackendError
            The bytes could not be moved, or there is a notification and the back-end sends none.
        """
        return _state(self.agent.postXferReq(_number(handle), notif_msg))

    def check_xfer_state(self, handle: nixl_xfer_handle) -> str:
        """Return ``"PROC"`` or ``"DONE"``: then the bytes are there, and the notification is sent.

        Raises
        ------
        nixlNotPostedError
            It was never posted.
        nixlNotFoundError
            It is under way, and the agent was removed.
        nixlRemoteDisconnectError, nixlBackendError
            It failed.
        """
        return _state(self.agent.getXferStatus(_number(handle)))

    def get_xfer_telemetry(self, handle: nixl_xfer_handle) -> nixlXferTelemetry:
        """Return what a transfer took: startTime, postDuration, xferDuration (microseconds), totalBytes, descCount.

        Raises
        ------
        nixlNoTelemetryError
            The agent was made without ``capture_telemetry``.
        nixlNotPostedError
            It was never posted.
        """
        return self.agent.getXferTelemetry(_number(handle))

    def query_xfer_backend(self, handle: nixl_xfer_handle) -> str:
        """Return the name of the back-end that moves a transfer's bytes."""
        backend = self.agent.queryXferBackend(_number(handle))
        return next(name for name, each in self.backends.items() if each == backend)

    def release_xfer_handle(self, handle: nixl_xfer_handle) -> None:
        """Forget a transfer; one that is under way ends where it is, and its notification is not sent."""
        _check_handle(handle)
        handle.release()

    def release_dlist_handle(self, handle: nixl_prepped_dlist_handle) -> None:
        """Forget a prepared list; transfers that were made of it stay."""
        _check_handle(handle)
        handle.release()

    def prep_mem_view(
        self, dlist: nixlXferDList | nixlRemoteDList, *, backends: list[str] | None = None
    ) -> int:
        """Refuse: a memory view is for kernels of a GPU.

        Raises
        ------
        nixlBackendError
        """
        return self.agent.prepMemView(dlist, self._handles(backends or []))

    def release_mem_view(self, mvh: int) -> None:
        """Do nothing: there is no memory view."""
        self.agent.releaseMemView(mvh)

    def get_new_notifs(self, backends: list[str] = []) -> dict[str, list[bytes]]:  # noqa: B006
        """Return the notifications that have come since the last call, by the name of the agent that sent them.

        Raises
        ------
        KeyError
            An unknown back-end.
        nixlBackendError
            No back-end has notifications, or another process wrote nonsense where its own stand.
        """
        return self.agent.getNotifs({}, () if backends == [] else self._handles(backends))

    def update_notifs(self, backends: list[str] = []) -> dict[str, list[bytes]]:  # noqa: B006
        """Return ``notifs``: all notifications that this method has fetched and nobody has taken out."""
        self.notifs = self.agent.getNotifs(self.notifs, self._handles(backends))
        return self.notifs

    def check_remote_xfer_done(
        self,
        remote_agent_name: str,
        lookup_tag: bytes,
        backends: list[str] = [],  # noqa: B006
        tag_is_prefix: bool = True,
    ) -> bool:
        """Tell whether an agent has sent a notification that begins with a tag, and take out the first such one.

        An empty notification is found and not taken out, as the vendor's method does.

        Parameters
        ----------
        remote_agent_name : str
        lookup_tag : bytes
            An empty one fits any message.
        backends : list of str
        tag_is_prefix : bool
            Whether the message has to begin with the tag; else the tag may stand anywhere in it.
        """
        self._handles(backends)
        self.notifs = self.agent.fetch(self.notifs)
        waiting = self.notifs.get(remote_agent_name, [])
        for at, message in enumerate(waiting):
            if message.startswith(lookup_tag) if tag_is_prefix else lookup_tag in message:
                log_received(message)
                if message:
                    del waiting[at]
                return True
        return False

    def send_notif(self, remote_agent_name: str, notif_msg: bytes, backend: str | None = None) -> None:
        """Send a notification by itself: it may overtake transfers that are under way.

        Raises
        ------
        nixlNotFoundError
            The agent is not known.
        nixlRemoteDisconnectError
            It has ended.
        TypeError
            ``backend`` is given: NIXL 1.5.1 passes it on in a way that its own agent refuses.
        """
        if backend is None:
            self.agent.genNotif(remote_agent_name, notif_msg)
        else:
            handle: Any = self.backends[backend]
            self.agent.genNotif(remote_agent_name, notif_msg, handle)

    def get_agent_metadata(self) -> bytes:
        """Return the bytes by which another agent of this machine knows this one, and what it has registered.

        Raises
        ------
        nixlInvalidParamError
            The agent has no back-end that reaches other agents.
        """
        return self.agent.getLocalMD()

    def get_partial_agent_metadata(
        self,
        descs: nixlRegDList,
        inc_conn_info: bool = False,
        backends: list[str] = [],  # noqa: B006
    ) -> bytes:
        """Return the metadata of some registrations, with or without what is needed to reach the agent.

        Raises
        ------
        nixlNotFoundError
            A piece was not registered exactly so.
        """
        return self.agent.getLocalPartialMD(descs, inc_conn_info, self._handles(backends))

    def add_remote_agent(self, metadata: bytes) -> bytes:
        """Load another agent's metadata, or more of it; return the agent's name as bytes.

        Raises
        ------
        nixlMismatchError
            The bytes are not such metadata, or not whole.
        nixlInvalidParamError
            They are this agent's own, or of another agent with its name.
        nixlNotAllowedError
            Another agent of that name is known.
        nixlNotFoundError
            They are partial, and the agent is not known.
        nixlBackendError
            The agents have no back-end in common, or its process cannot be reached.

        In each case nothing was changed.
        """
        return self.agent.loadRemoteMD(metadata)

    def remove_remote_agent(self, agent: str) -> None:
        """Forget an agent, if it is known; transfers with it are refused from now on."""
        self.agent.invalidateRemoteMD(agent)

    def send_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        """Send all metadata to the agent that listens at an address; returns at once.

        Raises
        ------
        nixlInvalidParamError
            No address: there is no central metadata server.
        """
        self.agent.sendLocalMD(ip_addr, port)

    def send_partial_agent_metadata(
        self,
        descs: nixlRegDList,
        inc_conn_info: bool = False,
        backends: list[str] = [],  # noqa: B006
        ip_addr: str = "",
        port: int = DEFAULT_COMM_PORT,
        label: str = "",
    ) -> None:
        """Send metadata of some registrations as :meth:`send_local_metadata`; ``label`` is for the server."""
        self.agent.sendLocalPartialMD(descs, inc_conn_info, self._handles(backends), ip_addr, port, label)

    def fetch_remote_metadata(
        self, remote_agent: str, ip_addr: str = "", port: int = DEFAULT_COMM_PORT, label: str = ""
    ) -> None:
        """Ask the agent that listens at an address for its metadata; returns at once.

        ``check_remote_metadata`` tells when it has come.
        """
        self.agent.fetchRemoteMD(remote_agent, ip_addr, port, label)

    def invalidate_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        """Let the agent that listens at an address forget this one; returns at once."""
        self.agent.invalidateLocalMD(ip_addr, port)

    def check_remote_metadata(self, agent: str, descs: nixlXferDList | None = None) -> bool:
        """Tell whether an agent is known, and has registered these descriptors."""
        wanted = nixlXferDList(nixl_mem_t.DRAM_SEG) if descs is None else descs
        return self.agent.checkRemoteMD(agent, wanted) == nixl_status_t.NIXL_SUCCESS

    def get_xfer_descs(self, descs: Any, mem_type: str | None = None) -> nixlXferDList | None:
        """Return descriptors for a transfer.

        Parameters
        ----------
        descs
            A list of tuples (address, bytes, device); an array of such rows (uint64 or int64); a tensor; a list of
            tensors; or such descriptors, which are returned.
        mem_type : str, optional
            ``"DRAM"``, ``"VRAM"`` or ``"FILE"``, for tuples and rows.

        Returns
        -------
        nixlXferDList or None
            None, with the reason in the log, for anything else.
        """
        xfer_list: nixlXferDList | None = self._descs(nixlXferDList, nixlRegDList, 3, descs, mem_type)
        return xfer_list

    def get_remote_descs(self, descs: Any, mem_type: str | None = None) -> nixlRemoteDList | None:
        """Return descriptors of several agents, of a list of tuples (address, bytes, device, agent)."""
        if isinstance(descs, nixlRemoteDList):
            return descs
        if isinstance(_first(descs), tuple) and mem_type is not None and len(descs[0]) == 4:
            return nixlRemoteDList(self.nixl_mems[mem_type], descs)
        logger.error("remote descriptors are a list of (address, bytes, device, agent), beside a mem_type")
        return None

    def get_reg_descs(self, descs: Any, mem_type: str | None = None) -> nixlRegDList | None:
        """Return descriptors for a registration: as :meth:`get_xfer_descs`, of (address, bytes, device, meta)."""
        reg_list: nixlRegDList | None = self._descs(nixlRegDList, nixlXferDList, 4, descs, mem_type)
        return reg_list

    def _descs(
        self, kind: type[Any], other: type[_List], width: int, descs: Any, mem_type: str | None
    ) -> Any:
        if isinstance(descs, kind):
            return descs
        cause = ""
        if isinstance(descs, other):
            cause = f"a {other.__name__} was given where a {kind.__name__} is due"
        elif isinstance(_first(descs), tuple) or isinstance(descs, np.ndarray):
            is_array = isinstance(descs, np.ndarray)
            if mem_type is None:
                cause = "pass mem_type='DRAM' or 'VRAM' beside tuples and arrays of rows"
            elif is_array and (descs.ndim != 2 or descs.shape[1] != 3):
                cause = f"rows (address, bytes, device) are an array of shape (N, 3), not {descs.shape}"
            elif not is_array and len(descs[0]) != width:
                cause = f"a {kind.__name__} is made of tuples of {width}, not {descs[0]!r}"
            else:
                return kind(self.nixl_mems[mem_type], descs)
        else:
            torch = sys.modules.get("torch")
            tensors = [descs] if torch is not None and isinstance(descs, torch.Tensor) else descs
            if torch is not None and isinstance(tensors[0], torch.Tensor):
                return self._of_tensors(kind, tensors)
            cause = f"{type(descs).__name__} is no list of tuples, array of rows, tensor or list of tensors"
        logger.error("%s", cause)
        return None

    def _of_tensors(self, kind: type[Any], tensors: Any) -> Any:
        if any(each.device != tensors[0].device for each in tensors):
            logger.error("the tensors are on several devices; pass those of one device at a time")
            return None
        if not all(each.is_contiguous() for each in tensors):
            logger.error("a tensor is not contiguous; pass tensor.contiguous()")
            return None
        number = tensors[0].get_device()
        rows = [(each.data_ptr(), each.numel() * each.element_size(), max(number, 0)) for each in tensors]
        return kind(
            self.nixl_mems["DRAM" if number == -1 else "VRAM"],
            [(*row, "") for row in rows] if kind is nixlRegDList else rows,
        )

    def get_serialized_descs(self, descs: Any) -> bytes:
        """Return descriptors as bytes."""
        return pickle.dumps(descs)

    def deserialize_descs(self, serialized_descs: bytes) -> Any:
        """Return the descriptors that :meth:`get_serialized_descs` made bytes of.

        This is pickle, as the vendor's is: load only the bytes of whom you trust.

        Raises
        ------
        pickle.UnpicklingError, nixlMismatchError
            They are not.
        """
        return pickle.loads(serialized_descs)


def _first(descs: Any) -> Any:
    try:
        return descs[0]
    except (TypeError, LookupError) as error:
        raise type(error)(
            f"descriptors are a list of tuples, an array of rows, a tensor or a list of tensors, and at least one; "
            f"not {descs!r:.60}"
        ) from error

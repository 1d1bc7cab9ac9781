"""Handles: what lets other processes have memory of this one, and the list of who may."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, MutableSet
from typing import TYPE_CHECKING

from peerlane import _core
from peerlane.backend.facts import HandleKind
from peerlane.backends.virtual.node import handles
from peerlane.devices.device import Device, devices
from peerlane.diagnostics import live_objects, observers
from peerlane.errors import AccessDenied, BadHandle, Closed, Fault, InvalidValue
from peerlane.support.timeouts import checked_timeout

if TYPE_CHECKING:
    from typing import TypeAlias

    Allow: TypeAlias = "Iterable[int] | str"

EVERYONE = "user"


class AllowList(MutableSet[int]):
    """The processes that may open a handle: a live set of pids.

    A pid is listed together with the start time of its process, so that a process that gets the number later is
    not taken for it; listing it again means the process that has it now.
    """

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @property
    def is_everyone(self) -> bool:
        """Whether any process of this user may open the handle: it was exported with ``allow="user"``."""
        return self._handle._everyone

    def add(self, value: int) -> None:
        """Let the process with this pid open the handle, from now on.

        Raises
        ------
        InvalidValue
            No pid; or the handle is open to all of the user's processes.
        Closed
        """
        pid = checked_pid("Handle.allow.add", value)
        self._handle._check_offered("Handle.allow.add")
        if self.is_everyone:
            raise InvalidValue(
                f"Handle.allow.add: the handle was exported with allow={EVERYONE!r}, so every process of this user "
                "may open it; export with a list of pids to choose them",
                call="Handle.allow.add",
            )
        if not _core.allow(*self._handle._ticket, pid, _core.start_time(pid)):
            raise self._handle._over("Handle.allow.add")

    def discard(self, value: int) -> None:
        """Take a pid off the list; what it has opened it keeps."""
        pid = checked_pid("Handle.allow.discard", value)
        self._handle._check_usable("Handle.allow.discard")
        _core.disallow(*self._handle._ticket, pid)

    def __contains__(self, value: object) -> bool:
        return value in self._pids()

    def __iter__(self) -> Iterator[int]:
        return iter(self._pids())

    def __len__(self) -> int:
        return len(self._pids())

    @classmethod
    def _from_iterable(cls, it: Iterable[int]) -> set[int]:  # type: ignore[override]
        return set(it)  # set operations give plain sets: an AllowList is one handle's state

    def _pids(self) -> list[int]:
        return [pid for pid, _ in _core.allowed(*self._handle._ticket)] if self._handle._is_mine else []

    def __repr__(self) -> str:
        return (
            f"AllowList({EVERYONE!r})" if self.is_everyone else f"AllowList({{{', '.join(map(str, self))}}})"
        )


class Handle:
    """What stands for memory of this process in another one: an int of 63 bits, or 64 ASCII characters.

    Made by ``export`` of :class:`Physical` and :class:`Buffer`.  Send ``int(handle)`` or ``bytes(handle)`` by any
    means; it is no secret that opens anything to whom ``allow`` does not list.  It pickles as its bytes.  This object
    keeps what it stands for alive until that is closed; dropping this object ends nothing else.
    """

    __slots__ = ("_everyone", "_fields", "_is_closed", "_pid", "_source", "_ticket")

    _everyone: bool
    _fields: handles.HandleFields
    _is_closed: bool
    _pid: int
    _source: object
    _ticket: tuple[int, int]

    def __init__(self, *_: object) -> None:
        raise TypeError("a Handle is made by the export method of a Physical or a Buffer")

    @classmethod
    def _make(
        cls,
        source: object,
        allow: Allow,
        offer: Callable[[bool], handles.HandleFields],
        *,
        told: Iterable[object] | None = None,
    ) -> Handle:
        """Make a handle of a source; ``told``: what an observer knows that by, if not as the source itself."""
        everyone = isinstance(allow, str) and allow == EVERYONE
        if not isinstance(allow, Iterable):
            raise TypeError(f"export: allow must be pids or {EVERYONE!r}, not {type(allow).__name__}")
        if not everyone and isinstance(allow, (str, bytes)):
            raise InvalidValue(
                f"export: allow is {allow!r}; valid are a list of pids and {EVERYONE!r}", call="export"
            )
        pids = [] if everyone else [checked_pid("export", pid) for pid in allow]
        made = cls.__new__(cls)
        made._source = source
        made._fields = offer(everyone)
        made._ticket = made._fields.index, made._fields.nonce
        made._everyone, made._is_closed, made._pid = everyone, False, os.getpid()
        try:
            for pid in pids:
                made.allow.add(pid)
        except BaseException:
            made.close()
            raise
        if observers.active:
            for each in (source,) if told is None else told:
                observers.tell("export", each)
        if live_objects.active:
            live_objects.exported(made, source)
        return made

    @property
    def allow(self) -> AllowList:
        """Who may open it: a live set, whose changes are seen at once."""
        return AllowList(self)

    @allow.setter
    def allow(self, value: AllowList) -> None:
        # For ``handle.allow |= ...``, which assigns the set to itself.
        if not isinstance(value, AllowList) or value._handle is not self:
            raise AttributeError("a handle's allow is a live set: change it with add, discard, |= or clear")

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._is_closed

    @property
    def importers(self) -> int:
        """How many processes have it open now."""
        return _core.importers(*self._ticket) if self._is_mine else 0

    def close(self) -> None:
        """Let nobody open it any more; idempotent.  Who has opened it keeps the memory."""
        if not self._is_closed and self._is_mine:
            _core.withdraw(*self._ticket)
            if live_objects.active:
                live_objects.withdrawn(self)
        self._is_closed = True

    @property
    def _is_mine(self) -> bool:
        return self._pid == os.getpid()

    def _check_usable(self, call: str) -> None:
        _core.check_usable()
        if self._is_closed:
            raise self._over(call)

    def _check_offered(self, call: str) -> None:
        self._check_usable(call)
        if not (self._is_mine and _core.is_offered(*self._ticket)):
            raise self._over(call)

    def _over(self, call: str) -> Closed:
        return Closed(f"{call}: {self!r} is over: it was closed, or what it stood for was freed", call=call)

    def __int__(self) -> int:
        return handles.encode_int(self._fields)

    def __index__(self) -> int:
        return int(self)

    def __bytes__(self) -> bytes:
        return handles.encode_text(self._fields)

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)

    def __enter__(self) -> Handle:
        self._check_usable("Handle")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self._is_closed else ""
        return f"<Handle {int(self):#x}{state}>"


def checked_pid(call: str, pid: object) -> int:
    """Return a pid that a process can have."""
    if isinstance(pid, bool) or not isinstance(pid, int):
        raise TypeError(f"{call}: a pid must be an int, not {type(pid).__name__}")
    if not 0 < pid < 1 << 31:
        raise InvalidValue(f"{call}: {pid} is no pid; valid are 1 to {(1 << 31) - 1:,}", call=call)
    return pid


def checked_rights(call: str, rights: object) -> int:
    """Return what other processes may do, as native code counts it."""
    if rights not in ("r", "rw"):
        raise InvalidValue(f"{call}: rights is {rights!r}; valid are 'r' and 'rw'", call=call)
    return 1 if rights == "r" else 3


def open_offer(
    call: str,
    handle: object,
    kind: HandleKind,
    device: Device | None,
    timeout: float | None,
    *,
    reaches: bool = True,
) -> tuple[_core.Offer, Device]:
    """Ask the process that made a handle for what it stands for; return that, and whose memory it is.

    ``reaches``: the device has to reach that memory.
    """
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"{call}: the device must be a Device, not {type(device).__name__}")
    if isinstance(handle, Handle):
        handle = bytes(handle)
    if isinstance(handle, bool) or not isinstance(handle, (int, bytes, str)):
        raise TypeError(f"{call}: a handle is a Handle, bytes, str or int, not {type(handle).__name__}")
    seconds = checked_timeout(call, timeout)
    present = devices()
    offer = present[0].backend.open_handle(kind, handle, seconds)
    return _checked_offer(call, offer, device if reaches else None, present)


def open_file(call: str, fd: object, device: Device | None) -> tuple[_core.Offer, Device]:
    """Look at a descriptor of a block's file; return what it stands for, and whose memory it is."""
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"{call}: the device must be a Device, not {type(device).__name__}")
    if isinstance(fd, bool) or not isinstance(fd, int):
        raise TypeError(f"{call}: a descriptor is an int, not {type(fd).__name__}")
    if not 0 <= fd < 1 << 31:
        raise BadHandle(f"{call}: {fd} is no descriptor; valid are 0 to {(1 << 31) - 1:,}", call=call)
    present = devices()
    return _checked_offer(call, present[0].backend.open_file(fd), device, present)


def _checked_offer(
    call: str, offer: _core.Offer, device: Device | None, present: tuple[Device, ...]
) -> tuple[_core.Offer, Device]:
    try:
        return offer, _home(call, offer, device, present)
    except BaseException:
        offer.close()
        raise


def _home(call: str, offer: _core.Offer, device: Device | None, present: tuple[Device, ...]) -> Device:
    if offer.device >= len(present):
        raise BadHandle(
            f"{call}: the process that made the handle claims device {offer.device}, which this node lacks",
            fault=Fault.FALSE_CLAIM,
            call=call,
        )
    home = present[offer.device]
    if not offer.size:
        raise BadHandle(
            f"{call}: the process that made the handle claims memory of 0 bytes",
            fault=Fault.FALSE_CLAIM,
            call=call,
        )
    if offer.size > home.total_bytes:  # it would count, and leave nothing for anybody
        raise BadHandle(
            f"{call}: the process that made the handle claims {offer.size:,} bytes on {home.name}, which has "
            f"{home.total_bytes:,}",
            fault=Fault.FALSE_CLAIM,
            call=call,
        )
    if device is not None and device is not home and not device.can_access(home):
        raise AccessDenied(
            f"{call}: the memory is on {home.name}, which {device.name} cannot reach: {device.why_not(home)}",
            fault=Fault.PEER_UNREACHABLE,
            call=call,
            device=device.name,
        )
    return home

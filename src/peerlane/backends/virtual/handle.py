"""Handles, which the native broker serves, and their allow-lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from peerlane import _core
from peerlane.backends.virtual.native_classes import show_as
from peerlane.backends.virtual.node import handles
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.log import event_log, observers
from peerlane.errors import BadArgument, Closed, InvalidValue, Refused
from peerlane.sharing.handle import EVERYONE, Allow, AllowList, Handle, checked_pid


class VirtualAllowList(AllowList):
    __slots__ = ("_handle",)

    _handle: VirtualHandle

    def __init__(self, handle: VirtualHandle) -> None:
        self._handle = handle

    @property
    def is_everyone(self) -> bool:
        return self._handle._everyone

    def add(self, value: int) -> None:
        pid = checked_pid("Handle.allow.add", value)
        self._handle._check_offered("Handle.allow.add")
        if self.is_everyone:
            raise InvalidValue(
                f"Handle.allow.add: the handle was exported with allow={EVERYONE!r}, so every process of this user "
                "may open it; export with a list of pids to choose them",
                call="Handle.allow.add",
                detail=Refused(reason="open_to_all", allow=EVERYONE),
            )
        if event_log.active:
            event_log.shares_with(pid)
        if not _core.allow(*self._handle._entry, pid):
            raise self._handle._over("Handle.allow.add")

    def discard(self, value: int) -> None:
        pid = checked_pid("Handle.allow.discard", value)
        self._handle._check_usable("Handle.allow.discard")
        _core.disallow(*self._handle._entry, pid)

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
        return [pid for pid, _ in _core.allowed(*self._handle._entry)] if self._handle._is_mine else []

    def __repr__(self) -> str:
        return (
            f"AllowList({EVERYONE!r})" if self.is_everyone else f"AllowList({{{', '.join(map(str, self))}}})"
        )


class VirtualHandle(Handle):
    __slots__ = ("_entry", "_everyone", "_is_closed", "_pid", "_source", "_text")
    _entry: tuple[int, int]
    _everyone: bool
    _is_closed: bool
    _pid: int
    _source: object
    _text: bytes

    @classmethod
    def _make(
        cls,
        source: object,
        allow: Allow,
        offer: Callable[[list[int] | None], tuple[tuple[int, int], bytes]],
        *,
        observed: Iterable[object] | None = None,
    ) -> VirtualHandle:
        """Make a handle of a source; observers get the export of each of ``observed``, by default of the source.

        ``offer``: returns the entry and the text of an export for these pids, or for all processes of the user.
        """
        everyone = isinstance(allow, str) and allow == EVERYONE
        if not isinstance(allow, (list, tuple)) and not isinstance(allow, Iterable):
            raise TypeError(f"export: allow must be pids or {EVERYONE!r}, not {type(allow).__name__}")
        if not everyone and isinstance(allow, (str, bytes)):
            raise InvalidValue(
                f"export: allow is {allow!r}; valid are a list of pids and {EVERYONE!r}",
                call="export",
                detail=BadArgument("allow", allow, choices=(EVERYONE,), rule="a list of pids"),
            )
        pids = None if everyone else [checked_pid("export", pid) for pid in allow]
        if event_log.active:
            for pid in pids or ():
                event_log.shares_with(pid)
        handle = cls.__new__(cls)
        handle._source = source
        handle._entry, handle._text = offer(pids)
        handle._everyone, handle._is_closed, handle._pid = everyone, False, os.getpid()
        if observers.active:
            for each in (source,) if observed is None else observed:
                observers.send("export", each)
        if (
            live_objects.active and observed is None
        ):  # the program did not ask for the handle of other objects
            live_objects.exported(handle._entry, handle, source)
        return handle

    @property
    def allow(self) -> AllowList:
        return VirtualAllowList(self)

    @allow.setter
    def allow(self, value: AllowList) -> None:
        # For ``handle.allow |= ...``, which assigns the set to itself.
        if not isinstance(value, VirtualAllowList) or value._handle is not self:
            raise AttributeError("a handle's allow is a live set: change it with add, discard, |= or clear")

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def importers(self) -> int:
        return _core.importers(*self._entry) if self._is_mine else 0

    def close(self) -> None:
        if not self._is_closed and self._is_mine:
            _core.withdraw(*self._entry)
            if live_objects.active:
                live_objects.withdrawn(self._entry)
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
        if not (self._is_mine and _core.is_offered(*self._entry)):
            raise self._over(call)

    def _over(self, call: str) -> Closed:
        return Closed(
            f"{call}: {self!r} is no longer valid: it was closed, or the exported object was freed",
            call=call,
            detail=Refused(reason="closed", what=repr(self)),
        )

    def __int__(self) -> int:
        return handles.encode_int(handles.decode(self._text))

    def __bytes__(self) -> bytes:
        return self._text

    def __enter__(self) -> Handle:
        self._check_usable("Handle")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self._is_closed else ""
        return f"<Handle {int(self):#x}{state}>"


show_as(AllowList, VirtualAllowList)
show_as(Handle, VirtualHandle)

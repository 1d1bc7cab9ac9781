"""Handles, with which other processes open memory of this one, and their lists of allowed processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import TypeAlias

from peerlane.errors import BadArgument, InvalidValue
from peerlane.support.declared import owed

Allow: TypeAlias = "Iterable[int] | str"

EVERYONE = "user"


class AllowList(MutableSet[int]):
    """The processes that may open a handle: a live set of pids.

    A pid is listed with the start time of its process, so that a later process with the same pid is not taken for it.
    Adding the pid again lists the process that has it now.

    Examples
    --------
    >>> import os
    >>> with pl.device(0).allocate(64) as buffer:
    ...     handle = buffer.export()
    ...     handle.allow.add(os.getppid())
    ...     print(os.getppid() in handle.allow, len(handle.allow))
    True 1
    """

    __slots__ = ()

    @property
    def is_everyone(self) -> bool:
        """Whether any process of this user may open the handle: it was exported with ``allow="user"``."""
        raise NotImplementedError

    @owed
    def add(self, value: int) -> None:
        """Let the process with this pid open the handle, from now on.

        Raises
        ------
        InvalidValue
            ``value`` is not a pid, or all processes of the user may open the handle anyway.
        Closed
        """
        raise NotImplementedError

    @owed
    def discard(self, value: int) -> None:
        """Take a pid off the list; a process that has opened the handle keeps the memory."""
        raise NotImplementedError

    @owed
    def __contains__(self, value: object) -> bool:
        raise NotImplementedError

    @owed
    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError

    @owed
    def __len__(self) -> int:
        raise NotImplementedError


class Handle:
    """A name by which other processes open exported memory: an int of 63 bits, or 64 ASCII characters.

    Made by ``export`` of :class:`Physical`, :class:`Buffer`, :class:`Event` and :class:`Notify`.  Send
    ``int(handle)`` or ``bytes(handle)`` by any means.  It is not a secret: only processes that ``allow`` lists can
    open it.  It pickles as its bytes.  This object keeps the exported object alive until that is closed; dropping
    this object ends nothing else.

    Examples
    --------
    >>> with pl.device(0).allocate(64) as buffer:
    ...     handle = buffer.export()
    ...     print(len(bytes(handle)), int(handle) < 1 << 63)
    64 True
    """

    __slots__ = ()

    def __init__(self, *_: object) -> None:
        raise TypeError("a Handle is made by the export method of a Physical or a Buffer")

    @property
    def allow(self) -> AllowList:
        """The processes that may open it: a live set, whose changes take effect at once."""
        raise NotImplementedError

    @allow.setter
    def allow(self, value: AllowList) -> None:
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        raise NotImplementedError

    @property
    def importers(self) -> int:
        """How many processes have it open now."""
        raise NotImplementedError

    @owed
    def close(self) -> None:
        """Let no process open it any more; idempotent.  Processes that have opened it keep the memory."""
        raise NotImplementedError

    @owed
    def __int__(self) -> int:
        raise NotImplementedError

    def __index__(self) -> int:
        return int(self)

    @owed
    def __bytes__(self) -> bytes:
        raise NotImplementedError

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)

    @owed
    def __enter__(self) -> Handle:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self.close()

    @owed
    def _check_offered(self, call: str) -> None:
        """Raise ``Closed`` if no process can open it any more."""
        raise NotImplementedError


def check_offered(handle: Handle, call: str) -> None:
    """Raise ``Closed`` if no process can open a handle any more."""
    handle._check_offered(call)


def checked_pid(call: str, pid: object) -> int:
    """Return ``pid`` if a process can have it."""
    if isinstance(pid, bool) or not isinstance(pid, int):
        raise TypeError(f"{call}: a pid must be an int, not {type(pid).__name__}")
    if not 0 < pid < 1 << 31:
        raise InvalidValue(
            f"{call}: {pid} is not a pid; valid are 1 to {(1 << 31) - 1:,}",
            call=call,
            detail=BadArgument("pid", pid, least=1, most=(1 << 31) - 1),
        )
    return pid


def checked_rights(call: str, rights: object) -> int:
    """Return native code's number for the rights of other processes."""
    if rights not in ("r", "rw"):
        raise InvalidValue(
            f"{call}: rights is {rights!r}; valid are 'r' and 'rw'",
            call=call,
            detail=BadArgument("rights", rights, choices=("r", "rw")),
        )
    return 1 if rights == "r" else 3

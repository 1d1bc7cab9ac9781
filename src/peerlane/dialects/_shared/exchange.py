"""Exports and imports of a process: IPC keys, handles, shared physical memory.

:class:`Imports` gives the same thing for the same key, counts how often, and opens it once for all threads::

    found = imports.open(key, lambda: Buffer.open(key, device=device), lambda buffer: Opened(buffer))
    ended = imports.release(key)      # the thing, when it was given back as often as it was given out

:class:`Exports` remembers exports, and forgets those that no process can import any more::

    exports = Exports(lambda given: given.buffer.is_closed and not given.handle.importers)
    exports.add(key, given)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from peerlane.dialects._shared.machine import Machine

_FIRST_LOOK = 64


class _Closable(Protocol):
    def close(self) -> None:
        """Let go of it."""


class _Counted(Protocol):
    references: int  # how often it was given out and not yet given back


_Key = TypeVar("_Key")
_Opened = TypeVar("_Opened", bound=_Closable)
_Given = TypeVar("_Given")
_Thing = TypeVar("_Thing", bound=_Counted)


class Imports(Generic[_Key, _Thing]):
    """Objects that this process imported, once for each key.

    Parameters
    ----------
    machine : Machine
        Its lock is held while the table changes, and never while another process is asked.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._by_key: dict[_Key, _Thing] = {}

    def __iter__(self) -> Iterator[_Thing]:
        """Go through the present imports."""
        with self._machine.lock:
            return iter(list(self._by_key.values()))

    def get(self, key: _Key) -> _Thing | None:
        """Return the import of a key; None if there is none."""
        return self._by_key.get(key)

    def open(
        self,
        key: _Key,
        opening: Callable[[], _Opened],
        keeping: Callable[[_Opened], _Thing],
        *,
        again: Callable[[_Thing], None] = lambda known: None,
    ) -> _Thing:
        """Return the import of a key, with one more reference if there is one already.

        Parameters
        ----------
        key : hashable
        opening : callable
            Opens a new key.  No lock is held: it may wait for the process that exported.
        keeping : callable
            Makes the thing of the opened object, under the lock.  If it raises, that object is closed.
        again : callable
            Called with a thing that is given out once more, under the lock, before it is counted; it may refuse.
        """
        known = self._again(key, again)
        if known is not None:
            return known
        opened = opening()
        try:
            with self._machine.lock:
                known = self._again(key, again)
                if known is None:
                    self._by_key[key] = made = keeping(opened)
                    return made
        except BaseException:
            opened.close()
            raise
        opened.close()  # another thread was quicker
        return known

    def _again(self, key: _Key, again: Callable[[_Thing], None]) -> _Thing | None:
        with self._machine.lock:
            known = self._by_key.get(key)
            if known is not None:
                again(known)
                known.references += 1
            return known

    def release(self, key: _Key) -> _Thing | None:
        """Take back one reference of a key that is known; return the thing if it was the last."""
        with self._machine.lock:
            found = self._by_key[key]
            found.references -= 1
            if found.references:
                return None
            return self._by_key.pop(key)

    def forget(self, key: _Key) -> None:
        """Take out the import of a key, however often it was given out."""
        self._by_key.pop(key, None)


class Exports(Generic[_Key, _Given]):
    """Exports of this process, by key; the table does not grow for ever.

    Parameters
    ----------
    is_over : callable
        Tells whether no process can import an export any more, nor ask about it.  All exports are looked at when
        there are twice as many as the last look left.
    """

    def __init__(self, is_over: Callable[[_Given], bool]) -> None:
        self._is_over = is_over
        self._by_key: dict[_Key, _Given] = {}
        self._next_look = _FIRST_LOOK

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._by_key)

    def get(self, key: _Key) -> _Given | None:
        """Return the export of a key; None if there is none."""
        return self._by_key.get(key)

    def items(self) -> list[tuple[_Key, _Given]]:
        """Return all exports with their keys; another thread may go on exporting."""
        return list(self._by_key.items())

    def add(self, key: _Key, given: _Given) -> None:
        """Remember an export, and forget those that are over."""
        if len(self._by_key) >= self._next_look:
            self._by_key = {at: each for at, each in self.items() if not self._is_over(each)}
            self._next_look = 2 * len(self._by_key) + _FIRST_LOOK
        self._by_key[key] = given

    def pop(self, key: _Key) -> _Given | None:
        """Take out an export; None if there is none."""
        return self._by_key.pop(key, None)

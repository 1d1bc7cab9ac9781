"""Exports and imports of a process: IPC keys, handles, shared physical memory.

:class:`Imports` opens a key once for all threads, returns the same import for it each time, and counts references::

    opened = imports.open(key, lambda: Buffer.open(key, device=device), lambda buffer: Opened(buffer))
    ended = imports.release(key)      # the import, if this was its last reference

:class:`Exports` remembers exports, and forgets those that no process can import any more::

    exports = Exports(lambda export: export.buffer.is_closed and not export.handle.importers)
    exports.add(key, export)
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
    references: int  # how often it was opened and not yet released


_Key = TypeVar("_Key")
_Opened = TypeVar("_Opened", bound=_Closable)
_Export = TypeVar("_Export")
_Import = TypeVar("_Import", bound=_Counted)


class Imports(Generic[_Key, _Import]):
    """Objects that this process imported, once for each key.

    ``machine``: its lock is held while the table changes, and never while another process is asked.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._by_key: dict[_Key, _Import] = {}

    def __iter__(self) -> Iterator[_Import]:
        """Iterate over the present imports."""
        with self._machine.lock:
            return iter(list(self._by_key.values()))

    def get(self, key: _Key) -> _Import | None:
        """Return the import of a key; None if there is none."""
        return self._by_key.get(key)

    def open(
        self,
        key: _Key,
        opening: Callable[[], _Opened],
        keeping: Callable[[_Opened], _Import],
        *,
        again: Callable[[_Import], None] = lambda known: None,
    ) -> _Import:
        """Return the import of a key, with one more reference if there is one already.

        ``opening``: opens a new key.  No lock is held: it may wait for the process that exported.
        ``keeping``: makes the import of the opened object, under the lock.  If it raises, that object is closed.
        ``again``: called under the lock with an import that gets one more reference, before it is counted; it may
            refuse.
        """
        known = self._again(key, again)
        if known is not None:
            return known
        opened = opening()
        try:
            with self._machine.lock:
                known = self._again(key, again)
                if known is None:
                    self._by_key[key] = entry = keeping(opened)
                    return entry
        except BaseException:
            opened.close()
            raise
        opened.close()  # another thread was quicker
        return known

    def _again(self, key: _Key, again: Callable[[_Import], None]) -> _Import | None:
        with self._machine.lock:
            known = self._by_key.get(key)
            if known is not None:
                again(known)
                known.references += 1
            return known

    def release(self, key: _Key) -> _Import | None:
        """Drop one reference of a key that is known; return the import if it was the last."""
        with self._machine.lock:
            entry = self._by_key[key]
            entry.references -= 1
            if entry.references:
                return None
            return self._by_key.pop(key)

    def forget(self, key: _Key) -> None:
        """Take out the import of a key, whatever its references."""
        self._by_key.pop(key, None)


class Exports(Generic[_Key, _Export]):
    """Exports of this process, by key; the table does not grow for ever.

    ``is_over``: tells whether no process can import an export any more, nor ask about it.  It is called for all
        exports when there are twice as many as the last time left.
    """

    def __init__(self, is_over: Callable[[_Export], bool]) -> None:
        self._is_over = is_over
        self._by_key: dict[_Key, _Export] = {}
        self._next_look = _FIRST_LOOK

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._by_key)

    def get(self, key: _Key) -> _Export | None:
        """Return the export of a key; None if there is none."""
        return self._by_key.get(key)

    def items(self) -> list[tuple[_Key, _Export]]:
        """Return all exports with their keys; another thread may go on exporting."""
        return list(self._by_key.items())

    def add(self, key: _Key, export: _Export) -> None:
        """Remember an export, and forget those that are over."""
        if len(self._by_key) >= self._next_look:
            self._by_key = {at: each for at, each in self.items() if not self._is_over(each)}
            self._next_look = 2 * len(self._by_key) + _FIRST_LOOK
        self._by_key[key] = export

    def pop(self, key: _Key) -> _Export | None:
        """Take out an export; None if there is none."""
        return self._by_key.pop(key, None)

"""Observers, which see every operation: the ground for race checkers, tracers and fault injection.

At most one observer is set.  Without one each operation costs one branch.  While there is one, native code writes an
event log for it, because threads that run operations never take the GIL.  The next submission, synchronization, query
or :func:`flush` passes the new events on; ``order`` is the order in which they happened.
"""

from __future__ import annotations

import functools
import os
import warnings
import weakref
from typing import Any, Protocol

from peerlane import _core
from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log
from peerlane.support.records import dataclass

active = False  #: whether an observer is set
_GAP, _SUBMITTED, _NOTICED = (event_log.KINDS[each] for each in ("gap", "op_submitted", "noticed"))
_NOTICES = tuple(_core.LOG_NOTICES)
_OBJECTS = tuple(_core.LOG_OBJECTS)
_OPS = _core.LOG_OPS


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a block of device memory, by their offset in it; with ``block`` 0, bytes of the host by address."""

    block: int
    offset: int
    size: int
    written: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation when it is submitted, or when it starts.

    Attributes
    ----------
    order : int
        Grows with each submission, start and notice of the process, in the order in which they happened.
    process, stream, sequence : int
        The operation's process, stream and number there; ``stream`` 0 is a call that was complete on return, which
        is reported when it is over, and not if it raised.
    kind : str
        ``copy``, ``copy_2d``, ``fill``, ``reduce``, ``write_value``, ``free``, ``batch``, ``descriptor``, ``record``,
        ``wait``, ``notify``, ``wait_notify``, ``wait_value``, ``callback``, ``collective`` or ``file`` (copies
        between memory and files).
    spans : tuple of Span
        The bytes that it reads and writes, as far as they are known: those of a descriptor's copies are known when it
        starts.  A wait starts when it is over; a cancelled operation never starts.
    signal, record : int
        For ``record`` and ``wait``: the stream and the number of the recording operation.  For notifies: the notify
        and, when it starts, the number of the record.  Else 0.
    site : str
        The line that submitted it; empty for starts.
    """

    order: int
    process: int
    stream: int
    sequence: int
    kind: str
    spans: tuple[Span, ...]
    signal: int
    record: int
    site: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """An observed fact that is not an operation.

    Attributes
    ----------
    order : int
        As for operations.
    kind : str
        ``create``, ``destroy``, ``sync``, ``query``, ``abort``, ``reset``, ``view``, ``unview``, ``export`` or
        ``import``.  A sync or a query was successful.  An object is destroyed once, when it is closed or dropped.
        After an ``export`` other processes may use the object, and only their observers see their uses; a channel
        exports each notify of its end.  An ``import`` names an object that another process exported and this one
        opened: an event or a notify, after its ``create``, or physical memory.
    what, id : str, int
        ``Stream``, ``Event``, ``Notify`` or ``Buffer`` and its number in this process; for ``export`` and
        ``import`` also ``Physical``, whose number is unique in the node.  ``Node`` 0 is destroyed, with all its
        objects, when the process leaves it.
    spans : tuple of Span
        The bytes of a buffer that is created or destroyed, or that a view lets the host touch.
    stream, sequence : int
        Of a sync or a query: an operation that is over, with all operations before it in the stream.  Of an abort:
        the last operation that it may cancel.  Of a reset, ``sequence`` only: the number of the last record that it
        discarded.
    """

    order: int
    kind: str
    what: str
    id: int
    spans: tuple[Span, ...] = ()
    stream: int = 0
    sequence: int = 0


class Observer(Protocol):
    """The methods of an observer.

    The thread that acts calls them, or another one that acts at the same time.  An exception goes to
    ``sys.unraisablehook``, and does not reach the program.  What was not handed over yet takes at most 1 GiB; beyond
    that events are lost, and a ``RuntimeWarning`` has their number.

    Examples
    --------
    >>> class Kinds:  # prints what the program submits
    ...     def submitted(self, operation):
    ...         print(operation.kind, [span.size for span in operation.spans])
    ...     def started(self, operation):
    ...         pass
    ...     def noticed(self, notice):
    ...         pass
    >>> before = pl.set_observer(Kinds())
    >>> with pl.device(0).allocate(16) as buffer:
    ...     buffer.fill(0)
    ...     _ = pl.set_observer(before)
    fill [16]
    """

    def submitted(self, operation: Operation) -> None:
        """Take an operation that was submitted, with the bytes that it will touch."""
        ...

    def started(self, operation: Operation) -> None:
        """Take an operation that has started, with the bytes that it touches."""
        ...

    def noticed(self, notice: Notice) -> None:
        """Take a fact that is not an operation."""
        ...


class Recorder:
    """An observer that keeps all operations and notices, sorted by ``order``."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Operation | Notice]] = []

    def submitted(self, operation: Operation) -> None:
        """Keep a submission."""
        self.log.append(("submitted", operation))

    def started(self, operation: Operation) -> None:
        """Keep a start."""
        self.log.append(("started", operation))

    def noticed(self, notice: Notice) -> None:
        """Keep a notice."""
        self.log.append(("noticed", notice))

    def operations(self, moment: str, kind: str | None = None) -> list[Operation]:
        """Return the operations of one moment, by ``order``; only those of ``kind`` if that is not None."""
        flush()
        operations = [each for when, each in self.log if when == moment and isinstance(each, Operation)]
        return sorted((each for each in operations if kind in (None, each.kind)), key=lambda each: each.order)

    def notices(self, kind: str, what: str | None = None) -> list[Notice]:
        """Return the notices of one kind, by ``order``."""
        notices = [each for _, each in self.log if isinstance(each, Notice) and each.kind == kind]
        return sorted((each for each in notices if what in (None, each.what)), key=lambda each: each.order)


_METHODS = ("submitted", "started", "noticed")
_observer: Observer | None = None


def set_observer(observer: Observer | None) -> Observer | None:
    """Set the observer, or None for none; return the one before.

    It sees the starts of operations that are already queued, too.

    Raises
    ------
    TypeError
        It lacks a method of :class:`Observer`.  The one before stays set.
    OSError
        There is no room for its log.  The one before stays set.

    Examples
    --------
    >>> from peerlane.diagnostics.log.observers import Recorder
    >>> recorder = Recorder()
    >>> before = pl.set_observer(recorder)
    >>> with pl.device(0).allocate(16) as buffer:
    ...     buffer.fill(0)
    ...     _ = pl.set_observer(before)
    >>> [operation.kind for operation in recorder.operations("submitted")]
    ['fill']
    """
    global active, _observer
    _core.check_usable()
    missing = [
        name for name in _METHODS if observer is not None and not callable(getattr(observer, name, None))
    ]
    if missing:
        raise TypeError(
            f"set_observer: {type(observer).__name__} has no method {', '.join(missing)}; an observer takes "
            f"{', '.join(_METHODS)}"
        )
    flush()
    _core.observe(None if observer is None else _deliver, event_log.DEFAULT_BYTES)
    before, _observer = _observer, observer
    active = observer is not None
    return before


def flush() -> None:
    """Pass the new events on to the observer."""
    _core.tell_observer()


def send(kind: str, what: Any, *, stream: int = 0, sequence: int = 0) -> None:
    """Send the observer a notice about an object."""
    memory = what if isinstance(what, _core.Memory) else None
    send_id(kind, type(what).__name__, what.id, memory, stream, sequence)


_ends: dict[tuple[str, int], Any] = {}  # finalizers that send, once, the notice of an object's end


def created(what: Any) -> None:
    """Send the notice of a new object and, when it is closed or dropped, that of its end."""
    send("create", what)
    key = type(what).__name__, what.id
    _ends[key] = weakref.finalize(what, _ended, *key)


def closed(what: Any) -> None:
    """Send the notice of an object's end, if that of its beginning was sent."""
    end = _ends.get((type(what).__name__, what.id))
    if end is not None:
        end()


def _ended(what: str, number: int) -> None:
    del _ends[what, number]
    send_id("destroy", what, number)


def send_id(
    kind: str, what: str, number: int, memory: Any = None, stream: int = 0, sequence: int = 0
) -> None:
    """Send a notice about an object of which only the number is left, or with the bytes of its memory."""
    _core.notice(_core.LOG_NOTICES[kind], _core.LOG_OBJECTS[what], number, memory, stream, sequence)


def _deliver(event: tuple[int, int, int, int, int, int, int, int, Any]) -> None:
    """Pass an event of the log on to the observer; ``native/log/event.h`` describes its fields."""
    observer = _observer
    if observer is None:
        return
    moment, order, what, site, stream, sequence, a, b, spans = event
    # The native caller passes an observer's exception to sys.unraisablehook: the observed call was not refused.
    touched = tuple(Span(*span) for span in spans)
    if moment == _NOTICED:
        observer.noticed(Notice(order, _NOTICES[what], _OBJECTS[a], b, touched, stream, sequence))
    elif moment == _GAP:
        warnings.warn(f"the log of the observer was full; events lost: {a:,}", RuntimeWarning, stacklevel=2)
    else:
        take = observer.submitted if moment == _SUBMITTED else observer.started
        take(Operation(order, os.getpid(), stream, sequence, _OPS[what], touched, a, b, _line(site)))


@functools.lru_cache(1 << 12)
def _line(site: int) -> str:
    return str(call_site.at(_core.log_site_of(site)) or "")

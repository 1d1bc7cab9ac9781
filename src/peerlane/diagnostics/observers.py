"""The seam where an observer sees every operation: what a race checker, a tracer or fault injection is made of.

At most one observer is in place.  Without one each operation pays a single branch.  Whoever runs an operation
never takes the interpreter's lock, so starts are kept natively and handed over, in order, with the next
submission, synchronization or query, or by :func:`flush`; ``order`` tells what came before what.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from peerlane import _core
from peerlane.diagnostics import call_site

active = False  #: whether an observer is in place


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a block of device memory, whatever address they are mapped at; of the host where ``block`` is 0."""

    block: int
    offset: int
    size: int
    written: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation at one of two moments.

    Attributes
    ----------
    order : int
        Submissions, starts and notices of a process, counted in the order in which they happened.
    process, stream, sequence : int
        Which operation it is; ``stream`` 0 is a call that was complete on return.
    kind : str
        ``copy``, ``copy_2d``, ``fill``, ``reduce``, ``write_value``, ``free``, ``batch``, ``descriptor``, ``record``,
        ``wait``, ``notify``, ``wait_notify``, ``wait_value`` or ``callback``.
    spans : tuple of Span
        What is read and written, as far as it is known at that moment: a descriptor names its copies when it
        starts.  A wait starts when it is over; what is cancelled never does.
    signal, record : int
        For ``record`` and ``wait`` the stream and the number of the recording operation; for notifies the
        notify and, when it starts, the number of the record; else 0.
    site : str
        Where the program submitted it; empty for starts.
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
    """Something that is no operation.

    Attributes
    ----------
    order : int
        As of operations.
    kind : str
        ``create``, ``destroy``, ``sync``, ``query``, ``abort``, ``reset``, ``view``, ``unview``, ``export`` or
        ``import``; a sync or a query was successful.  What is closed or dropped is destroyed, once.  After an
        ``export`` other processes may use what it names, and what they do is told to their observers only; a
        channel exports each notify of its end.  An ``import`` names what another process exported and this one
        opened: an event or a notify, after its ``create``, or physical memory.
    what, id : str, int
        ``Stream``, ``Event``, ``Notify`` or ``Buffer`` and its number in this process; for ``export`` and
        ``import`` also ``Physical``, whose number is unique in the node; ``Node`` 0 is destroyed, with all that
        belongs to it, when it is left.
    spans : tuple of Span
        The bytes of a buffer that begins or ends, or that a view lets the host touch.
    stream, sequence : int
        Of a sync or a query: the operation that is over, and with it all before it in that stream.  Of an abort:
        the last operation that may be cancelled by it.  Of a reset, ``sequence`` only: the number of the last
        record that it took back.
    """

    order: int
    kind: str
    what: str
    id: int
    spans: tuple[Span, ...] = ()
    stream: int = 0
    sequence: int = 0


class Observer(Protocol):
    """What an observer is told.  Called by the thread that acts; what it raises is reported, not passed on."""

    def submitted(self, operation: Operation) -> None:
        """Take an operation that was accepted, with what it will touch."""
        ...

    def started(self, operation: Operation) -> None:
        """Take an operation that has started, with what it touches."""
        ...

    def noticed(self, notice: Notice) -> None:
        """Take what is no operation."""
        ...


class Recorder:
    """An observer that keeps everything it is told, in the order of ``order``."""

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
        """Return the operations of one moment, by ``order``; of one kind if that is given."""
        flush()
        found = [each for when, each in self.log if when == moment and isinstance(each, Operation)]
        return sorted((each for each in found if kind in (None, each.kind)), key=lambda each: each.order)

    def notices(self, kind: str, what: str | None = None) -> list[Notice]:
        """Return the notices of one kind, by ``order``."""
        found = [each for _, each in self.log if isinstance(each, Notice) and each.kind == kind]
        return sorted((each for each in found if what in (None, each.what)), key=lambda each: each.order)


_METHODS = ("submitted", "started", "noticed")
_observer: Observer | None = None


def set_observer(observer: Observer | None) -> Observer | None:
    """Put an observer in place, or None for none; return the one before.

    Operations that are queued by then are told when they start.

    Raises
    ------
    TypeError
        It lacks a method of :class:`Observer`.  The one before stays.
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
    before, _observer = _observer, observer
    active = observer is not None
    _core.set_observer(_told if active else None)
    return before


def flush() -> None:
    """Hand over the starts that were kept."""
    observer = _observer
    for started in _core.take_started():
        if observer is not None:
            _hand(observer.started, _operation(started, ""))


def tell(kind: str, what: Any, *, stream: int = 0, sequence: int = 0) -> None:
    """Tell of something that is no operation."""
    spans = _spans(what.spans) if isinstance(what, _core.Memory) else ()
    tell_id(kind, type(what).__name__, what.id, spans, stream, sequence)


_ends: dict[tuple[str, int], Any] = {}  # how to tell, once, that something ends


def created(what: Any) -> None:
    """Tell that something begins and, when it is closed or gone, that it ends."""
    tell("create", what)
    key = type(what).__name__, what.id
    _ends[key] = weakref.finalize(what, _ended, *key)


def closed(what: Any) -> None:
    """Tell that something ends whose beginning was told."""
    end = _ends.get((type(what).__name__, what.id))
    if end is not None:
        end()


def _ended(what: str, number: int) -> None:
    del _ends[what, number]
    tell_id("destroy", what, number)


def tell_id(
    kind: str, what: str, number: int, spans: tuple[Span, ...] = (), stream: int = 0, sequence: int = 0
) -> None:
    """Tell of something of which only the number is left."""
    flush()
    observer = _observer
    if observer is not None:
        _hand(observer.noticed, Notice(_core.next_order(), kind, what, number, spans, stream, sequence))


class _Raised(NamedTuple):
    """What ``sys.unraisablehook`` is given."""

    exc_type: type[BaseException]
    exc_value: BaseException
    exc_traceback: TracebackType | None
    err_msg: str
    object: object


def _hand(take: Callable[[Any], object], seen: Operation | Notice) -> None:
    """Tell an observer.  What happened has happened: what it raises must not look like a refusal."""
    try:
        take(seen)
    except Exception as error:  # noqa: BLE001 - anything; it is reported
        sys.unraisablehook(_Raised(type(error), error, error.__traceback__, "Exception ignored in", take))  # type: ignore[arg-type]  # the same attributes


def _told(seen: Any) -> None:
    """Take what native code tells: hook of the native module."""
    flush()
    observer = _observer
    if observer is None:
        return
    if seen[3] in ("view", "unview"):
        _hand(observer.noticed, Notice(seen[0], seen[3], "Buffer", seen[2], _spans(seen[4])))
    else:
        _hand(observer.submitted, _operation(seen, str(call_site.call_site() or "")))


def _operation(seen: Any, site: str) -> Operation:
    order, stream, sequence, kind, spans, signal, record = seen
    return Operation(order, os.getpid(), stream, sequence, kind, _spans(spans), signal, record, site)


def _spans(spans: Any) -> tuple[Span, ...]:
    return tuple(Span(*span) for span in spans)

"""The live objects of this process and the lines that created them: what a test or a long program left behind.

Memory and reserved addresses are always known, with the line of their allocation.  Streams, events, notifies,
physical memory, exported handles and views are noted between :func:`begin` and :func:`end` only; at other times their
creation costs one branch more.  A note keeps no object alive: an object that Python drops is not listed.

Examples
--------
>>> live_objects.begin()
>>> stream = device.create_stream()
>>> for each in live_objects.living():
...     print(each.text, each.site)
stream 1 on virtual:0: idle program.py:2
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from peerlane.diagnostics import call_site
from peerlane.diagnostics.call_site import Site
from peerlane.diagnostics.memory import allocations
from peerlane.support.records import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

active = False  #: whether new objects are noted

_CALLERS = 32
_DIALECTS = "peerlane.dialects."


@dataclass(frozen=True, slots=True)
class LiveObject:
    """A live object."""

    kind: str  #: its kind: ``memory``, ``pinned memory``, ``address range``, ``stream``, ``view``, ...
    text: str  #: its number and its state
    nbytes: int  #: its size in bytes; 0 if it has none
    where: str  #: its device, or ``host``; empty if it has neither
    site: Site | None  #: the line that created it, with its callers; None if it is not known


def in_bytes(nbytes: int) -> str:
    """Return a size in words."""
    return f"{nbytes:,} byte{'s' * (nbytes != 1)}"


Source = Callable[[], Iterable[LiveObject]]


@dataclass(frozen=True, slots=True)
class _Noted:
    reference: weakref.ref[Any]
    site: Site | None
    text: str = ""  # if empty, the object's repr
    kind: str = ""
    nbytes: int = 0
    where: str = ""
    allocation: int = 0  # of a view

    def look(self) -> LiveObject | None:
        what = self.reference()
        if what is None or (not self.allocation and _is_over(what)):
            return None
        name = type(what).__name__
        text = self.text or repr(what).strip("<>")
        return LiveObject(
            self.kind or name.lower(),
            text[:1].lower() + text[1:],
            self.nbytes or getattr(what, "size", 0),
            self.where or what.device.name,
            self.site,
        )


@dataclass(frozen=True, slots=True)
class _Mapped:
    physical: weakref.ref[Any]
    block: int
    size: int
    where: str
    site: Site | None


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """An object that was live when its node was left; ``holder`` refers to the object that keeps it, or is None."""

    living: LiveObject
    holder: weakref.ref[Any] | None


_noted: dict[object, _Noted] = {}
_mapped: dict[tuple[int, int], _Mapped] = {}  # by the address range's number and the offset
_buffers: dict[int, weakref.ref[Any] | None] = {}  # by allocation; None: it belongs to a dialect
_lost: list[LeftBehind] = []
_sources: list[Source] = []


def begin() -> None:
    """Note new objects from now on; forget those noted before."""
    global active
    _forget()
    call_site.callers_kept = _CALLERS
    active = True


def end() -> None:
    """Stop noting objects, and forget those noted; idempotent."""
    global active
    active = False
    call_site.callers_kept = 0
    _forget()


def _forget() -> None:
    for each in (_noted, _mapped, _buffers, _lost):
        each.clear()


def add_source(source: Source) -> None:
    """Add a source of objects for :func:`living`: those that a dialect returned as numbers."""
    _sources.append(source)


def living() -> tuple[LiveObject, ...]:
    """Return the live objects, memory first.

    Objects of a node that was left are not live: :func:`left_behind` has them.  A view is listed only if its buffer
    was closed, so that the view alone keeps the bytes.
    """
    objects = [living for _, living in _memory()]
    objects += _mappings()
    objects += (living for _, living in _others())
    for source in _sources:
        objects += source()
    return tuple(objects)


def left_behind() -> tuple[LiveObject, ...]:
    """Return the objects that were live when their node was left, and that the program has not dropped since."""
    return tuple(each.living for each in _lost if each.holder is None or each.holder() is not None)


def at_node_exit() -> Sequence[LeftBehind]:
    """Return the live objects of the present node, for :func:`node_left`."""
    holders = {record.id: _buffers.get(record.id) for record in allocations.live_records()}
    left = [LeftBehind(living, holders[allocation]) for allocation, living in _memory()]
    left += [LeftBehind(living, None) for living in _mappings()]
    left += [LeftBehind(living, reference) for reference, living in _others()]
    left += [LeftBehind(living, None) for source in _sources for living in source()]
    return [replace(each, living=_of_left_node(each.living)) for each in left]


def node_left(lost: Sequence[LeftBehind]) -> None:
    """Note that the node was left while these objects were live."""
    _lost.extend(lost)


def _of_left_node(each: LiveObject) -> LiveObject:
    where = "of a node that the test left"
    return replace(each, text=f"{each.text}, {where}", where=f"{each.where} {where}".lstrip())


def buffer_created(buffer: Any) -> None:
    """Note the buffer of a new allocation."""
    _buffers[buffer.id] = None if _is_for_dialect() else weakref.ref(buffer)


def mapped(range_id: int, offset: int, physical: Any, size: int) -> None:
    """Note that an address range maps bytes of a block at an offset, and the line of the call."""
    where, site = physical.device.name, call_site.call_site()
    _mapped[range_id, offset] = _Mapped(weakref.ref(physical), physical.id, size, where, site)


def unmapped(range_id: int, offset: int) -> None:
    """Note that an address range no longer maps a block at an offset."""
    _mapped.pop((range_id, offset), None)


def created(what: Any) -> None:
    """Note a new object of the neutral API.

    Streams and events that a dialect makes are not noted: each serves an object that the dialect returned as a
    number, or one that the program did not ask for.
    """
    if not _is_for_dialect():
        _note(id(what), what)


def _is_for_dialect() -> bool:
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("peerlane."):
        if frame.f_globals["__name__"].startswith(_DIALECTS):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def disown(what: object) -> None:
    """Forget an object that serves another one, and that the program did not ask for."""
    _noted.pop(id(what), None)


def exported(key: object, handle: Any, source: Any) -> None:
    """Note a new handle by its key in the export table.

    Dropping the handle does not end it; closing it, or the exported object, does.
    """
    text = f"{repr(handle).strip('<>')} of {repr(source).strip('<>')}"
    _note(key, source, text=text, kind="exported handle", nbytes=getattr(source, "size", 0))


def withdrawn(key: object) -> None:
    """Note that the handle of this key was closed."""
    _noted.pop(key, None)


def viewed(array: npt.NDArray[Any], buffer: Any) -> None:
    """Note a new view, by its base: every array made from the view keeps that."""
    if buffer.id:
        nbytes, where = array.nbytes, buffer.device.name
        text = f"view of {in_bytes(nbytes)} on {where}, whose buffer was closed"
        more = {"kind": "view", "nbytes": nbytes, "where": where, "allocation": buffer.id}
        _note(id(array.base), array.base, text=text, **more)


def _note(key: object, what: Any, **more: Any) -> None:
    def gone(_: object) -> None:
        _noted.pop(key, None)

    _noted[key] = _Noted(weakref.ref(what, gone), call_site.call_site(), **more)


def _is_over(what: Any) -> bool:
    return bool(what.is_closed or what.device.is_closed)


def _memory() -> Iterator[tuple[int, LiveObject]]:
    for record in allocations.live_records():
        kind = record.sort.noun
        if record.sort is allocations.Sort.ALLOCATION:
            kind = "pinned memory" if record.device == "host" else "memory"
        text = f"{kind}: {in_bytes(record.size)} on {record.device}"
        yield record.id, LiveObject(kind, text, record.size, record.device, record.allocated_at)


def _mappings() -> Iterator[LiveObject]:
    """Yield physical memory that only mappings keep: its object was closed or dropped."""
    live = {record.id for record in allocations.live_records()}
    seen: set[int] = set()
    for (range_id, _), each in list(_mapped.items()):
        physical = each.physical()
        is_held = physical is not None and not physical.is_closed
        if range_id in live and not is_held and each.block not in seen:
            seen.add(each.block)
            text = f"mapped memory: {each.size:,} bytes on {each.where}, which only an address range holds"
            yield LiveObject("mapped memory", text, each.size, each.where, each.site)


def _others() -> Iterator[tuple[weakref.ref[Any], LiveObject]]:
    live = {record.id for record in allocations.live_records()}
    for noted in list(_noted.values()):
        living = None if noted.allocation in live else noted.look()
        if living is not None:
            yield noted.reference, living

"""The known back-ends, and those that this process has entered.

One of them is the node of the process, chosen by ``backend=NAME`` in ``PEERLANE_NODE``; others may be entered beside
it.  No back-end is entered before the first call that needs one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from peerlane.backend.interface import Backend, Factory
from peerlane.backend.settings import is_file, read_toml
from peerlane.errors import BadArgument, Busy, Closed, Fault, InvalidValue, Refused
from peerlane.support.spelling import did_you_mean

VARIABLE = "PEERLANE_NODE"
DEFAULT = "virtual"
GROUP = "peerlane.backends"

# Names of modules, not imports: back-ends stand above this package and import it.  One that is never entered is never
# loaded.
_OWN = {
    "virtual": "peerlane.backends.virtual.factory:FACTORY",
    "reference": "peerlane.backends.reference:FACTORY",
}

_lock = threading.RLock()
_factories: dict[str, Factory] = {}
_entered: dict[str, Backend] = {}  # by name
_current: Backend | None = None
_is_over = False

#: Functions to call with a back-end before the process leaves it; they must not raise.
before_closing: list[Callable[[Backend], None]] = []

#: The entered back-ends whose addresses native code does not know.
foreign: tuple[Backend, ...] = ()


def _after_fork() -> None:
    # A thread may hold the lock while another one forks; in the child it does not exist and never releases the lock.
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def register(name: str, factory: Factory) -> None:
    """Register a back-end under a name: ``PEERLANE_NODE="backend=NAME"`` and ``Device("NAME:0")`` then enter it.

    An installed package does the same with an entry point of the group ``peerlane.backends``, whose object is the
    factory.

    Raises
    ------
    InvalidValue
        The name has characters other than letters, digits, ``-`` and ``_``; or it is one of peerlane's own.
    Busy
        The process has entered the back-end of this name.
    """
    if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum() or name in _OWN:
        raise InvalidValue(
            f"register: the name of a back-end is {name!r}; valid are letters, digits, '-' and '_', but not "
            f"{' or '.join(_OWN)}",
            call="register",
            detail=BadArgument("name", name, rule=f"letters, digits, '-' and '_'; not {' or '.join(_OWN)}"),
        )
    with _lock:
        if name in _entered:
            raise Busy(
                f"register: the process is in back-end {name!r}; leave it first",
                call="register",
                detail=Refused(reason="entered", backend=name),
            )
        _factories[name] = factory


def known() -> tuple[str, ...]:
    """Return the names of the back-ends, peerlane's own first."""
    from importlib.metadata import entry_points

    names = dict.fromkeys((*_OWN, *_factories, *(each.name for each in entry_points(group=GROUP))))
    return tuple(names)


def factory_of(name: str, source: str) -> Factory:
    """Return the factory of a back-end, loading its module; ``InvalidValue`` (``BAD_CONFIG``) if there is none."""
    with _lock:
        factory = _factories.get(name)
        if factory is not None:
            return factory
        factory = _loaded(name, source)
        if factory is not None:
            return _factories.setdefault(name, factory)
    raise InvalidValue(
        f"{source}: backend is {name!r}{did_you_mean(name, known())}; valid are {', '.join(known())}, and the names "
        f"that installed packages register as entry points of the group {GROUP!r}",
        fault=Fault.BAD_CONFIG,
        detail=BadArgument("backend", name, choices=known()),
    )


def _loaded(name: str, source: str) -> Factory | None:
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        own: Factory = getattr(import_module(module), attribute)
        return own
    from importlib.metadata import entry_points  # this import takes as long as all the others

    for point in entry_points(group=GROUP, name=name):
        try:
            factory: Factory = point.load()
        except Exception as error:
            raise InvalidValue(
                f"{source}: back-end {name!r} cannot be loaded: its entry point {point.value!r} raised "
                f"{type(error).__name__}: {error}",
                fault=Fault.BAD_CONFIG,
                detail=Refused(
                    reason="not_loaded", backend=name, entry_point=point.value, cause=type(error).__name__
                ),
            ) from error
        return factory
    return None


def current() -> Backend:
    """Return the back-end of this process's node; the first call enters the one that ``PEERLANE_NODE`` describes.

    Raises
    ------
    Closed
        ``FORKED``: the process is a forked child whose parent had used devices; or the process is ending.
    """
    if _current is None:
        return enter(os.environ.get(VARIABLE, ""), VARIABLE)
    _current.ready()
    return _current


def is_entered() -> bool:
    """Tell whether this process is in a node."""
    return _current is not None


def entered_as(name: str) -> Any:
    """Return the back-end of a name if this process has entered it, else None."""
    return _entered.get(name)


def entered() -> tuple[Backend, ...]:
    """Return the back-ends that this process has entered, its node's first."""
    with _lock:
        return tuple(sorted(_entered.values(), key=lambda each: each is not _current))


def enter(spec: str, source: str) -> Backend:
    """Enter the node that ``spec`` describes, and leave the present one if it is another one.

    The process stays in its present node if the new one is refused.
    """
    global _current
    check_time()
    name, settings = split(spec, source)
    factory = factory_of(name, source)
    config = factory.configure(settings, source)
    with _lock:
        before = _current
        backend = _enter(name, factory, config)
        _current = backend
        if before is not None and before is not backend and _entered.get(before.name) is before:
            _leave(before)
        return backend


def enter_beside(name: str) -> Backend:
    """Return the back-end of a name; enter it with its defaults if the process has not entered it.

    A process without a node first enters that of ``PEERLANE_NODE``.
    """
    mine = current()
    if mine.name == name:
        return mine
    with _lock:
        entered = _entered.get(name)
        if entered is None:
            factory = factory_of(name, "Device")
            return _enter(name, factory, factory.configure("", name))
    entered.ready()
    return entered


def _enter(name: str, factory: Factory, config: object) -> Backend:
    present = _entered.get(name)
    backend = factory.enter(config, present)
    _entered[name] = backend
    if present is not None and present is not backend:
        _close(present)
    _note_foreign()
    return backend


def _leave(backend: Backend) -> None:
    del _entered[backend.name]
    _note_foreign()
    _close(backend)


def _close(backend: Backend) -> None:
    for end in before_closing:
        end(backend)
    backend.close()


def _note_foreign() -> None:
    global foreign
    foreign = tuple(each for each in _entered.values() if each.name != DEFAULT)


def leave() -> None:
    """Leave the node and the back-ends beside it: allocations end, objects become Closed.  Idempotent."""
    global _current
    with _lock:
        left = entered()
        _current = None
        for backend in left:
            _leave(backend)


def end() -> None:
    """Leave the node for good: destructors that run while the interpreter ends must not enter one again."""
    global _is_over
    _is_over = True
    leave()


def check_time() -> None:
    """Raise ``Closed`` after the exit handlers have run."""
    if _is_over:
        raise Closed(
            "the process is ending: its node was left by an exit handler",
            fault=Fault.PROCESS_ENDING,
            call="devices",
            detail=Refused(reason="process_ending"),
        )


def split(spec: str, source: str) -> tuple[str, str]:
    """Return the name of a node's back-end, and the other settings."""
    if is_file(spec):
        return _backend_of_file(spec), spec
    items = [item for item in spec.split(",") if item.strip()]
    named = [item for item in items if item.partition("=")[0].strip() == "backend"]
    if len(named) > 1:
        raise InvalidValue(
            f"{source}: 'backend' is given a second time; give it once",
            fault=Fault.BAD_CONFIG,
            detail=Refused(reason="given_twice", setting="backend", source=source),
        )
    if not named:
        return DEFAULT, spec
    items.remove(named[0])
    return named[0].partition("=")[2].strip(), ",".join(items)


def _backend_of_file(path: str) -> str:
    """Return the back-end that a file names; for a bad file the default one, which reports the mistake."""
    try:
        return str(read_toml(path).get("backend", DEFAULT))
    except InvalidValue:
        return DEFAULT

"""Host functions in stream order: kept here while they are queued, called by one thread.

A stream that reaches a callback is parked and its worker goes on with other streams: no native thread ever
takes the GIL.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from peerlane.backend import host
from peerlane.errors import Error


class Operation:
    """An operation that a stream runs as a host function; its failure is reported as that of an operation.

    ``call``: the call that submitted it, for the error.
    ``kind``: the name of the operation, for texts.
    ``work``: does it; takes no argument.
    """

    __slots__ = ("_work", "call", "kind")

    def __init__(self, call: str, kind: str, work: Callable[[], None]) -> None:
        self.call, self.kind, self._work = call, kind, work

    def __call__(self) -> None:
        self._work()

    def __repr__(self) -> str:
        return f"{self.kind} ({self.call})"


class CFunction:
    """A function in C that takes one word, or three, and returns nothing.

    The virtual devices call it without the interpreter's lock.

    ``code``: its address.
    """

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code

    def __call__(self, *words: int) -> None:
        """Call it, for back-ends that call what they are given."""
        ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * len(words))(self.code)(*words)


_tokens = itertools.count(1)
_queued: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
_failed: OrderedDict[int, tuple[Operation | str, BaseException]] = OrderedDict()
_REMEMBERED = 64  # failures whose exceptions are kept; a program may never ask for them


def keep(function: Callable[..., object], args: tuple[object, ...]) -> int:
    """Keep a call until it is made or cancelled; return its token."""
    token = next(_tokens)
    _queued[token] = (function, args)
    return token


def forget(token: int) -> None:
    """Drop a call that will not be made.  Native code calls this for cancelled callbacks."""
    _queued.pop(token, None)


def run(queue: Any, token: int) -> None:
    """Make a call, forget it and let its stream go on; an exception of the call is a failure of its stream."""
    # An interrupt may reach a call between its submission and its end: then it was forgotten here.
    function, args = _queued.pop(token, (_nothing, ()))
    has_raised = False
    try:
        function(*args)
    # An exception must not end the thread: no stream's calls would be made any more.
    except BaseException as error:  # noqa: BLE001 - SystemExit too
        has_raised = True
        # The frames of the call must not live as long as the failure.
        traceback.clear_frames(error.__traceback__)
        _failed[token] = (function if isinstance(function, Operation) else named(function), error)
        if len(_failed) > _REMEMBERED:
            _failed.popitem(last=False)
    finally:
        del function, args  # before the stream goes on: a waiter may check that they are gone
        queue.finish(token, has_raised)


def _nothing() -> None:
    pass


def raised(token: int) -> str:
    """Return a text with the callback's name and its exception."""
    name, error = _failed.get(token, ("a callback", None))
    return f"{name} raised {described(error) if error is not None else 'an exception, too many failures ago'}"


def facts(token: int) -> dict[str, str]:
    """Return the callback's name and its exception as text; both are empty if too many others have failed since."""
    name, error = _failed.get(token, ("", None))
    return {"callback": str(name), "raised": described(error) if error is not None else ""}


def refused_operation(token: int) -> tuple[str, Error] | None:
    """Return the kind of the operation that a back-end refused, and the refusal; None if it was a callback."""
    function, error = _failed.get(token, ("", None))
    if not (isinstance(function, Operation) and isinstance(error, Error)):
        return None
    if not error.call:
        error.call = function.call
    return function.kind, error


def exception(token: int) -> BaseException | None:
    """Return the exception of a callback; None if too many others have failed since."""
    return _failed.get(token, ("", None))[1]


def named(function: Callable[..., object]) -> str:
    """Return the name of a function, even if its attributes raise."""
    try:
        return str(getattr(function, "__qualname__", None) or repr(function))
    except Exception:  # noqa: BLE001 - the program's own code; the failure itself must not be lost by it
        return f"a {type(function).__name__}"


def described(error: BaseException) -> str:
    """Return the type and text of an exception, even if its ``__str__`` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:  # noqa: BLE001 - as above
        return f"{type(error).__name__} (its text raised {type(broken).__name__})"


class Runner:
    """The thread that makes the calls of all streams, one after the other; the first call starts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: Any | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the one that makes the calls."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def queue(self) -> Any:
        """Return the queue in which calls wait for the thread; start the thread if it does not run."""
        with self._lock:
            if self._queue is None:
                started = host.CallbackQueue()
                self._thread = threading.Thread(
                    target=_serve, args=(started,), name="peerlane callbacks", daemon=True
                )
                self._thread.start()
                self._queue = (
                    started  # not before: an interrupt of the start would leave a queue that nobody serves
                )
            return self._queue


def _serve(queue: Any) -> None:
    while True:
        token = queue.take(-1.0)
        if token is not None:
            run(queue, token)


runner = Runner()
os.register_at_fork(after_in_child=lambda: globals().update(runner=Runner()))

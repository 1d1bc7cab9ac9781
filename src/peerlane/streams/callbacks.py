"""Host functions in stream order: kept here while they are queued, run by one thread of their own.

A stream that reaches a callback is parked and its worker goes on with other streams: no native thread ever
takes the interpreter's lock.
"""

from __future__ import annotations

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
    """An operation that a stream runs as a host function: its refusal is told as that of an operation.

    Parameters
    ----------
    call : str
        The call that submitted it, for the refusal.
    kind : str
        What it does, in words.
    work : callable
        Without an argument.
    """

    __slots__ = ("_work", "call", "kind")

    def __init__(self, call: str, kind: str, work: Callable[[], None]) -> None:
        self.call, self.kind, self._work = call, kind, work

    def __call__(self) -> None:
        self._work()

    def __repr__(self) -> str:
        return f"{self.kind} ({self.call})"


_tokens = itertools.count(1)
_queued: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
_failed: OrderedDict[int, tuple[Operation | str, BaseException]] = OrderedDict()
_REMEMBERED = 64  # failures of events that nobody may ask for


def keep(function: Callable[..., object], args: tuple[object, ...]) -> int:
    """Keep a call until it is made or cancelled; return its token."""
    token = next(_tokens)
    _queued[token] = (function, args)
    return token


def forget(token: int) -> None:
    """Drop a call that will not be made.  Called by native code for what was cancelled."""
    _queued.pop(token, None)


def run(queue: Any, token: int) -> None:
    """Make a taken call, let go of it and let its stream go on; what it raises is a failure of its stream."""
    function, args = _queued.pop(token)
    has_raised = False
    try:
        function(*args)
    # Were the thread to end by it, no other stream's calls would be made.
    except BaseException as error:  # noqa: BLE001 - also an exit that was asked for
        has_raised = True
        # What it allocated must not live as long as the failure.
        traceback.clear_frames(error.__traceback__)
        _failed[token] = (function if isinstance(function, Operation) else named(function), error)
        if len(_failed) > _REMEMBERED:
            _failed.popitem(last=False)
    finally:
        del function, args  # whoever waits for the stream finds them gone
        queue.finish(token, has_raised)


def raised(token: int) -> str:
    """Say which callback raised what."""
    name, error = _failed.get(token, ("a callback", None))
    return f"{name} raised {described(error) if error is not None else 'an exception, too many failures ago'}"


def refused_operation(token: int) -> tuple[str, Error] | None:
    """Return the kind of the operation that a back-end refused, and the refusal; None if it was a callback."""
    function, error = _failed.get(token, ("", None))
    if not (isinstance(function, Operation) and isinstance(error, Error)):
        return None
    if not error.call:
        error.call = function.call
    return function.kind, error


def exception(token: int) -> BaseException | None:
    """Return what a callback raised, None if that was too many failures ago."""
    return _failed.get(token, ("", None))[1]


def named(function: Callable[..., object]) -> str:
    """Name a function, whatever its attributes do."""
    try:
        return str(getattr(function, "__qualname__", None) or repr(function))
    except Exception:  # noqa: BLE001 - the program's own code; the failure itself must not be lost by it
        return f"a {type(function).__name__}"


def described(error: BaseException) -> str:
    """Say what was raised, whatever its ``__str__`` does."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:  # noqa: BLE001 - as above
        return f"{type(error).__name__} (its text raised {type(broken).__name__})"


class Runner:
    """The thread that makes the calls of all streams, one after the other; started by the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: Any | None = None

    def queue(self) -> Any:
        """Return where calls wait for the thread, which is started if it does not run."""
        with self._lock:
            if self._queue is None:
                self._queue = host.CallbackQueue()
                threading.Thread(
                    target=_serve, args=(self._queue,), name="peerlane callbacks", daemon=True
                ).start()
            return self._queue


def _serve(queue: Any) -> None:
    while True:
        token = queue.take(-1.0)
        if token is not None:
            run(queue, token)


runner = Runner()
os.register_at_fork(after_in_child=lambda: globals().update(runner=Runner()))

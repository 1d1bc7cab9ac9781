"""The message of a failed call: it shows the state at the failure, and its text is made when it is read.

``peerlane run --explain``, or ``PEERLANE_EXPLAIN=1``, shows the last one of each dialect when a process ends.
Without it, the traceback that ends the program or a thread shows those of calls that its functions made.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection
from types import CodeType

from peerlane.diagnostics import call_site, tracebacks
from peerlane.dialects._shared.call import Failure
from peerlane.support import exits
from peerlane.support.variables import is_set

VARIABLE = "PEERLANE_EXPLAIN"
_REMEMBERED = 64

#: By dialect, the last call that failed in any thread of this process, and the program's line.
_last: dict[str, tuple[Message, call_site.Position | None]] = {}
os.register_at_fork(after_in_child=_last.clear)

#: Functions that return what else is shown at the end of a process that explains; empty for nothing.
at_end: list[Callable[[], str]] = []


def last_failure(dialect: str) -> str:
    """Return the message of the last failed call of a dialect, with the program's line; empty if none failed."""
    if dialect not in _last:
        return ""
    message, position = _last[dialect]
    site = call_site.at(position)
    return f"{message}\n    at {site}" if site is not None else str(message)


def _explain() -> None:
    """Show the last failed call of each dialect, and what results rest on."""
    if sys.stderr is None:
        return
    for dialect in sorted(_last):
        print(_explanation(dialect), file=sys.stderr)
    for fact in at_end:
        if text := fact():
            print(f"peerlane: {text}", file=sys.stderr)


def _explanation(dialect: str) -> str:
    return f"peerlane: the last call of {dialect} that failed:\n{last_failure(dialect)}"


def _explain_error(codes: Collection[CodeType]) -> str:
    """Return the messages of the last failed calls that functions with this code made; it may be why they raised."""
    dialects = (each for each, (_, position) in _last.items() if position and position[0] in codes)
    return "\n".join(map(_explanation, sorted(dialects)))


if is_set(VARIABLE):
    exits.handlers.append(_explain)
else:
    tracebacks.below.append(_explain_error)


def forget_last(dialect: str) -> None:
    """Forget the last failed call of a dialect."""
    _last.pop(dialect, None)


class Message:
    """The message of a failed call.

    It keeps no object of the program alive, and later changes of the objects do not show in it.

    ``argument_text``: gets the name of an argument, its value, and whether it is an address.  Returns the text to
        show, or an object whose ``str`` is that text, whatever happens to the argument afterwards.
    ``layout``: makes the text.
    """

    __slots__ = ("_arguments", "_layout", "call", "cause", "code", "remedy")

    def __init__(
        self,
        failure: Failure,
        argument_text: Callable[[str, object, bool | None], object],
        layout: Callable[[Message], str],
    ) -> None:
        self.call, self.code = failure.call, failure.code
        self.cause, self.remedy = failure.cause, failure.remedy
        self._arguments = [
            (name, argument_text(name, value, is_address)) for name, value, is_address in failure.arguments
        ]
        self._layout = layout

    @property
    def arguments(self) -> str:
        """The names and values, as text."""
        return ", ".join(f"{name}={value}" for name, value in self._arguments) or "no arguments"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and all(
            getattr(self, each) == getattr(other, each) for each in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self._layout(self)


class Messages:
    """The latest messages of failures: of each thread apart, or of all threads together when ``shared``.

    Their texts are made when they are read, so programs that only test a call's code do not pay for them.

    ``dialect``: the name of the dialect, under which the last message of all threads is kept.
    ``argument_text``, ``layout``: as of :class:`Message`.
    """

    def __init__(
        self,
        dialect: str,
        argument_text: Callable[[str, object, bool | None], object],
        layout: Callable[[Message], str],
    ) -> None:
        self._dialect, self._argument_text, self._layout = dialect, argument_text, layout
        self.shared = False
        self._begin_process()
        os.register_at_fork(after_in_child=self._begin_process)

    def _begin_process(self) -> None:
        self._local = threading.local()
        self._common: deque[object] = deque(maxlen=_REMEMBERED)

    def record(self, failure: Failure) -> Message:
        """Make the message of a failed call, keep it and return it."""
        message = Message(failure, self._argument_text, self._layout)
        self.add(message)
        _last[self._dialect] = message, call_site.position()
        return message

    def add(self, text: object) -> None:
        """Put a text before the others, unless it repeats the newest: a failing loop keeps earlier texts."""
        if self.newest() != text:
            self._kept().appendleft(text)

    def newest(self) -> object:
        """Return the newest message, of this thread or when ``shared`` of all; None if there is none."""
        return next(iter(self._kept()), None)

    def forget(self) -> None:
        """Forget the messages of all threads, and keep those to come of each thread apart."""
        self.shared = False
        self._begin_process()
        forget_last(self._dialect)

    def take(self) -> str:
        """Return the texts, newest on top, and forget them."""
        return "\n".join(map(str, self._taken()))

    def take_own(self) -> str:
        """As :meth:`take`, without messages that another dialect recorded, as hcomm does for acl; they go, too."""
        return "\n".join(
            str(each)
            for each in self._taken()
            if not isinstance(each, Message) or each._layout is self._layout
        )

    def _taken(self) -> list[object]:
        kept, taken = self._kept(), []
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while True:
                taken.append(kept.popleft())
        return taken

    def _kept(self) -> deque[object]:
        if self.shared:
            return self._common
        try:
            kept: deque[object] = self._local.kept
        except AttributeError:
            kept = self._local.kept = deque(maxlen=_REMEMBERED)
        return kept

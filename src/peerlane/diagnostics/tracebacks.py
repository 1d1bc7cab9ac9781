"""What the traceback of an error shows: the program's frames, without those of peerlane.

``PEERLANE_TRACEBACK=full`` shows all frames.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

from peerlane.diagnostics import call_site
from peerlane.diagnostics.waits import wait_texts
from peerlane.errors import Deadlock, WaitState
from peerlane.support.spelling import hint_for

VARIABLE, FULL = "PEERLANE_TRACEBACK", "full"

_PACKAGE = __name__.partition(".")[0]
_PREPARED = f"_{_PACKAGE}_prepared"
#: Modules of the standard library through which peerlane calls itself.
_BETWEEN = frozenset(("contextlib", "functools"))

#: Functions that return what is shown below the traceback of an error that peerlane did not raise; empty for nothing.
#: They get the code objects of its frames, and of those of its causes.
below: list[Callable[[Collection[CodeType]], str]] = []


def install(show_at_launch: Callable[[Callable[[], str]], bool]) -> None:
    """Let errors that end the program, one of its threads or a cell of IPython show the program's frames alone.

    ``show_at_launch``: called with a function that returns the text of a traceback.  It returns whether the launcher
        shows that.
    """
    show, show_of_thread = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        state = _shown_by_launch(error)
        if state is None:
            is_of_program = show is not sys.__excepthook__
            with _prepared(error):
                if is_of_program or not show_at_launch(lambda: _text_of(error)):
                    show(kind, error, trace)
        elif sys.stderr is not None:
            waits = wait_texts.in_vain(sorted({each.rank for each in state.ranks}))
            name = f"{kind.__module__}.{kind.__qualname__}"
            print(f"{name}: {waits}; `peerlane launch` shows where each of them waits", file=sys.stderr)

    def hook_of_thread(args: Any) -> None:
        with _prepared(args.exc_value):
            show_of_thread(args)

    sys.excepthook, threading.excepthook = hook, hook_of_thread
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if get_shell is not None and (shell := get_shell()) is not None:
        _install_in_shell(shell)


def _install_in_shell(shell: Any) -> None:
    """Do the same for a shell of IPython, which shows the errors of cells without ``sys.excepthook``."""
    show = shell.showtraceback

    @functools.wraps(show)
    def show_prepared(exc_tuple: Any = None, *args: Any, **named: Any) -> None:
        with _prepared(exc_tuple[1] if exc_tuple else sys.exc_info()[1]):
            show(exc_tuple, *args, **named)

    shell.showtraceback = show_prepared


@contextlib.contextmanager
def _prepared(error: BaseException | None) -> Iterator[None]:
    """Prepare an error that the block shows, and show below it what the dialects know."""
    codes = _codes_of(error)
    prepare(error)
    yield
    _show_below(codes)


def prepare(error: BaseException | None) -> None:
    """Make an error ready to be shown: the program's frames alone, and what to write for what Python refused."""
    trim(error)
    is_refusal = isinstance(error, AttributeError) or type(error) is TypeError
    if error is None or not is_refusal or len(error.args) != 1 or vars(error).get(_PREPARED):
        return
    vars(error)[_PREPARED] = True  # several may show it
    if isinstance(error, AttributeError) and error.name is not None:
        _name_meant(error)
        return
    from peerlane.diagnostics import refused_lines  # which imports much, for an error alone

    error.args = (f"{error}{refused_lines.hint_for(error.__traceback__)}",)


def _name_meant(error: AttributeError) -> None:
    """Add to the text what peerlane calls it, or its close public names, if an object of peerlane lacks an attribute.

    It happens when the error is shown, because a hook in the classes would make each call of a method slower.
    """
    of = error.obj if isinstance(error.obj, type) else type(error.obj)
    own = [kind for kind in of.__mro__ if kind.__module__.partition(".")[0] == _PACKAGE]
    if own:
        public = (name for name in dir(of) if not name.startswith("_"))
        hint = hint_for([kind.__name__ for kind in own], str(error.name), public)
        error.args = (f"{error}{hint}",)
        # Python adds no close name of its own then, which may be a private one.
        error.obj = None


def trim(error: BaseException | None) -> None:
    """Take the frames of peerlane out of the traceback of an error that it raised, or a dialect, and of its causes.

    The first frame stays: whoever holds the traceback holds that one.
    """
    if error is None or os.environ.get(VARIABLE) == FULL or not _is_own(error):
        return
    for each in _with_causes(error):
        _relink(each.__traceback__)


def _is_own(error: BaseException) -> bool:
    """Tell whether an error is of a class of peerlane, or a TypeError that a `raise` of peerlane made."""
    if type(error) is not TypeError:
        return type(error).__module__.partition(".")[0] == _PACKAGE
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        trace is not None
        and call_site.is_own(trace.tb_frame)
        and call_site.instruction_at(trace) == "RAISE_VARARGS"
    )


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        left += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
        yield each


def _frames_of(error: BaseException) -> list[FrameType]:
    frames, at = [], error.__traceback__
    while at is not None:
        frames.append(at.tb_frame)
        at = at.tb_next
    return frames


def _codes_of(error: BaseException | None) -> Collection[CodeType]:
    """Return the code of the frames of an error and its causes; none if peerlane raised one.

    The text of such an error has the reason.
    """
    codes: set[CodeType] = set()
    for each in _with_causes(error if isinstance(error, Exception) else None):
        frames = _frames_of(each)
        if frames and call_site.is_own(frames[-1]):
            return ()
        codes.update(frame.f_code for frame in frames)
    return codes


def _show_below(codes: Collection[CodeType]) -> None:
    for text in filter(None, (each(codes) for each in below if codes)):
        if sys.stderr is not None:
            print(text, file=sys.stderr)


def _relink(first: TracebackType | None) -> None:
    last = first
    is_inside = False
    at = first.tb_next if first is not None else None
    while at is not None:
        module = str(at.tb_frame.f_globals.get("__name__", ""))
        is_inside = module.partition(".")[0] == _PACKAGE or (is_inside and module in _BETWEEN)
        if not is_inside and last is not None:
            last.tb_next = at
            last = at
        at = at.tb_next
    if last is not None:
        last.tb_next = None


def _text_of(error: BaseException) -> str:
    import traceback  # which takes long

    return "".join(traceback.format_exception(error))


def _shown_by_launch(error: BaseException) -> WaitState | None:
    """Return the waits of a deadlock of which the launcher shows one report for all ranks."""
    state = error.detail if isinstance(error, Deadlock) else None
    is_shown = isinstance(state, WaitState) and state.is_shown and os.environ.get(VARIABLE) != FULL
    return state if is_shown and isinstance(state, WaitState) else None

"""Lines of the user's program, for messages and lists of live objects."""

from __future__ import annotations

import dis
import functools
import os
import sys
from collections.abc import Callable, Container
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeAlias

from peerlane import _core

Position: TypeAlias = tuple[CodeType, int]
position = _core.call_site  # cheaper than a Site; :func:`at` makes a Site of it

_PACKAGE = __name__.partition(".")[0]


#: Lines of programs in other languages, by the id of the code object that stands for one: that code object, and a
#: function that returns an object with a ``path``, a ``line`` and a text.
foreign: dict[int, tuple[CodeType, Callable[[], Any]]] = {}


class Site:
    """A line of the user's program; its number is computed when it is read."""

    __slots__ = ("_code", "_offset", "callers")

    def __init__(self, code: CodeType, offset: int, callers: tuple[Site, ...] = ()) -> None:
        self._code, self._offset = code, offset
        self.callers = callers  #: its callers outside peerlane, innermost first, at most :data:`callers_kept`

    @property
    def path(self) -> str:
        """The file, as the interpreter names it."""
        return str(self._foreign().path) if id(self._code) in foreign else self._code.co_filename

    @property
    def line(self) -> int:
        """The line, from 1."""
        if id(self._code) in foreign:
            return int(self._foreign().line)
        line = _core.line_of(self._code, self._offset)
        return line if line > 0 else self._code.co_firstlineno

    def _foreign(self) -> Any:
        return foreign[id(self._code)][1]()

    def __str__(self) -> str:
        if id(self._code) in foreign:
            return str(self._foreign())
        return f"{os.path.basename(self.path)}:{self.line}"  # noqa: PTH119 - no path is touched


callers_kept = 0  #: the most callers that a Site keeps


#: Packages of libraries whose lines are not the program's.
passed_through: set[str] = set()


def pass_through(package: str) -> None:
    """Do not take lines of a library for the program's from now on: programs call peerlane through it."""
    passed_through.add(package)
    _core.pass_through(package)


def call_site(besides: Container[str] = ()) -> Site | None:
    """Return the innermost line of the program on this thread's stack, outside the packages ``besides``."""
    if not besides and not callers_kept:
        return at(_core.call_site())
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = package_of(frame)
        if package != _PACKAGE and package not in passed_through and package not in besides:
            return Site(frame.f_code, frame.f_lasti, _callers(frame))
        frame = frame.f_back
    return None if besides else at(_core.call_site())


def is_own(frame: FrameType) -> bool:
    """Tell whether a frame runs code of peerlane."""
    return package_of(frame) == _PACKAGE


def instruction_at(trace: TracebackType) -> str:
    """Return the name of the instruction at which an error left a frame."""
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]


def package_of(frame: FrameType) -> str:
    """Return the top-level package whose code a frame runs."""
    return _top_level(str(frame.f_globals.get("__name__", "")))


@functools.lru_cache(4096)  # each frame of a stack asks, and a program has few modules
def _top_level(module: str) -> str:
    return module.partition(".")[0]


def at(position: Position | None) -> Site | None:
    """Return the Site of a position that native code noted, or None."""
    return None if position is None else Site(*position)


def ask_for_c_callers(frame_of: Callable[[int], Callable[..., Any]]) -> None:
    """Let texts name the lines in C of calls that native code answered.

    ``frame_of`` takes an address of code, and returns a function whose code object stands for it in :data:`foreign`.
    """
    frames = functools.cache(frame_of)
    _core.ask_for_c_callers(lambda address: (frames(address).__code__, 0))


def _callers(frame: FrameType) -> tuple[Site, ...]:
    callers: list[Site] = []
    caller = frame.f_back
    while caller is not None and len(callers) < callers_kept:
        if not is_own(caller):
            callers.append(Site(caller.f_code, caller.f_lasti))
        caller = caller.f_back
    return tuple(callers)

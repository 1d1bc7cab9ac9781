"""What the C libraries ask: the answer of each function, and the frame that stands for the caller in C."""

from __future__ import annotations

import atexit
import functools
import gc
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from peerlane.backend import host
from peerlane.c_abi.sites import frame as frame
from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.log.event_log import see_forks
from peerlane.dialects import manifest_of
from peerlane.dialects._shared.c_library import Library
from peerlane.dialects._shared.hook import SERVES_C, WATCH
from peerlane.errors import Error

see_forks()  # the library, which imports this, registers for forks next
event_log.ask_for_c_sites(frame)
call_site.ask_for_c_callers(frame)


_reported: set[str] = set()


def bind(dialect: str, header: str, symbol: str) -> Callable[..., Any]:
    """Return what answers a function of a header; stderr has the reason where there is nothing, once."""
    try:
        return _library(dialect, header).entry(symbol)
    except BaseException as error:
        if (text := repr(error)) not in _reported:
            _reported.add(text)
            if isinstance(error, Error):
                print(f"peerlane: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
        raise


def quick_calls(is_own: bool) -> int:
    """Return the address of the table of calls that native code answers by itself.

    In a program of Python, unlike in one that started Python for peerlane's own use, joins and locks under the GIL
    give it away from now on.
    """
    if not is_own:
        WATCH.call_after_loads(host.follow_waits)
    return host.c_calls(not is_own)


def end() -> None:
    """Run the exit handlers, as of a program of Python; the interpreter stays, as the program may call again.

    Threads are not waited for: those of Python serve, and which thread is Python's main one is chance.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


@functools.cache
def _library(dialect: str, header: str) -> Library:
    known = manifest_of(dialect)  # else its absence would be that of a module
    library: Library = import_module(f"peerlane.dialects.{known.name}.c_library").library(header)
    if SERVES_C in sys._xoptions and not gc.isenabled():
        gc.freeze()  # of a program of C, all objects so far are those of the imports
        gc.enable()
    return library

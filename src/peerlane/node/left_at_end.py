"""A report on stderr of what a program left behind, at its end: ``peerlane run --leaks``, or ``PEERLANE_LEAKS=1``.

It has objects that only variables of Python hold, too, as the program has not closed them.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path

from peerlane.backend import registry
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.leak_report import SiteFormat, leak_text
from peerlane.node.device import before_counting
from peerlane.support.variables import is_set

VARIABLE = "PEERLANE_LEAKS"
_pids: list[int] = []  # of the process that reports; a forked child reports nothing


def begin() -> None:
    """Note what is made from now on, if the variable is set; once."""
    if _pids or not is_set(VARIABLE):
        return
    _pids.append(os.getpid())
    live_objects.begin()
    atexit.register(_report)  # behind the node's own handler, so it comes first


def _report() -> None:
    if os.getpid() not in _pids or not registry.is_entered() or sys.stderr is None:
        return
    for give_back in before_counting:
        give_back()
    gc.collect()
    left = (*live_objects.left_behind(), *live_objects.living())
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "the program"
    if left:
        text = leak_text(f"peerlane: {program} left behind", left, SiteFormat("", str(Path.cwd())))
    else:
        text = f"peerlane: {program} left nothing behind"
    print(text, file=sys.stderr)

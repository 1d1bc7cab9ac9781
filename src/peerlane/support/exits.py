"""What is done when the process ends, after the exit handlers of the program.

``import peerlane`` registers one handler, and `handlers` come later: when they are needed.  A handler that a program
registers after its ``import peerlane`` runs first, and finds its node still there.
"""

from __future__ import annotations

import atexit
import sys

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Callable

#: The last one is called first.
handlers: list[Callable[[], object]] = []


def before_node_ends(call: Callable[[], object]) -> None:
    """Call a function when the process ends, before the handlers; it may be called again behind them.

    A process that ``multiprocessing`` has forked does not call the handlers of Python.
    """
    atexit.unregister(call)
    atexit.register(call)
    if util := sys.modules.get("multiprocessing.util"):
        util.Finalize(None, call, exitpriority=1)


def _end() -> None:
    if handlers:
        try:
            handlers.pop()()
        finally:
            _end()


atexit.register(_end)

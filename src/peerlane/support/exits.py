"""What is done when the process ends, after the exit handlers of the program.

``import peerlane`` registers one handler, and `handlers` come later: when they are needed.  A handler that a program
registers after its ``import peerlane`` runs first, and finds its node still there.
"""

from __future__ import annotations

import atexit

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Callable

#: The last one is called first.
handlers: list[Callable[[], object]] = []


def _end() -> None:
    if handlers:
        try:
            handlers.pop()()
        finally:
            _end()


atexit.register(_end)

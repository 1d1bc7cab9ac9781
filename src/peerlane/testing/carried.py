"""What a process of multiprocessing's ``forkserver`` has to be told of the test that starts it.

Its server was started by an earlier test, perhaps, and its children have that one's environment.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess

from peerlane import dialects

_PREFIX = "PEERLANE_"


class Carried:
    """Becomes, where it is unpickled, the settings and dialects of the process that pickled it; and then is None."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[dict[str, str], Sequence[str]]]:
        settings = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
        return _take_over, (settings, dialects.installed())


def carry(process: BaseProcess) -> Callable[[], None]:
    """Let a process that is about to be started by a server carry them; return what undoes it."""
    method = getattr(process, "_start_method", None) or multiprocessing.get_start_method()
    if method != "forkserver":
        return lambda: None
    own = vars(process)
    before = dict(own)
    own.clear()
    own["_peerlane_carried"] = Carried()  # first: what comes later may import the dialect's modules
    own.update(before)
    return lambda: own.pop("_peerlane_carried", None)


def _take_over(settings: dict[str, str], names: Sequence[str]) -> None:
    for name in [name for name in os.environ if name.startswith(_PREFIX) and name not in settings]:
        del os.environ[name]
    for name in dialects.installed():
        if name not in names:
            dialects.uninstall(name)
    for name in names:
        dialects.install(name, shadow_real=True)  # who started this process has asked the vendor's module
    os.environ.update(settings)

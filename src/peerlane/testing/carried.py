"""Carries a test's settings to the processes that it starts by multiprocessing's ``forkserver``.

An earlier test may have started the server, whose children inherit the environment of that test.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess

from peerlane import dialects
from peerlane.diagnostics.log import event_log

_PREFIX = "PEERLANE_"


class Carried:
    """When unpickled, sets up the settings and dialects of the process that pickled it; its value there is None."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[dict[str, str], Sequence[str]]]:
        settings = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
        return _take_over, (settings, dialects.installed())


def carry(process: BaseProcess) -> Callable[[], None]:
    """Attach the settings to a process that a forkserver is about to start; return a function that undoes it."""
    method = getattr(process, "_start_method", None) or multiprocessing.get_start_method()
    if method != "forkserver":
        return lambda: None
    own = vars(process)
    before = dict(own)
    own.clear()
    own["_peerlane_carried"] = Carried()  # first: unpickling the others may import modules of the dialect
    own.update(before)
    return lambda: own.pop("_peerlane_carried", None)


def _take_over(settings: dict[str, str], names: Sequence[str]) -> None:
    log_of_server = os.environ.get(event_log.VARIABLE)
    for name in [name for name in os.environ if name.startswith(_PREFIX) and name not in settings]:
        del os.environ[name]
    os.environ.update(settings)  # first: it says where dialects are
    for name in dialects.installed():
        if name not in names:
            dialects.uninstall(name)
    for name in names:
        dialects.install(name, shadow_real=True)  # the parent has asked the vendor's module already
    if settings.get(event_log.VARIABLE) != log_of_server:
        event_log.end()  # it is the one of an earlier test
        event_log.begin_from_environment()

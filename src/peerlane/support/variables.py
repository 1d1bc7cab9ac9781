"""The variables of the environment that peerlane reads from a user."""

from __future__ import annotations

import os
import warnings

from peerlane.errors import BadArgument, Fault, InvalidValue
from peerlane.support.spelling import close_names

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PREFIX = "PEERLANE_"

#: The reference of the command line says what each means.
OF_USERS = (
    "PEERLANE_ACL_POLICY",
    "PEERLANE_DIALECT_FOLDERS",
    "PEERLANE_EXPLAIN",
    "PEERLANE_FAULT",
    "PEERLANE_FAULT_REPORT",
    "PEERLANE_HCOMM_NOTIFIES",
    "PEERLANE_HIP_POLICY",
    "PEERLANE_HIP_VERSION",
    "PEERLANE_INTERFACE",
    "PEERLANE_LEAKS",
    "PEERLANE_LIBPYTHON",
    "PEERLANE_LOG",
    "PEERLANE_LOG_BYTES",
    "PEERLANE_MACHINE",
    "PEERLANE_NIXL_POLICY",
    "PEERLANE_NODE",
    "PEERLANE_PORT",
    "PEERLANE_PYTHON",
    "PEERLANE_RENDEZVOUS",
    "PEERLANE_RUNTIME_DIR",
    "PEERLANE_SCHEDULE",
    "PEERLANE_SCHEDULE_REPORT",
    "PEERLANE_SECRET",
    "PEERLANE_TRACEBACK",
    "PEERLANE_UCX",
    "PEERLANE_UNREACHABLE",
)
#: Which processes of peerlane set for one another, or its tests.
OF_PEERLANE = (
    "PEERLANE_DIALECTS",
    "PEERLANE_LAUNCHED",
    "PEERLANE_LAUNCHED_STDERR",
    "PEERLANE_LOG_OUTPUTS",
    "PEERLANE_MASTER_PORT",
    "PEERLANE_NEEDS_NAMESPACES",
    "PEERLANE_PROBED",
    "PEERLANE_SEED",
    "PEERLANE_TORCH_CUDA",
    "PEERLANE_TORCH_CXXFLAGS",
)


#: How the folders begin that peerlane makes for its own processes.
OWN_FOLDER = "peerlane-"
_reported: set[str] = set()


def is_set(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a variable of 0 or 1 is 1; without it, and if it is empty, it is 0.

    Raises InvalidValue: ``BAD_CONFIG``: it has another value.
    """
    text = environ.get(name, "")
    if text in ("", "0", "1"):
        return text == "1"
    raise InvalidValue(
        f"{name} is {text!r}; valid are 0 and 1",
        fault=Fault.BAD_CONFIG,
        detail=BadArgument(name, text, choices=("0", "1")),
    )


def warn_of_path(name: str, path: str, why: str) -> None:
    """Warn once that a file or folder of a variable is not used.

    One that peerlane has made for this process is missing without a word: the process that wanted it has ended.
    """
    from pathlib import Path  # which takes long to import

    is_own = any(part.startswith(OWN_FOLDER) for part in Path(path).parts) and not Path(path).exists()
    if not is_own and (name, path) not in _warned:
        _warned.add((name, path))
        warnings.warn(f"{name}={path!r} has no effect: {why}", RuntimeWarning, stacklevel=3)


_warned: set[tuple[str, str]] = set()


def misspelt(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that looks like a misspelt variable of peerlane, and the one that is meant; each once."""
    names = set(names) - _reported
    if {
        "PEERLANE_LOG",
        "PEERLANE_LAUNCHED",
    } & names:  # `peerlane check` or `launch` started this process, and has told
        return
    _reported.update(names)
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in OF_USERS and name not in OF_PEERLANE:
            ends = [each.removeprefix(PREFIX) for each in OF_USERS]
            for meant in close_names(name.removeprefix(PREFIX), ends, cutoff=0.7)[:1]:
                yield name, PREFIX + meant

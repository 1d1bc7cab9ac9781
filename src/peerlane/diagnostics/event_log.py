"""The event log: what this process does to device memory, and in which order.

``peerlane check`` reads it.  ``PEERLANE_LOG`` names a directory; then each process that
imports peerlane writes ``<pid>-<start>.log`` there, with the names in ``<pid>-<start>.names``.  A forked child writes
its own.  ``docs/design/checker.md`` says what the events mean, and ``native/log/event.h`` how they are written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from peerlane import _core
from peerlane.errors import InvalidValue
from peerlane.support.sizes import parse_size

VARIABLE, SIZE_VARIABLE = "PEERLANE_LOG", "PEERLANE_LOG_BYTES"
#: Bytes of all logs of a launch, if ``PEERLANE_LOG_BYTES`` does not say how many each process has.
DEFAULT_BYTES = 1 << 30
_LEAST_BYTES = 1 << 20

active = False  #: whether this process has a log
KINDS: dict[str, int] = _core.LOG_KINDS  #: the numbers of the kinds of events, by name


READ, WRITTEN, UNKNOWN = range(3)  #: how the host touches bytes


class Facts(NamedTuple):
    """The log of this process.

    Attributes
    ----------
    path : Path
    written : int
        Bytes.
    dropped : int
        Events for which there was no room.
    capacity : int
        Bytes that are kept until they are read.
    """

    path: Path
    written: int
    dropped: int
    capacity: int


def begin(directory: str | os.PathLike[str], *, capacity: int | None = None) -> bool:
    """Begin the log of this process; False if there is one already, which goes on.

    Parameters
    ----------
    directory : path
        An existing directory.
    capacity : int, optional
        Bytes; by default those of ``PEERLANE_LOG_BYTES``.

    Raises
    ------
    OSError
        The files cannot be made.
    InvalidValue
        ``PEERLANE_LOG_BYTES`` is not a size.
    """
    global active
    begun = _core.log_begin(
        os.fspath(Path(directory).absolute()),
        default_capacity() if capacity is None else capacity,
        _number("RANK", -1),
    )
    active = True
    return begun


def begin_as_told() -> None:
    """Begin a log if ``PEERLANE_LOG`` is set."""
    directory = os.environ.get(VARIABLE)
    if directory:
        begin(directory)


def end() -> None:
    """End the log; without one nothing happens."""
    global active
    active = False
    _core.log_end()


def facts() -> Facts | None:
    """Return what is known of the log of this process, None if there is none."""
    path, *numbers = _core.log_facts()
    return Facts(Path(path), *numbers) if path else None


def default_capacity() -> int:
    """Return ``PEERLANE_LOG_BYTES``, or this process's share of :data:`DEFAULT_BYTES`."""
    given = os.environ.get(SIZE_VARIABLE)
    if not given:
        return max(DEFAULT_BYTES // max(_number("WORLD_SIZE", 1), 1), _LEAST_BYTES)
    size = parse_size(given)
    if size is None or size < _LEAST_BYTES:
        raise InvalidValue(
            f"{SIZE_VARIABLE} is {given!r}; valid are 1MiB or more; 64MiB keep about 500,000 events",
            call="event_log.begin",
        )
    return size


def _number(variable: str, otherwise: int) -> int:
    found = os.environ.get(variable, "")
    return int(found) if found.isdecimal() else otherwise


def host_access(access: int, address: int, nbytes: int) -> None:
    """Log that the host reads or writes bytes at an address of its own, now: :data:`READ`, ... says how."""
    _core.log_host_access(access, address, nbytes)


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing that this thread does in the block."""
    _core.log_hush(True)
    try:
        yield
    finally:
        _core.log_hush(False)


@contextmanager
def called_at(site: int) -> Iterator[None]:
    """Log what this thread does in the block as called at a line.

    ``site`` is its number, of ``_core.log_site()``; 0 changes nothing.
    """
    before = _core.log_fix(site) if site else 0
    try:
        yield
    finally:
        if site:
            _core.log_fix(before)


def name(**told: object) -> None:
    """Add an object to the file with the names."""
    _core.log_name(json.dumps(told))

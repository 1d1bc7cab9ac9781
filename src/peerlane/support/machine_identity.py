"""The identity of this machine: its processes can share memory, see each other's pids, and meet in files."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from peerlane.errors import BadArgument, Fault, InvalidValue
from peerlane.support.runtime_directory import runtime_directory

LONGEST_MACHINE = 64
_VARIABLE = "PEERLANE_MACHINE"


def is_machine(text: str) -> bool:
    """Tell whether a text can be a machine's identity."""
    return 0 < len(text) <= LONGEST_MACHINE and text.isascii() and text.isprintable()


def own_boot(environ: Mapping[str, str] = os.environ) -> str:
    """Return the identity of this boot and its runtime directory: as `own_machine`, but in any pid namespace."""
    return _chosen(environ) or _hash(boot(), *_directory(environ))


def own_machine(environ: Mapping[str, str] = os.environ) -> str:
    """Return the identity of this process's machine: the same in all processes that can share memory with it.

    It is ``PEERLANE_MACHINE``; else it is made of the boot's id, the pid namespace and the runtime directory, so that
    two containers on one computer are two machines.

    Raises InvalidValue: ``PEERLANE_MACHINE`` is not 1 to 64 printable ASCII characters.
    Raises AccessDenied: as :func:`~peerlane.support.runtime_directory.runtime_directory`.
    """
    namespace = Path("/proc/self/ns/pid")
    return _chosen(environ) or _hash(boot(), namespace.stat().st_ino, *_directory(environ))


def _chosen(environ: Mapping[str, str]) -> str:
    chosen = environ.get(_VARIABLE, "")
    if chosen and not is_machine(chosen):
        raise InvalidValue(
            f"{_VARIABLE} is {chosen[:200]!r}; valid are 1 to {LONGEST_MACHINE} printable ASCII characters",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument(
                _VARIABLE, chosen, least=1, most=LONGEST_MACHINE, rule="printable ASCII characters"
            ),
        )
    return chosen


def _directory(environ: Mapping[str, str]) -> tuple[int, int]:
    status = runtime_directory(environ).stat()
    return status.st_dev, status.st_ino


def _hash(*words: object) -> str:
    return hashlib.sha256("\0".join(map(str, words)).encode()).hexdigest()[:16]


@cache
def boot() -> str:
    """Return the identity of this boot of the system: its processes have one clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # a sandbox without it
        return socket.gethostname()

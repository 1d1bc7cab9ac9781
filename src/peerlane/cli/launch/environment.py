"""The variables besides its rank that each rank gets, as ``torchrun`` would set them."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterable, Mapping

_OURS = "PEERLANE_MASTER_PORT"  # the port that this launch chose, so that a launch inside it chooses another

# Variables that hold for this machine or this process only.
_STAY = frozenset(
    f"PEERLANE_{name}"
    for name in (
        *(
            "RENDEZVOUS",
            "LAUNCHED",
            "LAUNCHED_STDERR",
            "MACHINE",
            "SECRET",
            "PORT",
            "MASTER_PORT",
            "RUNTIME_DIR",
            "PROBED",
        ),
        *("DIALECTS", "LOG", "LOG_BYTES", "FAULT", "FAULT_REPORT", "SCHEDULE_REPORT", "INSIDE"),
    )
)


def of_all_ranks(size: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all ranks get on one machine."""
    return of_machine(size, 0, 1) | master("127.0.0.1", free_port(), environ)


def of_machine(size: int, number: int, machines: int) -> dict[str, str]:
    """Return the variables of all ranks of one machine; ``size`` is the number of these ranks."""
    return {"LOCAL_WORLD_SIZE": str(size), "GROUP_RANK": str(number), "GROUP_WORLD_SIZE": str(machines)}


def master(address: str, port: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return where rank 0 may listen; a MASTER_ADDR or MASTER_PORT that the user set stays.

    Nothing listens at the port now.  The ranks will, so it cannot be kept open for them.  It is 0 if none was free.
    """
    variables = {"MASTER_ADDR": environ.get("MASTER_ADDR") or address}
    user_port = environ.get("MASTER_PORT")
    if user_port and user_port != environ.get(_OURS):
        variables["MASTER_PORT"] = user_port
    elif port:
        variables["MASTER_PORT"] = variables[_OURS] = str(port)
    return variables


def free_port() -> int:
    """Return a TCP port that is free now; 0 if a hundred drawn ones are taken.

    The kernel gives ports from 32768 on to connections, so one of those may be taken before rank 0 listens.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    return 0


def for_other_machines(environ: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
    """Return the variables that ranks on other machines get: peerlane's own, and those that are named.

    ``environ``: the launcher's variables.
    ``named``: ``NAME``, which keeps the launcher's value, or ``NAME=VALUE``.
    """
    variables = {
        name: value for name, value in environ.items() if name.startswith("PEERLANE_") and name not in _STAY
    }
    for each in named:
        name, has_value, value = each.partition("=")
        if has_value or name in environ:
            variables[name] = value if has_value else environ[name]
    return variables

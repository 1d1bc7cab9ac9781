"""The engine for channels to other machines: where UCX is loaded from, and how it starts."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from peerlane.errors import BadArgument, Fault, InvalidValue, Refused, Unsupported

_LIBRARY, _UNREACHABLE = "PEERLANE_UCX", "PEERLANE_UNREACHABLE"
_LEAST_SECONDS, _MOST_SECONDS = 0.5, 3600.0


class Starts(Protocol):
    """The verbs of :class:`~peerlane.backend.ranks.Ranks` that start the engine."""

    def far_start(self, library: str, interface: str) -> tuple[bytes, str, str] | list[str] | str: ...
    def far_unreachable(self, seconds: float) -> None: ...


class Engine(NamedTuple):
    """The engine of this process."""

    address: bytes  #: where other processes reach it
    library: str  #: ``library``, ``version``: the file that was loaded, and its version
    version: str


def start(ranks: Starts, interfaces: Sequence[str], environ: Mapping[str, str] = os.environ) -> Engine:
    """Start the engine of this process at the first call, and return it.

    It is loaded from the file ``PEERLANE_UCX``, or from the wheel ``libucx-cu12``, or from the system, in this order.
    It listens on ``interfaces``, those of :func:`.far_network.interfaces`, and uses RDMA devices besides.  Without
    interfaces, and if ``UCX_NET_DEVICES`` is set, UCX chooses.

    Raises Unsupported: there is no engine, and the text names what was tried and what to install; or it does not
        start.
    Raises InvalidValue: ``PEERLANE_UNREACHABLE`` is not a number of seconds.
    """
    ranks.far_unreachable(_seconds(environ))
    library, interface = _library(environ), ",".join(interfaces)
    started = ranks.far_start(library, ",".join([*interfaces, *rdma_devices()]) if interfaces else "")
    if isinstance(started, tuple):
        return Engine(*started)
    if isinstance(started, str):
        raise Unsupported(
            f"channels to other machines need UCX, which does not start: {started}. PEERLANE_INTERFACE says on which "
            "network interface it listens, and UCX_TLS and UCX_NET_DEVICES what it may use",
            detail=Refused(reason="engine_failed", why=started, library=library, interface=interface),
        )
    tried = tuple(started)
    raise Unsupported(
        f"channels to other machines need UCX: {'; '.join(tried)}. Install it with `pip install peerlane[ucx]`, or "
        f"as a package of the system (libucx0), or set {_LIBRARY} to the path of libucp.so.0",
        detail=Refused(reason="no_engine", tried=tried, library=library, interface=interface),
    )


def check_equal(call: str, own: str, peer: str, version: str) -> None:
    """Refuse a peer whose engine has another protocol: it could crash this process's engine (facts/ucx 1).

    Raises Unsupported: the first two numbers of the versions differ.
    """
    if own.split(".")[:2] != version.split(".")[:2]:
        raise Unsupported(
            f"{call}: {peer} has UCX {version}, and this process UCX {own}; they do not understand one another. "
            f"Install the same on all machines, such as `pip install libucx-cu12=={own}`, or set {_LIBRARY}",
            call=call,
            detail=Refused(reason="engines_differ", valid=own, said=version),
        )


def _library(environ: Mapping[str, str]) -> str:
    library = environ.get(_LIBRARY, "")
    if library:
        return library
    spec = importlib.util.find_spec("libucx")  # finds it without importing it
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "lib" / "libucp.so.0"
        if path.exists():
            return str(path)
    return ""


def rdma_devices() -> list[str]:
    """Return the ports of RDMA devices, as UCX names them."""
    return [
        f"{port.parts[-3]}:{port.name}" for port in sorted(Path("/sys/class/infiniband").glob("*/ports/*"))
    ]


def _seconds(environ: Mapping[str, str]) -> float:
    setting = environ.get(_UNREACHABLE, "10")
    try:
        seconds = float(setting)
    except ValueError:
        seconds = 0.0
    if _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        return seconds
    raise InvalidValue(
        f"{_UNREACHABLE} is {setting!r}; valid are {_LEAST_SECONDS:g} to {_MOST_SECONDS:,.0f} seconds",
        fault=Fault.BAD_CONFIG,
        detail=BadArgument(_UNREACHABLE, setting, least=_LEAST_SECONDS, most=_MOST_SECONDS),
    )

"""The part of ``peerlane topo`` about machines: what this one offers to others, and the machines of a job.

Each rank of a job gathers the facts of its machine.  The first ranks of the machines make channels to one another,
and gather the transports that UCX chose.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import peerlane as pl
from peerlane.backends.virtual.ranks import VirtualRanks
from peerlane.errors import Error
from peerlane.ranks import far_engine, far_network
from peerlane.rendezvous import Rendezvous
from peerlane.rendezvous.launchers import assignment_of
from peerlane.rendezvous.meet import meet
from peerlane.support.machine_identity import own_machine
from peerlane.support.network import own_address

_SECONDS = 60.0
_SETTINGS = ("UCX_TLS", "UCX_NET_DEVICES")

Facts: TypeAlias = "dict[str, Any]"


def this_machine(environ: Mapping[str, str] = os.environ) -> Facts:
    """Return what this machine offers to others, as JSON has it; ``engine`` is None where there is none."""
    engine, why, interfaces = None, "", far_network.interfaces(environ)
    try:
        started = far_engine.start(VirtualRanks(_no_node), interfaces, environ)
        engine = {"version": started.version, "library": started.library}
    except Error as error:
        why = str(error)
    return {
        "identity": own_machine(environ),
        "host": socket.gethostname(),
        "engine": engine,
        "why_no_engine": why,
        "interface": ",".join(interfaces),
        "address": own_address(environ),
        "rdma": far_engine.rdma_devices(),
        "settings": {name: environ[name] for name in _SETTINGS if environ.get(name)},
    }


def _no_node() -> NoReturn:
    raise AssertionError("the engine needs no node")


def rows_of(facts: Facts) -> Iterator[list[str]]:
    """Return the facts of `this_machine` as rows of a table."""
    yield ["  machine", facts["identity"]]
    yield ["  engine", _engine(facts) if facts["engine"] else facts["why_no_engine"]]
    where = " ".join(filter(None, (facts["interface"], facts["address"])))
    yield ["  network", where or "UCX chooses; PEERLANE_INTERFACE or MASTER_ADDR says which one"]
    yield ["  RDMA", ", ".join(facts["rdma"]) or "none"]
    for name, value in facts["settings"].items():
        yield [f"  {name}", value]


def is_rank() -> bool:
    """Return whether a launcher has started this process as a rank, and others on other machines."""
    assignment = assignment_of()
    return assignment is not None and assignment.spans


def machines_of_job() -> list[Facts] | None:
    """Return the machines of this rank's job; None in all ranks but 0.

    All ranks call it.  ``ranks`` are those of a machine.  ``ways`` are the transports to each other machine, if both
    have an engine.
    """
    rendezvous = meet("peerlane topo", None, None, None, name="topo", timeout=_SECONDS).rendezvous
    try:
        with pl.Group(rendezvous=rendezvous, window=4096, name="topo", timeout=_SECONDS) as group:
            return _gathered(group, rendezvous)
    finally:
        rendezvous.close()


def _gathered(group: pl.Group, rendezvous: Rendezvous) -> list[Facts] | None:
    facts = _all(rendezvous, "topo/machines", this_machine())
    machines: dict[str, Facts] = {}
    for rank, each in enumerate(facts):
        machines.setdefault(each["identity"], {**each, "ranks": []})["ranks"].append(rank)
    mine = machines[group.members[group.rank].machine]
    transports: dict[str, list[str]] = {}
    if mine["ranks"][0] == group.rank and mine["engine"]:
        others = [each for each in machines.values() if each is not mine and each["engine"]]
        channels = group.channels([each["ranks"][0] for each in others], notifies=0, timeout=_SECONDS)
        for each, channel in zip(others, channels, strict=True):
            transports[each["identity"]] = channel._end.transports()
    all_transports = _all(rendezvous, "topo/ways", transports)
    for each in machines.values():
        each["ways"] = all_transports[each["ranks"][0]]
    return list(machines.values()) if group.rank == 0 else None


def _all(rendezvous: Rendezvous, key: str, value: object) -> list[Any]:
    return [json.loads(each) for each in rendezvous.gather(key, json.dumps(value).encode(), timeout=_SECONDS)]


def rows_of_machines(machines: Sequence[Facts]) -> Iterator[list[str]]:
    """Return the machines of a job as rows of a table, below `HEAD`."""
    for each in machines:
        ranks = each["ranks"]
        shown = ",".join(map(str, ranks))
        if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
            shown = f"{ranks[0]}-{ranks[-1]}"
        network = " ".join(filter(None, (each["interface"], each["address"])))
        engine = _engine(each) if each["engine"] else "none"
        yield [each["identity"], shown, each["host"], network or "-", engine]


HEAD = ["machine", "ranks", "host", "network", "engine"]


def rows_of_transports(machines: Sequence[Facts]) -> Iterator[list[str]]:
    """Return the transports between the machines of a job as rows of a matrix."""
    for one in machines:
        cells = [
            "X" if one is other else ",".join(one["ways"].get(other["identity"], ())) or "--"
            for other in machines
        ]
        yield [one["identity"], *cells]


def _engine(facts: Facts) -> str:
    return f"UCX {facts['engine']['version']}, {facts['engine']['library']}"

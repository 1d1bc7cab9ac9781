"""The part of ``peerlane topo`` about machines: what this one offers to others, and the machines of a job.

Each rank of a job says what its machine has.  The first ranks of the machines make channels to one another, and say
which transports UCX took.
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
from peerlane.ranks import far_engine
from peerlane.rendezvous import Rendezvous
from peerlane.rendezvous.launchers import told
from peerlane.rendezvous.meet import meet
from peerlane.support.machine_identity import own_machine
from peerlane.support.network import interface_of, own_address

_SECONDS = 60.0
_SETTINGS = ("UCX_TLS", "UCX_NET_DEVICES")

Said: TypeAlias = "dict[str, Any]"


def this_machine(environ: Mapping[str, str] = os.environ) -> Said:
    """Return what this machine offers to others, as JSON has it; ``engine`` is None where there is none."""
    engine, why = None, ""
    try:
        found = far_engine.start(VirtualRanks(_no_node), environ)
        engine = {"version": found.version, "library": found.library}
    except Error as error:
        why = str(error)
    return {
        "identity": own_machine(environ),
        "host": socket.gethostname(),
        "engine": engine,
        "why_no_engine": why,
        "interface": interface_of(environ),
        "address": own_address(environ),
        "rdma": far_engine.rdma_devices(),
        "settings": {name: environ[name] for name in _SETTINGS if environ.get(name)},
    }


def _no_node() -> NoReturn:
    raise AssertionError("the engine needs no node")


def rows_of(said: Said) -> Iterator[list[str]]:
    """Return what `this_machine` says as rows of a table."""
    yield ["  machine", said["identity"]]
    yield ["  engine", _engine(said) if said["engine"] else said["why_no_engine"]]
    where = " ".join(filter(None, (said["interface"], said["address"])))
    yield ["  network", where or "UCX chooses; PEERLANE_INTERFACE or MASTER_ADDR says which one"]
    yield ["  RDMA", ", ".join(said["rdma"]) or "none"]
    for name, value in said["settings"].items():
        yield [f"  {name}", value]


def is_rank() -> bool:
    """Tell whether a launcher has started this process as a rank, and others on other machines."""
    found = told()
    return found is not None and found.spans


def machines_of_job() -> list[Said] | None:
    """Return the machines of this rank's job; None in all ranks but 0.

    All ranks call it.  ``ranks`` are those of a machine.  ``ways`` are the transports to each other machine, if both
    have an engine.
    """
    line = meet("peerlane topo", None, None, None, name="topo", timeout=_SECONDS).line
    try:
        with pl.Group(rendezvous=line, window=4096, name="topo", timeout=_SECONDS) as group:
            return _gathered(group, line)
    finally:
        line.close()


def _gathered(group: pl.Group, line: Rendezvous) -> list[Said] | None:
    said = _all(line, "topo/machines", this_machine())
    machines: dict[str, Said] = {}
    for rank, each in enumerate(said):
        machines.setdefault(each["identity"], {**each, "ranks": []})["ranks"].append(rank)
    mine = machines[group.members[group.rank].machine]
    ways: dict[str, list[str]] = {}
    if mine["ranks"][0] == group.rank and mine["engine"]:
        others = [each for each in machines.values() if each is not mine and each["engine"]]
        channels = group.channels([each["ranks"][0] for each in others], notifies=0, timeout=_SECONDS)
        for each, channel in zip(others, channels, strict=True):
            ways[each["identity"]] = channel._end.transports()
    all_ways = _all(line, "topo/ways", ways)
    for each in machines.values():
        each["ways"] = all_ways[each["ranks"][0]]
    return list(machines.values()) if group.rank == 0 else None


def _all(line: Rendezvous, key: str, value: object) -> list[Any]:
    return [json.loads(each) for each in line.gather(key, json.dumps(value).encode(), timeout=_SECONDS)]


def rows_of_machines(machines: Sequence[Said]) -> Iterator[list[str]]:
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


def rows_of_ways(machines: Sequence[Said]) -> Iterator[list[str]]:
    """Return the transports between the machines of a job as rows of a matrix."""
    for one in machines:
        cells = [
            "X" if one is other else ",".join(one["ways"].get(other["identity"], ())) or "--"
            for other in machines
        ]
        yield [one["identity"], *cells]


def _engine(said: Said) -> str:
    return f"UCX {said['engine']['version']}, {said['engine']['library']}"

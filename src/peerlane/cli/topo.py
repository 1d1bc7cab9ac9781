"""``peerlane topo``: the links between the devices of a node, in the manner of ``nvidia-smi topo -m``.

As a rank of a job on several machines it shows the machines, and the transports between them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from peerlane.backends.virtual.node import LinkKind, NodeConfig
from peerlane.support.sizes import format_size

from . import topo_machines
from .node_options import add_node_arguments, node_from

HELP = "show the devices of a virtual node and their links; as a rank of several machines, the machines"

_COLOURS = {"X": "dim", "OK": "green", "--": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    add_node_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """Print the node's topology and return the exit code."""
    node = node_from(args)
    console = Console(file=sys.stdout, highlight=False)
    if topo_machines.is_rank():
        machines = topo_machines.machines_of_job()
        if machines is not None:  # rank 0
            _print_json({"machines": machines}) if args.json else _draw_machines(machines, console)
        return 0
    here = topo_machines.this_machine()
    if args.json:
        _print_json({**_as_json(node), "machine": here})
    else:
        _draw(node, console)
        console.print()
        console.print("To other machines:")
        _table(console, [], topo_machines.rows_of(here))
    return 0


def _print_json(said: object) -> None:
    json.dump(said, sys.stdout, separators=(",", ":"))
    print()


def _draw_machines(machines: Sequence[topo_machines.Said], console: Console) -> None:
    _table(console, topo_machines.HEAD, topo_machines.rows_of_machines(machines))
    console.print()
    console.print("Transports that UCX took, from row to column:")
    names = [each["identity"] for each in machines]
    _table(console, ["", *names], topo_machines.rows_of_ways(machines))
    console.print()
    console.print("Legend:")
    legend = [
        ("X", "shared memory of the machine"),
        ("--", "none: there is no engine at one of the two ends"),
    ]
    _table(console, [], ([f"  {sign}", f"= {meaning}"] for sign, meaning in legend))
    for each in machines:
        if not each["engine"]:
            console.print()
            console.print(Text(f"{each['identity']}: {each['why_no_engine']}"), soft_wrap=True)


def _as_json(node: NodeConfig) -> dict[str, object]:
    topology = node.topology
    every = range(node.devices)
    return {
        "node": {"name": node.name, "profile": node.profile.name, "digest": node.digest},
        "devices": [
            {"name": _device(i), "switch": topology.switch(i), "memory": node.memory[i]} for i in every
        ],
        "link": [[topology.link(a, b).value for b in every] for a in every],
        "p2p": [[topology.reachable(a, b) for b in every] for a in every],
        "legend": {kind.value: kind.legend for kind in _kinds(node)},
    }


def _draw(node: NodeConfig, console: Console) -> None:
    topology = node.topology
    every = range(node.devices)
    names = [_device(i) for i in every]
    console.print(Text(node.describe()), soft_wrap=True)
    console.print()
    _table(
        console,
        ["", *names, "switch", "memory"],
        (
            [
                names[a],
                *(topology.link(a, b).value for b in every),
                str(topology.switch(a)),
                format_size(node.memory[a]),
            ]
            for a in every
        ),
    )
    console.print()
    console.print("Legend:")
    _table(console, [], ([f"  {kind.value}", f"= {kind.legend}"] for kind in _kinds(node)))
    console.print()
    console.print("Peer access, from row to column:")
    _table(console, ["", *names], ([names[a], *(_peer(node, a, b) for b in every)] for a in every))
    console.print()
    console.print("Legend:")
    _table(console, [], ([f"  {sign}", f"= {meaning}"] for sign, meaning in _peer_legend(node)))


def _table(console: Console, head: Sequence[str], rows: Iterator[list[str]]) -> None:
    body = list(rows)
    widths = [max(map(len, column)) for column in zip(*([head] if head else []), *body, strict=True)]
    if head:
        _line(console, head, widths, style="bold")
    for row in body:
        _line(console, row, widths)


def _line(console: Console, cells: Sequence[str], widths: Sequence[int], style: str = "") -> None:
    """Print one line whole; without ``soft_wrap`` rich wraps or crops a line wider than the terminal."""
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    line = Text("  ".join(padded).rstrip(), style=style)
    if console.is_terminal:
        for word, colour in _COLOURS.items():
            line.highlight_regex(rf"(?<!\S){word}(?!\S)", colour)
    console.print(line, soft_wrap=True)


def _device(index: int) -> str:
    return f"virtual:{index}"


def _kinds(node: NodeConfig) -> list[LinkKind]:
    every = range(node.devices)
    seen = {node.topology.link(a, b) for a in every for b in every}
    return [kind for kind in LinkKind if kind in seen]


def _peer(node: NodeConfig, a: int, b: int) -> str:
    if a == b:
        return LinkKind.SELF.value
    return "OK" if node.topology.reachable(a, b) else "--"


def _peer_legend(node: NodeConfig) -> Iterator[tuple[str, str]]:
    every = range(node.devices)
    pairs = [(a, b) for a in every for b in every if a != b]
    yield LinkKind.SELF.value, LinkKind.SELF.legend
    if any(node.topology.reachable(a, b) for a, b in pairs):
        yield "OK", "peer access can be enabled"
    for a, b in pairs:
        if not node.topology.reachable(a, b):
            yield "--", f"no peer access; for example, {node.topology.reason(a, b)}"
            return

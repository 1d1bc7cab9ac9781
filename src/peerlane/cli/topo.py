"""``peerlane topo``: the links between the devices of a node, in the manner of ``nvidia-smi topo -m``.

As a rank of a job on several machines it shows the machines, and the transports between them.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

from rich.console import Console
from rich.text import Text

from peerlane.backends.virtual.node import LinkKind, NodeConfig
from peerlane.dialects._shared.manifests import manifest_of, registered
from peerlane.errors import BadArgument, InvalidValue
from peerlane.support.sizes import format_size

from . import topo_machines, topo_predict
from .node_options import add_node_arguments, node_from
from .outputs import add_json_argument, check_json, show_progress, show_result

HELP = "show the devices of a node and their links"
DESCRIPTION = """\
Shows the devices of a virtual node, their links and who may reach whom, and
what this machine offers to others. As a rank of several machines it shows
the machines."""
EXAMPLES = (
    ("peerlane topo", "the node of $PEERLANE_NODE"),
    ("peerlane topo --devices 8 --profile two-islands", "a node as it would be"),
    ("peerlane topo --profile h100-8 --dialect cuda", "in the words of nvidia-smi topo"),
    ("peerlane topo --profile h100-8 --predict all_reduce", "its time on the real machine"),
    ("peerlane topo --json", "for programs"),
)

_LEAST_WIDTH = 80  # a narrower terminal breaks lines itself
_COLOURS = {"X": "dim", "OK": "green", "--": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    add_node_arguments(parser)
    parser.add_argument(
        "--dialect", metavar="NAME", help="show what the tool of this vendor shows; cuda: nvidia-smi topo"
    )
    topo_predict.add_arguments(parser)
    add_json_argument(parser, then="not at all")


def run(args: argparse.Namespace) -> int:
    """Print the node's topology and return the exit code."""
    check_json(args)
    topo_predict.check_options(args)
    node = node_from(args)
    if args.predict is not None:
        return topo_predict.run(args, node)
    vendor = _vendor(args.dialect) if args.dialect is not None else None
    console = Console(file=sys.stdout, highlight=False)
    if topo_machines.is_rank():
        machines = topo_machines.machines_of_job()
        if machines is not None:  # rank 0
            _show(args, lambda: {"machines": machines}, lambda: _draw_machines(machines, console))
        return 0
    machine = topo_machines.this_machine()

    def draw() -> None:
        if vendor is not None:
            _draw_as(vendor, node, console)
            return
        _draw(node, console)
        console.print()
        console.print("To other machines:")
        _table(console, [], topo_machines.rows_of(machine), wraps=max(_LEAST_WIDTH, console.width))

    _show(args, lambda: {**_as_json(node), "machine": machine}, draw)
    return 0


def _show(args: argparse.Namespace, result: Callable[[], object], draw: Callable[[], None]) -> None:
    with show_progress() as progress:
        progress.add_task("all pairs of devices", total=None)  # many devices have millions
        show_result(args, result, draw, indent=None)


def _draw_machines(machines: Sequence[topo_machines.Facts], console: Console) -> None:
    _table(console, topo_machines.HEAD, topo_machines.rows_of_machines(machines))
    console.print()
    console.print("Transports that UCX took, from row to column:")
    names = [each["identity"] for each in machines]
    _table(console, ["", *names], topo_machines.rows_of_transports(machines))
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


def _vendor(dialect: str) -> Callable[..., Any]:
    """Return the function of a dialect that returns what its vendor's tool shows."""
    function = manifest_of(dialect).topology
    if not function:
        able = [each for each in registered() if manifest_of(each).topology]
        raise InvalidValue(
            f"--dialect {dialect}: peerlane does not know what its vendor's tool shows; valid: {', '.join(able)}",
            detail=BadArgument("--dialect", dialect, choices=tuple(able)),
        )
    shown: Callable[..., Any] = resolve_name(function)
    return shown


def _draw_as(vendor: Callable[..., Any], node: NodeConfig, console: Console) -> None:
    """Print the matrices that the vendor's tool shows, of links and of access."""
    topology = node.topology
    rows = topology.link_rows()
    (links, links_legend), (access, access_legend), columns = vendor(
        node.profile.device_name, rows, topology.reach_rows(), [*topology.switch_of]
    )
    heads = [f"GPU{device}" for device in range(node.devices)]
    width = max(_LEAST_WIDTH, console.width)
    known = {
        **{kind.value: kind.legend for kind in _kinds(rows) if kind.value not in links_legend},
        "OK": "peer access can be enabled",
    }
    for matrix, own, more in ((links, links_legend, columns), (access, access_legend, {})):
        lines = ([head, *row, *more.values()] for head, row in zip(heads, matrix, strict=True))
        _table(console, ["", *heads, *more], lines)
        signs = {sign for row in matrix for sign in row}
        console.print()
        console.print("Legend:")
        _legend(
            console,
            ((sign, text) for sign, text in {**known, **own}.items() if _is_shown(sign, signs)),
            width,
        )
        if matrix is links:
            console.print()
            console.print("Peer access, from row to column:")


def _is_shown(sign: str, signs: set[str]) -> bool:
    """Tell whether a matrix has a sign; ``NV#`` stands for each that has a number."""
    start, _, _ = sign.partition("#")
    return sign in signs or (start != sign and any(each.startswith(start) for each in signs))


def _as_json(node: NodeConfig) -> dict[str, object]:
    topology = node.topology
    links = topology.link_rows()
    return {
        "node": {"name": node.name, "profile": node.profile.name, "digest": node.digest},
        "devices": [
            {"name": _device(i), "switch": topology.switch(i), "memory": node.memory[i]}
            for i in range(node.devices)
        ],
        "link": links,
        "p2p": topology.reach_rows(),
        "legend": {kind.value: kind.legend for kind in _kinds(links)},
    }


def _draw(node: NodeConfig, console: Console) -> None:
    links, reach = node.topology.link_rows(), node.topology.reach_rows()
    width = max(_LEAST_WIDTH, console.width)
    console.print(Text("\n".join(_wrapped(node.describe(), width, 2))), soft_wrap=True)
    console.print()
    peers = [["OK" if each else "--" for each in row] for row in reach]
    for device, row in enumerate(peers):
        row[device] = LinkKind.SELF.value

    def more(a: int) -> tuple[str, str]:
        return str(node.topology.switch(a)), format_size(node.memory[a])

    kinds = _kinds(links)
    if _is_narrow([each.value for each in kinds], node.devices, width):
        _matrix(console, links, {"switch": lambda a: more(a)[0], "memory": lambda a: more(a)[1]}, width)
        sets: list[range] = []
    else:
        sets = [*_alike(node, links, reach)]
        _draw_sets(sets, links, more, console)
    console.print()
    console.print("Legend:")
    _legend(console, ((kind.value, kind.legend) for kind in kinds), width)
    console.print()
    console.print("Peer access, from row to column:")
    if sets:
        _draw_sets(sets, peers, None, console)
    else:
        _matrix(console, peers, {}, width)
    console.print()
    console.print("Legend:")
    _legend(console, _peer_legend(node, reach), width)


def _is_narrow(cells: Sequence[str], devices: int, width: int) -> bool:
    """Tell whether a matrix of all devices fits; its columns are then at least as wide as their numbers."""
    column = max(len(str(devices - 1)), *map(len, cells)) + 2
    return len(_device(devices - 1)) + devices * column + len("  switch  memory  ") <= width


def _matrix(
    console: Console, cells: Sequence[Sequence[str]], more: Mapping[str, Callable[[int], str]], width: int
) -> None:
    """Print a row and a column for each device; columns are called by their numbers where the names do not fit."""
    rows = [[_device(a), *row, *(each(a) for each in more.values())] for a, row in enumerate(cells)]
    heads = [_device(b) for b in range(len(cells))]
    if sum(max(map(len, column)) + 2 for column in zip(["", *heads, *more], *rows, strict=True)) - 2 > width:
        heads = [str(b) for b in range(len(cells))]
    _table(console, ["", *heads, *more], rows)


def _alike(node: NodeConfig, links: list[list[str]], reach: list[list[bool]]) -> Iterator[range]:
    """Yield runs of devices that no link and no right of access tells apart."""
    every = range(node.devices)
    own = [*zip(node.topology.switch_of, node.memory, strict=True)]
    matrices: list[Sequence[Sequence[Any]]] = [
        links,
        reach,
        [list(column) for column in zip(*reach, strict=True)],
    ]

    def are_alike(a: int, b: int) -> bool:  # neighbours
        return (
            own[a] == own[b]
            and reach[a][b] == reach[b][a]
            and all(rows[a][:a] == rows[b][:a] and rows[a][b + 1 :] == rows[b][b + 1 :] for rows in matrices)
        )

    first = 0
    for device in every[1:]:
        # Links within the run are compared too: each of its devices is like the one before.
        if not are_alike(device - 1, device):
            yield range(first, device)
            first = device
    yield range(first, node.devices)


def _draw_sets(
    sets: Sequence[range],
    cells: Sequence[Sequence[str]],
    more: Callable[[int], tuple[str, str]] | None,
    console: Console,
) -> None:
    """Print a row for each set of devices, with what it has to itself and to each other set."""
    rows = []
    for one in sets:
        inside = cells[one[0]][one[1]] if len(one) > 1 else LinkKind.SELF.value
        to: dict[str, list[str]] = {}
        for other in sets:
            if other is not one:
                to.setdefault(cells[one[0]][other[0]], []).append(_named(other))
        others = "; ".join(
            f"{kind} to {'all others' if len(names) == len(sets) - 1 and len(names) > 1 else ', '.join(names)}"
            for kind, names in to.items()
        )
        rows.append([_named(one), *(more(one[0]) if more else ()), inside, others])
    head = ["devices", *(["switch", "memory"] if more else []), "among them", "to the others"]
    _table(console, head, rows, wraps=max(_LEAST_WIDTH, console.width))


def _named(devices: range) -> str:
    return f"{devices[0]}-{devices[-1]}" if len(devices) > 1 else str(devices[0])


def _legend(console: Console, entries: Iterable[tuple[str, str]], width: int) -> None:
    _table(console, [], ([f"  {sign}", f"= {meaning}"] for sign, meaning in entries), wraps=width, indent=2)


def _table(
    console: Console, head: Sequence[str], rows: Iterable[list[str]], *, wraps: int = 0, indent: int = 0
) -> None:
    """Print a table; ``wraps`` is the width at which its last column goes on in the next line, with an indent."""
    body = list(rows)
    widths = [max(map(len, column)) for column in zip(*([head] if head else []), *body, strict=True)]
    if head:
        _line(console, head, widths, style="bold")
    room = wraps - sum(widths[:-1]) - 2 * (len(widths) - 1)
    for row in body:
        lines = _wrapped(row[-1], max(room, 20), indent) if wraps else row[-1:]
        for number, text in enumerate(lines or [""]):
            _line(console, [*(row[:-1] if not number else [""] * (len(row) - 1)), text], widths)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    after = " " * indent
    return textwrap.wrap(text, width, subsequent_indent=after, break_on_hyphens=False)


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


def _kinds(links: Iterable[Iterable[str]]) -> list[LinkKind]:
    shown = set().union(*links)
    return [kind for kind in LinkKind if kind.value in shown]


def _peer_legend(node: NodeConfig, reach: list[list[bool]]) -> Iterator[tuple[str, str]]:
    yield LinkKind.SELF.value, LinkKind.SELF.legend
    if any(map(any, reach)):
        yield "OK", "peer access can be enabled"
    for a, row in enumerate(reach):
        b = next((b for b, each in enumerate(row) if not each and a != b), None)
        if b is not None:
            yield "--", f"no peer access; for example, {node.topology.reason(a, b)}"
            return

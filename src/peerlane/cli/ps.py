"""``peerlane ps``: the processes of each node, and what each holds of its devices.  It enters no node."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from peerlane.backend.settings import is_file
from peerlane.backends.virtual.node import NodeConfig
from peerlane.backends.virtual.node.census import ENDED, FOREIGN, Census, Holder, node_names, take_census
from peerlane.cli.outputs import (
    add_json_argument,
    check_json,
    note,
    printable,
    results_console,
    show_result,
    table,
)
from peerlane.errors import Fault, InvalidValue
from peerlane.support.runtime_directory import existing_runtime_directory
from peerlane.support.sizes import format_size
from peerlane.support.spelling import did_you_mean

HELP = "show the nodes in use, and what their processes hold"
DESCRIPTION = """\
Shows the nodes in use, their processes, and what each process holds of the
devices. It enters no node."""
EXAMPLES = (
    ("peerlane ps", "all nodes that a process is in"),
    ("peerlane ps --json", "for programs; it lists idle nodes too"),
)

_COMMAND_WIDTH = 48
_SHOWN = 6
_MOST_NAMED = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    parser.add_argument(
        "--node",
        metavar="NAME_OR_SPEC_OR_FILE",
        help="this node only: its name as shown, or what PEERLANE_NODE would be (default: all nodes)",
    )
    add_json_argument(parser, then="not at all")


def run(args: argparse.Namespace) -> int:
    """Print what each process holds; return 1 if the file of a node could not be read."""
    check_json(args)
    directory = existing_runtime_directory()
    present = node_names(directory) if directory else ()
    names = present if args.node is None else (_chosen(args.node, present, directory),)
    censuses = [take_census(directory, name) for name in names] if directory else []
    shown = [census for census in censuses if args.node is not None or not _is_idle(census)]
    idle = [census.name for census in censuses if census not in shown]
    show_result(
        args,
        lambda: {"directory": str(directory or ""), "nodes": [*map(_as_json, shown)], "idle": idle},
        lambda: _draw(shown, idle, directory, results_console(args)),
    )
    return 1 if any(census.problem for census in shown) else 0


def _is_idle(census: Census) -> bool:
    """Return whether a node has no process; its file stays for the next process that enters it."""
    return not census.problem and not census.holders


def _chosen(text: str, present: tuple[str, ...], directory: Path | None) -> str:
    name = text
    if text not in present and ("=" in text or is_file(text)):
        name = NodeConfig.resolve(text, source="--node").name
    if name not in present:
        used = [each for each in present if directory and take_census(directory, each).is_used]
        shown = [*map(printable, used[:_MOST_NAMED])] + [f"{len(used) - _MOST_NAMED} more"] * (
            len(used) > _MOST_NAMED
        )
        raise InvalidValue(
            f"--node {text!r}: no process has entered node {name!r}{did_you_mean(name, present)}; valid are the name "
            f"of a node, a file that describes it, and key=value,...; nodes in use: {', '.join(shown) or 'none'}",
            fault=Fault.BAD_CONFIG,
        )
    return name


def _as_json(census: Census) -> dict[str, object]:
    return {
        "name": census.name,
        "problem": census.problem or None,
        "shape": census.shape,
        "devices": [
            {"name": _device(index), "used": used, "capacity": _capacity(census, index)}
            for index, used in enumerate(census.used)
        ],
        "processes": [_holder_json(holder) for holder in census.holders],
    }


def _holder_json(holder: Holder) -> dict[str, object]:
    return {
        "pid": holder.pid,
        "state": holder.state,
        "command": holder.command,
        "age_seconds": holder.age_seconds,
        "own": {_device(device): nbytes for device, nbytes in holder.own.items()},
        "shared": {_device(device): nbytes for device, nbytes in holder.shared.items()},
        "shared_blocks": holder.shared_blocks,
        "peers": [[_device(a), _device(b)] for a, b in holder.peers],
        "serves": holder.serves,
    }


def _draw(censuses: list[Census], idle: list[str], directory: Path | None, console: Console) -> None:
    if not censuses:
        note(console, f"no node in use ({directory or 'there is no runtime directory'})")
    for number, census in enumerate(censuses):
        if number:
            console.print()
        note(console, printable(census.shape or census.name))
        if census.problem:
            note(console, f"  its file {census.problem}", style="red")
            continue
        _draw_holders(census, console)
        for line in _totals(census):
            note(console, line)
    if idle:
        shown = ", ".join(map(printable, idle[:_SHOWN])) + (", ..." if len(idle) > _SHOWN else "")
        note(console, f"{len(idle)} idle (nobody is in them): {shown}")


def _draw_holders(census: Census, console: Console) -> None:
    if not census.holders:
        return
    shown = table(
        *("pid", "command", "age", "own", "shared", "blocks", "peers", "serves"),
        numbers=("pid", "age", "blocks"),
    )
    for holder in census.holders:
        shown.add_row(
            str(holder.pid),
            Text(_command(holder)),
            _age(holder.age_seconds),
            _amounts(holder.own),
            _amounts(holder.shared),
            str(holder.shared_blocks),
            _peers(holder),
            "yes" if holder.serves else "no",
            style="dim" if holder.state == ENDED else None,
        )
    console.print()
    console.print(shown)
    console.print()


def _totals(census: Census) -> Iterator[str]:
    idle = 0
    for index, used in enumerate(census.used):
        if not used and len(census.used) > _SHOWN:
            idle += 1
            continue
        capacity = _capacity(census, index)
        of = "" if capacity is None else f" of {format_size(capacity)} ({used / capacity:.1%})"
        yield f"{_device(index)}: {format_size(used)}{of} used"
    if idle:
        yield f"the other {idle} devices: nothing used" if idle < len(census.used) else "nothing used"


def _capacity(census: Census, index: int) -> int | None:
    return census.capacity[index] if census.capacity else None


def _device(index: int) -> str:
    return f"virtual:{index}"


def _command(holder: Holder) -> str:
    if holder.state == ENDED:
        return "(ended; the next process that enters the node clears its place)"
    if holder.state == FOREIGN:
        return "(of another pid namespace)"
    text = printable(holder.command)
    return text if len(text) <= _COMMAND_WIDTH else text[: _COMMAND_WIDTH - 3] + "..."


def _age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def _amounts(amounts: dict[int, int]) -> str:
    lines = [f"{device}: {format_size(nbytes)}" for device, nbytes in amounts.items()]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join(lines[:_SHOWN] + more) or "-"


def _peers(holder: Holder) -> str:
    shown = [f"{a}>{b}" for a, b in holder.peers[:_SHOWN]]
    more = len(holder.peers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") or "-"

"""The outputs of a command: a table for people, JSON for programs (``--json``), a picture (``--plot``).

Rich is imported inside functions: a command that prints no table, as ``launch`` does, starts sooner.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from peerlane.cli import plots
from peerlane.errors import InvalidValue

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

STDOUT = "-"

_UNWRAPPED = 160


def result_file(text: str) -> str:
    """Return the name of a file that an option before the program writes; refuse that of a program."""
    if Path(text).suffix == ".py":
        raise argparse.ArgumentTypeError(
            f"{text!r} is a program, and the option names the file to write; write both: FILE, then {text}"
        )
    return text


def add_json_argument(parser: argparse.ArgumentParser, *, then: str) -> None:
    """Add ``--json [FILE]``; ``then`` says where the tables go if the JSON goes to standard output."""
    parser.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help=f"write the whole result as JSON; without FILE to standard output, the tables then {then}",
    )


def add_output_arguments(parser: argparse.ArgumentParser, *, plot: str) -> None:
    """Add ``--json`` and ``--plot``; ``plot`` says what the picture shows."""
    add_json_argument(parser, then="to standard error")
    parser.add_argument("--plot", metavar="FILE", help=f"write {plot} as pictures, .png or .svg")


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse, before any work is done, an output that cannot be written."""
    check_json(args)
    check_file("--plot", args.plot)
    if args.plot is not None:
        if Path(args.plot).suffix.lower() not in plots.SUFFIXES:
            raise InvalidValue(
                f"--plot {args.plot!r}: valid is a name that ends in {' or '.join(plots.SUFFIXES)}"
            )
        plots.check_available()


def check_json(args: argparse.Namespace) -> None:
    """Refuse, before any work is done, a file of ``--json`` that cannot be written."""
    if args.json != STDOUT:
        check_file("--json", args.json)


def check_file(flag: str, target: str | None) -> None:
    """Refuse a file that cannot be written, if one is given."""
    if target is None:
        return
    folder = Path(target).parent
    if Path(target).is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidValue(
            f"{flag} {target!r} cannot be written: valid is a file in a folder that exists and is writable"
        )


def check_files(targets: Mapping[str, str | None]) -> None:
    """Refuse files that cannot be written, and one file for two options, whose flags are the keys."""
    taken: dict[Path, str] = {}
    for flag, target in targets.items():
        check_file(flag, target)
        if target is None:
            continue
        path = Path(target).resolve()
        other = taken.setdefault(path, flag)
        if other != flag and (path.is_file() or not path.exists()):  # a pipe takes one after the other
            raise InvalidValue(
                f"{other} and {flag} are the same file, {target!r}: the second would overwrite the first; give each "
                "a file of its own"
            )


@contextlib.contextmanager
def unwritable(flag: str, target: str) -> Iterator[None]:
    """Turn an ``OSError`` of writing ``target`` into an ``InvalidValue`` that names the option."""
    try:
        yield
    except OSError as error:
        raise InvalidValue(f"{flag} {target!r} cannot be written: {error.strerror}") from None


def results_console(args: argparse.Namespace) -> Console:
    """Return the console for tables; without a terminal it is wide enough that no table is wrapped."""
    from rich.console import Console

    file = sys.stderr if args.json == STDOUT else sys.stdout
    return Console(file=file, highlight=False, width=None if file.isatty() else _UNWRAPPED)


def note(console: Console, text: str, style: str = "") -> None:
    """Print a text: a terminal breaks it between words, a pipe gets a whole line."""
    from rich.text import Text

    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def table(*headings: str, numbers: Iterable[str] = ()) -> Table:
    """Return a table without vertical lines, which costs the fewest columns; ``numbers`` are aligned to the right."""
    from rich import box
    from rich.table import Table

    grid = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        title_style="bold",
    )
    for heading in headings:
        grid.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    return grid


def show_progress() -> Progress:
    """Return a progress line on standard error, so that redirected results stay clean; silent without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr, highlight=False)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not _is_terminal(),
        transient=True,
    )


@contextlib.contextmanager
def show_step(text: str) -> Iterator[None]:
    """Show a progress line for the one step that the block is, on a terminal."""
    if not _is_terminal():
        yield
        return
    with show_progress() as progress:
        progress.add_task(text, total=None)
        yield


@contextlib.contextmanager
def show_steps(every: float = 60.0) -> Iterator[Callable[[str], None]]:
    """Make a function that shows the present step on standard error: in a progress line, or line by line.

    ``every``: seconds between two lines where standard error is no terminal.
    """
    if _is_terminal():
        with show_progress() as progress:
            task = progress.add_task("", total=None)
            yield lambda words: progress.update(task, description=words)
        return
    begun = last = time.monotonic()

    def write(words: str) -> None:
        nonlocal last
        now = time.monotonic()
        if sys.stderr is not None and now - last >= every:
            print(f"{words} (after {now - begun:.0f} s)", file=sys.stderr, flush=True)
            last = now

    yield write


def _is_terminal() -> bool:
    """Tell whether standard error is a terminal; rich takes FORCE_COLOR for one."""
    return sys.stderr is not None and sys.stderr.isatty()


def printable(text: str) -> str:
    """Escape characters that a terminal would act on or an encoding lacks."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def show_result(
    args: argparse.Namespace,
    result: Callable[[], object],
    draw: Callable[[], None],
    *,
    indent: int | None = 2,
) -> None:
    """Write the result as JSON where ``--json`` asks for it, and draw it unless that is standard output."""
    if args.json is not None:
        write_json(args.json, result(), indent=indent)
    if args.json != STDOUT:
        draw()


def write_json(target: str, result: object, *, indent: int | None = 2) -> None:
    """Write ``result`` to a file or, for ``-``, to standard output."""
    text = json.dumps(result, indent=indent, separators=None if indent else (",", ":")) + "\n"
    if target == STDOUT:
        sys.stdout.write(text)
        return
    with unwritable("--json", target):
        Path(target).write_text(text)

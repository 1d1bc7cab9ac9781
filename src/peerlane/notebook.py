"""peerlane's commands in notebooks: ``%load_ext peerlane.notebook``.

``%peerlane topo`` runs a command.  The cell magic gives the cell to it as the program::

    %%peerlane check -n 2
    import peerlane as pl
    with pl.Group(window=64) as group:
        ...

The output is shown as it comes.  ``check`` shows its page below, if there is a finding, and ``bench`` its plots.
Ctrl-C (the kernel's interrupt) ends the command with all of its processes, and so does the kernel's end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peerlane.cli import COMMANDS
from peerlane.errors import BadArgument, InvalidValue
from peerlane.support.scratch_folders import scratch_folder

__all__ = ["Page", "load_ipython_extension", "peerlane"]

_WITH_PROGRAM = ("run", "launch", "check")
_PR_SET_PDEATHSIG = 1
_END_SECONDS = 10.0  # for the command, once it was interrupted; `launch` gives its ranks half of that
_PAGE_HEIGHT = 620


class Page:
    """What a notebook shows below the output of a command: the checker's page, or plots.

    Attributes
    ----------
    html : str
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return "<Page of a command of peerlane; a notebook shows it>"


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook the magics ``%peerlane`` and ``%%peerlane``.

    Parameters
    ----------
    shell : InteractiveShell
        IPython passes it.
    """
    shell.register_magic_function(peerlane, "line_cell", "peerlane")


def peerlane(line: str, cell: str | None = None) -> Page | None:
    """Run a command of peerlane and show its output.

    Parameters
    ----------
    line : str
        The command with its options, as a shell would take them.
    cell : str, optional
        A program; its path becomes the last word.

    Returns
    -------
    Page, optional
        The page or the plots that the command has made.

    Raises
    ------
    InvalidValue
        The command takes no program, and there is one.
    KeyboardInterrupt
        The command was interrupted, and has ended with all of its processes.

    Examples
    --------
    >>> from peerlane.notebook import peerlane
    >>> peerlane("run", "print('from a process of its own')")
    from a process of its own
    """
    words = shlex.split(line)
    command = words[0] if words else ""
    if cell is not None and command in COMMANDS and command not in _WITH_PROGRAM:
        raise InvalidValue(
            f"%%peerlane {command}: the command takes no program; write %peerlane {shlex.join(words)} in a line, or "
            f"one of {', '.join(_WITH_PROGRAM)} with a program below",
            detail=BadArgument("command", command, choices=_WITH_PROGRAM),
        )
    with scratch_folder() as folder:
        picture = folder / ("page.html" if command == "check" else "plot.svg")
        if command == "check" and "--html" not in words:
            words[1:1] = ["--html", str(picture)]
        elif command == "bench" and "--plot" not in words and find_spec("matplotlib"):
            words[1:1] = ["--plot", str(picture)]
        if cell is not None:
            program = folder / "cell.py"
            program.write_text(cell, encoding="utf-8")
            words.append(str(program))
        code = _run(words)
        if command == "check":
            return _framed(picture) if code == 3 and picture.exists() else None
        plots = [each.read_text(encoding="utf-8") for each in sorted(folder.glob("plot*.svg"))]
        return Page("".join(plots)) if plots else None


def _run(words: list[str]) -> int:
    """Run a command, pass its output on, and return its exit code."""
    starter = [sys.executable, "-m", __name__, str(os.getpid()), *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": os.environ.get("COLUMNS", "120")}
    with subprocess.Popen(
        starter,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a terminal's Ctrl-C comes from this process alone, and once
        env=environment,
    ) as process:
        assert process.stdout is not None
        try:
            for piece in iter(process.stdout.readline, b""):
                print(piece.decode(errors="backslashreplace"), end="", flush=True)
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            process.kill()
            raise


def _framed(page: Path) -> Page:
    content = escape(page.read_text(encoding="utf-8"))
    return Page(
        f'<iframe srcdoc="{content}" width="100%" height="{_PAGE_HEIGHT}" style="border: 0"></iframe>'
    )


def _become_command(kernel: int, words: list[str]) -> None:
    """Turn this process into a command that ends with the kernel."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == kernel:  # else it has ended already
        os.execv(sys.executable, [sys.executable, "-m", "peerlane", *words])


if __name__ == "__main__":
    _become_command(int(sys.argv[1]), sys.argv[2:])

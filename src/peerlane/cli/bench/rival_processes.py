"""Other ways to move bytes between processes.  Each is started anew for each round, because MPI spins while idle.

Each runs under this Python, or under the one that ``PEERLANE_BENCH_PYTHON_<NAME>`` names, such as
``PEERLANE_BENCH_PYTHON_NIXL=/somewhere/bin/python``; a rival that is not installed there is skipped by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, TypeVar

from peerlane.cli import machine
from peerlane.cli.bench.measure import Skip
from peerlane.cli.bench.rival_libraries import RIVALS, Launcher, Variant, Way

_RANK = Path(__file__).with_name("rival_rank.py")
_MACHINE_RANK = Path(__file__).with_name("machine_rank.py")
_SECONDS = 120.0
_END_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_LAST_WORDS = 300
_ABOUT = 128 << 20  # bytes of a sample

Job = tuple[int, int]  # bytes, and how many times
Found = dict[str, list[float]]
_Key = TypeVar("_Key", bound=Hashable)


class RivalFailed(Exception):
    """A rival ended with an error, or did not end."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs.

    Attributes
    ----------
    prefix : tuple of str
        The words before its command, such as those that enter another network.
    variables : dict
        The variables beside those of the environment.
    """

    prefix: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def jobs_of(sizes: Sequence[int], most: int) -> list[Job]:
    """Return how often to do an operation of each size, so that a sample is long enough for its start."""
    return [(nbytes, max(1, min(most, _ABOUT // nbytes))) for nbytes in sizes]


def present(*tasks: str) -> tuple[list[str], list[Skip]]:
    """Return the installed rivals that can do one of the tasks, and skips for the others."""
    names = [name for name, rival in RIVALS.items() if set(tasks) & set(rival.tasks)]
    absent = {name: why for name in names if (why := _missing(name))}
    return [name for name in names if name not in absent], [
        Skip(f"rival {name}", why) for name, why in absent.items()
    ]


def ways(names: Sequence[str], *tasks: str) -> list[Way]:
    """Return the variants of rivals that make a difference to one of the tasks."""
    return [
        Way(name, variant)
        for name in names
        for variant, mode in RIVALS[name].variants.items()
        if set(tasks) & set(mode.tasks)
    ]


def is_mpi(name: str) -> bool:
    """Return whether a contender is an MPI."""
    return name in RIVALS and RIVALS[name].kind == "mpi"


def run(way: Way, tasks: Sequence[str], size: int, jobs: Sequence[Job]) -> Found:
    """Run a rival in ``size`` processes.

    Returns
    -------
    dict
        By task to which the variant makes a difference, the seconds of one operation of each job; a barrier, which
        has no bytes, is done for the first job only.

    Raises
    ------
    RivalFailed
        The rival failed, or took too long; the text ends with its last output.
    """
    rival = RIVALS[way.contender]
    mode = rival.variants[way.variant]
    can = ",".join(task for task in tasks if task in rival.tasks and task in mode.tasks)
    words = [f"{nbytes}:{max(1, times // rival.fewer)}" for nbytes, times in jobs]
    command = [str(_python(way.contender)), str(_RANK), rival.kind, can, *words]
    if rival.launcher is None:
        return figures_of(way.contender, _by_rank(size, command))
    return figures_of(way.contender, _launched(way, rival.launcher, mode, size, command))


def run_apart(name: str, task: str, jobs: Sequence[Job], places: Sequence[Place]) -> Found:
    """Run a rival without a launcher, or what `machine_rank.py` knows, with each rank in its place.

    Raises
    ------
    RivalFailed
        As for `run`.
    """
    rival = RIVALS.get(name)
    file, kind = (_RANK, rival.kind) if rival else (_MACHINE_RANK, name)
    words = [f"{nbytes}:{times}" for nbytes, times in jobs]
    return figures_of(
        name, _by_rank(len(places), [str(_python(name)), str(file), kind, task, *words], places)
    )


def figures_of(name: str, out: str) -> Found:
    """Return the figures that a contender has printed.

    Raises
    ------
    RivalFailed
        Its last line has none.
    """
    try:
        found: Found = json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise RivalFailed(
            f"{name} printed no figures that can be read: {out.strip()[-_LAST_WORDS:]!r}"
        ) from None
    return found


def in_turns(
    contenders: Mapping[_Key, Callable[[], Found]], rounds: int, say: Callable[[str], None]
) -> tuple[dict[_Key, dict[str, list[list[float]]]], list[Skip]]:
    """Run the contenders in turns, in rounds after one that does not count.

    Returns
    -------
    dict
        For each contender and task, a list for each job with the seconds of each round, without failed contenders.
    list of Skip
        The failed contenders, and how they failed.
    """
    found: dict[_Key, dict[str, list[list[float]]]] = {name: {} for name in contenders}
    skips = []
    for number in range(rounds + 1):
        for name in [*found] if number % 2 == 0 else [*reversed(found)]:
            say(f"{name}, round {number} of {rounds}")
            try:
                seconds = contenders[name]()
            except RivalFailed as error:
                skips.append(Skip(f"rival {name}", str(error)))
                del found[name]
                continue
            for task, taken in seconds.items() if number else ():
                for times, each in zip(found[name].setdefault(task, [[] for _ in taken]), taken, strict=True):
                    times.append(each)
    return found, skips


def _python(name: str) -> Path:
    return Path(os.environ.get(f"PEERLANE_BENCH_PYTHON_{name.upper()}", sys.executable))


def _missing(name: str) -> str:
    """Return why a rival cannot run here; empty if it can."""
    rival, python = RIVALS[name], _python(name)
    if rival.launcher and not python.with_name(rival.launcher.words[0]).exists():
        return "not installed"
    if not rival.modules:
        return ""
    look = "import importlib.util as u, sys; print(*(m for m in sys.argv[1:] if not u.find_spec(m)))"
    try:
        done = subprocess.run(
            [python, "-c", look, *rival.modules], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"its Python does not run: {error}"
    lacking = done.stdout.strip()
    return f"not installed (no {lacking})" if lacking else ""


def _launched(way: Way, launcher: Launcher, mode: Variant, size: int, command: list[str]) -> str:
    python = _python(way.contender)
    # The launcher in the wheel sets these; if both MPIs are installed, only one has its launcher.
    prefix = str(python.parent.parent)
    variables = {
        **dict.fromkeys(("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX"), prefix),
        "MPI4PY_MPIABI": way.contender,
        "LD_LIBRARY_PATH": str(Path(prefix, "lib")),
        **mode.settings,
    }
    program, *options = launcher.words
    bound = launcher.bound if size <= machine.physical_cores() else ()
    return outcome(
        [([str(python.with_name(program)), *options, *bound, "-n", str(size), *command], variables, ())]
    )


def _by_rank(size: int, command: list[str], places: Sequence[Place] = ()) -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    places = places or [Place()] * size
    ends = Pipe()
    started = []
    with ends[0], ends[1]:
        for rank in range(size):
            pipe = ends[rank % 2].fileno()
            place = places[rank]
            more = {**where, "RANK": str(rank), "PEERLANE_BENCH_PIPE": str(pipe), **place.variables}
            started.append(([*place.prefix, *command], more, (pipe,)))
        return outcome(started)


def outcome(processes: Sequence[tuple[list[str], dict[str, str], tuple[int, ...]]]) -> str:
    """Run commands with additional variables and descriptors until all have ended; return the output of the first.

    Raises
    ------
    RivalFailed
        A command ended with an error, or did not end in time; the text ends with its last output.
    """
    deadline = time.monotonic() + _SECONDS
    with contextlib.ExitStack() as ended:
        running = [ended.enter_context(_started(*each)) for each in processes]
        while any(process.poll() is None for process, _, _ in running):
            if time.monotonic() > deadline:
                raise RivalFailed(f"did not end within {_SECONDS:g} s")
            _check(running)
            time.sleep(_LOOK_SECONDS)
        _check(running)
        return _written(running[0][1])


Running = tuple["subprocess.Popen[bytes]", "IO[bytes]", "IO[bytes]"]


def _check(running: Sequence[Running]) -> None:
    for process, out, err in running:
        if process.poll():
            words = (_written(err) or _written(out)).strip()[-_LAST_WORDS:]
            raise RivalFailed(f"ended with {process.returncode}: {words}")


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


@contextlib.contextmanager
def _started(command: list[str], more: dict[str, str], descriptors: tuple[int, ...]) -> Iterator[Running]:
    """Start a process in its own session, which the block's end ends; it writes to files, because pipes fill up."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            pass_fds=descriptors,
        )
        try:
            yield process, out, err
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM before SIGKILL: an MPI's launcher then ends its ranks, which are not in its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)

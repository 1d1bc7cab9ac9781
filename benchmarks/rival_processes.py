"""Other ways to move bytes between processes.  Each is started anew for each round, because MPI spins while idle.

Each runs under this Python, or under the one that ``BENCHMARKS_PYTHON_<NAME>`` names, such as
``BENCHMARKS_PYTHON_NIXL=/somewhere/bin/python``; a rival that is not installed there is skipped by name.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import IO

from benchmarks import references
from benchmarks.rival_libraries import BETWEEN_MACHINES, ON_ONE_MACHINE, RIVALS, Launcher, Variant
from peerlane.cli import machine
from peerlane.cli.bench import sweeps
from peerlane.cli.bench.measure import ContenderFailed, Job, Skip, TaskSeconds
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.ranks import ALL_REDUCE, COLLECTIVES, MESSAGE, WRITE
from peerlane.cli.bench.timings import Entrant

_RANK = Path(__file__).with_name("rival_rank.py")
_SECONDS = 120.0
_END_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_LAST_WORDS = 300


#: By subject: what times it, its default sizes, the libraries beside it, and their tasks.
SWEEPS: dict[str, tuple[Callable[..., sweeps.Sweep], tuple[int, ...], tuple[str, ...], tuple[str, ...]]] = {
    "channel": (sweeps.channel, sweeps.CHANNEL_SIZES, ON_ONE_MACHINE, (WRITE, MESSAGE)),
    "collective": (sweeps.collective, sweeps.COLLECTIVE_SIZES, ON_ONE_MACHINE, COLLECTIVES),
    "machines": (sweeps.machines, sweeps.MACHINE_SIZES, BETWEEN_MACHINES, (WRITE, MESSAGE, ALL_REDUCE)),
}
#: UCX would find shared memory; gloo takes the interface of its variable.
_OVER_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "GLOO_SOCKET_IFNAME": "lo"}


def measure(subject: str, plan: Plan, node: str) -> sweeps.Sweep:
    """Time a subject of `SWEEPS`; each round has peerlane and all libraries."""
    sweep, sizes, names, tasks = SWEEPS[subject]
    installed, absent = present(names, *tasks)
    variables = _OVER_TCP if subject == "machines" else {}
    timings, failed = sweep(plan.sized(sizes), node, partial(contenders, installed, variables))
    return timings, absent + failed


def present(names: Sequence[str], *tasks: str) -> tuple[list[str], list[Skip]]:
    """Return the installed rivals of those named that can do one of the tasks, and skips for the others."""
    names = [name for name in names if name in RIVALS and set(tasks) & set(RIVALS[name].tasks)]
    absent = {name: why for name in names if (why := _missing(name))}
    return [name for name in names if name not in absent], [
        Skip(f"rival {name}", why) for name, why in absent.items()
    ]


def entrants(names: Sequence[str], *tasks: str) -> list[Entrant]:
    """Return the variants of rivals that make a difference to one of the tasks."""
    return [
        Entrant(name, variant)
        for name in names
        for variant, mode in RIVALS[name].variants.items()
        if set(tasks) & set(mode.tasks) & set(RIVALS[name].tasks)
    ]


def is_mpi(name: str) -> bool:
    """Return whether a contender is an MPI."""
    return name in RIVALS and RIVALS[name].kind == "mpi"


def contenders(
    names: Sequence[str],
    variables: Mapping[str, str],
    tasks: Sequence[str],
    size: int,
    jobs: Sequence[Job],
) -> dict[Entrant, Callable[[], TaskSeconds]]:
    """Return what runs each variant of each rival, with more variables of the environment."""
    return {
        entrant: partial(run, entrant, tasks, size, jobs, variables) for entrant in entrants(names, *tasks)
    }


def run(
    entrant: Entrant,
    tasks: Sequence[str],
    size: int,
    jobs: Sequence[Job],
    variables: Mapping[str, str] | None = None,
) -> TaskSeconds:
    """Run a rival in ``size`` processes, with more variables of the environment.

    Returns
    -------
    dict
        By task to which the variant makes a difference, the seconds of one operation of each job; a barrier, which
        has no bytes, is done for the first job only.

    Raises
    ------
    ContenderFailed
        The rival failed, or took too long; the text ends with its last output.
    """
    rival = RIVALS[entrant.contender]
    mode = rival.variants[entrant.variant]
    can = ",".join(task for task in tasks if task in rival.tasks and task in mode.tasks)
    words = [f"{nbytes}:{max(1, times // rival.fewer)}" for nbytes, times in jobs]
    command = [str(_python(entrant.contender)), str(_RANK), rival.kind, can, *words]
    if rival.launcher is None:
        return figures_of(entrant.contender, _by_rank(size, command, variables or {}))
    return figures_of(entrant.contender, _launched(entrant, rival.launcher, mode, size, command))


def run_kind(kind: str, tasks: Sequence[str], size: int, jobs: Sequence[Job]) -> TaskSeconds:
    """Run ranks of this Python, without variants; errors as :func:`run`."""
    words = [f"{nbytes}:{times}" for nbytes, times in jobs]
    return figures_of(kind, _by_rank(size, [sys.executable, str(_RANK), kind, ",".join(tasks), *words], {}))


def figures_of(name: str, out: str) -> TaskSeconds:
    """Return the figures that a contender has printed.

    Raises
    ------
    ContenderFailed
        Its last line has none.
    """
    try:
        seconds: TaskSeconds = json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise ContenderFailed(
            f"{name} printed no figures that can be read: {out.strip()[-_LAST_WORDS:]!r}"
        ) from None
    return seconds


def _python(name: str) -> Path:
    return Path(os.environ.get(f"BENCHMARKS_PYTHON_{name.upper()}", sys.executable))


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


def _launched(entrant: Entrant, launcher: Launcher, mode: Variant, size: int, command: list[str]) -> str:
    python = _python(entrant.contender)
    # The launcher in the wheel sets these; if both MPIs are installed, only one has its launcher.
    prefix = str(python.parent.parent)
    variables = {
        **dict.fromkeys(("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX"), prefix),
        "MPI4PY_MPIABI": entrant.contender,
        "LD_LIBRARY_PATH": str(Path(prefix, "lib")),
        **mode.settings,
    }
    program, *options = launcher.words
    bound = launcher.bound if size <= machine.physical_cores() else ()
    return outcome(
        [([str(python.with_name(program)), *options, *bound, "-n", str(size), *command], variables, ())]
    )


def _by_rank(size: int, command: list[str], variables: Mapping[str, str]) -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), **variables}
    if "tcp" in command:
        meeting["BENCHMARKS_REFERENCES"] = str(references.compiled())
    ends = Pipe()
    with ends[0], ends[1]:
        started = []
        for rank in range(size):
            pipe = ends[rank % 2].fileno()
            started.append((command, {**meeting, "RANK": str(rank), "BENCHMARKS_PIPE": str(pipe)}, (pipe,)))
        return outcome(started)


def outcome(processes: Sequence[tuple[list[str], dict[str, str], tuple[int, ...]]]) -> str:
    """Run commands with additional variables and descriptors until all have ended; return the output of the first.

    Raises
    ------
    ContenderFailed
        A command ended with an error, or did not end in time; the text ends with its last output.
    """
    deadline = time.monotonic() + _SECONDS
    with contextlib.ExitStack() as ended:
        running = [ended.enter_context(_started(*each)) for each in processes]
        while any(process.poll() is None for process, _, _ in running):
            if time.monotonic() > deadline:
                raise ContenderFailed(f"did not end within {_SECONDS:g} s")
            _check(running)
            time.sleep(_LOOK_SECONDS)
        _check(running)
        return _written(running[0][1])


Running = tuple["subprocess.Popen[bytes]", "IO[bytes]", "IO[bytes]"]


def _check(running: Sequence[Running]) -> None:
    for process, out, err in running:
        if process.poll():
            words = (_written(err) or _written(out)).strip()[-_LAST_WORDS:]
            raise ContenderFailed(f"ended with {process.returncode}: {words}")


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

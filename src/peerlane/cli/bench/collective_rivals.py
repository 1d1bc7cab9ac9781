"""Other ways to all-reduce between processes, each started anew for every round: MPI spins while it is idle."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_SECONDS = 120.0
#: Of each MPI its own launcher, with options; ``mpiexec`` is that of the one that was installed last.
_MPI = {
    "mpich": ("mpiexec.hydra",),
    "openmpi": ("prterun", "--map-by", ":OVERSUBSCRIBE", "--allow-run-as-root"),
}
NAMES = (*_MPI, "gloo")

Job = tuple[int, int]  # bytes, and how many times


def missing(name: str) -> str:
    """Return why a rival cannot run here, or nothing if it can."""
    if name == "gloo":
        return "" if importlib.util.find_spec("torch") else "torch is not installed"
    for distribution in ("mpi4py", name):
        try:
            importlib.metadata.distribution(distribution)
        except importlib.metadata.PackageNotFoundError:
            return f"{distribution} is not installed"
    return "" if _launcher(name).exists() else f"{_launcher(name)} is not there"


def _launcher(name: str) -> Path:
    return Path(sys.executable).with_name(_MPI[name][0])


def seconds_of(name: str, size: int, jobs: Sequence[Job]) -> list[float]:
    """Return the seconds of one all-reduce of each size between ``size`` processes.

    Raises
    ------
    RuntimeError
        It failed, or took too long; the text has its last words.
    """
    words = [f"{nbytes}:{times}" for nbytes, times in jobs]
    return _gloo(size, words) if name == "gloo" else _mpi(name, size, words)


def _mpi(name: str, size: int, words: list[str]) -> list[float]:
    command = [str(_launcher(name)), *_MPI[name][1:], "-n", str(size)]
    command += [sys.executable, "-m", "peerlane.cli.bench.mpi_rank", *words]
    # What a wheel's launcher sets; with both installed only one of the launchers is there.
    prefixes = dict.fromkeys(("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX"), sys.prefix)
    more = {"MPI4PY_MPIABI": name, "LD_LIBRARY_PATH": str(Path(sys.prefix, "lib")), **prefixes}
    with _started(command, more) as process:
        return _answer(name, process)


def _gloo(size: int, words: list[str]) -> list[float]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "peerlane.cli.bench.gloo_rank", *words]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    with contextlib.ExitStack() as ended:
        started = [
            ended.enter_context(_started(command, {**where, "RANK": str(rank)})) for rank in range(size)
        ]
        return _answer("gloo", started[0])


@contextlib.contextmanager
def _started(command: list[str], more: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)


def _answer(name: str, process: subprocess.Popen[str]) -> list[float]:
    try:
        out, err = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name} did not end within {_SECONDS:g} s") from None
    if process.returncode:
        raise RuntimeError(f"{name} ended with {process.returncode}: {(err or out).strip()[-300:]}")
    return [float(each) for each in json.loads(out.strip().splitlines()[-1])]

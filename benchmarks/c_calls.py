"""What a call of the C libraries costs a program of C, which is compiled for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.bars import C_CALLS, C_LIMITS, FIRST_CALL
from peerlane.c_abi import directory
from peerlane.cli.bench.measure import SHARE, Figure, Skip, figure
from peerlane.cli.bench.plan import Plan

_SOURCE = Path(__file__).with_suffix(".cpp")
_LIBRARIES = ("ascendcl", "amdhip64", "cuda", "hcomm")
_NUMBER = 20_000
_SECONDS = 600


def measure(plan: Plan, node: str) -> tuple[list[Figure], list[Skip]]:
    """Compare calls of 8 bytes, and the first call of a process, with the time that each may take."""
    plan.show(C_CALLS)
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return [], [Skip(C_CALLS, "there is no C++ compiler")]
    samples: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "calls"
        libraries = (f"-L{directory()}", *(f"-l{name}" for name in _LIBRARIES), f"-Wl,-rpath,{directory()}")
        _run(compiler, "-std=c++17", "-O2", "-pthread", _SOURCE, *libraries, "-o", program, node=node)
        for line in _run(program, plan.rounds, _NUMBER, node=node).splitlines():
            seconds, _, name = line.partition(" ")
            samples[name].append(float(seconds))
        samples[FIRST_CALL] = [float(_run(program, "first", node=node)) for _ in range(plan.rounds)]
    limits = {
        name: f"{limit:g} s" if limit > 1e-3 else f"{1e6 * limit:g} us" for name, limit in C_LIMITS.items()
    }
    with_limits = {
        name: {name: times, limits[name]: [C_LIMITS[name]] * len(times)} for name, times in samples.items()
    }
    return [figure(both, C_CALLS, name, limits[name], SHARE) for name, both in with_limits.items()], []


def _run(*words: object, node: str) -> str:
    process = subprocess.run(
        [str(word) for word in words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_SECONDS,
        env={**os.environ, "PEERLANE_NODE": node, "PEERLANE_SCHEDULE": "eager"},
    )
    return process.stdout

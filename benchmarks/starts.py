"""How long a program waits for peerlane before its first line: fresh processes, with the start of the interpreter."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

from benchmarks.bars import NUMPY, OVER_PYTHON, PEERLANE_FIRST_LOOK, RUN, START, TENTH
from peerlane.cli.bench.measure import PEERLANE, SHARE, TIME, Contender, Figure, Skip, figure, interleaved
from peerlane.cli.bench.plan import Plan

_PYTHON = "python -c pass"
_WORDS = {
    _PYTHON: ("-c", "pass"),
    NUMPY: ("-c", "import numpy"),
    PEERLANE: ("-c", "import peerlane"),
    PEERLANE_FIRST_LOOK: ("-c", "import peerlane; peerlane.devices()"),
    RUN: ("-m", "peerlane", "run", "-c", "pass"),
}


def measure(plan: Plan) -> tuple[list[Figure], list[Skip]]:
    """Compare imports with NumPy's, and an empty program under ``peerlane run`` with one under ``python``."""
    plan.show("starts")
    samples = interleaved([_contender(name, words) for name, words in _WORDS.items()], plan.rounds)
    over = [own - bare for own, bare in zip(samples[RUN], samples[_PYTHON], strict=True)]
    return [
        *(figure(samples, START, name, NUMPY, TIME) for name in (PEERLANE, PEERLANE_FIRST_LOOK)),
        figure({OVER_PYTHON: over, TENTH: [0.1] * len(over)}, RUN, OVER_PYTHON, TENTH, SHARE),
    ], []


def _contender(name: str, words: tuple[str, ...]) -> Contender:
    # A difference of two times is all noise where other programs run; these processes have one thread.
    clock = _processor_time if name in (_PYTHON, RUN) else time.perf_counter

    def sample() -> float:
        begun = clock()
        subprocess.run([sys.executable, *words], check=True, stdin=subprocess.DEVNULL)
        return clock() - begun

    return Contender(name, sample)


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

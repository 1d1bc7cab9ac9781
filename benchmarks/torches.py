"""Collectives and messages of ``torch.distributed`` on peerlane and on gloo; a figure is the slowest rank's time."""

from __future__ import annotations

import importlib.util
from functools import partial

from benchmarks import rival_processes
from benchmarks.bars import (
    TORCH_MESSAGE_SIZES,
    TORCH_MESSAGES,
    TORCH_PROCESSES,
    TORCH_SIZES,
    TORCH_TASKS,
    torch_case,
)
from peerlane.cli.bench.measure import PEERLANE, SPEED, Figure, Skip, figure, interleaved_tasks, jobs_of
from peerlane.cli.bench.plan import Plan, parse_sizes
from peerlane.support.sizes import format_size

DEFAULT_SIZES = parse_sizes(",".join(TORCH_SIZES))
GLOO = "gloo"

_KINDS = {PEERLANE: "torch-peerlane", GLOO: "gloo"}
_MOST_TIMES = 200


def measure(plan: Plan) -> tuple[list[Figure], list[Skip]]:
    """Time the collectives; each round has both back-ends, in processes of their own."""
    if importlib.util.find_spec("torch") is None:
        return [], [Skip("torch", "not installed")]
    figures: list[Figure] = []
    skips: list[Skip] = []
    message_sizes = parse_sizes(",".join(TORCH_MESSAGE_SIZES))
    for tasks, sizes, size in (
        *((TORCH_TASKS, plan.sizes, size) for size in TORCH_PROCESSES),
        (TORCH_MESSAGES, message_sizes, 2),
    ):
        jobs = jobs_of(sizes, _MOST_TIMES)

        def show(words: str, size: int = size) -> None:
            plan.show(f"torch over {size} processes: {words}")

        contenders = {
            name: partial(rival_processes.run_kind, kind, tasks, size, jobs) for name, kind in _KINDS.items()
        }
        timings, failed = interleaved_tasks(contenders, plan.rounds, show)
        skips += [Skip(f"{skip.case} over {size} processes", skip.why) for skip in failed]
        if failed:
            continue
        for task in tasks:
            for index, nbytes in enumerate(sizes):
                samples = {name: timed[task][index] for name, timed in timings.items()}
                case = torch_case(task, format_size(nbytes), size)
                figures.append(figure(samples, case, PEERLANE, GLOO, SPEED, nbytes))
    return figures, skips

"""Collectives of ``torch.distributed`` on peerlane against those on gloo; a figure is the slowest rank's time."""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from peerlane.cli.bench import rival_processes as rivals
from peerlane.cli.bench.bars import PEERLANE, TORCH_PROCESSES, TORCH_SIZES, TORCH_TASKS, torch_case
from peerlane.cli.bench.measure import SPEED, Figure, Skip, figure
from peerlane.cli.bench.plan import Plan, parse_sizes
from peerlane.support.sizes import format_size

DEFAULT_SIZES = parse_sizes(",".join(TORCH_SIZES))
GLOO = "gloo"

_RANK = Path(__file__).with_name("torch_rank.py")
_MOST_TIMES = 200


def measure(plan: Plan) -> tuple[list[Figure], list[Skip]]:
    """Time the collectives; each round has both back-ends, in processes of their own."""
    if importlib.util.find_spec("torch") is None:
        return [], [Skip("torch", "not installed")]
    jobs = rivals.jobs_of(plan.sizes, _MOST_TIMES)
    figures: list[Figure] = []
    skips: list[Skip] = []
    for size in TORCH_PROCESSES:

        def say(words: str, size: int = size) -> None:
            plan.say(f"torch over {size} processes: {words}")

        contenders = {name: partial(_run, name, size, jobs) for name in (PEERLANE, GLOO)}
        found, failed = rivals.in_turns(contenders, plan.rounds, say)
        skips += [Skip(f"{skip.case} over {size} processes", skip.why) for skip in failed]
        if failed:
            continue
        for task in TORCH_TASKS:
            for index, nbytes in enumerate(plan.sizes):
                samples = {name: tasks[task][index] for name, tasks in found.items()}
                case = torch_case(task, format_size(nbytes), size)
                figures.append(figure(samples, case, PEERLANE, GLOO, SPEED, nbytes))
    return figures, skips


def _run(name: str, size: int, jobs: Sequence[rivals.Job]) -> rivals.Found:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    words = [f"{nbytes}:{times}" for nbytes, times in jobs]
    command = [sys.executable, str(_RANK), name, ",".join(TORCH_TASKS), *words]
    return rivals.figures_of(
        name, rivals.outcome([(command, {**where, "RANK": str(rank)}, ()) for rank in range(size)])
    )

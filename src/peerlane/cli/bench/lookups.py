"""P10: what it costs to find the allocation of an address, among few and among many.

A process holds one number of allocations at a time, so each number has a process of its own and the two take
turns.
"""

from __future__ import annotations

import signal
import timeit
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import peerlane as pl
from peerlane import _core
from peerlane.backend import registry
from peerlane.cli import machine
from peerlane.cli.bench.bars import PEERLANE, PEERLANE_INSIDE
from peerlane.cli.bench.measure import TIME, Contender, Figure, Skip, figure, interleaved
from peerlane.cli.bench.plan import Plan
from peerlane.errors import DeviceFault

FEW, MANY = 1_000, 1_000_000

_SMALLEST, _LARGEST = 256, 512
_BYTES_EACH = 1024
_NATIVE, _PYTHON = "native", "python"
_LOOKUPS = {_NATIVE: 1_000_000, _PYTHON: 30_000}
_END_SECONDS = 5.0


def measure(plan: Plan, node: str, many: int = MANY) -> tuple[list[Figure], list[Skip]]:
    """Time look-ups in random order among ``many`` live allocations and among a thousand."""
    case = f"look-up among {many:,}"
    if many * _BYTES_EACH > machine.room():
        why = f"needs {many * _BYTES_EACH:,} bytes of memory, {machine.room():,} are available"
        return [], [Skip(case, why)]
    plan.say(case)
    figures = []
    with ExitStack() as stack:
        with _interrupts_deferred():
            holders = {count: stack.enter_context(_Holder(count, node)) for count in (FEW, many)}
        for how, contender in ((_PYTHON, PEERLANE), (_NATIVE, PEERLANE_INSIDE)):
            few = f"{contender} among {FEW:,}"
            samples = interleaved(
                [holders[FEW].contender(few, how), holders[many].contender(contender, how)], plan.rounds
            )
            figures.append(figure(samples, case, contender, few, TIME))
    return figures, []


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Start processes that leave Ctrl-C to this one, and answer here only when they are started.

    Ctrl-C reaches every process of a terminal.  Children inherit the mask; the handler is for threads of ours
    (those of numpy) that do not have it.  The tracker comes first: starting it unblocks the signal.
    """
    resource_tracker.ensure_running()
    seen: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    handler = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if seen:
        raise KeyboardInterrupt


class _Holder:
    """A process that holds some allocations and times look-ups of them when asked."""

    def __init__(self, count: int, node: str) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(count, node, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def contender(self, name: str, how: str) -> Contender:
        return Contender(name, lambda: self._ask(how))

    def _ask(self, how: str) -> float:
        try:
            self._pipe.send(how)
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(_END_SECONDS)
            raise DeviceFault(
                f"a process that measured look-ups died with exit code {self._process.exitcode}"
            ) from None
        if isinstance(answer, pl.Error):
            raise answer
        return float(answer)

    def __enter__(self) -> _Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join(_END_SECONDS)


def _serve(count: int, node: str, pipe: Connection[Any, Any]) -> None:
    try:
        try:
            held = _allocate(count, node)
        except pl.Error as error:
            pipe.recv()
            pipe.send(error)
            return
        addresses = np.array([block.address for block in held], dtype=np.uint64)
        np.random.default_rng(count).shuffle(addresses)
        while True:
            pipe.send(_seconds(addresses, pipe.recv()))
            addresses = np.roll(addresses, -_LOOKUPS[_PYTHON])  # or the same few would be warm every time
    except (EOFError, OSError):  # nobody asks any more
        return


def _allocate(count: int, node: str) -> Sequence[Any]:
    pl.enter_node(node)
    backend = registry.current()
    sizes = np.random.default_rng(1).integers(_SMALLEST, _LARGEST, count, endpoint=True).tolist()
    return [backend.allocate(0, size) for size in sizes]


def _seconds(addresses: np.typing.NDArray[np.uint64], how: str) -> float:
    number = _LOOKUPS[how]
    rounds = max(1, number // len(addresses))
    if how == _NATIVE:
        return _core.time_lookups(addresses, rounds)
    some = addresses[:number].tolist()
    timer = timeit.Timer("for a in some: locate(a)", globals={"some": some, "locate": pl.raw.locate})
    return timer.timeit(rounds) / (rounds * len(some))

"""What ``peerlane check`` costs: operations while an event log is written, and the analysis of the log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import peerlane as pl
from benchmarks.bars import (
    ANALYSIS_EVENTS,
    BYTES_OF_EVENT,
    MILLION,
    NOTHING_DROPPED,
    PEERLANE_LOGGED,
    PROCESSOR_OF_ANALYSIS,
    RESIDENT,
    analysis_case,
)
from peerlane.checker import Checker
from peerlane.cli import machine
from peerlane.cli.bench import ranks
from peerlane.cli.bench.measure import (
    PEERLANE,
    SHARE,
    SPEED,
    TIME,
    Contender,
    Figure,
    Skip,
    figure,
    interleaved,
    looped,
)
from peerlane.cli.bench.plan import Plan
from peerlane.cli.bench.ranks import ALL_REDUCE, BARRIER, Setting
from peerlane.cli.children import Child, interrupts_deferred
from peerlane.diagnostics.log import event_log
from peerlane.support.sizes import UNITS, format_size

_SIZES = (64 * UNITS["KiB"], UNITS["MiB"], 16 * UNITS["MiB"])
_STAGED_SIZES, _STAGED_CALLS = (8, 64 * UNITS["KiB"], UNITS["MiB"]), 10_000
_CALLS, _SAMPLE_BYTES = 30_000, 64 * UNITS["MiB"]
_LOG_BYTES = 64 * UNITS["MiB"]  # more than the events of a sample
_SECONDS, _MOST_BYTES, _EVENT_BYTES = 30.0, UNITS["GiB"], 64
# Processor time: the reader of a log takes none of it from the program while there is a core for each.
_TIMER = time.process_time
_OFFSETS, _ROUND = 1 << 14, 1_000
_RANKS, _SAMPLE_SECONDS = 2, 0.05
#: The collective, its bytes, and about how long one takes.
_COLLECTIVES = {
    "barrier of 2 processes": (BARRIER, 8, 0.5e-6),
    "all-reduce 8 bytes over 2 processes": (ALL_REDUCE, 8, 1e-6),
    "all-reduce 64 KiB over 2 processes": (ALL_REDUCE, 64 * UNITS["KiB"], 5e-5),
}


def measure(
    plan: Plan, devices: Sequence[pl.Device], node: str, events: int = ANALYSIS_EVENTS
) -> tuple[list[Figure], list[Skip]]:
    """Time operations with a log and without one in turns, and the analysis of a program that writes ``events``."""
    if event_log.active:
        return [], [Skip("an event log", "this process writes one already")]
    figures = _operations(plan, devices[0]) + _collectives(plan, node)
    case = analysis_case(events)
    plan.show(case)
    if machine.room() < 2 * _MOST_BYTES:
        return figures, [Skip(case, f"needs 2 GiB of memory, {machine.room():,} bytes are available")]
    analysed = _analysed(events)
    shares = {
        (PROCESSOR_OF_ANALYSIS, f"{_SECONDS:g} s"): analysed.processor
        / _SECONDS
        * (ANALYSIS_EVENTS / events),
        (RESIDENT, "1 GiB"): analysed.peak / _MOST_BYTES,
        (BYTES_OF_EVENT, f"{_EVENT_BYTES} bytes"): analysed.written / analysed.events / _EVENT_BYTES,
    }
    figures += [
        Figure(case, contender, reference, SHARE, ratio, ratio, ratio, analysed.seconds)
        for (contender, reference), ratio in shares.items()
    ]
    if analysed.dropped:
        return figures, [
            Skip(NOTHING_DROPPED, f"{analysed.dropped:,} of {analysed.events:,} events were dropped")
        ]
    rate = analysed.events / analysed.seconds / 1e6
    one = analysed.seconds / analysed.events
    figures.append(
        Figure(NOTHING_DROPPED, PEERLANE, MILLION, SPEED, rate, rate, rate, one, reference_seconds=1e-6)
    )
    return figures, []


def _operations(plan: Plan, device: pl.Device) -> list[Figure]:
    with ExitStack() as stack:
        folder = stack.enter_context(event_log.folder())

        def memory(nbytes: int) -> tuple[pl.Buffer, pl.Buffer]:
            dst, src = (stack.enter_context(device.allocate(nbytes)) for _ in range(2))
            dst.fill(0)
            src.fill(0x5A)
            return dst, src

        dst, src = memory(8)
        stream = stack.enter_context(device.create_stream())
        notify = stack.enter_context(device.create_notify())
        cases = {
            "copy 8 bytes": looped(PEERLANE, pl.copy, dst, src, number=_CALLS, timer=_TIMER),
            "submit 8 bytes": looped(PEERLANE, pl.copy, dst, src, number=_CALLS, timer=_TIMER, stream=stream),
            "record and wait": Contender(PEERLANE, partial(_notified, notify, stream)),
        }
        for nbytes in _SIZES:
            number = max(1, _SAMPLE_BYTES // nbytes)
            cases[f"copy {format_size(nbytes)}"] = looped(
                PEERLANE, pl.copy, *memory(nbytes), number=number, timer=_TIMER
            )
        for nbytes in _STAGED_SIZES:
            number, size = min(_STAGED_CALLS, _SAMPLE_BYTES // nbytes), format_size(nbytes)
            host, (there, _) = np.zeros(nbytes, np.uint8), memory(nbytes)
            for case, ends in (("upload", (there, host)), ("download", (host, there))):
                cases[f"{case} {size}"] = looped(
                    PEERLANE, _staged, *ends, stream, number=number, timer=_TIMER
                )
        figures = []
        for case, without in cases.items():
            plan.show(f"{case} with a log")
            logged = Contender(PEERLANE_LOGGED, partial(_logged, without, stream, folder))
            samples = interleaved(
                [Contender(PEERLANE, partial(_quiet, without, stream)), logged], plan.rounds
            )
            figures.append(figure(samples, case, PEERLANE_LOGGED, PEERLANE, TIME))
        return figures


def _collectives(plan: Plan, node: str) -> list[Figure]:
    """Time collectives of two processes by the clock: they wait for each other.  Nobody reads the log meanwhile."""
    figures = []
    with ExitStack() as stack:
        folder = str(stack.enter_context(event_log.folder()))
        team = ranks.start(_serve_logged, Setting(node), _RANKS, stack)

        def sample(where: str, task: str, nbytes: int, times: int) -> float:
            return float(max(ranks.ask(team, (where, task, nbytes, times))))

        for case, (task, nbytes, seconds) in _COLLECTIVES.items():
            plan.show(f"{case} with a log")
            job = task, nbytes, round(_SAMPLE_SECONDS / seconds)
            contenders = [
                Contender(name, partial(sample, where, *job))
                for name, where in ((PEERLANE, ""), (PEERLANE_LOGGED, folder))
            ]
            samples = interleaved(contenders, plan.rounds)
            figures.append(figure(samples, case, PEERLANE_LOGGED, PEERLANE, TIME))
    return figures


def _serve_logged(setting: Setting, rank: int, size: int, pipe: Connection[Any, Any]) -> None:
    def answer(group: pl.Group, question: Any) -> float:
        folder, task, nbytes, times = question
        if folder:
            event_log.begin(folder, capacity=_LOG_BYTES)
        try:
            return ranks.timed(group, task, None, nbytes, times)
        finally:
            event_log.discard()

    ranks.serve(answer, setting, rank, size, pipe)


def _quiet(contender: Contender, stream: pl.Stream) -> float:
    seconds = contender.sample()
    stream.sync()
    return seconds


def _logged(contender: Contender, stream: pl.Stream, folder: Path) -> float:
    event_log.begin(folder, capacity=_LOG_BYTES)
    try:
        _quiet(contender, stream)  # the first event makes room for ten thousand
        return _quiet(contender, stream)
    finally:
        event_log.discard()


def _staged(dst: Any, src: Any, stream: pl.Stream) -> None:
    pl.copy(dst, src, stream=stream)
    stream.sync()


def _notified(notify: pl.Notify, stream: pl.Stream) -> float:
    start = _TIMER()
    for _ in range(_CALLS // 2):
        notify.record()
        stream.wait(notify)
    return (_TIMER() - start) / (_CALLS // 2)


@dataclass(frozen=True, slots=True)
class Analysed:
    """A program that wrote events as fast as it could, and the analysis that read them meanwhile."""

    events: int
    dropped: int
    written: int
    processor: float
    peak: int
    seconds: float


def _analysed(events: int) -> Analysed:
    """Let one process write events and another analyse them."""
    with ExitStack() as stack:
        folder = stack.enter_context(event_log.folder())
        with interrupts_deferred():
            writer = stack.enter_context(Child(_write, str(folder), events))
            analyst = stack.enter_context(Child(_analyse, str(folder)))
        start = time.monotonic()
        analyst.send("analyse")
        written, total = writer.ask("write")
        processor, peak, stats = analyst.ask("finish")
        return Analysed(total, int(stats["dropped"]), written, processor, peak, time.monotonic() - start)


def _write(folder: str, events: int, pipe: Connection[Any, Any]) -> None:
    """Copy 8 bytes here and there on a stream, and record, wait and synchronize now and then: all of it right."""
    with _answering(pipe):
        pipe.recv()
        device = pl.enter_node("devices=1,memory=64MiB,cache_bytes=0")[0]
        event_log.begin(folder, capacity=event_log.DEFAULT_BYTES)
        with device.allocate(16 * _OFFSETS) as memory, device.create_stream() as stream:
            memory.fill(0)
            offsets = np.random.default_rng(1).integers(0, _OFFSETS, (2, _OFFSETS)) * 8
            lower, upper = memory[: 8 * _OFFSETS], memory[8 * _OFFSETS :]
            pairs = [(lower[at : at + 8], upper[other : other + 8]) for at, other in offsets.T.tolist()]
            left = events
            while left > 0:
                for dst, src in pairs[: min(left, _ROUND)]:
                    pl.copy(dst, src, stream=stream)
                stream.sync()
                left -= _ROUND
                pairs = pairs[_ROUND:] + pairs[:_ROUND]
        facts = event_log.facts()
        assert facts is not None
        event_log.end()
        pipe.send((facts.written, events + -(-events // _ROUND)))
        pipe.recv()  # until the pipe ends


def _analyse(folder: str, pipe: Connection[Any, Any]) -> None:
    with _answering(pipe):
        pipe.recv()
        start = time.process_time()
        checker = Checker(folder)
        while not pipe.poll(0.02):
            checker.poll()
        pipe.recv()
        checker.finish()
        pipe.send((time.process_time() - start, _peak(), checker.stats))
        pipe.recv()


@contextmanager
def _answering(pipe: Connection[Any, Any]) -> Iterator[None]:
    try:
        try:
            yield
        except pl.Error as error:
            pipe.send(error)
    except (EOFError, OSError):  # the pipe ended
        return


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * UNITS["KiB"]

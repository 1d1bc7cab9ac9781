"""Processes that time channels and collectives of peerlane; each is a rank of one group."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, NamedTuple

import peerlane as pl
from peerlane.cli.bench.measure import PEERLANE, Job, TaskSeconds, looped
from peerlane.cli.children import Child, exchange_over, gather_from, interrupts_deferred

WRITE, MESSAGE = "write", "message"
BROADCAST, ALL_GATHER, ALL_REDUCE, BARRIER = "broadcast", "all-gather", "all-reduce", "barrier"
COLLECTIVES = (BROADCAST, ALL_GATHER, ALL_REDUCE, BARRIER)
TASKS = (WRITE, MESSAGE, *COLLECTIVES)

_SECONDS = 120.0
_WINDOW = 1 << 20
_SECRET = "a secret that only a bench needs"


class Setting(NamedTuple):
    """Where ranks run, and the memory of each that the others write to.

    Attributes
    ----------
    node : str
    window : int
    address : str
        Where ranks of two machines meet; empty: all are on this one.
    """

    node: str
    window: int = _WINDOW
    address: str = ""


def start(serve: Callable[..., None], setting: Setting, size: int, stack: ExitStack) -> list[Child]:
    """Start ranks that run ``serve(setting, rank, size, pipe)``, and wait until they have met."""
    with interrupts_deferred():
        ranks = [
            stack.enter_context(Child(serve, setting, rank, size, name=f"rank {rank}"))
            for rank in range(size)
        ]
    if not setting.address:
        gather_from(ranks, timeout=_SECONDS)
    for each in ranks:
        each.answer(timeout=_SECONDS)
    return ranks


def on_two_machines(setting: Setting) -> Setting:
    """Return the setting for ranks of which half is on another machine, in name: the loopback joins them."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return setting._replace(address=f"127.0.0.1:{probe.getsockname()[1]}")


def ask(ranks: Sequence[Child], question: object) -> list[Any]:
    """Ask all ranks the same, and return their answers."""
    for each in ranks:
        each.send(question)
    return [each.answer(timeout=_SECONDS) for each in ranks]


def time_tasks(
    ranks: Sequence[Child], tasks: Sequence[str], jobs: Sequence[Job], algorithm: str | None = None
) -> TaskSeconds:
    """Return by task, for each job, the seconds of the slowest rank; a barrier is done for the first job only."""
    seconds = {}
    for task in tasks:
        taken = ask(ranks, (task, algorithm, jobs[:1] if task == BARRIER else jobs))
        seconds[task] = [max(times) for times in zip(*taken, strict=True)]
    return seconds


def serve_tasks(setting: Setting, rank: int, size: int, pipe: Connection[Any, Any]) -> None:
    """Be a rank that answers `time_tasks`."""

    def answer(group: pl.Group, question: Any) -> list[float]:
        task, algorithm, jobs = question
        return [timed(group, task, algorithm, *job) for job in jobs]

    serve(answer, setting, rank, size, pipe)


def serve(
    answer: Callable[[pl.Group, Any], object],
    setting: Setting,
    rank: int,
    size: int,
    pipe: Connection[Any, Any],
) -> None:
    """Be a rank of a group, and answer questions until the pipe ends."""
    try:
        meeting: Any = exchange_over(pipe)
        if setting.address:
            # UCX would find shared memory between the two.
            os.environ |= {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "PEERLANE_INTERFACE": "lo"}
            os.environ |= {"PEERLANE_MACHINE": f"machine {2 * rank // size}", "PEERLANE_SECRET": _SECRET}
            meeting = f"tcp://{setting.address}"
        pl.enter_node(setting.node)
        with pl.Group(rank, size, rendezvous=meeting, window=setting.window, timeout=_SECONDS) as group:
            group.window.fill(0)
            pipe.send(None)
            while True:
                pipe.send(answer(group, pipe.recv()))
    except pl.Error as error:
        pipe.send(error)
    except (EOFError, OSError):  # the pipe ended
        return


def timed(group: pl.Group, task: str, algorithm: str | None, nbytes: int, times: int) -> float:
    """Return the seconds of one operation, after some warm-ups that do not count."""
    with ExitStack() as stack:
        memory = stack.enter_context(group.device.allocate(nbytes))
        memory.fill(0)
        repeat = _repeated(group, task, algorithm, memory, stack)
        seconds = 0.0
        for count in (max(1, times // 4), times):
            group.barrier()
            seconds = repeat(count)
        return seconds


def _repeated(
    group: pl.Group, task: str, algorithm: str | None, memory: pl.Buffer, stack: ExitStack
) -> Callable[[int], float]:
    """Return a function that does a task so many times, and returns the seconds of one."""
    if task in (WRITE, MESSAGE):
        channel = stack.enter_context(group.channel(1 - group.rank, notifies=1))
        if task == MESSAGE:
            return partial(exchange, channel, memory, group.rank == 0)
        if group.rank != 0:  # a write needs no rank that waits for it
            return lambda count: 0.0
        return lambda count: looped(PEERLANE, channel.write, memory, number=count).sample()
    if task == BARRIER:
        return lambda count: looped(PEERLANE, group.barrier, number=count).sample()
    if task == ALL_REDUCE:
        return lambda count: looped(
            PEERLANE, group.all_reduce, memory, number=count, dtype="float32", algorithm=algorithm
        ).sample()
    call: Callable[..., object] = group.broadcast if task == BROADCAST else group.all_gather
    return lambda count: looped(PEERLANE, call, memory, number=count).sample()


def exchange(channel: pl.Channel, block: pl.Buffer, is_first: bool, count: int) -> float:
    """Write with a notify, and wait for the answer; return the seconds of one way: half of there and back."""
    write, wait = channel.write, channel.wait
    began = perf_counter()
    if is_first:
        for _ in range(count):
            write(block, notify=0)
            wait(0)
    else:
        for _ in range(count):
            wait(0)
            write(block, notify=0)
    return (perf_counter() - began) / (2 * count)

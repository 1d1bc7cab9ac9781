"""Random programs of ranks that record and await each other's notifies, and a model of which ranks hang.

A rank has a thread and a stream, each a sequence of steps.  A step is ``(where, what, peer, index)``: ``where`` is
``"host"`` or ``"stream"``; ``what`` is ``"notify"``, ``"wait"`` or ``"sync"``, which synchronizes the stream.  Each
record has its own notify, so which ranks hang does not depend on their speed.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence
from typing import TypeAlias

Step: TypeAlias = "tuple[str, str, int, int]"
Program: TypeAlias = "list[list[Step]]"

NOTIFIES = 16
MOST_STEPS = NOTIFIES - 1
_LAST = NOTIFIES - 1


def drawn(dice: random.Random, size: int, steps: int) -> Program:
    """Return a program in which each wait has its record; half of the programs have a mistake."""
    program: Program = [[] for _ in range(size)]
    for index in range(steps):
        sender, receiver = dice.sample(range(size), 2)
        program[sender].append((dice.choice(("host", "stream")), "notify", receiver, index))
        program[receiver].append((dice.choice(("host", "stream")), "wait", sender, index))
        for rank in (sender, receiver):
            if dice.random() < 0.2:
                program[rank].append(("host", "sync", rank, 0))
    if dice.random() < 0.5:
        for _ in range(dice.randint(1, 2)):
            broken = dice.choice([steps for steps in program if steps])
            at = dice.randrange(len(broken))
            if dice.random() < 0.5:
                del broken[at]
            else:
                broken.insert(dice.randrange(len(broken)), broken.pop(at))
    for rank, mine in enumerate(program):  # all wait for all at the end: a rank that hangs has waiters
        others = [peer for peer in range(size) if peer != rank]
        mine.append(("host", "sync", rank, 0))
        mine += [("host", what, peer, _LAST) for what in ("notify", "wait") for peer in others]
    return program


def hanging(program: Sequence[Sequence[Step]]) -> tuple[set[int], set[int]]:
    """Return the ranks that do not end, and those of them that wait only for ranks that wait for them."""
    hosts = [deque(steps) for steps in program]
    streams: list[deque[Step]] = [deque() for _ in program]
    records: Counter[tuple[int, int, int]] = Counter()
    has_moved = True
    while has_moved:
        has_moved = False
        for rank, (host, stream) in enumerate(zip(hosts, streams, strict=True)):
            while host and (host[0][0] == "stream" or _runs(host[0], rank, records, stream)):
                step = host.popleft()
                has_moved = True
                if step[0] == "stream":
                    stream.append(step)
            while stream and _runs(stream[0], rank, records, stream):
                stream.popleft()
                has_moved = True
    awaited = [
        {queue[0][2] for queue in (host, stream) if queue and queue[0][1] == "wait"}
        for host, stream in zip(hosts, streams, strict=True)
    ]
    reached = [_reached(awaited, rank) if hosts[rank] else set[int]() for rank in range(len(program))]
    hung = {rank for rank, host in enumerate(hosts) if host}
    return hung, {rank for rank in hung if all(rank in reached[other] for other in reached[rank])}


def _runs(step: Step, rank: int, records: Counter[tuple[int, int, int]], stream: deque[Step]) -> bool:
    _, what, peer, index = step
    if what == "sync":
        return not stream
    if what == "notify":
        records[rank, peer, index] += 1
        return True
    if not records[peer, rank, index]:
        return False
    records[peer, rank, index] -= 1
    return True


def _reached(awaited: Sequence[set[int]], rank: int) -> set[int]:
    numbers: set[int] = set()
    left = [rank]
    while left:
        for other in awaited[left.pop()] - numbers:
            numbers.add(other)
            left.append(other)
    return numbers

"""What a case is, and the memory, channels and streams that each one is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import peerlane as pl

BYTES = 64
DEADLINE = 60.0
#: What the memory of a rank holds before the case.
OWN, WINDOW = 20, 10
#: The notify of the end; a case has those before it.
LAST = 3

CASES: dict[str, Case] = {}


class World:
    """A rank's part of a case.

    Attributes
    ----------
    rank, size : int
    group : Group
    to : mapping of int to Channel
        A channel to each other rank.
    own : Buffer
        Memory that no peer reaches.  Each byte is ``OWN`` plus the rank.
    window : Buffer
        Memory that the peers reach.  Each byte is ``WINDOW`` plus the rank.
    stream : Stream
    """

    def __init__(
        self, group: pl.Group, to: Mapping[int, pl.Channel], own: pl.Buffer, stream: pl.Stream
    ) -> None:
        self.rank, self.size, self.group, self.to = group.rank, group.size, group, to
        self.own, self.window, self.stream = own, group.window, stream
        self.noted = 0

    def note(self, value: int) -> None:
        """Use a value that the case has read; a racy case reads any value."""
        self.noted += int(value)


Body = Callable[[World], None]


@dataclass(frozen=True)
class Case:
    """A program for ``ranks`` ranks.

    Attributes
    ----------
    name : str
        The folder and the number of its counterpart.
    race : str or None
        ``"local"``: at the origin's own memory.  ``"remote"``: at the target's.
    lines : frozenset of (str, int)
        The two lines that race: the name of the file, and the line.
    also : frozenset of str
        Kinds of findings other than races that the program earns as well.
    """

    name: str
    body: Body
    ranks: int
    race: str | None
    lines: frozenset[tuple[str, int]]
    also: frozenset[str]


def case(
    name: str,
    *,
    race: str | None = None,
    ranks: int = 2,
    lines_in: tuple[Callable[..., object], ...] = (),
    also: str = "",
) -> Callable[[Body], Body]:
    """Enter a function as a case.

    The lines that race end with ``# first`` and ``# second``, in the function itself or in one of ``lines_in``.
    """

    def enter(body: Body) -> Body:
        marked = [marked_line for each in (body, *lines_in) for marked_line in _marked(each)]
        if len(marked) != (2 if race else 0):
            raise ValueError(f"{name}: {len(marked)} lines are marked")
        CASES[name] = Case(name, body, ranks, race, frozenset(marked), frozenset(also.split()))
        return body

    return enter


def _marked(function: Callable[..., object]) -> list[tuple[str, int]]:
    source, begin = inspect.getsourcelines(function)
    file = Path(inspect.getfile(function)).name
    return [
        (file, begin + number)
        for number, line in enumerate(source)
        if line.rstrip().endswith(("# first", "# second"))
    ]


def run(each: Case) -> None:
    """Run one rank of a case: fill the memory, run it, await all that travels, and look at the memory."""
    with pl.Group(window=BYTES, name=each.name, timeout=DEADLINE) as group:
        if group.size != each.ranks:
            raise SystemExit(f"{each.name} is for {each.ranks} ranks, not {group.size}")
        peers = [rank for rank in range(group.size) if rank != group.rank]
        to = dict(zip(peers, group.channels(peers, notifies=LAST + 1), strict=True))
        own = group.device.allocate(BYTES)
        own.fill(OWN + group.rank)
        group.window.fill(WINDOW + group.rank)
        with group.device.create_stream() as stream:
            world = World(group, to, own, stream)
            group.barrier()
            each.body(world)
            stream.sync(timeout=DEADLINE)
        for channel in to.values():
            channel.fence()
            channel.notify(LAST)
        for channel in to.values():
            channel.wait(LAST, timeout=DEADLINE)
        world.note(own.view().sum() + group.window.view().sum())
        own.close()
        group.barrier()

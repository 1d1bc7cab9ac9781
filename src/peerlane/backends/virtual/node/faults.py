"""Faults on purpose: a rank is killed, or delayed, at its n-th logged event."""

from __future__ import annotations

import atexit
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from peerlane import _core
from peerlane.errors import BadArgument, Fault, InvalidValue
from peerlane.support.variables import warn_of_path

VARIABLE = "PEERLANE_FAULT"  # faults as --fault takes them, with semicolons between them
REPORT = "PEERLANE_FAULT_REPORT"  # a file: which faults struck, and how many events each process logged

_NUMBERS = {"kill": ("rank", "op"), "delay": ("rank", "op", "ms")}
_MOST = {"rank": 4095, "op": (1 << 63) - 1, "ms": 86_400_000}
_LAST_DRAWN = 200  # op of a drawn fault
_LONGEST_DRAWN = 200  # ms
_VALID = "valid are kill:rank=R,op=N, delay:rank=R,op=N,ms=M and seed:S, with whole numbers"


_planned: list[tuple[str, int]] = []  # the report of this process, and its rank


class Planned(NamedTuple):
    """A planned fault of a rank."""

    rank: int
    op: int  #: the number of the logged event at which it strikes, from 1 on
    ms: int | None  #: how long the rank sleeps then; None: it is killed

    def __str__(self) -> str:
        where = f"rank={self.rank},op={self.op}"
        return f"kill:{where}" if self.ms is None else f"delay:{where},ms={self.ms}"


def parse(text: str, source: str, size: int) -> Planned:
    """Return a fault; a seed draws its rank from ``size`` ranks.  An empty ``source`` is not named in errors.

    Raises InvalidValue: ``BAD_CONFIG``: it is not a fault.
    """
    kind, colon, rest = text.partition(":")
    if kind == "seed" and colon and _is_number(rest):
        return _drawn(int(rest), size)
    prefix = f"{source}: " if source else ""
    names = _NUMBERS.get(kind)
    words = [word.partition("=") for word in rest.split(",")]
    numbers = {name: number for name, _, number in words}
    if names is None or len(words) != len(names) or set(numbers) != set(names):
        raise InvalidValue(
            f"{prefix}{text!r} is not a fault; {_VALID}",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("fault", text, rule=_VALID),
        )
    for name, number in numbers.items():
        least = 1 if name == "op" else 0
        if not _is_number(number) or not least <= int(number) <= _MOST[name]:
            raise InvalidValue(
                f"{prefix}{name} of {text!r} is {number!r}; valid are {least} to {_MOST[name]}",
                fault=Fault.BAD_CONFIG,
                detail=BadArgument(name, number, least=least, most=_MOST[name]),
            )
    return Planned(int(numbers["rank"]), int(numbers["op"]), int(numbers["ms"]) if kind == "delay" else None)


def check_rank(fault: Planned, size: int) -> None:
    """Refuse a fault of a rank that ``size`` ranks do not have.

    Raises InvalidValue: ``BAD_CONFIG``
    """
    if fault.rank >= size:
        there = "rank 0 alone" if size == 1 else f"ranks 0 to {size - 1}"
        raise InvalidValue(
            f"--fault {fault}: there is no rank {fault.rank}; this run has {there}",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("rank", fault.rank, least=0, most=size - 1),
        )


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 19


def _drawn(seed: int, size: int) -> Planned:
    dice = random.Random(seed)
    rank, op = dice.randrange(size), dice.randrange(1, _LAST_DRAWN + 1)
    return Planned(rank, op, None if dice.random() < 0.5 else dice.randrange(1, _LONGEST_DRAWN + 1))


def begin(environ: Mapping[str, str] = os.environ) -> None:
    """Plan the faults of this process's rank; a process without ``RANK`` is rank 0 of 1.

    Raises InvalidValue: ``PEERLANE_FAULT`` is wrong.
    """
    texts = environ.get(VARIABLE, "")
    if not texts:
        return
    rank, size = (int(environ.get(name) or least) for name, least in (("RANK", 0), ("WORLD_SIZE", 1)))
    planned = [parse(text, VARIABLE, size) for text in texts.split(";")]
    _core.plan_faults(
        [
            (
                each.op,
                each.ms is None,
                (each.ms or 0) * 1_000_000,
                _noted({"struck": number}),
                _kill_text(each),
            )
            for number, each in enumerate(planned)
            if each.rank == rank
        ],
        environ.get(REPORT, ""),
    )
    _planned[:] = [(environ.get(REPORT, ""), rank)]
    atexit.unregister(report_events)
    atexit.register(report_events)


def _noted(facts: dict[str, int]) -> str:
    return json.dumps({"pid": os.getpid(), **facts}) + "\n"


def _kill_text(fault: Planned) -> str:
    if fault.ms is not None:
        return ""
    return f"peerlane: --fault {fault} kills this process at its logged event {fault.op}\n"


def report_events() -> None:
    """Note how many events this process has logged, if faults were planned for it."""
    for path, rank in _planned:
        if not path:
            continue
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(_noted({"rank": rank, "events": _core.counted_events()}))
        except OSError as error:
            warn_of_path(REPORT, path, f"nothing can be written there: {error.strerror}")

"""Faults on purpose: a rank is killed, or delayed, at its n-th logged event."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import NamedTuple

from peerlane import _core
from peerlane.errors import BadArgument, Fault, InvalidValue

VARIABLE = "PEERLANE_FAULT"  # faults as --fault takes them, with semicolons between them

_NUMBERS = {"kill": ("rank", "op"), "delay": ("rank", "op", "ms")}
_MOST = {"rank": 4095, "op": (1 << 63) - 1, "ms": 86_400_000}
_LAST_DRAWN = 200  # op of a drawn fault
_LONGEST_DRAWN = 200  # ms
_VALID = "valid are kill:rank=R,op=N, delay:rank=R,op=N,ms=M and seed:S, with whole numbers"


class Planned(NamedTuple):
    """What happens to a rank.

    Attributes
    ----------
    rank : int
    op : int
        At which of its logged events, from 1 on.
    ms : int or None
        How long it sleeps then; None: it is killed.
    """

    rank: int
    op: int
    ms: int | None


def parse(text: str, source: str, size: int) -> Planned:
    """Return a fault; a seed draws its rank from ``size`` ranks.

    Raises
    ------
    InvalidValue
        ``BAD_CONFIG``: it is not a fault.
    """
    kind, colon, rest = text.partition(":")
    if kind == "seed" and colon and _is_number(rest):
        return _drawn(int(rest), size)
    names = _NUMBERS.get(kind)
    words = [word.partition("=") for word in rest.split(",")]
    given = {name: number for name, _, number in words}
    if names is None or len(words) != len(names) or set(given) != set(names):
        raise InvalidValue(
            f"{source}: {text!r} is not a fault; {_VALID}",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("fault", text, rule=_VALID),
        )
    for name, number in given.items():
        least = 1 if name == "op" else 0
        if not _is_number(number) or not least <= int(number) <= _MOST[name]:
            raise InvalidValue(
                f"{source}: {name} of {text!r} is {number!r}; valid are {least} to {_MOST[name]}",
                fault=Fault.BAD_CONFIG,
                detail=BadArgument(name, number, least=least, most=_MOST[name]),
            )
    return Planned(int(given["rank"]), int(given["op"]), int(given["ms"]) if kind == "delay" else None)


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 19


def _drawn(seed: int, size: int) -> Planned:
    dice = random.Random(seed)
    rank, op = dice.randrange(size), dice.randrange(1, _LAST_DRAWN + 1)
    return Planned(rank, op, None if dice.random() < 0.5 else dice.randrange(1, _LONGEST_DRAWN + 1))


def begin(environ: Mapping[str, str] = os.environ) -> None:
    """Plan the faults of this process's rank; a process without ``RANK`` is rank 0 of 1.

    Raises
    ------
    InvalidValue
        ``PEERLANE_FAULT`` is wrong.
    """
    texts = environ.get(VARIABLE, "")
    if not texts:
        return
    rank, size = (int(environ.get(name) or least) for name, least in (("RANK", 0), ("WORLD_SIZE", 1)))
    planned = [parse(text, VARIABLE, size) for text in texts.split(";")]
    _core.plan_faults(
        [(each.op, each.ms is None, (each.ms or 0) * 1_000_000) for each in planned if each.rank == rank]
    )

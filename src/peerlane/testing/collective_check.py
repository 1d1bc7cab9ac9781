"""Whether a hand-written collective gives each rank what it should, and if not, which rank's part is wrong where.

The inputs are such that each element of a result tells which ranks contributed to it, how often, and from where: in
each round one rank contributes, and the others have the operation's neutral element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from peerlane.errors import BadArgument, InvalidValue
from peerlane.support import dtypes
from peerlane.support.spelling import did_you_mean

Array = npt.NDArray[Any]

#: By the collective, whether it combines elements.
COLLECTIVES = {
    "all_gather": False,
    "all_gather_v": False,
    "all_reduce": True,
    "all_to_all": False,
    "all_to_all_v": False,
    "broadcast": False,
    "gather": False,
    "reduce": True,
    "reduce_scatter": True,
    "reduce_scatter_v": True,
    "scatter": False,
}
OPERATIONS = ("sum", "prod", "max", "min")

_UNWRITTEN = 0xA5  # no input has such bytes
_BASES = (4096, 1024, 128, 60, 8, 4, 2)
_MOST_LINES = 20


@dataclass(frozen=True)
class Defect:
    """Elements of a result that are wrong in the same manner.

    Attributes
    ----------
    rank : int
        The rank that has the result.
    chunk, first, last : int
        The chunk of the result, and the elements, counted in the whole result.
    unwritten, foreign : bool
        The elements were not written; they have values that no combination of the inputs gives.
    times : tuple of (int, int)
        How often each rank contributed, where that is wrong: 0 is a rank that is missing.
    shifted : tuple of (int, int, int)
        A rank, the element of its source that is the first one here, and the one that should be.
    extra : tuple of int
        The ranks that contributed and have no part in these elements.
    """

    rank: int
    chunk: int
    first: int
    last: int
    unwritten: bool = False
    foreign: bool = False
    times: tuple[tuple[int, int], ...] = ()
    shifted: tuple[tuple[int, int, int], ...] = ()
    extra: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """What is wrong, without the elements."""
        if self.unwritten:
            return "not written"
        if self.foreign:
            return "values that no combination of the inputs gives"
        words = [f"rank {rank} {_often(times)}" for rank, times in self.times]
        length = self.last - self.first
        words += [
            f"rank {rank}'s elements {begin} to {begin + length} instead of {wanted} to {wanted + length}"
            for rank, begin, wanted in self.shifted
        ]
        words += [f"rank {rank}, which has no part in it" for rank in self.extra]
        return ", ".join(words)

    def __str__(self) -> str:
        return f"chunk {self.chunk} (elements {self.first} to {self.last}) at rank {self.rank}: {self.text}"


def _often(times: int) -> str:
    return {0: "missing", 2: "twice"}.get(times, f"{times} times")


class CollectiveCheck:
    """The rounds of one rank that test a collective; all ranks make the same rounds.

    Parameters
    ----------
    collective : str
        One of :data:`COLLECTIVES`, as :class:`peerlane.Group` names them.
    rank, ranks : int
        This rank, and the number of ranks.
    count : int or sequence
        Elements: of each rank's source, for ``scatter`` and ``reduce_scatter`` of each rank's result, for
        ``all_to_all`` of each pair.  For ``all_gather_v`` and ``reduce_scatter_v`` those of each rank, for
        ``all_to_all_v`` those of each pair, by source and destination.
    dtype : dtype
        The type of the elements: anything that :meth:`peerlane.Buffer.view` takes and that has whole numbers.
    op : str
        ``"sum"``, ``"prod"``, ``"max"`` or ``"min"``, for the collectives that combine.  Of the last two a rank that
        contributes twice is not seen, because it changes nothing.
    root : int
        The rank that gives or gets all, where there is one.

    Raises
    ------
    InvalidValue
        An argument has a value that is not valid.

    Examples
    --------
    >>> from peerlane.testing import CollectiveCheck
    >>> check = CollectiveCheck("all_reduce", rank=0, ranks=2, count=4)
    >>> for src, dst in check:
    ...     dst[:] = src  # an all-reduce that forgets the other rank
    >>> print(check.report())
    all_reduce of 4 float32 in 2 ranks is wrong at rank 0:
      chunks 0 to 1 (elements 0 to 3): rank 1 missing
    """

    def __init__(
        self,
        collective: str,
        rank: int,
        ranks: int,
        count: int | Sequence[Any],
        *,
        dtype: npt.DTypeLike = "float32",
        op: str = "sum",
        root: int = 0,
    ) -> None:
        _among("collective", collective, tuple(COLLECTIVES))
        _among("op", op, OPERATIONS)
        _within("ranks", ranks, 1, 1 << 16)
        _within("rank", rank, 0, ranks - 1)
        _within("root", root, 0, ranks - 1)
        self.collective, self.rank, self.ranks, self.root = collective, rank, ranks, root
        self.op = op if COLLECTIVES[collective] else "sum"
        try:
            self.dtype = np.dtype(dtype)
        except TypeError:
            self.dtype = dtypes.extension("CollectiveCheck", dtype)
        self._base = next((each for each in _BASES if _is_exact(self.dtype, 2 * each)), 0)
        if not self._base:
            raise InvalidValue(
                f"CollectiveCheck: {self.dtype} has not the numbers 0 to 4, which the check needs; take another type",
                call="CollectiveCheck",
                detail=BadArgument("dtype", str(self.dtype), rule="a type with the numbers 0 to 4"),
            )
        self._sizes, self._wanted, self._bounds = _expected(collective, rank, ranks, count, root)
        most, self._digits = max(self._sizes), 0
        while self._base**self._digits < most:
            self._digits += 1
        self._defects: tuple[Defect, ...] | None = None

    @property
    def neutral(self) -> int:
        """The element that changes no result of the operation."""
        return {"sum": 0, "prod": 1, "max": 0, "min": 2 * self._base}[self.op]

    def __len__(self) -> int:
        return self.ranks * (1 + self._digits)

    def __iter__(self) -> Iterator[tuple[Array | None, Array | None]]:
        """Yield a source and a result for each round; None where this rank has none.

        The loop's body makes the collective, and has put the result into the array when it ends.
        """
        times = np.zeros(self._wanted.shape, np.int64)
        origins = np.zeros(self._wanted.shape, np.int64)
        unwritten = np.zeros(self._wanted.shape[1], bool)
        foreign = unwritten.copy()
        self._defects = None
        for contributor in range(self.ranks):
            for digit in range(-1, self._digits):
                result = self._empty()
                yield self._source(contributor, digit), result
                if result is None:
                    continue
                raw = result.view(np.uint8).reshape(result.size, -1)
                unwritten |= (raw == _UNWRITTEN).all(axis=1)
                with np.errstate(all="ignore"):
                    numbers = result.astype(np.float64)
                if digit < 0:
                    times[contributor], wrong = self._times(numbers)
                    foreign |= wrong
                else:
                    digits = np.where(times[contributor] == 1, numbers - 1, 0)
                    wrong = ~((digits >= 0) & (digits < self._base) & (digits == np.rint(digits)))
                    foreign |= wrong
                    origins[contributor] += np.where(wrong, 0, digits).astype(np.int64) * self._base**digit
        self._defects = tuple(self._located(times, origins, unwritten, foreign & ~unwritten))

    @property
    def defects(self) -> tuple[Defect, ...]:
        """What is wrong at this rank, by the elements; empty if the collective is right.

        Raises
        ------
        InvalidValue
            Not all rounds were made.
        """
        if self._defects is None:
            raise InvalidValue(
                f"CollectiveCheck: not all of the {len(self)} rounds were made; run the loop to its end first",
                call="CollectiveCheck.defects",
            )
        return self._defects

    def report(self) -> str:
        """Return what is wrong at this rank, a line for each manner; empty if the collective is right."""
        defects = self.defects
        if not defects:
            return ""
        lines: list[str] = []
        for group in _alike(defects):
            first, last = group[0], group[-1]
            chunks = (
                f"chunk {first.chunk}"
                if first.chunk == last.chunk
                else f"chunks {first.chunk} to {last.chunk}"
            )
            lines.append(f"  {chunks} (elements {first.first} to {last.last}): {first.text}")
        more = len(lines) - _MOST_LINES
        if more > 0:
            lines = [*lines[:_MOST_LINES], f"  and {more:,} more"]
        of = f" by {self.op}" if COLLECTIVES[self.collective] and self.op != "sum" else ""
        head = f"{self.collective}{of} of {max(self._sizes):,} {self.dtype} in {self.ranks} ranks"
        return "\n".join([f"{head} is wrong at rank {self.rank}:", *lines])

    def check(self) -> None:
        """Raise an AssertionError with :meth:`report` if the collective is wrong at this rank."""
        if text := self.report():
            raise AssertionError(text)

    def _empty(self) -> Array | None:
        count = self._wanted.shape[1]
        if not count:
            return None
        empty: Array = np.full(count * self.dtype.itemsize, _UNWRITTEN, np.uint8).view(self.dtype)
        return empty

    def _source(self, contributor: int, digit: int) -> Array | None:
        """Return this rank's source in the round of a contributor: that of its contributions, or of a digit."""
        count = self._sizes[self.rank]
        if not count:
            return None
        if contributor != self.rank:
            numbers = np.full(count, self.neutral)
        elif digit < 0:
            numbers = np.full(count, 2 if self.op == "prod" else 1)
        else:
            numbers = np.arange(count) // self._base**digit % self._base + 1
        source: Array = numbers.astype(self.dtype)
        return source

    def _times(self, numbers: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return how often the contributor is in each element, and which elements no combination gives."""
        if self.op == "prod":
            with np.errstate(all="ignore"):
                times = np.log2(numbers)
        elif self.op == "sum":
            times = numbers
        else:
            times = np.where(numbers == self.neutral, 0.0, np.where(numbers == 1, 1.0, np.nan))
        wrong = ~(np.isfinite(times) & (times >= 0) & (times == np.rint(times)))
        return np.where(wrong, 0, times).astype(np.int64), wrong

    def _located(self, times: Array, origins: Array, unwritten: Array, foreign: Array) -> Iterator[Defect]:
        wanted = self._wanted
        should = (wanted >= 0).astype(np.int64)
        shift = np.where((times == 1) & (should == 1), origins - wanted, 0)
        wrong = unwritten | foreign | (times != should).any(axis=0) | (shift != 0).any(axis=0)
        if not wrong.any():
            return
        facts = np.vstack([times - should, shift, unwritten, foreign])
        changes = np.flatnonzero((facts[:, 1:] != facts[:, :-1]).any(axis=0)) + 1
        edges = sorted({*map(int, changes), *self._bounds, 0, wanted.shape[1]})
        for first, end in pairwise(edges):
            if not wrong[first]:
                continue
            chunk = next(at for at, bound in enumerate((*self._bounds[1:], wanted.shape[1])) if first < bound)
            if unwritten[first] or foreign[first]:
                yield Defect(
                    self.rank,
                    chunk,
                    first,
                    end - 1,
                    unwritten=bool(unwritten[first]),
                    foreign=bool(foreign[first]),
                )
                continue
            own = range(self.ranks)
            yield Defect(
                self.rank,
                chunk,
                first,
                end - 1,
                times=tuple(
                    (rank, int(times[rank, first]))
                    for rank in own
                    if should[rank, first] and times[rank, first] != 1
                ),
                shifted=tuple(
                    (rank, int(origins[rank, first]), int(wanted[rank, first]))
                    for rank in own
                    if shift[rank, first]
                ),
                extra=tuple(rank for rank in own if times[rank, first] and not should[rank, first]),
            )


def _alike(defects: Sequence[Defect]) -> Iterator[list[Defect]]:
    """Yield neighbours that are wrong in the same manner, without a gap between them."""
    group = [defects[0]]
    for each in defects[1:]:
        same = (each.unwritten, each.foreign, each.times, each.extra) == (
            group[0].unwritten,
            group[0].foreign,
            group[0].times,
            group[0].extra,
        )
        if same and not each.shifted and not group[0].shifted and each.first == group[-1].last + 1:
            group.append(each)
        else:
            yield group
            group = [each]
    yield group


def _expected(
    collective: str, rank: int, ranks: int, count: int | Sequence[Any], root: int
) -> tuple[list[int], npt.NDArray[np.int64], list[int]]:
    """Return the sizes of all ranks' sources, the elements that this rank's result has, and its chunks.

    The elements are those of each rank's source for each element of the result, -1 for none.
    """
    if collective.endswith("_v"):
        counts = np.asarray(count)
        shape = (ranks, ranks) if collective == "all_to_all_v" else (ranks,)
        if counts.shape != shape or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise InvalidValue(
                f"CollectiveCheck: count of {collective} is {count!r}; valid are numbers of the shape {shape}",
                call="CollectiveCheck",
                detail=BadArgument("count", repr(count), rule=f"numbers of the shape {shape}"),
            )
    else:
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(
                f"CollectiveCheck: count of {collective} must be an int, not {type(count).__name__}"
            )
        _within("count", count, 1, 1 << 32)
        counts = np.full((ranks, ranks) if collective == "all_to_all" else ranks, count)
    everyone = range(ranks)
    if "to_all" in collective:
        sizes = counts.sum(axis=1)
        begins = np.cumsum(counts, axis=1) - counts
        pieces = [(source, int(begins[source, rank]), int(counts[source, rank])) for source in everyone]
    elif "all_gather" in collective or collective == "gather":
        sizes = counts
        pieces = [
            (source, 0, int(counts[source])) for source in everyone if collective != "gather" or rank == root
        ]
    elif "reduce_scatter" in collective:
        sizes = np.full(ranks, counts.sum())
        begin, size = int(counts[:rank].sum()), int(counts[rank])
        wanted = np.tile(np.arange(begin, begin + size), (ranks, 1))
        return [int(size) for size in sizes], wanted, _chunks(size, ranks)
    elif "reduce" in collective:
        sizes = counts
        size = int(counts[rank]) if collective == "all_reduce" or rank == root else 0
        return [int(size) for size in sizes], np.tile(np.arange(size), (ranks, 1)), _chunks(size, ranks)
    else:
        whole = int(counts[root]) * (ranks if collective == "scatter" else 1)
        sizes = np.where(np.arange(ranks) == root, whole, 0)
        pieces = [(root, int(counts[root]) * rank if collective == "scatter" else 0, int(counts[root]))]
    wanted = np.full((ranks, sum(size for *_, size in pieces)), -1)
    bounds, at = [], 0
    for source, begin, size in pieces:
        wanted[source, at : at + size] = np.arange(begin, begin + size)
        bounds.append(at)
        at += size
    return [int(size) for size in sizes], wanted, bounds if len(bounds) > 1 else _chunks(at, ranks)


def _chunks(size: int, ranks: int) -> list[int]:
    """Return where the chunks of a result begin: one for each rank, as a ring has them."""
    length = max(1, -(-size // ranks))
    return list(range(0, max(size, 1), length))


def _is_exact(dtype: np.dtype[Any], most: int) -> bool:
    """Return whether a type has the whole numbers up to ``most``."""
    numbers = np.arange(most + 1)
    with np.errstate(all="ignore"):
        return dtype.kind not in "bOSUmMc" and bool(
            (numbers.astype(dtype).astype(np.float64) == numbers).all()
        )


def _among(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidValue(
            f"CollectiveCheck: {name} is {value!r}{did_you_mean(value, choices)}; valid are {', '.join(choices)}",
            call="CollectiveCheck",
            detail=BadArgument(name, value, choices=choices),
        )


def _within(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"CollectiveCheck: {name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidValue(
            f"CollectiveCheck: {name} is {value:,}; valid are {least:,} to {most:,}",
            call="CollectiveCheck",
            detail=BadArgument(name, value, least=least, most=most),
        )

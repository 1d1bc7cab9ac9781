"""Many operations with one call."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.vendor import Vendor
from peerlane.errors import Error


class Batches:
    """The batches of a vendor's program."""

    def __init__(self, vendor: Vendor, reported: Callable[[Error], Error | Refusal]) -> None:
        self._vendor, self._reported = vendor, reported

    def run(self, count: int, submit: Callable[[int], None], name: str) -> tuple[int, Refusal] | None:
        """Submit the operations in order, each by its number, up to the first that fails.

        Returns the number of the one that failed, and its refusal, whose text begins with ``name`` and the number.
        """
        for at in range(count):
            try:
                submit(at)
            except (Refusal, Error) as error:
                failure = self._reported(error) if isinstance(error, Error) else error
                if isinstance(failure, Refusal):
                    return at, Refusal(failure.code, f"{name} {at}: {failure}", failure.remedy)
                cause, remedy = self._vendor.explain(failure)
                return at, Refusal(self._vendor.code(failure.fault), f"{name} {at}: {cause}", remedy)
        return None

    def group_of(self, name: str, starts: Sequence[int], count: int) -> Callable[[int], int]:
        """Return the function from an operation's number to that of its group; a group begins at each of ``starts``.

        ``INVALID_VALUE`` if they do not begin with 0 and rise, or reach beyond the operations.
        """
        if starts[0] or starts[-1] >= count or any(one >= other for one, other in pairwise(starts)):
            raise self._vendor.invalid(
                f"{name} are {', '.join(map(str, starts))}; there are {count:,} operations",
                "pass the number of the first one of each, 0 first, in ascending order",
            )
        return lambda at: bisect_right(starts, at) - 1

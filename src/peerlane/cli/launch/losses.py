"""Which rank lost which other rank, and so which failed rank failed first."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class Losses:
    """What the ranks reported of one another; none of it is trusted."""

    def __init__(self) -> None:
        self._lost: dict[int, dict[int, None]] = {}  # pids of ranks, in the order of the reports

    def add(self, pid: int, lost: int) -> None:
        """Note that a rank lost another one; any thread may call it."""
        self._lost.setdefault(pid, {})[lost] = None

    def origin(self, failed: Sequence[int], alive: Collection[int]) -> tuple[int, bool]:
        """Return the rank whose failure came first, and whether a rank that is alive may have caused it.

        Parameters
        ----------
        failed : sequence of int
            The ranks that failed, in the order of their ends; not empty.
        alive : collection of int
            The ranks that have not ended.
        """
        found, passed = failed[0], [failed[0]]
        while True:
            lost = list(self._lost.get(found, ()))
            following = next((pid for pid in lost if pid in failed), None)
            if following is None:
                return found, any(pid in alive for pid in lost)
            if following in passed:  # in a circle of losses the first to end counts as the first to fail
                circle = passed[passed.index(following) :]
                return min(circle, key=failed.index), False
            found = following
            passed.append(found)

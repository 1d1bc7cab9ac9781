"""Who of the ranks has lost whom, and so who of those that failed was the first."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class Losses:
    """What the ranks have told of one another; all of it may be anybody's bytes."""

    def __init__(self) -> None:
        self._lost: dict[int, dict[int, None]] = {}  # by the pids of ranks, in the order in which it was told

    def add(self, pid: int, lost: int) -> None:
        """Note that a rank has lost another one; from any thread."""
        self._lost.setdefault(pid, {})[lost] = None

    def origin(self, failed: Sequence[int], alive: Collection[int]) -> tuple[int, bool]:
        """Return the failed rank from which the first failure came, and whether one that is alive may be its cause.

        Parameters
        ----------
        failed : sequence of int
            The ranks that failed, in the order of their ends; not empty.
        alive : collection of int
            Those that have not ended.
        """
        found, passed = failed[0], [failed[0]]
        while True:
            lost = list(self._lost.get(found, ()))
            following = next((pid for pid in lost if pid in failed), None)
            if following is None:
                return found, any(pid in alive for pid in lost)
            if following in passed:  # they lost one another: the first to end has failed first
                circle = passed[passed.index(following) :]
                return min(circle, key=failed.index), False
            found = following
            passed.append(found)

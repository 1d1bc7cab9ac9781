"""Which rank lost which other rank, and so which failed rank failed first."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


class Losses(Generic[_Key]):
    """What the ranks reported of one another; none of it is trusted.

    A key names the process of a rank, or one that says it is.
    """

    def __init__(self) -> None:
        self._lost: dict[_Key, dict[_Key, None]] = {}  # in the order of the reports

    def add(self, key: _Key, lost: _Key) -> None:
        """Note that a rank lost another one; any thread may call it."""
        self._lost.setdefault(key, {})[lost] = None

    def origin(self, failed: Sequence[_Key], alive: Collection[_Key]) -> tuple[_Key, bool]:
        """Return the rank whose failure came first, and whether a rank that is alive may have caused it.

        Parameters
        ----------
        failed : sequence of keys
            The ranks that failed, in the order of their ends; not empty.
        alive : collection of keys
            The ranks that have not ended.
        """
        found, passed = failed[0], [failed[0]]
        while True:
            lost = list(self._lost.get(found, ()))
            following = next((each for each in lost if each in failed), None)
            if following is None:
                return found, any(each in alive for each in lost)
            if following in passed:  # in a circle of losses the first to end counts as the first to fail
                circle = passed[passed.index(following) :]
                return min(circle, key=failed.index), False
            found = following
            passed.append(found)

"""The failed rank that failed first, by the ranks' reports of which rank each has lost."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


class Losses(Generic[_Key]):
    """The losses that ranks have reported; none of it is trusted.

    A key names the process of a rank, or one that claims to be a rank's.
    """

    def __init__(self) -> None:
        self._lost: dict[_Key, dict[_Key, None]] = {}  # in the order of the reports

    def add(self, key: _Key, lost: _Key) -> None:
        """Note that a rank lost another one; any thread may call it."""
        self._lost.setdefault(key, {})[lost] = None

    def origin(self, failed: Sequence[_Key], alive: Collection[_Key]) -> tuple[_Key, bool]:
        """Return the rank whose failure came first, and whether a rank that is alive may have caused it.

        ``failed``: the ranks that failed, in the order of their ends; not empty.
        ``alive``: the ranks that have not ended.
        """
        suspect, passed = failed[0], [failed[0]]
        while True:
            lost = list(self._lost.get(suspect, ()))
            following = next((each for each in lost if each in failed), None)
            if following is None:
                return suspect, any(each in alive for each in lost)
            if following in passed:  # in a circle of losses the first to end counts as the first to fail
                circle = passed[passed.index(following) :]
                return min(circle, key=failed.index), False
            suspect = following
            passed.append(suspect)

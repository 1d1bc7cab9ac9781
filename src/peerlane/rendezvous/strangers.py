"""The choice of a connection to drop when too many have come that have not proved that they are a rank's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

_Stranger = TypeVar("_Stranger")


def to_give_up(
    strangers: Sequence[_Stranger], address_of: Callable[[_Stranger], str], newcomer: str
) -> _Stranger:
    """Return the oldest connection of the address that has most of them, or of the newcomer's if that has as many.

    So no address takes all slots, and a rank that proves itself at once is served beside strangers at its address.

    ``strangers``: all connections that have proved nothing, the oldest first.
    ``address_of``: returns the address of a connection.
    ``newcomer``: the address from which another one comes.
    """
    counts = Counter(map(address_of, strangers))
    most, count = counts.most_common(1)[0]
    giving = newcomer if counts[newcomer] == count else most
    return next(each for each in strangers if address_of(each) == giving)

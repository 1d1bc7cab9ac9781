"""Which connection gives its slot up when more have come than are served, and none has proved that it is a rank's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

_Stranger = TypeVar("_Stranger")


def to_give_up(
    strangers: Sequence[_Stranger], address_of: Callable[[_Stranger], str], newcomer: str
) -> _Stranger:
    """Return the oldest connection of the address that has most of them, or of the newcomer's if that has as many.

    So no address takes all slots, and who proves itself at once is served also beside strangers of its own address.

    Parameters
    ----------
    strangers : sequence
        All connections that have proved nothing, the oldest first.
    address_of : callable
        Returns the address of a connection.
    newcomer : str
        The address from which another one comes.
    """
    counts = Counter(map(address_of, strangers))
    most, count = counts.most_common(1)[0]
    giving = newcomer if counts[newcomer] == count else most
    return next(each for each in strangers if address_of(each) == giving)

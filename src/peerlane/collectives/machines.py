"""How the ranks of a group lie on machines: what crosses the network should cross it once for each machine."""

from __future__ import annotations

from collections.abc import Sequence


class Machines:
    """The ranks of each machine.

    Parameters
    ----------
    rank : int
        This rank.
    names : sequence of str
        By rank: the identity of its machine.

    Attributes
    ----------
    ranks : list of list of int
        The ranks of each machine, in their order; machines come in the order of their first ranks.
    of : list of int
        By rank: the index of its machine.
    own : int
        The index of this rank's machine.
    beside : list of int
        The other ranks of this rank's machine, from the next one on.
    fewest : int
        The least number of ranks that a machine has.
    in_order : bool
        Whether the ranks of each machine follow each other, as launchers place them by default.
    """

    def __init__(self, rank: int, names: Sequence[str]) -> None:
        index = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.of = [index[name] for name in names]
        self.ranks = [[each for each, at in enumerate(self.of) if at == one] for one in range(len(index))]
        self.own = self.of[rank]
        ours = self.ranks[self.own]
        after = ours.index(rank) + 1
        self.beside = [*ours[after:], *ours[: after - 1]]
        self.fewest = min(map(len, self.ranks))
        self.in_order = self.of == sorted(self.of)

    def receiver(self, source: int, machine: int) -> int:
        """Return the rank of another machine that receives a rank's bytes for all ranks there."""
        there = self.ranks[machine]
        return there[self.ranks[self.of[source]].index(source) % len(there)]

    def receivers(self, source: int) -> list[int]:
        """Return that rank of each other machine."""
        return [self.receiver(source, each) for each in range(len(self.ranks)) if each != self.of[source]]

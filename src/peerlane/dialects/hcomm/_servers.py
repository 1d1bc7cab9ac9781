"""The servers of a communicator: which ranks each has, and which protocols join ranks of two servers.

A rank table names the servers, and several of them may be on one machine.  Without a table each machine is a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peerlane.dialects.hcomm._codes import NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._header import CommProtocol
from peerlane.ranks.session import Member

#: The protocols of a network; the others end at the server.
NETWORK_PROTOCOLS = (int(CommProtocol.COMM_PROTOCOL_ROCE), int(CommProtocol.COMM_PROTOCOL_UBOE))


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of the ranks of a communicator."""

    names: tuple[str, ...]  #: of each rank, the name of its server
    #: Of each rank, the 4 bytes of the IP address of its network card; empty if the rank table has none.
    addresses: tuple[bytes, ...]

    @property
    def sizes(self) -> list[int]:
        """How many ranks each server has, in the order of their first ranks."""
        return [self.names.count(each) for each in dict.fromkeys(self.names)]

    def number(self, rank: int) -> int:
        """Return the number of a rank's server."""
        return list(dict.fromkeys(self.names)).index(self.names[rank])

    def ranks_with(self, rank: int) -> list[int]:
        """Return the ranks of a rank's server."""
        return [each for each, name in enumerate(self.names) if name == self.names[rank]]

    def are_one(self, rank: int, other: int) -> bool:
        """Tell whether two ranks are in one server."""
        return self.names[rank] == self.names[other]

    def of(self, ranks: Sequence[int]) -> Servers:
        """Return the servers of some of the ranks."""
        return Servers(
            tuple(self.names[each] for each in ranks), tuple(self.addresses[each] for each in ranks)
        )

    def refuse_unjoined(self, rank: int, other: int, protocol: int) -> None:
        """Refuse a protocol that does not join two ranks: HCCL_E_NOT_SUPPORT."""
        if not self.are_one(rank, other) and protocol not in NETWORK_PROTOCOLS:
            name = CommProtocol(protocol).name
            raise NOT_SUPPORT.refusal(
                f"{name} ends at the server; rank {rank} is in server {self.names[rank]!r}, rank {other} in "
                f"{self.names[other]!r}",
                "use COMM_PROTOCOL_ROCE, or what HcclRankGraphGetLinks gives for layer 1",
            )

    def refuse_split(self, members: Sequence[Member]) -> None:
        """Refuse a server whose ranks are on several machines: HCCL_E_PARA."""
        machines: dict[str, Member] = {}
        for name, member in zip(self.names, members, strict=True):
            first = machines.setdefault(name, member)
            if first.machine != member.machine:
                raise PARA.refusal(
                    f"the rank table says server {name!r} for ranks {first.rank} and {member.rank}, which are on the "
                    f"machines {first.machine!r} and {member.machine!r}",
                    "give each machine a server of its own in the table; one machine may have several",
                )


def of_machines(members: Sequence[Member]) -> Servers:
    """Return the servers of ranks without a table: their machines."""
    return Servers(tuple(each.machine for each in members), (b"",) * len(members))

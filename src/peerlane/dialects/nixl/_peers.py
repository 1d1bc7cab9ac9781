"""Peers: agents, of this process or of another one, that an agent knows by their metadata."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Protocol

from peerlane.dialects._shared.lent_memory import Lender
from peerlane.dialects.nixl._board import OtherBoard, OwnBoard, Past
from peerlane.dialects.nixl._metadata import Metadata, Row
from peerlane.dialects.nixl._regions import OtherRegion, OwnRegion, Region, Regions
from peerlane.dialects.nixl._status import nixlNotFoundError, nixlRemoteDisconnectError


class Agent(Protocol):
    """What other agents of this process use of an agent."""

    name: str
    board: OwnBoard
    regions: Regions[OwnRegion]

    @property
    def backend_names(self) -> set[str]:
        """The back-ends that were created."""

    def post(self, sender: str, message: bytes, past: Past) -> None:
        """Take in a notification."""


#: The agents of this process, by the identity of their boards.
local_agents: weakref.WeakValueDictionary[bytes, Agent] = weakref.WeakValueDictionary()


class Peer:
    """An agent that another one, its owner, can reach.

    ``owner``: the name of the agent that knows it.
    ``metadata``: metadata that connects.
    ``is_eager``: whether the node's schedule is eager.
    """

    def __init__(self, owner: str, metadata: Metadata, is_eager: bool) -> None:
        self._owner, self.name, self.ident, self.pid = owner, metadata.name, *metadata.origin[:2]
        self.is_eager, self.is_removed = is_eager, False
        self._owner_name = owner.encode()
        self.backends = set(metadata.backends)
        self.regions: Regions[Region] = Regions()
        self._board: OtherBoard | None = None
        self._agent: weakref.ref[Agent] | None = None
        agent = local_agents.get(self.ident)
        if agent is not None and self.pid == os.getpid():
            self._agent = weakref.ref(agent)
        else:
            self._board = OtherBoard(metadata.origin)
        self._lender = Lender("nixl", f"agent {self.name!r}")

    @property
    def agent(self) -> Agent | None:
        """The agent itself, if it lives in this process."""
        return None if self._agent is None else self._agent()

    def learn(self, rows: Sequence[Row]) -> None:
        """Add registrations that are not known yet."""
        self.regions.forget_ended({(row.mem, (row.device, row.start, row.size)) for row in rows})
        known = {(each.slot, each.number) for each in self.regions}
        new: list[Region] = []
        for row in rows:
            if (row.slot, row.number) in known:
                continue
            if self._board is not None:
                region = (*row[:6], self._board.words)
                new.append(OtherRegion(*region, lender=self._lender, part=row.part))
            elif self.agent is not None:
                new.append(Region(*row[:6], self.agent.board.words))
        self.regions.add(new)

    def check_usable(self, now: float) -> None:
        """Raise nixlNotFoundError or nixlRemoteDisconnectError if it was removed, or has ended by now (monotonic)."""
        if self.is_removed:
            raise nixlNotFoundError(
                f"agent {self.name!r} was removed from {self._owner!r}",
                "add it again, and make the transfer anew",
            )
        ended = self.agent is None if self._board is None else self._board.has_ended(now)
        if ended:
            where = "" if self._board is None else f" (process {self.pid})"
            raise nixlRemoteDisconnectError(
                f"agent {self.name!r}{where} has ended", "remove it, and add its successor"
            )

    def send(self, message: bytes, past: Past = None) -> None:
        """Send a notification; ``past``: the stream operation that it follows."""
        if self._board is not None:
            self._board.send(self._owner_name, message, past)
            return
        agent = self.agent
        if agent is not None:
            agent.post(self._owner, message, past)

    def remove(self) -> None:
        """Close its memory and its board; transfers that are under way go on."""
        self.is_removed = True
        for each in self.regions:
            if isinstance(each, OtherRegion):
                each.end()
        if self._board is not None:
            self._board.close()


class Self(Peer):
    """An agent as its own peer, in transfers with itself."""

    def __init__(self, agent: Agent, is_eager: bool) -> None:
        self._owner = self.name = agent.name
        self.ident, self.pid, self.is_eager, self.is_removed = agent.board.ident, os.getpid(), is_eager, False
        self.backends = agent.backend_names
        self.regions: Regions[OwnRegion] = agent.regions  # type: ignore[assignment]
        self._board, self._agent = None, weakref.ref(agent)

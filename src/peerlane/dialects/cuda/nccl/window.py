"""A window: memory of each rank of a communicator, which the others write to."""

from __future__ import annotations

import contextlib

from peerlane import Buffer, Group
from peerlane.dialects._shared.machine import Resource
from peerlane.dialects.cuda.nccl.codes import invalid
from peerlane.dialects.cuda.nccl.communicator import Communicator
from peerlane.errors import Error


class Window(Resource):
    """A window of a communicator in this process.

    Attributes
    ----------
    communicator : Communicator
    memory : Buffer
        That of this rank.
    """

    __slots__ = ("_group", "_tag", "_theirs", "communicator", "memory")

    name = "window"

    def __init__(self, communicator: Communicator, memory: Buffer) -> None:
        super().__init__(communicator.context)
        self.communicator, self.memory = communicator, memory
        self._tag = f"window {communicator.next_number()}"
        self._theirs: dict[int, Buffer] = {}
        self._group: Group | None = None

    def meet(self) -> None:
        """Offer the memory to the other ranks, and open theirs; all ranks do so in one order."""
        group, rank = self.communicator.group, self.communicator.rank
        self._group = group
        others = [each for each in range(self.communicator.size) if each != rank]
        group.register(self.memory, self._tag)
        self._theirs[rank] = self.memory
        for channel in group.channels(others, notifies=1, names=[self._tag] * len(others)):
            self._theirs[channel.peer] = channel.memories[self._tag]
            self.communicator.signals.setdefault(channel.peer, channel)

    def of(self, rank: int) -> Buffer:
        """Return the memory of a rank."""
        if not self._theirs:
            raise invalid(f"{self} is not ready: its ranks have not met", "end the group first")
        return self._theirs[rank]

    def contains(self, address: int, nbytes: int) -> bool:
        """Tell whether bytes of this rank lie inside."""
        if self.memory.is_closed:
            return False
        return 0 <= address - self.memory.address <= self.memory.size - nbytes

    def abandon(self) -> None:
        """Take the memory back: uses of other ranks are refused from now on."""
        if self._group is not None:
            with contextlib.suppress(Error):  # another thread has closed the group
                self._group.deregister(self._tag)

    end = abandon

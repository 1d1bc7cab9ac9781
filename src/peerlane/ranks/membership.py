"""The membership of a group: which ranks have left or died, so that the others' waits for them end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from peerlane.diagnostics import event_log
from peerlane.errors import BadHandle, Closed, Fault, Refused
from peerlane.ranks.bank import open_bank
from peerlane.streams.notify import NotifyKind

if TYPE_CHECKING:
    from peerlane.backend.ranks import Bank
    from peerlane.devices.device import Device
    from peerlane.ranks.wire import Hello
    from peerlane.streams.notify import Notify

_here: dict[str, Bank] = {}  # the banks that ranks 0 of this process offer, by the text of the handle


class Membership:
    """A bank with a line for each rank, which it records when it leaves, and a watch on the others' processes.

    Rank 0 makes the bank, and the others open it.  Behind these lines lies the board, on which ranks report what they
    wait for.

    Parameters
    ----------
    device : Device
        This rank's device.
    hellos : sequence of Hello
        The first messages of all ranks.

    Attributes
    ----------
    members : Members
        The watched processes, whose loss ends waits.
    board : WaitBoard
        On it the ranks report what they wait for while no operation of theirs can run.
    turns : Turns
        The rank's turns, which some schedules have the ranks take.
    """

    def __init__(
        self, device: Device, hellos: Sequence[Hello], rank: int = 0, opened: Bank | None = None
    ) -> None:
        self._ranks = device.backend.ranks
        self._bank = opened or self._ranks.create_bank(self._ranks.lines_of_board(len(hellos)))
        self._device, self._rank = device, rank
        self._lines: dict[int, Notify] = {}
        self._line(rank)
        own = hellos[rank].pid
        others = [(other, hello.pid, hello.start) for other, hello in enumerate(hellos) if hello.pid != own]
        self.members = self._ranks.watch(self._bank, others)
        self.board = self._ranks.board(self._bank, rank)
        self.turns = self._ranks.turns(self._bank, self.members, rank)

    @classmethod
    def open(
        cls, device: Device, rank: int, hellos: Sequence[Hello], text: str, seconds: float
    ) -> Membership:
        """Open the bank of rank 0, in another process or in this one."""
        if hellos[rank].pid == hellos[0].pid and text in _here:
            return cls(device, hellos, rank, _here[text])

        def check(count: int) -> None:
            if count != len(hellos):
                raise BadHandle(
                    f"Group: the message of rank 0 is impossible: its bank is for {count:,} ranks, and the group has "
                    f"{len(hellos):,}",
                    fault=Fault.FALSE_CLAIM,
                    call="Group",
                    detail=Refused(reason="false_claim", size=count, valid=len(hellos)),
                )

        lines = device.backend.ranks.lines_of_board(len(hellos))
        return cls(device, hellos, rank, open_bank("Group", device, text, lines, seconds, check))

    @contextlib.contextmanager
    def offered(self, device: Device, hellos: Sequence[Hello]) -> Iterator[str]:
        """Let the other ranks open it during the block; yield the text that they need."""
        pids = sorted({hello.pid for hello in hellos} - {hellos[0].pid})
        told = self._lines.values()
        with self._ranks.offer_bank(self, device, self._bank, len(hellos), pids, told) as handle:
            text = bytes(handle).decode()
            _here[text] = self._bank
            try:
                yield text
            finally:
                del _here[text]

    def has_left(self, rank: int) -> bool:
        """Tell whether a rank has closed its group."""
        return self._line(rank).recorded > 0

    def close(self) -> None:
        """Record that this rank leaves."""
        with contextlib.suppress(Closed), event_log.quiet():  # suppressed: the node was left before
            self._ranks.record(self._line(self._rank))

    def _line(self, rank: int) -> Notify:
        if rank not in self._lines:
            self._lines[rank] = self._ranks.line(self._device, NotifyKind.BINARY, self._bank, rank)
        return self._lines[rank]

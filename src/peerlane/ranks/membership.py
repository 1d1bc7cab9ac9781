"""The membership of a group: which ranks have left or died, so that the others' waits for them end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.ranks import losses
from peerlane.errors import BadHandle, Closed, Fault, Refused
from peerlane.ranks.bank import open_bank
from peerlane.streams.notify import NotifyKind

if TYPE_CHECKING:
    from peerlane.backend.ranks import Bank
    from peerlane.node.device import Device
    from peerlane.ranks.wire import Hello
    from peerlane.streams.notify import Notify

_offered_banks: dict[
    str, Bank
] = {}  # the banks that first ranks of this process offer, by the text of the handle


class Membership:
    """A bank with a line for each rank, which it records when it leaves, and a watch on the others' processes.

    The first rank of a machine creates the bank, and the others of the machine open it.  A rank of this machine that
    loses a rank elsewhere records the line of that rank.  Behind these lines lies the board, on which ranks
    report what they wait for.  A rank elsewhere never reports there, so no wait for it counts as one in vain.

    ``device``: this rank's device.
    ``rank``: this rank.
    ``hellos``: the first messages of all ranks.
    ``local_ranks``: the ranks of this machine, the first one first.
    """

    def __init__(
        self,
        device: Device,
        rank: int,
        hellos: Sequence[Hello],
        local_ranks: Sequence[int],
        opened: Bank | None = None,
    ) -> None:
        self._ranks = device.backend.ranks
        self._bank = opened or self._ranks.create_bank(self._ranks.lines_of_board(len(hellos)))
        self._device, self._rank, self._size = device, rank, len(hellos)
        self._leave_notifies: dict[int, Notify] = {}
        self._leave_notify(rank)
        self.local_ranks = frozenset(local_ranks)  #: the ranks of this machine
        own = hellos[rank].pid
        others = [
            (each, hellos[each].pid, hellos[each].start) for each in local_ranks if hellos[each].pid != own
        ]
        self._others = sorted({pid for _, pid, _ in others})
        self._far = [
            (each, losses.note_far(losses.FarRank(each, hello.machine, hello.pid, [], None)))
            for each, hello in enumerate(hellos)
            if each not in self.local_ranks
        ]
        #: Where each rank is reached from other machines; empty where a rank does not know.
        self.addresses = tuple(hello.address for hello in hellos)
        #: The watched processes, whose loss ends waits.
        self.members = self._ranks.watch(self._bank, others, self._far)
        #: On it the ranks report what they wait for while no operation of theirs can run.
        self.board = self._ranks.board(self._bank, rank)
        is_all = len(local_ranks) == len(hellos)
        #: The rank's turns, which some schedules have the ranks take; None if some ranks are on another machine.
        self.turns = self._ranks.turns(self._bank, self.members, rank) if is_all else None

    @classmethod
    def open(
        cls,
        device: Device,
        rank: int,
        hellos: Sequence[Hello],
        local_ranks: Sequence[int],
        text: str,
        seconds: float,
    ) -> Membership:
        """Open the bank of the machine's first rank, in another process or in this one."""
        first = local_ranks[0]
        if hellos[rank].pid == hellos[first].pid and text in _offered_banks:
            return cls(device, rank, hellos, local_ranks, _offered_banks[text])

        def check(count: int) -> None:
            if count != len(hellos):
                raise BadHandle(
                    f"Group: the message of rank {first} is impossible: its bank is for {count:,} ranks, and the "
                    f"group has {len(hellos):,}",
                    fault=Fault.FALSE_CLAIM,
                    call="Group",
                    detail=Refused(reason="false_claim", size=count, valid=len(hellos)),
                )

        lines = device.backend.ranks.lines_of_board(len(hellos))
        return cls(device, rank, hellos, local_ranks, open_bank("Group", device, text, lines, seconds, check))

    @contextlib.contextmanager
    def offered(self) -> Iterator[str]:
        """Let the other ranks of the machine open it during the block; yield the text that they need."""
        notifies = self._leave_notifies.values()
        with self._ranks.offer_bank(
            self, self._device, self._bank, self._size, self._others, notifies
        ) as handle:
            text = bytes(handle).decode()
            _offered_banks[text] = self._bank
            try:
                yield text
            finally:
                del _offered_banks[text]

    def has_left(self, rank: int) -> bool:
        """Tell whether a rank of this machine has closed its group."""
        return self._leave_notify(rank).recorded > 0

    def close(self) -> None:
        """Record that this rank leaves."""
        with contextlib.suppress(Closed), event_log.quiet():  # suppressed: the node was left before
            self._ranks.record(self._leave_notify(self._rank))
        while self._far:
            losses.forget_far(self._far.pop()[1])

    def _leave_notify(self, rank: int) -> Notify:
        if rank not in self._leave_notifies:
            self._leave_notifies[rank] = self._ranks.line(self._device, NotifyKind.BINARY, self._bank, rank)
        return self._leave_notifies[rank]

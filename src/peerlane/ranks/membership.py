"""Who of a group has left, and who has died without a word: what ends the waits of the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from peerlane import _core
from peerlane.backend.facts import HandleKind
from peerlane.errors import Closed
from peerlane.sharing.open import open_offer
from peerlane.streams.notify import Notify, NotifyKind

if TYPE_CHECKING:
    from peerlane.devices.device import Device
    from peerlane.ranks.wire import Hello

_here: dict[str, _core.Signal] = {}  # what ranks 0 of this process offer, by the text of the handle


class Departures:
    """A line for each rank, which it records when it leaves, and a watch on the processes of the others.

    Behind these lines is what each says of itself while it waits.

    Rank 0 makes the lines, and the others open them.

    Parameters
    ----------
    device : Device
        This rank's.
    hellos : sequence of Hello
        What all ranks said.

    Attributes
    ----------
    members : _core.Members
        What waits are told of.
    board : _core.WaitBoard
        Where the ranks say what they wait for while nothing of them can run.
    """

    def __init__(
        self, device: Device, hellos: Sequence[Hello], rank: int = 0, opened: _core.Signal | None = None
    ) -> None:
        self._signal = opened or _core.Signal(device.backend.ledger, _core.WaitBoard.lines(len(hellos)))
        self._device, self._rank = device, rank
        self._lines: dict[int, Notify] = {}
        self._line(rank)
        own = hellos[rank].pid
        others = [(other, hello.pid, hello.start) for other, hello in enumerate(hellos) if hello.pid != own]
        self.members = _core.members(self._signal, others)
        self.board = _core.WaitBoard(self._signal, rank)

    @classmethod
    def open(
        cls, device: Device, rank: int, hellos: Sequence[Hello], text: str, seconds: float
    ) -> Departures:
        """Open what rank 0 offers, in another process or in this one."""
        if hellos[rank].pid == hellos[0].pid and text in _here:
            return cls(device, hellos, rank, _here[text])
        offer, _ = open_offer("Group", text, HandleKind.NOTIFIES, None, seconds, reaches=False)
        with contextlib.closing(offer):
            lines = _core.WaitBoard.lines(len(hellos))
            return cls(device, hellos, rank, offer.signal(device.backend.ledger, lines))

    @contextlib.contextmanager
    def offered(self, device: Device, hellos: Sequence[Hello]) -> Iterator[str]:
        """Let the others open it meanwhile; the text is what they need."""
        pids = sorted({hello.pid for hello in hellos} - {hellos[0].pid})

        def offer(everyone: bool) -> Any:
            signal, ordinal = self._signal, device.ordinal
            return device.backend.offer_signal(HandleKind.NOTIFIES, signal, ordinal, len(hellos), everyone)

        with device.backend.make_handle(self, pids, offer, told=self._lines.values()) as handle:
            text = bytes(handle).decode()
            _here[text] = self._signal
            try:
                yield text
            finally:
                del _here[text]

    def has_left(self, rank: int) -> bool:
        """Tell whether a rank has closed its group."""
        return self._line(rank).recorded > 0

    def close(self) -> None:
        """Say that this rank leaves."""
        with contextlib.suppress(Closed):  # the node was left before
            self._line(self._rank)._record()

    def _line(self, rank: int) -> Notify:
        if rank not in self._lines:
            self._lines[rank] = self._device.backend.notify_line(
                self._device, NotifyKind.BINARY, self._signal, rank
            )
        return self._lines[rank]

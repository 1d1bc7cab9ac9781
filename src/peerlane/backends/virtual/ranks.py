"""The verbs for ranks of virtual devices: banks of shared memory, and calls of channels without a Python frame."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from peerlane import _core
from peerlane.backend.facts import HandleKind
from peerlane.backend.ranks import Lent, MailLane
from peerlane.backends.virtual.handle import VirtualHandle
from peerlane.backends.virtual.messages import sharing as sharing_messages
from peerlane.backends.virtual.node import schedule
from peerlane.backends.virtual.notify import VirtualNotifies, VirtualNotify
from peerlane.streams.notify import Notify, NotifyKind

if TYPE_CHECKING:
    from peerlane.node.device import Device
    from peerlane.sharing.handle import Allow
    from peerlane.streams.stream import Stream

C = TypeVar("C")

# Native code's numbers for the steps of a late delivery.
_STAGE, _DELIVER, _FENCE = 3, 4, 5


def _make(stream: Stream | None, step: _core.Notify) -> None:
    """Make a step of a late delivery when the stream reaches it; without a stream at once."""
    if stream is None:
        step._record()
    else:
        stream._record_notify(step)


class VirtualTurns:
    """A rank's part in the turns that its group takes under ``seeded``."""

    def __init__(self, turns: _core.Turns, rank: int) -> None:
        self._turns, self._rank, self._is_over = turns, rank, False

    def join(self, seconds: float) -> None:
        if schedule.lateness() == "seeded":
            self._turns.join(seconds)
        else:
            self._turns.decline()
            self._is_over = True

    def leave(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        why, about = self._turns.why
        schedule.report(self._rank, self._turns.steps, why, about)
        self._turns.leave()


class VirtualRanks:
    """The verbs of :class:`peerlane.backend.ranks.Ranks`.

    ``ledger``: returns the ledger of the process's node; Closed if that was left.
    """

    LATE_LINES = _core.LATE_LINES
    LATE_ENTRIES = _core.LATE_ENTRIES
    LATE_HEADER = _core.LATE_HEADER

    MESSAGE_RINGS = _core.MessageRings.RINGS
    MESSAGE_RINGS_BYTES = _core.MessageRings.BYTES
    MOST_OF_MESSAGE = _core.MessageRings.MOST_AT_ONCE

    far_start = staticmethod(_core.far_start)
    far_end = staticmethod(_core.FarEnd)
    far_deliver = staticmethod(_core.far_deliver)
    far_unreachable = staticmethod(_core.far_unreachable)
    message_rings = staticmethod(_core.MessageRings)
    process_copies = staticmethod(_core.ProcessCopies)
    process_memory = staticmethod(_core.ProcessMemory)
    file_pieces = staticmethod(_core.FilePieces)
    record = staticmethod(_core.Notify._record)
    record_on = staticmethod(_core.Stream._record_notify)
    log_channel = staticmethod(_core.ChannelEnd._log)
    serve_nothing = staticmethod(_core.ChannelEnd._serve_nothing)
    put = staticmethod(_core.put)
    get = staticmethod(_core.get)
    copy_blocks = staticmethod(_core.copy_blocks)
    lease = staticmethod(_core.Lease)
    watch = staticmethod(_core.members)
    lines_of_board = staticmethod(_core.WaitBoard.lines)
    board = staticmethod(_core.WaitBoard)
    late_area = staticmethod(_core.LateArea)
    undelivered = staticmethod(_core.Undelivered)
    deliver_at_waits = staticmethod(_core.Signal.expect)
    deliver_to = staticmethod(_core.Undelivered.deliver_to)
    await_all_to = staticmethod(_core.Undelivered.await_all_to)
    write_word = staticmethod(_core.submit_write_word)

    def __init__(self, ledger: Callable[[], _core.Ledger]) -> None:
        self._ledger = ledger

    ROUND_LINES = _core.ROUND_LINES
    bytes_of_rounds = staticmethod(_core.bytes_of_rounds)
    farewell = staticmethod(_core.Farewell)

    COLLECTIVES: ClassVar[tuple[str, ...]] = _core.COLLECTIVE_VERBS
    MESSAGES: ClassVar[tuple[str, ...]] = _core.MESSAGE_VERBS

    def group_call(self, maker: Any, name: str, method: Any, finish: Any, number_of: Any) -> Any:
        return functools.update_wrapper(_core.GroupCall(maker, name, method, finish, number_of), method)

    mails = staticmethod(_core.Mails)
    call_queue = staticmethod(_core.CallQueue)

    def add_mail(self, mails: Any, lane: MailLane, farewell: Any, /) -> None:
        must_yield = lane.size > len(os.sched_getaffinity(0))
        mails.add(
            *(lane.rank, lane.peer, lane.sends, lane.sent, lane.taken, lane.depth, lane.slots, lane.pid),
            *(farewell, must_yield),
        )

    barrier_neighbours = staticmethod(_core.barrier_neighbours)

    def rounds(self, rank: int, size: int, slots: Any, pids: Sequence[int], farewell: Any, /) -> _core.Rounds:
        return _core.Rounds(rank, size, slots, pids, farewell, len(os.sched_getaffinity(0)))

    def create_bank(self, lines: int) -> _core.Signal:
        return _core.Signal(self._ledger(), lines)

    def offer_bank(
        self,
        source: object,
        device: Device,
        bank: _core.Signal,
        count: int,
        allow: Allow,
        observed: Iterable[object] = (),
        /,
    ) -> VirtualHandle:
        def offer(pids: list[int] | None) -> Any:
            return device.backend.offer_signal(HandleKind.NOTIFIES, bank, device.ordinal, pids, count=count)

        return VirtualHandle._make(source, allow, offer, observed=observed)

    def open_bank(self, offer: _core.Offer, lines: int) -> _core.Signal:
        return offer.signal(self._ledger(), lines)

    def lines_of_notifies(self, kind: int, count: int) -> int:
        return _core.COMPLETION_LINES if kind == NotifyKind.FIFO else count

    def notifies(self, device: Device, kind: int, count: int, bank: _core.Signal | None) -> VirtualNotifies:
        return VirtualNotifies(device, NotifyKind(kind), count, bank)

    def line(self, device: Device, kind: int, bank: _core.Signal, index: int) -> Notify:
        return VirtualNotify._line(device, NotifyKind(kind), bank, index)

    def channel_type(self, neutral: type[C]) -> type[C]:
        served: type[C] = _served(neutral)  # type: ignore[arg-type]  # a class can be hashed
        return served

    def serve(
        self,
        channel: _core.ChannelEnd,
        window: _core.Memory | None,
        incoming: VirtualNotifies | None,
        outgoing: VirtualNotifies | None,
    ) -> None:
        _core.ChannelEnd.__init__(channel)
        channel._serve(window, incoming, outgoing)

    def serve_far(self, channel: _core.ChannelEnd, end: Any, window: int, nbytes: int, notifies: int) -> None:
        channel._serve_far(end, window, nbytes, notifies)

    def lease_in(self, bank: _core.Signal, line: int, number: int) -> _core.Lease:
        return _core.Lease(bank, line, number)

    def name_lease(self, lease: Any, lent: Lent) -> None:
        sharing_messages.lent[lease.id] = lent

    def forget_lease(self, lease: int) -> None:
        sharing_messages.lent.pop(lease, None)

    def end_waits_with(self, members: _core.Members, recorder: int, bank: _core.Signal) -> None:
        bank.belong_to(members, recorder)

    @property
    def lateness(self) -> str:
        return schedule.lateness()

    def stage(self, stream: Stream | None, undelivered: _core.Undelivered, entry: int) -> None:
        _make(stream, undelivered.step(_STAGE, entry))

    def record_staged(
        self, stream: Stream | None, notify: VirtualNotify, area: _core.LateArea, entry: int
    ) -> None:
        _make(stream, _core.Notify(notify, area, entry, True))

    def deliver_source(self, stream: Stream | None, undelivered: _core.Undelivered, source: int) -> None:
        _make(stream, undelivered.step(_DELIVER, source))

    def fence_staged(self, stream: Stream | None, undelivered: _core.Undelivered) -> None:
        _make(stream, undelivered.step(_FENCE, 0))

    def record_late(self, stream: Stream, notify: VirtualNotify, area: _core.LateArea, entry: int) -> None:
        stream._record_notify(_core.Notify(notify, area, entry, False))

    def turns(self, bank: _core.Signal, members: _core.Members, rank: int) -> VirtualTurns:
        return VirtualTurns(_core.Turns(bank, members, rank), rank)

    def follow(self, stream: Stream, before: Stream, operations: int) -> None:
        stream._wait_mark(before.record()._recorded("Channel"), 0, operations)


@functools.lru_cache
def _served(neutral: Any) -> Any:
    """Return the class of channels whose most frequent calls native code serves."""

    class Served(neutral, _core.ChannelEnd):  # type: ignore[misc]  # a class that is an argument
        pass

    for verb in _core.CHANNEL_VERBS:
        setattr(Served, verb, _fast_method(verb, getattr(neutral, verb)))
    Served.__name__, Served.__qualname__ = neutral.__name__, neutral.__qualname__
    Served.__module__, Served.__doc__ = neutral.__module__, neutral.__doc__
    return Served


def _fast_method(verb: str, method: Any) -> Any:
    return functools.update_wrapper(_core.QuickMethod(verb, method), method)

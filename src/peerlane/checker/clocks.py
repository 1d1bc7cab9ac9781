"""The differences between the clocks of several machines.

An effect is never earlier than its cause.  A record that is submitted on one machine and made on another bounds the
difference of their clocks from one side, and so does a message of a rendezvous.  Records and messages in the other
direction bound it from the other side.  Where one side is missing, the difference of the machines' times of day is
taken, moved inside the bound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from peerlane.diagnostics.log.log_files import FIRST_SHARED_KEY, LoggedEvent, ProcessLog

_MOST_POSTS = 4096  # of a key
_FAR = 1 << 62


@dataclass(frozen=True)
class Shift:
    """The difference between two clocks."""

    ns: int  #: how much later the times of the clock are on the first one
    error_ns: int | None  #: the largest error of ``ns``; None: ``ns`` rests on the times of day alone


def align(logs: Sequence[ProcessLog]) -> list[str]:
    """Shift the times of all logs to the clock of the first one; return a line of text for each other clock."""
    clocks = list(dict.fromkeys(log.clock for log in logs if log.clock))
    if len(clocks) < 2:
        return []
    notes = []
    for clock, shift in _shifts(logs, clocks).items():
        of = [log for log in logs if log.clock == clock]
        for log in of:
            log.shift_ns = shift.ns
        names = ", ".join(sorted({log.machine or log.name for log in of}))
        how = (
            "by the times of day alone"
            if shift.error_ns is None
            else f"right to {shift.error_ns / 1000:,.0f} us, by what came before what"
        )
        notes.append(f"the times of {names} are shifted by {shift.ns / 1e9:.6f} s, {how}")
    return notes


def _shifts(logs: Sequence[ProcessLog], clocks: Sequence[int]) -> dict[int, Shift]:
    """Return the shift of each clock but the first."""
    least: defaultdict[tuple[int, int], int] = defaultdict(lambda: -_FAR)
    for earlier, earlier_ns, later, later_ns in _causes(logs):
        # later_ns + shift of `later` is not before earlier_ns + shift of `earlier`.
        least[later, earlier] = max(least[later, earlier], earlier_ns - later_ns)
    epochs = {log.clock: log.since_epoch_ns for log in reversed(logs)}
    first = clocks[0]
    shifts = {first: Shift(0, 0)}
    while len(shifts) < len(clocks):
        candidates = []
        for clock in (each for each in clocks if each not in shifts):
            for known, base in shifts.items():
                low, high = base.ns + least[clock, known], base.ns - least[known, clock]
                candidates.append((high - low, clock, known, low, high))
        width, clock, known, low, high = min(candidates)
        guess = epochs[clock] - epochs[first]
        if width < _FAR and shifts[known].error_ns is not None:
            shifts[clock] = Shift((low + high) // 2, abs(width) // 2 + (shifts[known].error_ns or 0))
        else:
            shifts[clock] = Shift(max(low, min(guess, high)), None)
    del shifts[first]
    return shifts


def _causes(logs: Sequence[ProcessLog]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the clock and time of a cause and those of its effect, for pairs of events on different clocks."""
    submitted: dict[tuple[int, int, int], tuple[int, int]] = {}
    recorded: dict[tuple[int, int, int], tuple[int, int]] = {}
    posts: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    takes: list[tuple[tuple[int, int], int, int, int]] = []
    for log in logs:
        for event in log.events():
            a, b, c, _ = event.words
            at = log.clock, event.time_ns
            if event.kind == "notify" and a and not c:
                submitted[a, event.stream, event.sequence] = at
            elif event.kind == "came":
                recorded[a, b, c] = at
            elif event.kind == "post" and _is_shared(event) and not c and len(posts[a, b]) < _MOST_POSTS:
                posts[a, b].append(at)
            elif event.kind == "take" and _is_shared(event) and 0 < c < _MOST_POSTS:
                takes.append(((a, b), c, *at))
    for record, (clock, time_ns) in recorded.items():
        if record in submitted and submitted[record][0] != clock:
            yield *submitted[record], clock, time_ns
    counts = Counter({key: len(each) for key, each in posts.items()})
    for key, wanted, clock, time_ns in takes:
        if counts[key] == wanted:  # all of them came before
            for earlier, earlier_ns in posts[key]:
                if earlier != clock:
                    yield earlier, earlier_ns, clock, time_ns


def _is_shared(event: LoggedEvent) -> bool:
    return event.words[0] >= FIRST_SHARED_KEY

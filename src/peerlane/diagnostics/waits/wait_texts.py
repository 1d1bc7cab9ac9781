"""All texts about waiting streams, threads and ranks."""

from __future__ import annotations

from collections.abc import Sequence

from peerlane.errors import FailedBefore, PastOperation, RankWait, StreamWait, ThreadWait, WaitState

_MOST_SHOWN = 16  # streams, threads or failures that a text names


class Words:
    """The names of streams and notifies in texts; a dialect with numbers of its own overrides them."""

    def stream(self, number: int) -> str:
        """Return the name of a stream that is waited for."""
        return f"stream {number}"

    def waiter(self, wait: StreamWait) -> str:
        """Return the name of a stream that waits, with its present operation."""
        return f"stream {wait.stream} at operation {wait.operation}"

    def queued(self, wait: StreamWait) -> str:
        """Return how many operations are queued, and the line that submitted the wait."""
        at = f", submitted at {wait.submitted_at}" if wait.submitted_at and wait.what else ""
        return f"{wait.queued:,} queued{at}"

    def notify(self, number: int, name: str = "") -> str:
        """Return the name of a notify."""
        return name or f"notify {number}"


NEUTRAL = Words()


def waits(state: WaitState, words: Words = NEUTRAL) -> str:
    """Return a text with the waits of `state.streams`, in their order, up to a number of streams."""
    shown = [_wait(each, words) for each in state.streams[:_MOST_SHOWN]]
    more = len(state.streams) - len(shown)
    if more > 0:
        shown.append(f"and {more:,} more streams")
    return "; ".join(shown) or "no stream has anything queued"


def _wait(wait: StreamWait, words: Words) -> str:
    match wait.what:
        case "record":
            reason = f"waits for operation {wait.awaited_operation} of {words.stream(wait.awaited_stream)}"
        case "notify":
            reason = f"waits for {words.notify(wait.notify, wait.notify_name)}"
        case "callback":
            reason = "waits for its callback to return"
        case "value":
            reason = "waits for a word of memory to change"
        case "group":
            reason = "waits for the other streams of its group"
        case _:
            reason = "is running or can run"
    return f"{words.waiter(wait)} {reason} ({words.queued(wait)})"


def reason(subject: str, state: WaitState, words: Words = NEUTRAL) -> str:
    """Return the reason why a wait for ``subject`` ended."""
    match state.why:
        case "circle":
            return _circle(state, words)
        case "callback":
            return f"a callback would wait for itself: {words.stream(state.stream)} goes on only when it has returned"
        case "never":
            return _never(state, words)
    end = "would never be done" if state.seconds is None else f"was not done after {state.seconds:g} s"
    return f"{subject} {end}: {waits(state, words)}"


def _circle(state: WaitState, words: Words) -> str:
    return (
        f"{words.stream(state.stream)} waits for itself, and no submitted operation ends that: "
        f"{waits(state, words)}{''.join(f'; {failure(each, words)}' for each in state.failed[:_MOST_SHOWN])}"
        f"{''.join(past(state.streams, words))}"
    )


def _never(state: WaitState, words: Words) -> str:
    threads = [f"\n  {thread(each, words)}" for each in state.threads[:_MOST_SHOWN]]
    streams = [f"\n  {_wait(each, words)}" for each in state.streams[:_MOST_SHOWN]]
    failed = [f"\n  {failure(each, words)}" for each in state.failed[:_MOST_SHOWN]]
    notifies = {each.notify: each.notify_name for each in state.streams if each.what == "notify"}
    named = [words.notify(*each) for each in list(notifies.items())[:_MOST_SHOWN]]
    which = f"{', '.join(named[:-1])} or {named[-1]}" if len(named) > 1 else "".join(named)
    lacks, what = f"records {which}", "record"
    if not notifies and any(each.what == "value" for each in state.streams):
        lacks, what = "writes the word of memory that is waited for", "write"
    return (
        f"a deadlock: every thread of this process waits, and no submitted operation {lacks}. Submit the "
        f"{what} before the wait, or wait with a timeout."
        f"{''.join([*threads, *streams, *failed, *past(state.streams, words)])}"
    )


def past(waits: Sequence[StreamWait], words: Words = NEUTRAL) -> list[str]:
    """Return lines with what the event log has of streams before they waited, and of what they wait for."""
    lines: dict[str, None] = {}
    for wait in waits[:_MOST_SHOWN]:
        if wait.before:
            operations = ", ".join(
                f"{each.kind.replace('_', ' ')} at {_line_of(each)}" for each in wait.before
            )
            lines[f"\n  before that {words.stream(wait.stream)} was given: {operations}"] = None
        if wait.of_awaited and wait.what == "record":
            (record,) = wait.of_awaited
            of = words.stream(wait.awaited_stream)
            lines[f"\n  operation {wait.awaited_operation} of {of} is a record at {_line_of(record)}"] = None
        elif wait.of_awaited:
            used = ", ".join(_use(each, words) for each in wait.of_awaited)
            lines[f"\n  the last uses of {words.notify(wait.notify, wait.notify_name)}: {used}"] = None
    return list(lines)


def _use(use: PastOperation, words: Words) -> str:
    verb = "recorded" if use.kind == "notify" else "waited for"
    by = f"{words.stream(use.stream)}, operation {use.operation}" if use.stream else "the host"
    return f"{verb} at {_line_of(use)} ({by})"


def _line_of(of: PastOperation) -> str:
    return of.place or "an unknown line"


def thread(wait: ThreadWait, words: Words = NEUTRAL) -> str:
    """Return a text with the line at which a thread waits, and the stream."""
    return f"{_thread_at(wait)} waits for {words.stream(wait.stream)}"


def _thread_at(wait: ThreadWait) -> str:
    return f"{wait.thread} at {wait.place}" if wait.place else wait.thread


def rank_wait(wait: RankWait) -> str:
    """Return a text with what a rank waits for, and the callers."""
    callers = dict.fromkeys(caller for each in wait.threads for caller in each.callers)
    return _rank_wait(wait) + (f"; called at {', '.join(callers)}" if callers else "")


def _rank_wait(wait: RankWait) -> str:
    who = " and ".join(_thread_at(each) for each in wait.threads)
    waits = f"{who} wait{'s' if len(wait.threads) == 1 else ''}" if who else "a stream waits"
    match wait.kind:
        case "collective":
            calls = " and ".join(dict.fromkeys(each.call for each in wait.threads if each.call)) or wait.call
            return f"{waits} in {calls or 'a collective'} for rank {wait.peer}{_submitted(wait)}"
        case "channel":
            return f"{waits} for rank {wait.peer}, which should make its end of a channel ({wait.call})"
        case "group":
            return f"{waits} for rank {wait.peer}, which should join group {wait.what!r} ({wait.call})"
        case "barrier" | "gather":
            who = ranks(wait.awaited) or "a rank"
            return f"{waits} for {who} to come to {wait.kind} {wait.what!r} of the rendezvous ({wait.call})"
        case "key":
            who = ranks(wait.awaited, "or") or "another rank"
            return f"{waits} for {who} to put {wait.what!r} at the rendezvous ({wait.call})"
    of = f" of group {wait.group!r}" if wait.group else ""
    duty = f", which rank {wait.peer} should record{of}" if wait.peer >= 0 else ""
    submitted = _submitted(wait)
    return f"{waits} for {wait.what}{duty} (stream {wait.stream}, operation {wait.operation}{submitted})"


def _submitted(wait: RankWait) -> str:
    is_news = wait.submitted_at and wait.submitted_at not in [each.place for each in wait.threads]
    return f", submitted at {wait.submitted_at}" if is_news else ""


def ranks(numbers: Sequence[int], word: str = "and") -> str:
    """Name some ranks; the first of them, if they are many."""
    shown, more = [str(each) for each in numbers[:_MOST_SHOWN]], len(numbers) - _MOST_SHOWN
    if more > 0:
        shown.append(f"{more:,} more")
    last = "".join(shown[-1:])
    return (
        f"ranks {', '.join(shown[:-1])} {word} {last}" if len(shown) > 1 else f"rank {last}" if last else ""
    )


def in_vain(numbers: Sequence[int], of: str = "") -> str:
    """Say that some ranks, ``of`` a group, wait in vain."""
    return f"{ranks(numbers)}{of} wait{'s' if len(numbers) == 1 else ''} in vain"


def failure(failed: FailedBefore, words: Words = NEUTRAL) -> str:
    """Return a text with an earlier failure."""
    at = f", submitted at {failed.submitted_at}," if failed.submitted_at else ""
    fate = "a synchronization reported it" if failed.was_reported else "nobody synchronized it"
    return (
        f"{words.stream(failed.stream)} failed before, and {fate}: operation {failed.operation} "
        f"({failed.kind}){at} failed: {failed.why}"
    )

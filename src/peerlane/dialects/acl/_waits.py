"""Waits of threads for streams and events, and the texts of waits that took too long."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from peerlane import Event, Stream
from peerlane.diagnostics.waits import wait_texts
from peerlane.dialects._shared.machine import Resource
from peerlane.dialects.acl._report import LOOKS_AGAIN, Callback, Report, blocking
from peerlane.dialects.acl._state import machine
from peerlane.errors import Error, StreamWait, WaitState, WaitTimeout

_SLICE = 0.4  # seconds; a wait of less than 0.25 s never looks whether it is in vain
_PATIENCE = (
    1.0  # seconds after the end of a thread before a wait ends: the stream may be about to be unsubscribed
)


def callbacks_block() -> bool:
    """Tell whether any stream waits, or will wait, for a callback."""
    return bool(blocking)


class Patience:
    """How long threads that run callbacks have been gone: after one second their waiters give up."""

    def __init__(self) -> None:
        self._since: dict[Report, float] = {}

    def look(self) -> None:
        """Look at every thread that some stream waits for."""
        found = (each() for each in blocking.valuerefs())
        for report in {each.report for each in found if each is not None}:
            if report.is_served():
                self._since.pop(report, None)
            else:
                self._since.setdefault(report, time.monotonic())

    def is_over(self, report: Report) -> bool:
        """Tell whether its thread has been gone for so long that waits end."""
        since = self._since.get(report)
        return since is not None and time.monotonic() - since >= _PATIENCE

    @property
    def next_look(self) -> float:
        """Seconds before the first look: 0 when some thread was waited for long enough."""
        return 0.0 if any(map(self.is_over, self._since)) else LOOKS_AGAIN


def wait_while_served(waited_for: Stream | Event, timeout: float | None, patience: Patience) -> None:
    """Wait as its ``sync`` does; without a timeout, only while the threads live that run the callbacks it waits for.

    These are blocking callbacks, also behind events; a callback that was launched later does not count.  Raises
    WaitTimeout too when such a thread has ended.
    """
    if timeout is not None or not callbacks_block():
        waited_for.sync(timeout)
        return
    last = waited_for.submitted if isinstance(waited_for, Stream) else None
    seconds = patience.next_look
    while True:
        try:
            waited_for.sync(seconds)
        except WaitTimeout as error:
            if error.call not in ("Stream.sync", "Event.sync"):  # an operation's own timeout
                raise
            if isinstance(waited_for, Stream) and waited_for.completed >= (last or 0):
                waited_for._report()  # others submit all the time, and sync() counts anew
                return
            latest = error
        else:
            return
        patience.look()
        state = latest.detail
        culprit = blocking.get(state.notify_in_the_way())
        if culprit is not None and patience.is_over(culprit.report):
            break
        seconds = _SLICE
    raise WaitTimeout(
        str(latest), call=latest.call, device=latest.device, detail=replace(state, seconds=None)
    )


def explain_wait(error: WaitTimeout, waited_for: Resource) -> tuple[str, str]:
    """Return the streams and what they wait for, in the program's numbers, and what to do."""
    names, missed = _Names(waited_for), error.detail.notify_in_the_way()
    remedy = "wait longer, or look at why the stream does not go on"
    callback, notify = blocking.get(missed), names.notifies.get(missed)
    if callback is not None:
        thread = callback.report.thread
        if callback.report.is_served():
            remedy = f"let thread {thread} call acl.rt.process_report in a loop, or wait longer"
        else:
            number = callback.subscription.number
            remedy = (
                f"call acl.rt.unsubscribe_report({thread}, {number:#x}) or acl.rt.destroy_stream({number:#x}), which "
                "drop what that thread did not call, and subscribe one that lives"
            )
    elif notify is not None:
        remedy = f"record it with acl.rt.record_notify({notify.handle:#x}, stream), or wait longer"
    elif (event := names.event_of(missed)) is not None and event.awaited(missed) == "the next record":
        remedy = f"record it with acl.rt.record_event({event.handle:#x}, stream), or wait longer"
    return wait_texts.reason(names.subject(error.detail), error.detail, names), remedy


def in_own_numbers(error: Error, waited_for: Resource) -> Error:
    """Return an error that names streams and notifies as explain_wait does."""
    if not isinstance(error.detail, WaitState):
        return error
    names = _Names(waited_for)
    return error.retold(wait_texts.reason(names.subject(error.detail), error.detail, names))


class _Names(wait_texts.Words):
    """The program's names of streams and notifies that records name by their ids.

    Attributes
    ----------
    notifies : dict of int to AclNotify
    """

    def __init__(self, waited_for: Resource) -> None:
        with machine.lock:
            things: list[Any] = list(machine.resources.values())
        self._waited_for = waited_for
        self._streams = {each.neutral.id: each for each in (*things, waited_for) if each.name == "stream"}
        self._events = [each for each in things if each.name == "event"]
        self.notifies = {each.neutral.id: each for each in things if each.name == "notify"}

    def subject(self, state: WaitState) -> str:
        """Name the stream or event that the program waits for."""
        where = f" (recorded as operation {state.operation} of {self.stream(state.stream)})"
        return f"{self._waited_for.name} {self._waited_for.handle:#x}{where if state.operation else ''}"

    def stream(self, number: int) -> str:
        """Name a stream that is waited for."""
        stream = self._streams.get(number)
        return f"stream {stream.handle:#x}" if stream is not None else f"a destroyed stream, id {number},"

    def waiter(self, wait: StreamWait) -> str:
        """Name a stream that waits, where it was made, and which line let it wait."""
        stream = self._streams.get(wait.stream)
        made = ""
        if stream is not None and stream is not self._waited_for and stream.created_at:
            made = f", made at {stream.created_at},"
        said = (
            wait.submitted_at if wait.what and wait.notify not in blocking else ""
        )  # a callback says its own line
        at = f" (submitted at {said})" if said else ""
        return f"{self.stream(wait.stream)}{made} at operation {wait.operation}{at}"

    def queued(self, wait: StreamWait) -> str:
        """Say how much is queued; the line of the wait is said with the stream."""
        return f"{wait.queued:,} queued"

    def notify(self, number: int, name: str = "") -> str:
        """Name a notify, or what it stands for."""
        callback: Callback | None = blocking.get(number)
        if callback is not None:
            end = "" if callback.report.is_served() else ", which has ended"
            return f"a callback that thread {callback.report.thread} runs{end}: {callback.name}"
        if number in self.notifies:
            return _with_site(self.notifies[number])
        event = self.event_of(number)
        if event is None:
            return "an object that was destroyed"
        return f"{event.awaited(number)} of {_with_site(event)}"

    def event_of(self, notify: int) -> Any:
        """Return the event whose next record a notify stands for, if it is one of these."""
        return next((each for each in self._events if each.awaited(notify)), None)


def _with_site(thing: Resource) -> str:
    made = f", made at {thing.created_at}" if thing.created_at else ""
    return f"{thing.name} {thing.handle:#x}{made}"

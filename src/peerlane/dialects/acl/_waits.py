"""Waits of threads for streams and events, and the messages of waits that took too long."""

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
_PATIENCE = 1.0  # seconds from a thread's end to the end of waits for it: the stream may yet be unsubscribed


def callbacks_block() -> bool:
    """Tell whether any stream waits, or will wait, for a callback."""
    return bool(blocking)


class Patience:
    """The time since threads that run callbacks ended: one second later, waits for their callbacks end."""

    def __init__(self) -> None:
        self._since: dict[Report, float] = {}

    def look(self) -> None:
        """Note which threads that streams wait for have ended."""
        callbacks = (each() for each in blocking.valuerefs())
        for report in {each.report for each in callbacks if each is not None}:
            if report.is_served():
                self._since.pop(report, None)
            else:
                self._since.setdefault(report, time.monotonic())

    def is_over(self, report: Report) -> bool:
        """Tell whether the thread ended so long ago that waits for it end."""
        since = self._since.get(report)
        return since is not None and time.monotonic() - since >= _PATIENCE

    @property
    def next_look(self) -> float:
        """Seconds to wait before the first look: 0 if the patience with some thread is over."""
        return 0.0 if any(map(self.is_over, self._since)) else LOOKS_AGAIN


def wait_while_served(waited_for: Stream | Event, timeout: float | None, patience: Patience) -> None:
    """Wait as the object's ``sync`` does; without a timeout, end the wait when it cannot succeed.

    It cannot if it needs a blocking callback whose thread has ended, directly or behind events: WaitTimeout then.
    Callbacks that are launched during the wait do not count.
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
                waited_for._report()  # sync() would wait for what other threads submitted meanwhile
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
    """Return the cause of a wait that timed out, with the program's handles, and the remedy."""
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
    """Return an error that names streams and notifies by the program's handles."""
    if not isinstance(error.detail, WaitState):
        return error
    names = _Names(waited_for)
    return error.retold(wait_texts.reason(names.subject(error.detail), error.detail, names))


class _Names(wait_texts.Words):
    """The program's names of streams and notifies, which the state of a wait has by their ids."""

    def __init__(self, waited_for: Resource) -> None:
        with machine.lock:
            resources: list[Any] = list(machine.resources.values())
        self._waited_for = waited_for
        self._streams = {each.neutral.id: each for each in (*resources, waited_for) if each.name == "stream"}
        self._events = [each for each in resources if each.name == "event"]
        self.notifies = {each.neutral.id: each for each in resources if each.name == "notify"}

    def subject(self, state: WaitState) -> str:
        """Name the stream or event that the program waits for."""
        where = f" (recorded as operation {state.operation} of {self.stream(state.stream)})"
        return f"{self._waited_for.name} {self._waited_for.handle:#x}{where if state.operation else ''}"

    def stream(self, number: int) -> str:
        """Name a stream that is waited for."""
        stream = self._streams.get(number)
        return f"stream {stream.handle:#x}" if stream is not None else f"a destroyed stream, id {number},"

    def waiter(self, wait: StreamWait) -> str:
        """Name a stream that waits, with the line that made it and the line that submitted the wait."""
        stream = self._streams.get(wait.stream)
        site = ""
        if stream is not None and stream is not self._waited_for and stream.created_at:
            site = f", made at {stream.created_at},"
        # The name of a callback has its own line.
        submitted_at = wait.submitted_at if wait.what and wait.notify not in blocking else ""
        at = f" (submitted at {submitted_at})" if submitted_at else ""
        return f"{self.stream(wait.stream)}{site} at operation {wait.operation}{at}"

    def queued(self, wait: StreamWait) -> str:
        """Return how much is queued; :meth:`waiter` has the line of the wait."""
        return f"{wait.queued:,} queued"

    def notify(self, number: int, name: str = "") -> str:
        """Name a notify, or the callback or event record that it stands for."""
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
        """Return the event whose next record a notify stands for; None for another notify."""
        return next((each for each in self._events if each.awaited(notify)), None)


def _with_site(resource: Resource) -> str:
    site = f", made at {resource.created_at}" if resource.created_at else ""
    return f"{resource.name} {resource.handle:#x}{site}"

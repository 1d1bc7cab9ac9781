"""Callbacks in stream order that a thread of the program runs, by calling ``process_report``.

A stream marks the place of a callback with an event; one that blocks it waits behind that for a notify, which is
recorded when the callback has returned.  So nothing native ever calls Python.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peerlane import Event, Notify, Stream
from peerlane.dialects._call import Refusal
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import machine, messages, swallow
from peerlane.errors import Cancelled, Error, WaitTimeout

MOST_THREADS = 1024
_TASKS = Path("/proc/self/task")
_NOTIFY = re.compile(r"waits for notify (\d+)")
_SUBJECT = re.compile(r"stream (\d+)(?: on|, )")
_LINK = re.compile(r"stream (\d+) at operation \d+ waits for (?:operation \d+ of stream (\d+)|notify (\d+))")
_LOOKS_AGAIN = 0.1  # seconds, for whether the thread that is waited for has ended
_PATIENCE = 1.0  # seconds that it is not there before a wait ends: it may be about to be unsubscribed

# By the number of the notify that a stream waits for: who runs the callback.
_blocking: weakref.WeakValueDictionary[int, Report] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class _Callback:
    reached: Event
    returned: Notify | None
    function: Callable[[Any], object]
    user_data: object

    @property
    def is_blocking(self) -> bool:
        return self.returned is not None

    def run(self) -> None:
        """Call, unless what was before it was cancelled; what it raises becomes a message of this thread."""
        try:
            self.reached.sync(0)
            self.function(self.user_data)
        except Cancelled:
            pass
        except BaseException as error:  # noqa: BLE001 - SystemExit would end the thread that streams wait for
            name = getattr(self.function, "__qualname__", repr(self.function))
            swallow(error, f"the callback {name}")
        finally:
            self.release()

    def release(self) -> None:
        """Let the stream go on."""
        if self.returned is not None:
            _blocking.pop(self.returned.id, None)
            with contextlib.suppress(Error):  # the node was left
                self.returned.record()


class Subscription:
    """The callbacks of one stream, for one thread."""

    def __init__(self, report: Report, stream: Stream) -> None:
        self.report = report
        self._stream = stream
        self._pending: deque[_Callback] = deque()
        self._running: _Callback | None = None
        self._lock = threading.RLock()  # an object's __del__ may call back into this
        self.has_ended = False

    def launch(self, function: Callable[[Any], object], user_data: object, *, blocks: bool) -> None:
        """Queue a callback."""
        with self._lock:
            returned = self._stream.device.create_notify() if blocks else None
            if returned is not None:
                returned.promise()  # also a callback that is not called lets its stream go on
            self._pending.append(_Callback(self._stream.record(), returned, function, user_data))
            if returned is not None:
                self._stream.wait(returned)
                _blocking[returned.id] = self.report
        self.report.wake()

    def run_next(self) -> bool:
        """Run the oldest callback if the stream has reached it."""
        with self._lock:
            if not self._pending or not self._pending[0].reached.is_done:
                return False
            self._running = self._pending.popleft()
        try:
            self._running.run()
        finally:
            self._running = None
        return True

    def next_event(self) -> Event | None:
        """Return what the oldest callback waits for."""
        with self._lock:
            return self._pending[0].reached if self._pending else None

    def refuse_own_wait(self) -> None:
        """Refuse a wait for the stream by the only thread that could end it."""
        if not self.report.is_mine() or self._stream.is_done:
            return
        if self._blocks():
            raise Refusal(
                Code.RT_STREAM_SYNC_TIMEOUT,
                f"stream {self._stream.id} waits for a callback that only this thread runs, and this thread would "
                "wait for the stream",
                "call acl.rt.process_report first, or synchronize in another thread; not in a callback",
            )

    def end(self, *, wait: bool) -> None:
        """Take no more; what another living thread will run stays.

        ``wait``: the stream ends too, so wait for what blocks it; called in its own callback, let it go on.
        """
        self.has_ended = True
        if wait:
            self._stream.close(wait=False)  # from now on waits that nothing would end are cancelled
        try:
            while wait and self.report.is_served_elsewhere() and self._blocks():
                try:
                    self._stream.sync(_LOOKS_AGAIN)
                except WaitTimeout as error:
                    if error.call != "Stream.sync":  # an operation's own timeout
                        raise
                else:
                    break
        finally:
            if not self.report.is_served_elsewhere():
                self._abandon()
                if wait and self._running is not None:
                    self._running.release()
            self.report.forget(self)

    def _blocks(self) -> bool:
        with self._lock:
            return any(each.is_blocking for each in (*self._pending, self._running) if each is not None)

    def _abandon(self) -> None:
        with self._lock:
            left = list(self._pending)
            self._pending.clear()
        for callback in left:
            callback.release()
        if left:
            messages.add(
                f"E19999: {len(left)} callbacks of stream {self._stream.id} were not called: it was destroyed or "
                f"unsubscribed, and thread {self.report.thread}, which runs them, is this one or has ended"
            )


class Report:
    """What one thread has to run: the one that had the number when this was made, and none that gets it later.

    Attributes
    ----------
    thread : int
        Its ``threading.get_ident()``.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread
        number = _number_of(thread)
        # A thread of _thread.start_new_thread may not run yet.
        self._numbers = {int(task.name) for task in _TASKS.iterdir()} if number is None else {number}
        self._subscriptions: list[Subscription] = []
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # A thread may sleep on it until the interpreter has gone.
        weakref.finalize(self, os.close, self._bell).atexit = False

    def subscribe(self, stream: Stream) -> Subscription:
        """Add a stream."""
        made = Subscription(self, stream)
        self._subscriptions.append(made)
        return made

    def forget(self, subscription: Subscription) -> None:
        """Let a subscription that has ended go, once it has nothing left; the last takes this with it."""
        with machine.lock:
            if subscription.next_event() is None and subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
            if not self._subscriptions and machine.reports.get(self.thread) is self:
                del machine.reports[self.thread]
        self.wake()

    @property
    def devices(self) -> set[int]:
        """The devices of its streams."""
        return {each._stream.device.ordinal for each in self._subscriptions}

    @property
    def is_subscribed(self) -> bool:
        """Whether any stream may still give it something."""
        return bool(self._subscriptions)

    def is_mine(self) -> bool:
        """Tell whether its thread is this one."""
        return self.thread == threading.get_ident() and threading.get_native_id() in self._numbers

    def is_served_elsewhere(self) -> bool:
        """Tell whether its thread lives, and is not this one."""
        return self.thread != threading.get_ident() and self.is_served()

    def is_served(self) -> bool:
        """Tell whether its thread lives."""
        return _number_of(self.thread) in self._numbers

    def wake(self) -> None:
        """Let the thread look again."""
        os.eventfd_write(self._bell, 1)

    def process(self, timeout: float | None) -> bool:
        """Run what streams have reached, waiting for the first; False when nothing came in time.

        Called by the thread itself.  Ctrl-C is seen at once.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._subscriptions:
            ran = False
            for subscription in list(self._subscriptions):
                while subscription.run_next():
                    ran = True
                if subscription.has_ended:
                    self.forget(subscription)
            if ran:
                return True
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._sleep(left)
        return False

    def _sleep(self, seconds: float | None) -> None:
        poll = select.poll()  # select() has no room for descriptors above 1,023
        poll.register(self._bell, select.POLLIN)
        waited_for = [event for each in self._subscriptions if (event := each.next_event()) is not None]
        for event in waited_for:
            poll.register(event.fileno(), select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)


def report_of(thread: int) -> Report | None:
    """Return what the thread that has this number now has to run, if a stream is subscribed to it."""
    found: Report | None = machine.reports.get(thread)
    if found is None or found.is_served() or _number_of(thread) is None:
        return found
    return None


def callbacks_block() -> bool:
    """Tell whether any stream waits, or will wait, for a callback."""
    return bool(_blocking)


class Patience:
    """For how long threads that run callbacks have been seen to have ended: one second for all that wait for them."""

    def __init__(self) -> None:
        self._since: dict[Report, float] = {}

    def look(self) -> None:
        """Look at every thread that some stream waits for."""
        blocking = {report for each in _blocking.valuerefs() if (report := each()) is not None}
        for report in blocking:
            if report.is_served():
                self._since.pop(report, None)
            else:
                self._since.setdefault(report, time.monotonic())

    def is_over(self, report: Report) -> bool:
        """Tell whether its thread has been gone for so long that nobody waits any more."""
        since = self._since.get(report)
        return since is not None and time.monotonic() - since >= _PATIENCE

    @property
    def next_look(self) -> float:
        """After how many seconds to look first: at once when some thread was waited for long enough."""
        return 0.0 if any(map(self.is_over, self._since)) else _LOOKS_AGAIN


def wait_while_served(waited_for: Stream | Event, timeout: float | None, patience: Patience) -> None:
    """Wait as its ``sync`` does; without a timeout, only as long as the threads live that run what it waits for.

    What it waits for is a blocking callback, or events behind one; one that was launched later does not count.
    Raises WaitTimeout too when such a thread has ended.
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
        report = _waited_for(latest)
        if report is not None and patience.is_over(report):
            break
        seconds = _LOOKS_AGAIN
    text = re.sub(r"was not done after \S+ s:", "would never be done:", str(latest), count=1)
    raise WaitTimeout(text, call=latest.call, device=latest.device)


def _waited_for(error: WaitTimeout) -> Report | None:
    """Return who runs the callback that was waited for, if it was one; the text names other streams too."""
    links = {found[1]: found for found in _LINK.finditer(str(error))}
    subject = _SUBJECT.search(str(error))
    link = links.pop(subject[1], None) if subject else None
    while link is not None and link[3] is None:
        link = links.pop(link[2], None)
    return _blocking.get(int(link[3])) if link is not None else None


def explain_wait(error: WaitTimeout) -> tuple[str, str]:
    """Return who waits for what, callbacks and the threads that run them named, and what to do."""
    remedy = "wait longer, or look at why the stream does not go on"

    def name(found: re.Match[str]) -> str:
        nonlocal remedy
        report = _blocking.get(int(found[1]))
        if report is None:
            return found[0]
        thread = report.thread
        if report.is_served():
            remedy = f"let thread {thread} call acl.rt.process_report in a loop, or wait longer"
            return f"waits for a callback that thread {thread} runs"
        remedy = (
            f"call acl.rt.unsubscribe_report({thread}, stream) or acl.rt.destroy_stream, which drop what that thread "
            "did not call, and subscribe one that lives"
        )
        return f"waits for a callback that thread {thread} runs, which has ended"

    return _NOTIFY.sub(name, str(error)), remedy


def _number_of(thread: int) -> int | None:
    """Return the system's number of a living thread, which is not given to the next one as the ident is."""
    if thread == threading.get_ident():
        return threading.get_native_id()
    if thread not in sys._current_frames():
        return None  # asking for the clock of an ended thread may crash
    return ~(time.pthread_getcpuclockid(thread) >> 3)  # Linux makes a thread's clock of its number

"""Callbacks in stream order that a thread of the program runs, by calling ``process_report``.

An event in the stream marks the position of a callback.  If the callback blocks the stream, the stream waits behind
the event for a notify, which the thread records after the callback.  So no native thread calls Python.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peerlane import Event, Notify, Stream
from peerlane.diagnostics import call_site
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import laid_out, machine, messages, swallow
from peerlane.errors import Cancelled, Error, WaitTimeout
from peerlane.streams import callbacks
from peerlane.support.timeouts import slices

MOST_THREADS = 1024
_TASKS = Path("/proc/self/task")
LOOKS_AGAIN = 0.1  # seconds between looks whether a thread has ended
_MOST_SHOWN = 3  # callbacks that a message names

# By the id of the notify that a stream waits for.
blocking: weakref.WeakValueDictionary[int, Callback] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class Callback:
    """A callback that was launched."""

    subscription: Subscription
    reached: Event
    returned: Notify | None  #: the notify that its stream waits for; None if the stream does not wait
    function: Callable[[Any], object]
    user_data: object
    position: call_site.Position | None  #: the frame that launched it

    @property
    def report(self) -> Report:
        """The thread that runs it."""
        return self.subscription.report

    @property
    def name(self) -> str:
        """The name of the function, and the line that launched it."""
        site = call_site.at(self.position)
        return callbacks.named(self.function) + (f", launched at {site}" if site else "")

    @property
    def is_blocking(self) -> bool:
        """Whether its stream waits for its return."""
        return self.returned is not None

    def run(self) -> None:
        """Call the function, unless earlier work was cancelled; its exception becomes a message of this thread."""
        try:
            self.reached.sync(0)
            self.function(self.user_data)
        except Cancelled:
            pass
        except BaseException as error:  # noqa: BLE001 - SystemExit would end the thread that streams wait for
            site = call_site.at(self.position)
            swallow(
                error,
                f"the callback {callbacks.named(self.function)}",
                f"it {f'was launched at {site} on' if site else 'is of'} {self.subscription.stream}, which goes on",
                "catch in the callback what may be raised there: no call returns it",
            )
        finally:
            self.release()

    def release(self) -> None:
        """Let the stream go on."""
        if self.returned is not None:
            blocking.pop(self.returned.id, None)
            with contextlib.suppress(Error):  # the node was left
                self.returned.record()


class Subscription:
    """The callbacks of one stream, for one thread."""

    def __init__(self, report: Report, stream: Stream, number: int, words: str) -> None:
        self.report = report  #: the thread that runs them
        #: ``number``: the handle of the stream.
        #: ``stream``: the stream in messages.
        self.number, self.stream = number, words
        self._stream = stream
        self._pending: deque[Callback] = deque()
        self._running: Callback | None = None
        self._lock = threading.RLock()  # an object's __del__ may call back into this
        self.has_ended = False  #: whether it takes no more callbacks

    def launch(self, function: Callable[[Any], object], user_data: object, *, blocks: bool) -> None:
        """Queue a callback."""
        position = call_site.position()
        with self._lock:
            returned = self._stream.device.create_notify() if blocks else None
            if returned is not None:
                returned.promise()  # the stream goes on even if the callback is never called
            launched = Callback(self, self._stream.record(), returned, function, user_data, position)
            self._pending.append(launched)
            if returned is not None:
                self._stream.wait(returned)
                blocking[returned.id] = launched
        self.report.wake()

    def run_next(self) -> bool:
        """Run the oldest callback if the stream has reached it; tell whether it has."""
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
        """Return the event that the oldest callback waits for."""
        with self._lock:
            return self._pending[0].reached if self._pending else None

    def refuse_own_wait(self) -> None:
        """Refuse a wait for the stream in the thread whose callback the stream waits for."""
        if not self.report.is_mine() or self._stream.is_done:
            return
        callback = self._first_blocking()
        if callback is not None:
            raise Code.RT_STREAM_SYNC_TIMEOUT.refusal(
                f"stream {self.number:#x} waits for a callback that only this thread runs ({callback.name}), and "
                "this thread would wait for the stream",
                "call acl.rt.process_report first, or synchronize in another thread; not in a callback",
            )

    def end(self, *, wait: bool) -> None:
        """Take no more callbacks; the thread still runs those it has, if it lives and is another one.

        With ``wait`` the stream ends too: wait for the callbacks that block it.  In one of its own callbacks, let the
        stream go on.
        """
        self.has_ended = True
        if wait:
            self._stream.close(wait=False)  # cancels waits that nothing would end
        try:
            while wait and self.report.is_served_elsewhere() and self._first_blocking() is not None:
                try:
                    self._stream.sync(LOOKS_AGAIN)
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

    def _first_blocking(self) -> Callback | None:
        with self._lock:
            launched = (self._running, *self._pending)
        return next((each for each in launched if each is not None and each.is_blocking), None)

    def _abandon(self) -> None:
        with self._lock:
            left = list(self._pending)
            self._pending.clear()
        for callback in left:
            callback.release()
        if left:
            messages.add(self._describe_abandoned(left))

    def _describe_abandoned(self, left: Sequence[Callback]) -> str:
        """Return the message about callbacks that are not called."""
        names = [each.name for each in left[:_MOST_SHOWN]]
        more = f" and {len(left) - _MOST_SHOWN:,} more" if len(left) > _MOST_SHOWN else ""
        ended, site = machine.ended(self.number), call_site.at(call_site.position())
        how = f"{self.number:#x} was {ended}"
        if not ended:
            how = f"acl.rt.unsubscribe_report{f' at {site}' if site else ''} ended the stream's subscription"
        thread = self.report.thread
        is_this = thread == threading.get_ident()
        remedy = "do that in another thread, or call acl.rt.process_report before"
        if not is_this:
            remedy = (
                "let the thread call acl.rt.process_report in a loop until the stream is done, then end both"
            )
        many, whom = len(left) > 1, "is the one that did so" if is_this else "has ended"
        return laid_out(
            f"E19999: {len(left):,} callback{'s' * many} of stream {self.number:#x} {'were' if many else 'was'} not "
            f"called: {'; '.join(names)}{more}",
            f"{how}, and thread {thread}, which runs the callbacks launched there, {whom}",
            remedy,
        )


class Report:
    """The callbacks that one thread has to run.

    A later thread may get the same number; it does not run them.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread  #: its ``threading.get_ident()``
        number = _number_of(thread)
        # A thread of _thread.start_new_thread may not run yet.
        self._numbers = {int(task.name) for task in _TASKS.iterdir()} if number is None else {number}
        self._subscriptions: list[Subscription] = []
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # A thread may sleep on it until the interpreter has gone.
        weakref.finalize(self, os.close, self._bell).atexit = False

    def subscribe(self, stream: Stream, number: int, words: str) -> Subscription:
        """Add a stream, with its handle and its text in messages."""
        subscription = Subscription(self, stream, number, words)
        self._subscriptions.append(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Drop an ended subscription without callbacks left; with the last one, drop this report too."""
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
        """Whether any stream has callbacks for it, or may get some."""
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
        """Run the callbacks that streams have reached, after a wait for the first; False if none came in time.

        The thread itself calls this.  It sees Ctrl-C within 0.1 s.
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
        any(poll.poll(each * 1000) for each in slices(seconds))
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)


def report_of(thread: int) -> Report | None:
    """Return the report of the thread that has this number now; None if no stream is subscribed to it."""
    report: Report | None = machine.reports.get(thread)
    if report is None or report.is_served() or _number_of(thread) is None:
        return report
    return None


def _number_of(thread: int) -> int | None:
    """Return the system's number of a living thread, which a later thread does not get, unlike the ident."""
    if thread == threading.get_ident():
        return threading.get_native_id()
    if thread not in sys._current_frames():
        return None  # asking for the clock of an ended thread may crash
    return ~(time.pthread_getcpuclockid(thread) >> 3)  # Linux makes a thread's clock of its number

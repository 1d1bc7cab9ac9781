"""Receives that are under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

_LEAST_SECONDS, _MOST_SECONDS = 0.001, 0.008


class Receive:
    """A receive; its result is the rank that has sent.

    A thread that waits for it reads the messages itself at first, because a change of threads costs some 50 us.

    Parameters
    ----------
    tensor : Tensor
    peers : sequence of int
        The ranks whose message it takes.
    tag : int
    line : object
        The program's line that called.
    read : callable
        Called with the receive, and with whether it may wait a little; it reads messages that have come.
    start : callable
        Called with the receive; lets other threads read for it.

    Attributes
    ----------
    is_started : bool
        Whether other threads read for it.
    is_over : bool
        Whether it has ended, as far as is known.
    """

    __slots__ = (
        "_error",
        "_future",
        "_read",
        "_sender",
        "_start",
        "is_over",
        "is_started",
        "line",
        "peers",
        "tag",
        "tensor",
    )

    _changing = threading.Lock()

    def __init__(
        self,
        tensor: torch.Tensor,
        peers: Sequence[int],
        tag: int,
        line: object,
        *,
        read: Callable[[Receive, bool], None],
        start: Callable[[Receive], None],
    ) -> None:
        self.tensor, self.peers, self.tag, self.line = tensor, peers, tag, line
        self._read, self._start = read, start
        self.is_started = self.is_over = False
        self._sender: int | None = None
        self._error: BaseException | None = None
        self._future: Future[None] | None = None  # ends with it; only some need one, and it takes 2 us

    def end(self, sender: int | None, error: BaseException | None = None) -> None:
        """End it: a rank has sent its message, or there is an error."""
        with self._changing:
            self._sender, self._error, self.is_over = sender, error, True
        if self._future is not None:
            self._future.set_result(None)

    def _ended(self) -> Future[None]:
        with self._changing:
            if self._future is None:
                self._future = Future()
                if self.is_over:
                    self._future.set_result(None)
            return self._future

    def result(self, timeout: float | None = None) -> int | None:
        """Wait until it is over; return the rank that has sent, or raise the error."""
        if not self.is_over:
            self._read(self, True)
        if not self.is_over:
            self._start(self)
            self._ended().result(timeout)
        if self._error is not None:
            raise self._error
        return self._sender

    def done(self) -> bool:
        """Return whether it is over; messages that have come are read."""
        if not self.is_over:
            self._read(self, False)
        return self.is_over

    def exception(self) -> BaseException | None:
        """Return the error, None if it has none yet."""
        return self._error

    def add_done_callback(self, call: Callable[[Any], object]) -> None:
        """Call a function once it is over, whether anybody waits for it or not."""
        self._ended().add_done_callback(call)
        if not self.is_over:
            self._start(self)


class Unattended:
    """Starts the reading for receives for which no thread waits soon after they were asked for.

    Its thread is a daemon, and waits without a time-out while there are none, as that of a lane.

    Parameters
    ----------
    start : callable
        Called with each receive that is not over some time after :meth:`watch`: 1 to 2 ms, or up to 16 ms where
        all of the last ones were over by then.
    """

    def __init__(self, start: Callable[[Receive], None]) -> None:
        self._start = start
        self._receives: list[Receive] = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_closed = self._is_idle = False
        self._thread: threading.Thread | None = None

    def watch(self, receive: Receive) -> None:
        """Look at a receive later."""
        with self._lock:  # not by the condition, whose own methods are Python
            self._receives.append(receive)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="receives of torch", daemon=True)
                self._thread.start()
            elif self._is_idle:
                self._changed.notify_all()

    def close(self) -> None:
        """Let the thread end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _serve(self) -> None:
        seconds = _LEAST_SECONDS
        while True:
            with self._changed:
                self._is_idle = True
                while not self._receives and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
                self._is_idle = False
                receives, self._receives = self._receives, []
            time.sleep(seconds)
            left = [each for each in receives if not each.is_over]
            seconds = _LEAST_SECONDS if left else min(2 * seconds, _MOST_SECONDS)
            while left:
                self._start(left.pop())
            receives.clear()  # a thread that waits must not keep tensors

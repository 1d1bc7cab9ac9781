"""The ranks' output: cut into lines, prefixed, and written by a thread, so that a slow reader delays no signal."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

STDOUT, STDERR = 1, 2

MOST_LINE = 1 << 20  # a longer line is cut, because it is kept until it ends
MOST_WAITING = 4 << 20

LAST_LINES = 20
_LAST_BYTES = 2000  # of each line in the last words

_COLOURS = (36, 33, 35, 32, 34, 31)


def has_colours(descriptor: int, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether an output takes escapes for colours."""
    return os.isatty(descriptor) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def prefix(*ranks: int, coloured: bool) -> bytes:
    """Return the prefix of lines that all of these ranks have written, ``[0]`` or ``[0-3,7]``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    listed = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    colour = _COLOURS[min(ranks) % len(_COLOURS)]
    return (f"\x1b[{colour}m[{listed}]\x1b[0m " if coloured else f"[{listed}] ").encode()


class Lines:
    """Cuts one output of one rank into whole lines and prefixes them."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._begun = b""
        self.last: deque[bytes] = deque(maxlen=LAST_LINES)  #: the last lines, without prefixes, shortened

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that ``chunk`` completes, with prefixes."""
        *whole, self._begun = (self._begun + chunk).split(b"\n")
        if len(self._begun) > MOST_LINE:
            whole.append(self._begun)
            self._begun = b""
        return self._written(whole)

    def finish(self) -> bytes:
        """Return the unfinished line with a newline."""
        begun, self._begun = self._begun, b""
        return self._written([begun]) if begun else b""

    def _written(self, lines: list[bytes]) -> bytes:
        self.last.extend(line[:_LAST_BYTES] for line in lines[-LAST_LINES:])
        return b"".join(b"%b%b\n" % (self._prefix, line) for line in lines)


class Writer:
    """Writes to descriptors in a thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.error: OSError | None = None  #: the error that ended the writing; later output is dropped
        self.failed_stdout = False  #: whether that error was of standard output
        self.moved_at = 0.0  #: when an output last took bytes, in seconds of the monotonic clock
        self._wake = wake
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._nbytes = 0
        self._changed = threading.Condition()  # of the two above
        threading.Thread(target=self._write, name="peerlane-output", daemon=True).start()

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be written that the ranks should not be read."""
        return self._nbytes > MOST_WAITING

    @property
    def is_idle(self) -> bool:
        """Whether everything was written."""
        return self._nbytes == 0

    def write(self, descriptor: int, content: bytes) -> None:
        """Queue bytes for the thread; returns at once."""
        if content and self.error is None:
            with self._changed:
                self._waiting.append((descriptor, content))
                self._nbytes += len(content)
                self._changed.notify()

    def drain(self, seconds: float) -> None:
        """Wait until everything was written, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_idle, seconds)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                descriptor, content = self._waiting.popleft()
            if self.error is None:
                self._write_one(descriptor, content)
            with self._changed:
                was_full = self.is_full
                self._nbytes -= len(content)
                self._changed.notify_all()
            if self.is_idle or was_full or self.error is not None:
                self._wake()

    def _write_one(self, descriptor: int, content: bytes) -> None:
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(descriptor, left) :]
                self.moved_at = time.monotonic()
        except OSError as error:
            self.failed_stdout = descriptor == STDOUT
            self.error = error

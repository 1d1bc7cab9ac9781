"""Standard output of a command: written once, at its end, so that a failure to write has one place."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import TextIO


class BrokenOutput(Exception):
    """Standard output did not take all of the text."""

    def __init__(self, reason: str, *, is_quiet: bool = False) -> None:
        super().__init__(
            f"standard output cannot be written: {reason}; redirect it to a file or pipe that takes it"
        )
        self.is_quiet = is_quiet  #: the reader has gone (``| head``), which is not an error to report
        self.exit_code = 128 + signal.SIGPIPE if is_quiet else 2


class _Collected(io.StringIO):
    """Collects text for a stream, and answers for that stream the questions that decide on colours and width."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]  # of StringIO it is always None
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


@contextlib.contextmanager
def collected_output() -> Iterator[None]:
    """Collect all printed text and write it at the end, also when an exception ends the command.

    Characters that the stream's encoding lacks are written as escapes.

    Raises BrokenOutput: there is no standard output, or it does not take the text.
    """
    stream: TextIO | None = sys.stdout
    if stream is None:
        raise BrokenOutput("it is closed")
    collected = _Collected(stream)
    with contextlib.redirect_stdout(collected):
        try:
            yield
        finally:
            _write(stream, collected)


def _write(stream: TextIO, collected: _Collected) -> None:
    encoding = collected.encoding
    try:
        stream.write(collected.getvalue().encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError) as error:
        _give_up(stream)
        reason = getattr(error, "strerror", None) or str(error)
        is_quiet = isinstance(error, OSError) and error.errno == errno.EPIPE
        raise BrokenOutput(reason, is_quiet=is_quiet) from None


def _give_up(stream: TextIO) -> None:
    """Send the rest to /dev/null: else the interpreter fails again when it flushes the stream at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)

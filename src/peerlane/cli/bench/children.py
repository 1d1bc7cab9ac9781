"""Processes that measure on behalf of the bench: what must have a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from typing import Any

from peerlane.errors import DeviceFault, Error

_END_SECONDS = 5.0


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Start processes that leave Ctrl-C to this one, and answer here only when they are started.

    Ctrl-C reaches every process of a terminal.  Children inherit the mask; the handler is for threads of ours
    (those of numpy) that do not have it.  The tracker comes first: starting it unblocks the signal.
    """
    resource_tracker.ensure_running()
    seen: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    handler = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if seen:
        raise KeyboardInterrupt


class Child:
    """A process that measures when it is asked.

    Parameters
    ----------
    serve : callable
        What it runs: ``serve(*arguments, pipe)``.  It answers each question on the pipe, with an error of ours if
        there was one, and returns when the pipe ends.
    """

    def __init__(self, serve: Callable[..., None], *arguments: object) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(*arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, question: object) -> Any:
        """Return the answer to a question.

        Raises
        ------
        Error
            The process met it, or (``DeviceFault``) died.
        """
        try:
            self._pipe.send(question)
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(_END_SECONDS)
            raise DeviceFault(
                f"a process that measured died with exit code {self._process.exitcode}"
            ) from None
        if isinstance(answer, Error):
            raise answer
        return answer

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join(_END_SECONDS)

"""Processes that work on behalf of a command: what must have a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from peerlane.cli.launch.processes import signal_name
from peerlane.errors import Error, Fault, OutOfMemory, PeerLost, WaitTimeout
from peerlane.support.timeouts import slices

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
    """A process that works when it is asked.

    Parameters
    ----------
    serve : callable
        What it runs: ``serve(*arguments, pipe)``.  It answers each question on the pipe, with an error of ours if
        there was one, and returns when the pipe ends.
    name : str, optional
        What errors call it.

    Attributes
    ----------
    pid : int

    Raises
    ------
    OutOfMemory
        ``OUT_OF_RESOURCES``: the system starts no more processes.
    """

    def __init__(
        self, serve: Callable[..., None], *arguments: object, name: str = "a process that measured"
    ) -> None:
        context = get_context("spawn")
        self._name = name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(*arguments, theirs), daemon=True)
        try:
            self._process.start()
        except OSError as error:
            self._pipe.close()
            raise OutOfMemory(
                f"{name} cannot be started: {error.strerror}; start fewer, or end other processes",
                fault=Fault.OUT_OF_RESOURCES,
            ) from None
        finally:
            theirs.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def ask(self, question: object, *, timeout: float | None = None) -> Any:
        """Return the answer to a question: :meth:`tell`, then :meth:`answer`."""
        self.tell(question)
        return self.answer(timeout=timeout)

    def tell(self, question: object) -> None:
        """Send a question.  One of a few KiB never waits, if the question before it was answered.

        Raises
        ------
        PeerLost
            The process has died.
        """
        try:
            self._pipe.send(question)
        except OSError:
            raise self._lost() from None

    def answer(self, *, timeout: float | None = None) -> Any:
        """Return the answer to the question that was told; ``timeout`` is in seconds, None waits for ever.

        Raises
        ------
        Error
            The process met it; or ``PeerLost``, it died; or ``WaitTimeout``.
        """
        answered, answer = False, None
        try:
            if any(self._pipe.poll(seconds) for seconds in slices(timeout)):
                answered, answer = True, self._pipe.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        if not answered:
            raise WaitTimeout(f"{self._name} did not answer within {timeout:g} s; is it stopped?")
        if isinstance(answer, Error):
            raise answer
        return answer

    def check(self) -> None:
        """Raise ``PeerLost`` if the process has died."""
        if self._process.exitcode is not None:
            raise self._lost()

    def _lost(self) -> PeerLost:
        self._process.join(_END_SECONDS)
        code = self._process.exitcode
        how = f"with exit code {code}" if code is None or code >= 0 else f"of {signal_name(-code)}"
        return PeerLost(f"{self._name} died {how}")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join(_END_SECONDS)


def gather_from(
    children: Sequence[Child], mine: Sequence[bytes] = (), *, timeout: float | None = None
) -> list[bytes]:
    """Bring ranks together: take what each child sends by :func:`exchange_over`, behind ``mine``, and tell all of it.

    Raises
    ------
    Error
        As :meth:`Child.answer`.
    """
    said = [*mine, *(child.answer(timeout=timeout) for child in children)]
    for child in children:
        child.tell(said)
    return said


def exchange_over(pipe: Connection[Any, Any]) -> Callable[[bytes], list[bytes]]:
    """Return a child's part of :func:`gather_from`: what a :class:`peerlane.Group` meets by."""

    def exchange(mine: bytes) -> list[bytes]:
        pipe.send(mine)
        said: list[bytes] = pipe.recv()
        return said

    return exchange

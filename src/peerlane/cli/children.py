"""Child processes that do part of a command's work."""

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
    """Hide Ctrl-C from processes that are started inside; one that comes meanwhile is raised here at the end.

    A terminal sends Ctrl-C to all its processes, and only this one handles it.  Children inherit the mask.  The
    handler is for threads of this process (NumPy's) that run without the mask.  The resource tracker is started
    before, because starting it unblocks the signal.
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
    """A process that answers questions.

    ``serve``: the process runs ``serve(*arguments, pipe)``.  It answers each question on the pipe, with a
        :class:`peerlane.Error` if one was raised, and returns when the pipe ends.
    ``name``: the name that errors give it.
    Raises OutOfMemory: ``OUT_OF_RESOURCES``: the system cannot start another process.
    """

    def __init__(
        self, serve: Callable[..., None], *arguments: object, name: str = "a measuring process"
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
        """Send a question and return its answer: :meth:`send`, then :meth:`answer`."""
        self.send(question)
        return self.answer(timeout=timeout)

    def send(self, question: object) -> None:
        """Send a question.  If the question before it was answered, one of a few KiB never blocks.

        Raises PeerLost: the process has died.
        """
        try:
            self._pipe.send(question)
        except OSError:
            raise self._lost() from None

    def answer(self, *, timeout: float | None = None) -> Any:
        """Return the answer to the question that was sent; ``timeout`` is in seconds, None waits for ever.

        Raises Error: the error that the process raised; ``PeerLost`` if it died; ``WaitTimeout`` if it did not answer
            in time.
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
    """Return ``mine`` and what each child sends by :func:`exchange_over`, and send that whole list to each child.

    Raises Error: as :meth:`Child.answer`.
    """
    messages = [*mine, *(child.answer(timeout=timeout) for child in children)]
    for child in children:
        child.send(messages)
    return messages


def exchange_over(pipe: Connection[Any, Any]) -> Callable[[bytes], list[bytes]]:
    """Return a child's part of :func:`gather_from`, as the ``rendezvous`` of a :class:`peerlane.Group`."""

    def exchange(mine: bytes) -> list[bytes]:
        pipe.send(mine)
        messages: list[bytes] = pipe.recv()
        return messages

    return exchange

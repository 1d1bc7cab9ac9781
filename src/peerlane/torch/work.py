"""What an asynchronous call returns."""

from __future__ import annotations

import concurrent.futures
import functools
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from peerlane.torch.failures import refused
from peerlane.torch.receives import Receive


class Work(dist.Work):
    """A call that is under way or over.

    Parameters
    ----------
    call : str
        Its name, for texts.
    tensors : list of Tensor
        What it changes.
    future : Future, Receive or None
        Ends with the call; its result is the rank that sent the bytes, or None.  Without a future the call is over.
    seconds : float or None
        Its own time-out, counted from each wait.
    expire : callable or None
        Called when that is over; it ends the group and returns the error.
    """

    def __init__(
        self,
        call: str,
        tensors: list[torch.Tensor],
        future: Future[int | None] | Receive | None = None,
        seconds: float | None = None,
        expire: Callable[[str, float], Exception] | None = None,
    ) -> None:
        super().__init__()
        self._call, self._tensors, self._future = call, tensors, future
        self._seconds, self._expire = seconds, expire

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the call is over, and raise its error; a time-out of 0 means the call's own."""
        if self._future is None:
            return True
        seconds = timeout.total_seconds()
        try:
            self._future.result(seconds if seconds > 0 else self._seconds)
        except concurrent.futures.TimeoutError:
            if self._future.done():
                return self.wait()
            if seconds > 0 or self._expire is None:
                raise refused(
                    f"peerlane:{self._call} : Timed out waiting {seconds:g} s; the call goes on"
                ) from None
            raise self._expire(self._call, self._seconds or 0.0) from None
        return True

    def is_completed(self) -> bool:
        """Return whether it is over, by success or failure."""
        return self._future is None or self._future.done()

    def is_success(self) -> bool:
        """Return whether it has succeeded."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Return its error, None if it has none yet."""
        return self._future.exception() if self._future is not None and self._future.done() else None

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that it changes."""
        return self._tensors

    def source_rank(self) -> int:
        """Return the rank in the group from which a receive has got its bytes."""
        source = self._future.result() if self._future is not None else None
        if source is None:
            raise refused(f"peerlane:{self._call} has no source rank; only a receive has one")
        return source

    _source_rank = source_rank

    def synchronize(self) -> None:
        """Do what :meth:`wait` does."""
        self.wait()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of torch for the tensors; its error has the text of this call's error."""
        ended: torch.futures.Future[Any] = torch.futures.Future()
        # Only an error that a callback raises is an error for C++ too, for instance for the reducer of DDP.
        result_future = ended.then(lambda _: self._result_or_raise())
        if self._future is None:
            ended.set_result(None)
        else:
            self._future.add_done_callback(lambda _: ended.set_result(None))
        return result_future

    def _result_or_raise(self) -> list[torch.Tensor]:
        error = self.exception()
        if error is not None:
            raise error
        return self._tensors


def keep_for_reducers() -> None:
    """Let a reducer of DDP keep the work that it waits for.

    C++ keeps the C++ part of a work alone.  Without the Python part its ``wait`` is that of the base class, which
    never ends.  torch passes a work to C++ in one call; all others come from a process group, and C++ keeps those.
    """
    of_torch = dist.Reducer._set_forward_pass_work_handle
    kept: weakref.WeakKeyDictionary[dist.Reducer, dist.Work] = weakref.WeakKeyDictionary()

    @functools.wraps(of_torch)
    def set_work(reducer: dist.Reducer, work: dist.Work, use_static_world_size: bool) -> None:
        kept[reducer] = work
        of_torch(reducer, work, use_static_world_size)

    dist.Reducer._set_forward_pass_work_handle = set_work

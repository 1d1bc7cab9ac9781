"""Waits of asyncio's and trio's tasks for streams: one descriptor for each event loop, and no thread."""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from peerlane import _core

if TYPE_CHECKING:
    import asyncio

Waited: TypeAlias = "_core.Stream | _core.Mark"

#: Seconds between two searches for waits that nothing can end; waiting threads search as often.
FIRST_LOOK, RAREST_LOOK = 0.25, 4.0

_tokens = itertools.count(1)
#: By the id of a loop, or of trio's root task; the loop keeps the value alive while a task waits.
_of_loops: weakref.WeakValueDictionary[int, _Waits] = weakref.WeakValueDictionary()


def until_over(waited: Waited, is_over: Callable[[], bool], sequence: int) -> Generator[Any, Any, None]:
    """Suspend the running task until all operations up to ``sequence`` are over; a cancelled wait leaves nothing.

    Raises Error: no submitted operation would end the wait.
    Raises RuntimeError: no event loop runs in this thread.
    """
    trio = sys.modules.get("trio")
    if trio is not None and _runs(trio):
        if is_over():
            yield from trio.lowlevel.checkpoint().__await__()
            return
        yield from _of(trio.lowlevel.current_root_task(), _TrioWaits).wait(waited)
    else:
        loop = _running_loop(waited)
        if is_over():
            return
        yield from _of(loop, _AsyncioWaits).wait(waited)
    _core.WaitSet.log_over(waited.id if isinstance(waited, _core.Stream) else waited.stream_id, sequence)


def _runs(trio: Any) -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def _running_loop(waited: Waited) -> asyncio.AbstractEventLoop:
    from asyncio import get_running_loop

    try:
        return get_running_loop()
    except RuntimeError:
        what = "stream" if isinstance(waited, _core.Stream) else "event"
        raise RuntimeError(
            f"await {what}: no event loop runs in this thread; await it in a task (asyncio.run starts a loop), or "
            f"wait with {what}.sync()"
        ) from None


def _of(loop: Any, kind: type[_Waits]) -> _Waits:
    waits = _of_loops.get(id(loop))
    if waits is None:
        waits = _of_loops[id(loop)] = kind(id(loop))
    return waits


class _Waits:
    """The waits of one event loop, from the first wait until the last one is over."""

    def __init__(self, loop: int) -> None:
        self.loop, self.set, self.period = loop, _core.WaitSet(), FIRST_LOOK

    def wait(self, waited: Waited) -> Generator[Any, Any, None]:
        raise NotImplementedError

    def retire(self) -> None:
        """Drop this object: the next wait of the loop makes another."""
        if _of_loops.get(self.loop) is self:
            del _of_loops[self.loop]


class _AsyncioWaits(_Waits):
    def __init__(self, loop: int) -> None:
        super().__init__(loop)
        self.futures: dict[int, asyncio.Future[None]] = {}
        self.timer: asyncio.TimerHandle | None = (
            None  # of the next search; None while the loop does not watch the descriptor
        )
        self.is_helping = False

    def wait(self, waited: Waited) -> Generator[Any, Any, None]:
        loop, token = _running_loop(waited), next(_tokens)
        if not self.set.add(token, waited):
            return
        self.futures[token] = future = loop.create_future()
        try:
            if self.timer is None:
                loop.add_reader(self.set.fileno(), self.end_those_over, loop)
            if self.timer is None or self.period > FIRST_LOOK:
                self.look_after(loop, FIRST_LOOK)
            yield from future
        finally:
            if self.futures.pop(token, None) is not None:  # cancelled
                self.set.remove(token)
                self.leave(loop)

    def end_those_over(self, loop: asyncio.AbstractEventLoop) -> None:
        for token in self.set.take():
            self.resume(token, None)
        if self.futures:
            if _core.WaitSet.is_help_needed():
                self.help(loop)
        else:  # later: a task that resumes now may wait again at once
            loop.call_soon(self.leave, loop)

    def resume(self, token: int, error: BaseException | None) -> None:
        future = self.futures.pop(token, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def look_after(self, loop: asyncio.AbstractEventLoop, period: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.period, self.timer = period, loop.call_later(period, self.look, loop)

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        for token, error in self.set.take_hopeless():
            self.resume(token, error)
        self.look_after(loop, min(2 * self.period, RAREST_LOOK))
        self.help(loop)
        self.leave(loop)

    def help(self, loop: asyncio.AbstractEventLoop, *, again: bool = False) -> None:
        """Run operations between the tasks, as long as one can run, if no other thread runs them."""
        if again:
            self.is_helping = False
        if not self.is_helping and self.futures and _core.WaitSet.help():
            self.is_helping = True
            loop.call_soon(functools.partial(self.help, loop, again=True))

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the descriptor if nothing waits: frames of a traceback may keep this object."""
        if self.futures or self.timer is None or loop.is_closed():
            return
        self.timer.cancel()
        self.timer = None
        loop.remove_reader(self.set.fileno())
        self.retire()
        del self.set


class _TrioWaits(_Waits):
    def __init__(self, loop: int) -> None:
        super().__init__(loop)
        self.tasks: dict[int, Any] = {}
        self.scope: Any = None  # of the system task that watches the descriptor
        self.pause: Any = None  # until the next search

    def wait(self, waited: Waited) -> Generator[Any, Any, None]:
        import trio

        token = next(_tokens)
        if self.scope is None:
            trio.lowlevel.spawn_system_task(self.serve)
            self.scope, self.pause = trio.CancelScope(), trio.CancelScope()
        try:
            waits = self.set.add(token, waited)
        except BaseException:
            self.leave()
            raise
        if not waits:
            self.leave()
            return
        self.tasks[token] = trio.lowlevel.current_task()
        self.period = FIRST_LOOK
        self.pause.deadline = min(self.pause.deadline, trio.current_time() + FIRST_LOOK)

        def cancelled(_: object) -> Any:
            del self.tasks[token]
            self.set.remove(token)
            self.leave()
            return trio.lowlevel.Abort.SUCCEEDED

        yield from trio.lowlevel.wait_task_rescheduled(cancelled).__await__()

    def leave(self) -> None:
        if not self.tasks:
            self.retire()
            self.scope.cancel()

    async def serve(self) -> None:
        import outcome  # which trio brings
        import trio

        is_helping = False
        with self.scope:
            while self.tasks:
                self.pause = trio.move_on_after(0 if is_helping else self.period)
                with self.pause:
                    await trio.lowlevel.wait_readable(self.set.fileno())
                for token in self.set.take():
                    trio.lowlevel.reschedule(self.tasks.pop(token))
                is_due = self.pause.cancelled_caught and not is_helping
                if is_due:
                    self.period = min(2 * self.period, RAREST_LOOK)
                    for token, error in self.set.take_hopeless():
                        trio.lowlevel.reschedule(self.tasks.pop(token), outcome.Error(error))
                is_helping = (is_due or _core.WaitSet.is_help_needed()) and _core.WaitSet.help()
        self.retire()
        del self.set

"""Tasks of asyncio and trio wait for streams, by one descriptor for each event loop and without a thread."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from peerlane import _core

if TYPE_CHECKING:
    import asyncio

Waited: TypeAlias = "_core.Stream | _core.Mark"

#: Seconds between two looks at what waits in vain, as those of waiting threads.
FIRST_LOOK, RAREST_LOOK = 0.25, 4.0

_tokens = itertools.count(1)
#: By the id of a loop, or of trio's root task, which holds them while something waits.
_of_loops: weakref.WeakValueDictionary[int, _Waits] = weakref.WeakValueDictionary()


def until_over(waited: Waited, is_over: Callable[[], bool]) -> Generator[Any, Any, None]:
    """Suspend the running task until what a stream was given by now is over, or a record; cancelled, nothing is left.

    Raises
    ------
    Error
        No submitted operation would end the wait.
    RuntimeError
        No event loop runs in this thread.
    """
    trio = sys.modules.get("trio")
    if trio is not None and _runs(trio):
        if is_over():
            yield from trio.lowlevel.checkpoint().__await__()
        else:
            yield from _of(trio.lowlevel.current_root_task(), _TrioWaits).wait(waited)
        return
    from asyncio import get_running_loop

    loop = get_running_loop()
    if not is_over():
        yield from _of(loop, _AsyncioWaits).wait(waited)


def _runs(trio: Any) -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def _of(loop: Any, kind: type[_Waits]) -> _Waits:
    found = _of_loops.get(id(loop))
    if found is None:
        found = _of_loops[id(loop)] = kind(id(loop))
    return found


class _Waits:
    """The waits of one event loop; it is made for the first of them, and goes with the last."""

    def __init__(self, loop: int) -> None:
        self.loop, self.set = loop, _core.WaitSet()

    def wait(self, waited: Waited) -> Generator[Any, Any, None]:
        raise NotImplementedError

    def end(self) -> None:
        """Close the descriptor: frames that a traceback holds may keep this object."""
        del _of_loops[self.loop], self.set


class _AsyncioWaits(_Waits):
    def __init__(self, loop: int) -> None:
        super().__init__(loop)
        self.futures: dict[int, asyncio.Future[None]] = {}
        self.timer: asyncio.TimerHandle | None = None  # set: this is the loop's
        self.is_helping = False

    def wait(self, waited: Waited) -> Generator[Any, Any, None]:
        from asyncio import get_running_loop

        loop, token = get_running_loop(), next(_tokens)
        if not self.set.add(token, waited):
            return
        self.futures[token] = future = loop.create_future()
        try:
            if self.timer is None:
                loop.add_reader(self.set.fileno(), self.end_those_over)
                self.timer = loop.call_later(FIRST_LOOK, self.look, FIRST_LOOK)
            self.help_soon(loop)
            yield from future
        finally:
            if self.futures.pop(token, None) is not None:  # cancelled
                self.set.remove(token)
                self.leave(loop)

    def end_those_over(self) -> None:
        from asyncio import get_running_loop

        loop = get_running_loop()
        for token in self.set.take():
            self.resume(token, None)
        # First the tasks that go on now, which may wait again at once.
        if self.futures:
            self.help_soon(loop)
        else:
            loop.call_soon(self.leave, loop)

    def resume(self, token: int, error: BaseException | None) -> None:
        future = self.futures.pop(token, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def look(self, after: float) -> None:
        from asyncio import get_running_loop

        loop = get_running_loop()
        for token, error in self.set.take_hopeless():
            self.resume(token, error)
        self.help_soon(loop)
        period = min(2 * after, RAREST_LOOK)
        self.timer = loop.call_later(period, self.look, period)
        self.leave(loop)

    def help_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.is_helping and _core.WaitSet.is_help_needed():
            self.is_helping = True
            loop.call_soon(self.help, loop)

    def help(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_helping = False
        if self.futures and _core.WaitSet.help():
            self.help_soon(loop)

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the descriptor from the loop if nothing waits."""
        if self.futures or self.timer is None or loop.is_closed():
            return
        self.timer.cancel()
        self.timer = None
        loop.remove_reader(self.set.fileno())
        self.end()


class _TrioWaits(_Waits):
    def __init__(self, loop: int) -> None:
        super().__init__(loop)
        self.tasks: dict[int, Any] = {}
        self.scope: Any = None  # of the system task that reads the descriptor

    def wait(self, waited: Waited) -> Generator[Any, Any, None]:
        import trio

        token = next(_tokens)
        if not self.set.add(token, waited):
            return
        self.tasks[token] = trio.lowlevel.current_task()
        if self.scope is None:
            self.scope = trio.CancelScope()
            trio.lowlevel.spawn_system_task(self.serve)

        def cancelled(_: object) -> Any:
            del self.tasks[token]
            self.set.remove(token)
            if not self.tasks:
                self.scope.cancel()
                self.end()
            return trio.lowlevel.Abort.SUCCEEDED

        yield from trio.lowlevel.wait_task_rescheduled(cancelled).__await__()

    async def serve(self) -> None:
        import outcome  # which trio brings
        import trio

        period, is_helping = FIRST_LOOK, False
        with self.scope:
            while self.tasks:
                with trio.move_on_after(0 if is_helping else period) as pause:
                    await trio.lowlevel.wait_readable(self.set.fileno())
                for token in self.set.take():
                    trio.lowlevel.reschedule(self.tasks.pop(token))
                if pause.cancelled_caught and not is_helping:
                    period = min(2 * period, RAREST_LOOK)
                    for token, error in self.set.take_hopeless():
                        trio.lowlevel.reschedule(self.tasks.pop(token), outcome.Error(error))
                is_helping = _core.WaitSet.is_help_needed() and _core.WaitSet.help()
            if not self.scope.cancel_called:
                self.end()

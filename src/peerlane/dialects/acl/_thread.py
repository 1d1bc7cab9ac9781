"""``acl.util``: threads, for programs that run callbacks in one (facts/acl 2.10)."""

from __future__ import annotations

import sys
import threading
from typing import Any

from peerlane.dialects._shared.call import Object, Word
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl
from peerlane.support.timeouts import SLICE_SECONDS

_START = "acl.util.start_thread"


class _Started(threading.Thread):
    """A thread of ``start_thread``; ``raised`` is the type name of its function's exception, empty without one."""

    def __init__(self, function: Any, arguments: tuple[object, ...]) -> None:
        super().__init__(name=_START, daemon=True)
        self._call: tuple[Any, tuple[object, ...]] | None = (function, arguments)
        self.raised = ""

    def run(self) -> None:
        assert self._call is not None
        function, arguments = self._call
        self._call = None  # the table of threads must not keep the program's objects alive
        # The number may be that of an earlier thread, which was not stopped.
        _threads[threading.get_ident()] = self
        try:
            function(*arguments)
        except BaseException as raised:  # noqa: BLE001 - stop_thread raises for it, SystemExit too
            self.raised = type(raised).__name__
            sys.__excepthook__(type(raised), raised, raised.__traceback__)


_threads: dict[int, _Started] = {}


def _start_thread(thr_func: Object, args_list: Object) -> int:
    """Start a thread that calls ``thr_func(args_list)``, or ``thr_func()`` for None (facts/acl 2.10).

    ``subscribe_report`` takes its number.

    Gives: thread
    Refuses: `TypeError` not two arguments, not callable
    Basis: S
    """
    if not callable(thr_func):
        raise TypeError("parameter must be callable")
    thread = _Started(thr_func, () if args_list is None else (args_list,))
    thread.start()
    assert thread.ident is not None
    _threads[thread.ident] = thread
    return thread.ident


_declared = acl.call(_START, out=1)(_start_thread)


def _counted(*args: object) -> Any:
    if len(args) != 2:  # the binding leaves CPython's own text here
        raise TypeError(f"function takes exactly 2 arguments ({len(args)} given)")
    return _declared(*args)


acl.serve(_START, _counted, _start_thread)


@acl.call("acl.util.stop_thread")
def stop_thread(tid: Word) -> None:
    """Wait until a thread of ``start_thread`` has returned by itself (facts/acl 2.10).

    ``RuntimeError`` if its function raised; the traceback is on stderr by then.

    Refuses: 100000 no such thread; `RuntimeError` its function raised
    Basis: S; C for 100000
    """
    thread = _threads.get(tid)
    if thread is None or thread is threading.current_thread():
        raise Code.INVALID_PARAM.refusal(
            f"{tid} is this thread" if thread is not None else f"{tid} is not a thread of {_START}",
            f"pass what {_START} returned, once, from another thread, having told the thread to return",
        )
    while thread.is_alive():
        thread.join(SLICE_SECONDS)
    if _threads.get(tid) is thread:  # its number may be that of a new thread by now
        del _threads[tid]
    if thread.raised:
        raise RuntimeError(f"exception={thread.raised},msg=thread call failed;")

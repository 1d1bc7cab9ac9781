"""``acl.util``: threads, for programs that run callbacks in one (spec acl 2.10)."""

from __future__ import annotations

import threading

from peerlane.dialects._call import Callback, Object, Refusal, Word, type_name
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl
from peerlane.timeouts import SLICE_SECONDS

_threads: dict[int, threading.Thread] = {}


@acl.call("acl.util.start_thread", out=1)
def start_thread(fn: Callback, args_list: Object) -> int:
    """Start a thread that calls ``fn(args_list)``; its number is good for ``subscribe_report`` (spec acl 2.10).

    Gives: thread
    Refuses: `ValueError` no list; `TypeError` not callable
    Basis: S; C for `ValueError`
    """
    if not isinstance(args_list, list):
        raise ValueError(f"acl.util.start_thread: needs a list, not {type_name(args_list)}")
    thread = threading.Thread(target=fn, args=(args_list,), name="acl.util.start_thread", daemon=True)
    thread.start()
    assert thread.ident is not None
    _threads[thread.ident] = thread
    return thread.ident


@acl.call("acl.util.stop_thread")
def stop_thread(tid: Word) -> None:
    """Wait until a thread of ``start_thread`` has returned by itself (spec acl 2.10).

    Refuses: 100000 no such thread
    Basis: C
    """
    thread = _threads.get(tid)
    if thread is None or thread is threading.current_thread():
        raise Refusal(
            Code.INVALID_PARAM,
            f"{tid} is this thread" if thread is not None else f"{tid} is no thread of acl.util.start_thread",
            "pass what acl.util.start_thread returned, once, from another thread, having told the thread to return",
        )
    while thread.is_alive():
        thread.join(SLICE_SECONDS)
    _threads.pop(tid, None)

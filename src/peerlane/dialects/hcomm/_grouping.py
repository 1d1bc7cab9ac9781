"""The open group of a thread, and the calls that it keeps until its end (facts/hcomm 2.2)."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from peerlane.diagnostics.log import event_log
from peerlane.dialects.hcomm._codes import NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._state import hcomm
from peerlane.ranks.deadlock.wait_state import calling

_Body = TypeVar("_Body", bound=Callable[..., Any])
Run = Callable[[], None]


@dataclass
class Group:
    """The open group of a thread: its depth, the kind of its calls, and what they keep."""

    depth: int = 1
    kind: str = ""
    calls: list[tuple[str, Run]] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    undo: list[Run] = field(default_factory=list)  # runs if the group fails


_open: dict[int, Group] = {}
_lock = threading.Lock()


def current() -> Group | None:
    """Return the group of this thread, None without one."""
    return _open.get(threading.get_ident()) if _open else None


def begin() -> None:
    """Begin a group of this thread, or go one deeper."""
    me = threading.get_ident()
    with _lock:
        if me in _open:
            _open[me].depth += 1
        else:
            _open[me] = Group()


def finish() -> Group | None:
    """End a group of this thread, and return it, None inside another one: HCCL_E_NOT_SUPPORT without one."""
    me = threading.get_ident()
    with _lock:
        group = _open.get(me)
        if group is None:
            raise NOT_SUPPORT.refusal("this thread has begun no group", "call HcclGroupStart first")
        group.depth -= 1
        return None if group.depth else _open.pop(me)


def kept(name: str, kind: str) -> Group | None:
    """Return the group that keeps a call, None if the call runs now: HCCL_E_PARA in a group of another kind."""
    group = current()
    if group is None:
        return None
    if group.kind not in ("", kind):
        raise PARA.refusal(
            f"{name} is of the {kind}, and this group has begun with {group.kind}",
            "end the group first; a group has calls of one kind",
        )
    group.kind = kind
    return group


def collective(name: str) -> Callable[[_Body], Callable[..., Any]]:
    """Declare a collective: its body checks, and returns the function that runs now or at the group's end."""

    def declare(body: _Body) -> Callable[..., Any]:
        @functools.wraps(body)
        def checked(*values: Any) -> None:
            run = functools.partial(_named, name, body(*values))
            group = kept(name, "collectives")
            if group is None:
                run()
            else:
                group.calls.append((name, event_log.with_call_site(run)))

        return hcomm.call(f"hcomm.{name}")(checked)

    return declare


def _named(name: str, run: Run) -> None:
    """Run a collective; reports of its waits have the name that the program called."""
    calling.call = name
    try:
        run()
    finally:
        del calling.call


def forget() -> None:
    """Drop the open groups, as a new process has none."""
    _open.clear()


os.register_at_fork(after_in_child=forget)

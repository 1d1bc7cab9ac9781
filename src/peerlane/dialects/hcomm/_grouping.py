"""``hcomm``: grouped calls, which are checked at once and carried out at the end of their group (facts/hcomm 2.2)."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._batch import carry_out
from peerlane.dialects.hcomm._codes import NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._state import hcomm

_Body = TypeVar("_Body", bound=Callable[..., Any])
Run = Callable[[], None]


@dataclass
class Group:
    """What a thread of the program has begun: how deep, calls of which kind, and what they left."""

    depth: int = 1
    kind: str = ""
    calls: list[tuple[str, Run]] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    undo: list[Run] = field(default_factory=list)  # of what was begun, if the group fails


_open: dict[int, Group] = {}
_lock = threading.Lock()


def current() -> Group | None:
    """Return the group of this thread, None without one."""
    return _open.get(threading.get_ident()) if _open else None


def kept(name: str, kind: str) -> Group | None:
    """Return the group that keeps a call of a kind, None if it is carried out now: HCCL_E_PARA for another kind."""
    group = current()
    if group is None:
        return None
    if group.kind not in ("", kind):
        raise Refusal(
            PARA,
            f"{name} is of the {kind}, and this group has begun with {group.kind}",
            "end the group first; a group has calls of one kind",
        )
    group.kind = kind
    return group


def collective(name: str) -> Callable[[_Body], Callable[..., Any]]:
    """Declare a collective: its body checks, and returns what carries it out, now or at the group's end."""

    def declare(body: _Body) -> Callable[..., Any]:
        @functools.wraps(body)
        def checked(*values: Any) -> None:
            run = body(*values)
            group = kept(name, "collectives")
            if group is None:
                run()
            else:
                group.calls.append((name, run))

        return hcomm.call(f"hcomm.{name}")(checked)

    return declare


@hcomm.call("hcomm.HcclGroupStart")
def HcclGroupStart() -> None:
    """Keep what this thread calls of a kind until ``HcclGroupEnd``: collectives, messages, or makers and ends of
    communicators.

    Each call is checked at once.  Groups nest, and the outermost counts.  A communicator that a call returned may be
    used after the end: so one thread makes those of several ranks.

    Basis: D, S
    """
    me = threading.get_ident()
    with _lock:
        if me in _open:
            _open[me].depth += 1
        else:
            _open[me] = Group()


@hcomm.call("hcomm.HcclGroupEnd")
def HcclGroupEnd() -> None:
    """Carry out what was kept: messages all at once, as ``HcclBatchSendRecv``, the others in their order.

    The first that fails ends it, with its code.

    Refuses: 5 this thread has begun none; what a call failed with: 1, 4, 6, 9, 15, 19, 20, 21, 22, 24
    Basis: D, S; C for failures
    """
    from peerlane.dialects.hcomm._point_to_point import exchange

    me = threading.get_ident()
    with _lock:
        group = _open.get(me)
        if group is None:
            raise Refusal(NOT_SUPPORT, "this thread has begun no group", "call HcclGroupStart first")
        group.depth -= 1
        if group.depth:
            return
        del _open[me]
    exchange(group.messages)
    try:
        carry_out(group.calls, "group")
    except BaseException:
        for undo in group.undo:
            undo()
        raise


def forget() -> None:
    """Be as in a new process."""
    _open.clear()


os.register_at_fork(after_in_child=forget)

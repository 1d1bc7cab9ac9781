"""``hcomm``: batch mode, which keeps calls and runs them at its end (facts/hcomm 1.4)."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from peerlane.backend import host
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.acl._kernels import after_kernel
from peerlane.dialects.hcomm._arguments import CText
from peerlane.dialects.hcomm._codes import FAULTS, PARA, REMEDIES
from peerlane.dialects.hcomm._state import hcomm
from peerlane.errors import Error

_Body = TypeVar("_Body", bound=Callable[..., Any])


@dataclass
class Batch:
    """The open batch of a thread: its tag, and the calls so far."""

    tag: str
    calls: list[tuple[str, Callable[[], None]]] = field(default_factory=list)


#: By threading.get_ident().  A call without batches pays one truth test of this dict.
_open: dict[int, Batch] = {}
_lock = threading.Lock()


def operation(name: str) -> Callable[[_Body], Callable[..., Any]]:
    """Declare a call of the data plane: its body checks, and returns what runs now or at the batch's end."""

    def declare(body: _Body) -> Callable[..., Any]:
        @functools.wraps(body)
        def checked(*values: Any) -> None:
            run = body(*values)
            batch = _open.get(threading.get_ident()) if _open else None
            if batch is None:
                run()
            else:
                batch.calls.append((name.partition(".")[2], event_log.with_call_site(run)))

        return hcomm.call(name)(checked)

    return declare


@hcomm.call("hcomm.HcommBatchModeStart")
def HcommBatchModeStart(batchTag: CText) -> None:
    """Keep this thread's calls of the data plane until ``HcommBatchModeEnd``; each call is checked at once.

    Refuses: 1 this thread has begun a batch
    Basis: D; C for the code
    """
    me = threading.get_ident()
    with _lock:
        if me in _open:
            raise PARA.refusal(
                f"this thread has begun a batch already, {_open[me].tag!r}, with {len(_open[me].calls):,} calls",
                "call HcommBatchModeEnd with its tag first; batches do not nest",
            )
        _open[me] = Batch(batchTag or "")
    host.forget_c_threads()


@hcomm.call("hcomm.HcommBatchModeEnd")
def HcommBatchModeEnd(batchTag: CText) -> None:
    """Run the calls of the batch in their order; the first that fails ends the batch, with its code.

    Refuses: 1 this thread has begun no batch, or one with another tag; the code of a call that failed
    Basis: D; C for the codes
    """
    me, tag = threading.get_ident(), batchTag or ""
    with _lock:
        batch = _open.get(me)
        if batch is None or batch.tag != tag:
            raise PARA.refusal(_mismatch(tag, batch), "end a batch in its thread, with its tag")
        del _open[me]
    carry_out(batch.calls, "batch")


def carry_out(calls: list[tuple[str, Callable[[], None]]], whole: str) -> None:
    """Run kept calls; the first that fails ends them, and its text says which call that was."""
    for number, (name, run) in enumerate(calls, 1):
        where = f"call {number:,} of {len(calls):,} of the {whole}, {name}"
        try:
            run()
        except Refusal as error:
            raise Refusal(error.code, f"{where}: {error}", error.remedy) from None
        except Error as error:
            raise Refusal(FAULTS[error.fault], f"{where}: {error}", REMEDIES[error.fault]) from None


def _mismatch(tag: str, begun: Batch | None) -> str:
    if begun is not None:
        return f"this thread has begun batch {begun.tag!r}, not {tag!r}; it goes on"
    others = [each for each, batch in _open.items() if batch.tag == tag]
    also = f"; thread {others[0]} has begun one with this tag" if others else ""
    return f"this thread has begun no batch{also}"


def forget() -> None:
    """Drop the open batches, as a new process has none."""
    _open.clear()


def _left_open() -> str:
    """End the batch of a kernel that has returned; its calls do not run."""
    with _lock:
        batch = _open.pop(threading.get_ident(), None)
    if batch is None:
        return ""
    return f"it did not call HcommBatchModeEnd({batch.tag!r}), so none of the batch's {len(batch.calls):,} calls runs"


os.register_at_fork(after_in_child=forget)
after_kernel.append(_left_open)

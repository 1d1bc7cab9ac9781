"""Fast paths of the most frequent calls: they take what an earlier checked call has left, and check little.

A call that a fast path does not recognise goes to the checked call; the fast path has queued nothing then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane import Stream
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm import _batch
from peerlane.dialects.hcomm import _remote as _remote
from peerlane.dialects.hcomm import _signals as _signals
from peerlane.dialects.hcomm._codes import SUCCESS
from peerlane.dialects.hcomm._comm import HcommChannel, HcommThread
from peerlane.dialects.hcomm._state import hcomm
from peerlane.errors import Error

_MISSES = (Refusal, Error, KeyError, ValueError, TypeError, AttributeError)
_open = _batch._open


def pair_of(thread: int, channel: int) -> tuple[HcommThread, HcommChannel, Stream]:
    """Return the thread, the channel and the stream; raise one of ``_MISSES`` for anything unusual."""
    if type(thread) is not int or type(channel) is not int:
        raise TypeError
    worker, link = machine.resources[thread], machine.resources[channel]
    if type(worker) is not HcommThread or type(link) is not HcommChannel or _open:
        raise KeyError
    stream, comm = worker.stream, worker.comm
    if stream is None or worker.is_cpu or link.is_cpu or comm is None or comm.is_suspended:
        raise KeyError
    if worker.context.node.is_closed or link.comm is not comm:
        raise KeyError
    return worker, link, stream


def _serve(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    checked = hcomm.functions("hcomm")[name]
    hcomm.serve(f"hcomm.{name}", make(checked), checked)


def _write(checked: Callable[..., Any]) -> Callable[..., Any]:
    def write(*args: Any) -> Any:
        try:
            thread, channel, dst, src, nbytes = args
            worker, link, stream = pair_of(thread, channel)
            if type(dst) is not int or type(src) is not int or type(nbytes) is not int:
                raise TypeError
            memory, at = link.remote.locations[dst, nbytes]
            link.neutral.write(link.own.parts[src, nbytes], at=at, memory=memory, stream=stream)
        except _MISSES:
            return checked(*args)
        worker.note()
        return SUCCESS

    return write


def _read(checked: Callable[..., Any]) -> Callable[..., Any]:
    def read(*args: Any) -> Any:
        try:
            thread, channel, dst, src, nbytes = args
            worker, link, stream = pair_of(thread, channel)
            if type(dst) is not int or type(src) is not int or type(nbytes) is not int:
                raise TypeError
            memory, at = link.remote.locations[src, nbytes]
            link.neutral.read(link.own.parts[dst, nbytes], at=at, memory=memory, stream=stream)
        except _MISSES:
            return checked(*args)
        worker.note()
        return SUCCESS

    return read


def _record(checked: Callable[..., Any]) -> Callable[..., Any]:
    def record(*args: Any) -> Any:
        try:
            thread, channel, index = args
            worker, link, stream = pair_of(thread, channel)
            link.neutral.notify(index, stream=stream)
        except _MISSES:
            return checked(*args)
        worker.note()
        return SUCCESS

    return record


def _wait(checked: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*args: Any) -> Any:
        try:
            thread, channel, index, timeout = args
            worker, link, stream = pair_of(thread, channel)
            if type(timeout) is not int or timeout >> 32:
                raise KeyError
            link.neutral.wait(index, stream=stream, timeout=timeout or None)
        except _MISSES:
            return checked(*args)
        worker.note()
        return SUCCESS

    return wait


_serve("HcommWriteOnThread", _write)
_serve("HcommReadOnThread", _read)
_serve("HcommChannelNotifyRecordOnThread", _record)
_serve("HcommChannelNotifyWaitOnThread", _wait)

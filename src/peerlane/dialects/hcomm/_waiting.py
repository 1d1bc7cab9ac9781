"""Calls that block their caller, and which thread runs an operation."""

from __future__ import annotations

import contextlib

from peerlane import Device, Notify, Stream
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._comm import (
    Comm,
    HcommChannel,
    HcommThread,
    channel_of,
    refuse_suspended,
    thread_of,
)
from peerlane.errors import Cancelled, Error


class Caller:
    """The calling thread, which runs operations of engine CPU that have no communication thread."""

    def where(self) -> Stream | None:
        """Return no stream."""
        return None

    def note(self) -> None:
        """Note nothing."""


CALLER = Caller()


def pair(thread: int, channel: int) -> tuple[HcommThread | Caller, HcommChannel]:
    """Return the thread and the channel of two handles: HCCL_E_PARA for a thread of another engine.

    For a channel of engine CPU the handle of the thread may be 0.
    """
    link = channel_of(channel)
    refuse_suspended(link.comm)
    if not thread and link.is_cpu:
        return CALLER, link
    worker = thread_of(thread)
    if worker.is_cpu is not link.is_cpu:
        raise Refusal(
            PARA,
            f"{worker} is of engine {worker.engine}, and {link} of {link.engine}",
            "acquire both for one engine",
        )
    return worker, link


def in_caller(timeout: int) -> float:
    """Return the seconds for which a caller may be blocked: HCCL_E_PARA for 0, which would be for ever."""
    if not timeout:
        raise Refusal(
            PARA,
            "timeOut is 0, and a wait of engine CPU blocks the caller",
            "pass seconds from 1; only engines with streams wait for ever",
        )
    return float(timeout)


def busy(comm: Comm | None) -> contextlib.AbstractContextManager[None]:
    """Return a context in which a communicator counts as busy, because its caller is blocked."""
    return contextlib.nullcontext() if comm is None else comm.working()


def block_on(notify: Notify, device: Device, seconds: float | None) -> None:
    """Wait for a notify in the caller, and consume it."""
    stream = device.create_stream()
    try:
        stream.wait(notify, timeout=seconds)
        stream.sync()
    finally:
        stream.abort(close=True)


def join(stream: Stream, seconds: float | None) -> None:
    """Wait until a stream is done; a synchronization of the stream reports its failures again."""
    try:
        stream.record().sync(seconds)
    except Cancelled as error:
        if isinstance(error.__cause__, Error):
            raise error.__cause__ from None
        raise

"""Calls that block their caller."""

from __future__ import annotations

import contextlib

from peerlane import Device, Notify, Stream
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._comm import Comm
from peerlane.errors import Cancelled, Error


def in_caller(timeout: int) -> float:
    """Return the seconds for which a caller may be blocked: HCCL_E_PARA for 0, which would be for ever."""
    if not timeout:
        raise PARA.refusal(
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

"""Small steps of the tests of ``acl``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import peerlane

MIB = 1 << 20


def ok(result: Any) -> Any:
    """Check that a call succeeded, and return its outputs."""
    *outputs, ret = result if isinstance(result, tuple) else (result,)
    assert ret == 0, ret
    return outputs[0] if len(outputs) == 1 else outputs


def timed_out(acl: ModuleType, wait: Callable[[], int]) -> str:
    """Return the message of a wait's time-out; wait again if it came before the engine had looked at the streams."""
    while True:
        assert wait() in (507046, 507047)
        text = str(acl.get_recent_err_msg())
        if "can run" not in text:
            return text


def filled(acl: ModuleType, size: int, value: int) -> int:
    """Return memory of the current device whose bytes all have one value."""
    pointer = ok(acl.rt.malloc(size, 0))
    ok(acl.rt.memset(pointer, size, value, size))
    return int(pointer)


def holding(acl: ModuleType, data: bytes) -> int:
    """Return memory of the current device that holds these bytes."""
    pointer = ok(acl.rt.malloc(len(data), 0))
    ok(acl.rt.memcpy(pointer, len(data), acl.util.bytes_to_ptr(data), len(data), 1))
    return int(pointer)


def content(acl: ModuleType, pointer: int, size: int) -> bytes:
    """Return bytes of device memory as they are now."""
    taken = bytearray(size)
    ok(acl.rt.memcpy(peerlane.as_buffer(taken).address, size, pointer, size, 2))
    return bytes(taken)


def both_directions(acl: ModuleType) -> None:
    """Enable peer access between devices 0 and 1, and leave 0 set."""
    for device, peer in ((1, 0), (0, 1)):
        ok(acl.rt.set_device(device))
        ok(acl.rt.device_enable_peer_access(peer, 0))


def in_thread(call: Any, *args: object) -> Any:
    """Call in another thread, for at most 20 s."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *args).result(timeout=20)


def subscribed(acl: ModuleType, thread: int | None = None) -> int:
    """Return a stream whose callbacks a thread runs; this one by default."""
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.subscribe_report(threading.get_ident() if thread is None else thread, stream))
    return int(stream)


class Held:
    """Makes a stream wait for a notify until ``release``."""

    def __init__(self, acl: ModuleType, stream: int) -> None:
        self._acl = acl
        self._notify = ok(acl.rt.create_notify(0))
        self._other = ok(acl.rt.create_stream())
        ok(acl.rt.wait_and_reset_notify(self._notify, stream, 0))

    def release(self) -> None:
        """Let the stream go on."""
        ok(self._acl.rt.record_notify(self._notify, self._other))


class Server:
    """A thread that processes reports, as the vendor's samples start it."""

    def __init__(self, acl: ModuleType) -> None:
        self._acl = acl
        self._stop = False
        self.codes: list[int] = []
        self.thread = ok(acl.util.start_thread(self._serve, [20]))

    def _serve(self, args: list[int]) -> None:
        (timeout,) = args
        while not self._stop:
            self.codes.append(self._acl.rt.process_report(timeout))

    def stop(self) -> None:
        self._stop = True
        ok(self._acl.util.stop_thread(self.thread))

"""A callback of one stream writes memory, and one of another stream reads it: ``callbacks.py WAY``.

``WAY`` is how the two agree.  In ``neutral`` and ``hip`` they do not; in ``acl`` one thread of the program runs both.
"""

from __future__ import annotations

import ctypes
import sys
import threading

import peerlane as pl

SECONDS = 60
buffer = pl.devices()[0].allocate(64)
buffer.fill(1)


def write() -> None:
    buffer.view()[0] = 2


def read() -> None:
    assert buffer.view()[0] in (1, 2)


def streams() -> tuple[pl.Stream, pl.Stream]:
    return buffer.device.create_stream(), buffer.device.create_stream()


def neutral() -> None:
    one, other = streams()
    one.launch_callback(write)
    other.launch_callback(read)
    one.sync(SECONDS)
    other.sync(SECONDS)


def event() -> None:
    one, other = streams()
    one.launch_callback(write)
    other.wait(one.record())
    other.launch_callback(read)
    one.sync(SECONDS)
    other.sync(SECONDS)


def signalled() -> None:
    one, other = streams()
    written = threading.Event()
    one.launch_callback(lambda: (write(), written.set()))
    one.sync(SECONDS)
    other.launch_callback(lambda: (written.wait(SECONDS), read()))
    other.sync(SECONDS)


def hip() -> None:
    from hip import hip

    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    functions = [kind(lambda _, each=each: each()) for each in (write, read)]
    created = [hip.hipStreamCreate()[1] for _ in functions]
    for stream, function in zip(created, functions, strict=True):
        assert hip.hipLaunchHostFunc(stream, function, None)[0] == 0
    for stream in created:
        hip.hipStreamSynchronize(stream)


def acl() -> None:
    import acl

    acl.init()
    acl.rt.set_device(0)
    created = [acl.rt.create_stream()[0] for _ in range(2)]
    for stream, function in zip(created, (write, read), strict=True):
        acl.rt.subscribe_report(threading.get_ident(), stream)
        acl.rt.launch_callback(lambda each: each(), function, 1, stream)
        assert acl.rt.process_report(SECONDS * 1000) == 0
    for stream in created:
        acl.rt.synchronize_stream(stream)
        acl.rt.unsubscribe_report(threading.get_ident(), stream)


if __name__ == "__main__":
    globals()[sys.argv[1]]()

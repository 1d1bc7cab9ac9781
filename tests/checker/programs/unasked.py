"""peerlane notices that an operation is over, and the program did not ask: ``unasked.py racy|right``.

The second access of each kind has its name at the end of its line.
"""

import ctypes
import sys
import threading

import acl
from hip import hip

import peerlane as pl

SIZE = 8 << 20


def good(result):
    code, *values = result
    assert int(code) == 0, result
    return values[0] if values else None


def rest():
    threading.Event().wait(0.3)


def show(asks):
    device = pl.devices()[0]
    source, target, stream = device.allocate(SIZE), device.allocate(SIZE), device.create_stream()
    source.fill(1)
    target.copy_from(source, stream=stream)
    event = stream.record()
    rest()
    assert "stream" in repr(event)
    if asks:
        event.sync()
    source.fill(2)  # shown


def pooled():
    one, other = (good(hip.hipStreamCreateWithFlags(1)) for _ in range(2))
    pool = good(hip.hipDeviceGetDefaultMemPool(0))
    most = ctypes.c_uint64(1 << 40)
    good(hip.hipMemPoolSetAttribute(pool, hip.hipMemPoolAttr.hipMemPoolAttrReleaseThreshold, most))
    kept, source = good(hip.hipMallocAsync(SIZE, one)), good(hip.hipMalloc(SIZE))
    good(hip.hipMemsetAsync(source, 1, SIZE, one))
    good(hip.hipStreamSynchronize(one))
    good(hip.hipMemcpyAsync(kept, source, SIZE, hip.hipMemcpyKind.hipMemcpyDeviceToDevice, one))
    good(hip.hipFreeAsync(kept, one))
    rest()
    return one, other, pool, source


def reuse(asks):
    one, other, _, source = pooled()
    memory = good(hip.hipMallocAsync(SIZE, other))
    good(hip.hipMemsetAsync(memory, 3, SIZE, other))
    if asks:
        good(hip.hipStreamSynchronize(one))
    good(hip.hipMemsetAsync(source, 2, SIZE, other))  # reused
    good(hip.hipFreeAsync(memory, other))


def trim(asks):
    one, other, pool, source = pooled()
    good(hip.hipMemPoolTrimTo(pool, 0))
    if asks:
        good(hip.hipStreamSynchronize(one))
    good(hip.hipMemsetAsync(source, 2, SIZE, other))  # trimmed


def ok(result):
    *values, code = result if isinstance(result, tuple) else (result,)
    assert code == 0, result
    return values[0] if values else None


def passed(waits):
    """A stream waits for an event, and copies; the program knows that the wait is over."""
    one, other = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    memory, source, target = (ok(acl.rt.malloc(SIZE, 0)) for _ in range(3))
    event = ok(acl.rt.create_event())
    ok(acl.rt.memset(memory, SIZE, 1, SIZE)), ok(acl.rt.memset(source, SIZE, 1, SIZE))
    ok(acl.rt.memset_async(memory, SIZE, 2, SIZE, one))
    ok(acl.rt.record_event(event, one))
    for _ in range(waits):
        ok(acl.rt.stream_wait_event(other, event))
    ok(acl.rt.memcpy_async(target, SIZE, source, SIZE, 3, other))
    rest()
    while ok(acl.rt.query_event_wait_status(event)):
        pass
    ok(acl.rt.memset(memory, SIZE, 3, SIZE))
    return other, source


def wait_status(asks):
    for waits in (1, 2000):
        other, source = passed(waits)
        if asks:
            ok(acl.rt.synchronize_stream(other))
        ok(acl.rt.memset(source, SIZE, 2, SIZE))  # waited


if __name__ == "__main__":
    acl.init(), acl.rt.set_device(0)
    for run in (show, reuse, trim, wait_status):
        run(sys.argv[1] == "right")

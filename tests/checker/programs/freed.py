"""Memory that a vendor's call frees while it is in use: ``freed.py racy|right``.

The call that frees too early has the kind's name at the end of its line.
"""

import contextlib
import multiprocessing
import sys

import acl
from hip import hip

SIZE = 4 << 20
PROP = {"memAttr": 4, "location": {"type": 1, "id": 0}}
KIND = hip.hipMemcpyKind


def ok(result):
    *values, code = result if isinstance(result, tuple) else (result,)
    assert code == 0, result
    return values[0] if values else None


def good(result):
    code, *values = result
    assert int(code) == 0, result
    return values[0] if values else None


def copied(stream):
    source, target = ok(acl.rt.malloc(SIZE, 0)), ok(acl.rt.malloc(SIZE, 0))
    ok(acl.rt.memset(source, SIZE, 1, SIZE))
    ok(acl.rt.memcpy_async(target, SIZE, source, SIZE, 3, stream))
    return source, target


def uploaded(stream):
    source, target = ok(acl.rt.malloc_host(SIZE)), ok(acl.rt.malloc(SIZE, 0))
    ok(acl.rt.memset(source, SIZE, 1, SIZE))
    ok(acl.rt.memcpy_async(target, SIZE, source, SIZE, 1, stream))
    return source


def mapped(stream):
    start = ok(acl.rt.reserve_mem_address(SIZE, 0, 0, 1))
    handle = ok(acl.rt.malloc_physical(SIZE, PROP, 0))
    ok(acl.rt.map_mem(start, SIZE, 0, handle, 0))
    ok(acl.rt.memset_async(start, SIZE, 1, SIZE, stream))
    return start, handle


def free_early():
    stream = ok(acl.rt.create_stream())
    source, _ = copied(stream)
    ok(acl.rt.free(source))  # source
    _, target = copied(stream)
    ok(acl.rt.free(target))  # target
    ok(acl.rt.free_host(uploaded(stream)))  # pinned
    start, handle = mapped(stream)
    ok(acl.rt.unmap_mem(start))  # unmapped
    ok(acl.rt.free_physical(handle))
    ok(acl.rt.synchronize_stream(stream))
    one, other = good(hip.hipStreamCreate()), good(hip.hipStreamCreate())
    memory = good(hip.hipMallocAsync(SIZE, one))
    good(hip.hipStreamSynchronize(one))
    good(hip.hipMemsetAsync(memory, 1, SIZE, other))
    good(hip.hipFreeAsync(memory, one))  # other stream
    good(hip.hipDeviceSynchronize())
    with importer(False) as (memory, pipe):
        good(hip.hipFree(memory))  # imported
        pipe.send("read")
        pipe.recv()


def free_in_time():
    stream = ok(acl.rt.create_stream())
    source, target = copied(stream)
    pinned = uploaded(stream)
    start, handle = mapped(stream)
    ok(acl.rt.synchronize_stream(stream))
    ok(acl.rt.free(source))
    ok(acl.rt.free(target))
    ok(acl.rt.free_host(pinned))
    ok(acl.rt.unmap_mem(start))
    ok(acl.rt.free_physical(handle))
    source, _ = copied(stream)
    ok(acl.rt.destroy_stream(stream))
    ok(acl.rt.free(source))
    one, other = good(hip.hipStreamCreate()), good(hip.hipStreamCreate())
    memory = good(hip.hipMalloc(SIZE))
    good(hip.hipMemsetAsync(memory, 1, SIZE, one))
    good(hip.hipFree(memory))
    memory = good(hip.hipMallocAsync(SIZE, one))
    good(hip.hipMemsetAsync(memory, 1, SIZE, one))
    event = good(hip.hipEventCreate())
    good(hip.hipEventRecord(event, one))
    good(hip.hipStreamWaitEvent(other, event, 0))
    good(hip.hipMemsetAsync(memory, 2, SIZE, other))
    good(hip.hipFreeAsync(memory, other))
    good(hip.hipDeviceSynchronize())
    with importer(True) as (memory, pipe):
        pipe.send("read")
        pipe.recv()
        good(hip.hipFree(memory))


@contextlib.contextmanager
def importer(right):
    """Start a process that opens memory and reads it when asked; if it is right it closes before it answers."""
    spawn = multiprocessing.get_context("spawn")
    memory = good(hip.hipMalloc(SIZE))
    good(hip.hipMemset(memory, 1, SIZE))
    good(hip.hipDeviceSynchronize())
    handle = good(hip.hipIpcGetMemHandle(memory))
    pipe, theirs = spawn.Pipe()
    process = spawn.Process(target=read, args=(bytes(handle.reserved), theirs, right))
    process.start()
    assert pipe.recv() == "open"
    yield memory, pipe
    process.join(60)
    assert process.exitcode == 0


def read(handle, pipe, right):
    memory = good(hip.hipIpcOpenMemHandle(handle, 1))
    pipe.send("open")
    pipe.recv()
    good(hip.hipMemcpy(bytearray(4), memory, 4, KIND.hipMemcpyDeviceToHost))
    if right:
        good(hip.hipIpcCloseMemHandle(memory))
    pipe.send("over")
    if not right:
        good(hip.hipIpcCloseMemHandle(memory))


if __name__ == "__main__":
    ok(acl.init())
    ok(acl.rt.set_device(0))
    free_early() if sys.argv[1] == "racy" else free_in_time()

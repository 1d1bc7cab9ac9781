"""The host reads memory that a dialect's streams write: it sees the current bytes, and all in the end."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from helpers.acl_calls import ok
from helpers.hip_calls import Gate, done
from helpers.promised import overdue

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(60)]

SCHEDULES = ("eager", "lazy", "seeded:5")
NBYTES = 1 << 20
ENDS_WITHIN = overdue(1.0)  # queued operations run after 1 s without a call


def _poll(is_done: Callable[[], bool]) -> float:
    start = time.monotonic()
    while not is_done() and time.monotonic() - start < 20:
        pass
    return time.monotonic() - start


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_hip_array_memoryview_shows_memory_before_and_after_memset_async(
    hip_on: Callable[..., ModuleType], schedule: str
) -> None:
    hip = hip_on(f"devices=2,memory=64MiB,schedule={schedule}")
    stream, gate, array = done(hip.hipStreamCreate()), Gate(hip), done(hip.hipMalloc(NBYTES))
    done(hip.hipMemset(array, 1, NBYTES))
    done(hip.hipDeviceSynchronize())
    gate.close(stream)
    done(hip.hipMemsetAsync(array, 2, NBYTES, stream))
    assert bytes(memoryview(array)[-4:]) == b"\1" * 4 and np.asarray(array).view(np.uint8)[-1] == 1
    gate.open()
    done(hip.hipStreamSynchronize(stream))
    assert bytes(memoryview(array)[-4:]) == b"\2" * 4
    done(hip.hipFree(array))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", ["managed", "pinned", "pageable"])
def test_hip_memcpy_async_polled_host_memory_shows_bytes_in_5_s(
    hip_on: Callable[..., ModuleType], schedule: str, kind: str
) -> None:
    hip = hip_on(f"devices=2,memory=64MiB,schedule={schedule}")
    host = (ctypes.c_ubyte * NBYTES)()
    address = {
        "managed": lambda: int(done(hip.hipMallocManaged(NBYTES, 1))),
        "pinned": lambda: int(done(hip.hipHostMalloc(NBYTES, 0))),
        "pageable": lambda: ctypes.addressof(host),
    }[kind]()
    seen = (ctypes.c_ubyte * NBYTES).from_address(address)
    seen[NBYTES - 1] = 1
    stream, source = done(hip.hipStreamCreate()), done(hip.hipMalloc(NBYTES))
    done(hip.hipMemsetAsync(source, 7, NBYTES, stream))
    done(hip.hipMemcpyAsync(address, source, NBYTES, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    assert _poll(lambda: bool(seen[NBYTES - 1] == 7 and seen[0] == 7)) < ENDS_WITHIN
    done(hip.hipStreamSynchronize(stream))
    assert bytes(seen) == b"\7" * NBYTES


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_acl_memcpy_async_polled_pinned_memory_shows_bytes_in_5_s(
    enter: Callable[[str], ModuleType], schedule: str
) -> None:
    acl = enter(f"devices=2,memory=64MiB,schedule={schedule}")
    assert acl.rt.set_device(0) == 0
    stream, device = ok(acl.rt.create_stream()), ok(acl.rt.malloc(NBYTES, 0))
    pinned = ok(acl.rt.malloc_host(NBYTES))
    array = acl.util.ptr_to_numpy(pinned, (NBYTES,), np.dtype(np.uint8).num)
    array[:] = 1
    began = time.monotonic()
    assert acl.rt.memset_async(device, NBYTES, 7, NBYTES, stream) == 0
    assert acl.rt.memcpy_async(pinned, NBYTES, device, NBYTES, 2, stream) == 0
    if schedule == "lazy":
        seen = acl.util.ptr_to_bytes(pinned, 8)  # the read waits for no stream
        assert seen == b"\1" * 8 or time.monotonic() - began > 0.9  # after 1 s without a call they run
    assert _poll(lambda: bool(array[0] == 7 and array[-1] == 7)) < ENDS_WITHIN
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.util.ptr_to_bytes(pinned, NBYTES) == b"\7" * NBYTES

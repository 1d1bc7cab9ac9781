"""A call that ends memory waits for work that may use it: a host function runs on the mapped bytes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from helpers.hip_memory import hip_peer, ok, read, spec, write
from helpers.peers import Peer

Enter = Callable[..., ModuleType]
WORDS = 1024
SHARED = 6  # hipEventInterprocess | hipEventDisableTiming

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

# A kernel that runs on the host (host_access=map): it changes words for 0.2 s, then writes all of them.
KERNEL = f"""
import time
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
over = []
@HOST
def kernel(address):
    words = (ctypes.c_int * {WORDS}).from_address(address)
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        words[0] += 1
        words[{WORDS} - 1] += 1
    for place in range({WORDS}):
        words[place] = place
    over.append(address)
"""
OPEN = "ok(hip.hipSetDevice(1)); p = int(ok(hip.hipIpcOpenMemHandle(bytes.fromhex('{}'), 1)))"
RESULT = bytes(byte for word in range(WORDS) for byte in word.to_bytes(4, "little"))


@pytest.fixture
def shared(hip_on: Enter) -> Iterator[tuple[ModuleType, Peer]]:
    """Return ``hip`` and another process that has ``kernel``, on a node whose memory the host may access."""
    node = f"{spec('closing')},host_access=map"
    hip = hip_on(node)
    with hip_peer(node) as other:
        other.run(KERNEL)
        yield hip, other


def memory(hip: ModuleType) -> tuple[int, str]:
    """Return new memory of device 0, and its handle."""
    ok(hip.hipSetDevice(0))
    pointer = int(ok(hip.hipMalloc(4 * WORDS)))
    return pointer, bytes(ok(hip.hipIpcGetMemHandle(pointer)).reserved).hex()


@pytest.mark.parametrize(
    "stream", ["None", "2", "ok(hip.hipStreamCreate())", "ok(hip.hipStreamCreateWithFlags(1))"]
)
def test_hip_ipc_close_mem_handle_waits_for_streams_of_opening_device(
    shared: tuple[ModuleType, Peer], stream: str
) -> None:
    hip, other = shared
    pointer, handle = memory(hip)
    other.run(OPEN.format(handle))
    other.run(f"ok(hip.hipLaunchHostFunc({stream}, kernel, p)); ok(hip.hipIpcCloseMemHandle(p))")
    assert other.run("result = over == [p]")
    assert read(hip, pointer, 4 * WORDS) == RESULT


def test_hip_ipc_close_mem_handle_other_device_current_waits_for_opening_device(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    pointer, handle = memory(hip)
    other.run(OPEN.format(handle))
    other.run("ok(hip.hipLaunchHostFunc(None, kernel, p)); ok(hip.hipSetDevice(0))")
    assert other.run("ok(hip.hipIpcCloseMemHandle(p)); result = over == [p]")
    assert read(hip, pointer, 4 * WORDS) == RESULT


def test_hip_ipc_close_mem_handle_waits_for_null_stream_of_current_device(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    pointer, handle = memory(hip)
    other.run(OPEN.format(handle) + "; ok(hip.hipSetDevice(0))")
    other.run("ok(hip.hipLaunchHostFunc(ok(hip.hipStreamCreate()), kernel, p))")
    assert other.run("ok(hip.hipIpcCloseMemHandle(p)); result = over == [p]")
    assert read(hip, pointer, 4 * WORDS) == RESULT


def test_hip_ipc_close_mem_handle_every_close_and_refused_close_waits(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    _, handle = memory(hip)
    other.run(OPEN.format(handle))
    other.run(OPEN.format(handle))
    for close in ("ok(hip.hipIpcCloseMemHandle(p))", "hip.hipIpcCloseMemHandle(None)"):
        other.run(f"over.clear(); ok(hip.hipLaunchHostFunc(None, kernel, p)); {close}")
        assert other.run("result = over == [p]")
    other.run("ok(hip.hipIpcCloseMemHandle(p))")


def test_hip_ipc_close_mem_handle_waits_for_work_behind_event_of_other_process(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    pointer, handle = memory(hip)
    event = ok(hip.hipEventCreateWithFlags(SHARED))
    text = bytes(ok(hip.hipIpcGetEventHandle(event)).reserved).hex()
    gate = int(ok(hip.hipHostMalloc(8, 0)))
    write(hip, gate, bytes(8))
    ok(hip.hipStreamWaitValue32(None, gate, 1, 0, 0xFFFFFFFF))
    ok(hip.hipEventRecord(event, None))
    other.run(OPEN.format(handle))
    other.run(
        f"event = ok(hip.hipIpcOpenEventHandle(bytes.fromhex('{text}'))); s = ok(hip.hipStreamCreateWithFlags(1)); "
        "ok(hip.hipStreamWaitEvent(s, event, 0)); ok(hip.hipEventDestroy(event)); "
        "ok(hip.hipLaunchHostFunc(s, kernel, p)); result = hip.hipStreamQuery(s)[0].name"
    )
    other.send("ok(hip.hipIpcCloseMemHandle(p)); result = over == [p]")
    ok(hip.hipStreamWriteValue32(ok(hip.hipStreamCreateWithFlags(1)), gate, 1, 0))
    assert other.receive()
    assert read(hip, pointer, 4 * WORDS) == RESULT


def test_hip_device_reset_closes_ipc_memory_after_work_of_its_streams(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    pointer, handle = memory(hip)
    other.run(OPEN.format(handle))  # before its device has any stream
    other.run("ok(hip.hipLaunchHostFunc(ok(hip.hipStreamCreate()), kernel, p)); ok(hip.hipDeviceReset())")
    assert other.run("result = over == [p]")
    assert read(hip, pointer, 4 * WORDS) == RESULT


MAPPED = """
G = 2 << 20
def mapped(size=G):
    prop = hip.hipMemAllocationProp()
    prop.type = hip.hipMemAllocationType.hipMemAllocationTypePinned
    prop.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    desc = hip.hipMemAccessDesc.allocate(2)
    for device in range(2):
        desc.get_location(device).type = hip.hipMemLocationType.hipMemLocationTypeDevice
        desc.get_location(device).id = device
        desc.set_flags(device, hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite)
    address = int(ok(hip.hipMemAddressReserve(size, 0, None, 0)))
    ok(hip.hipMemMap(address, size, 0, ok(hip.hipMemCreate(size, prop, 0)), 0))
    ok(hip.hipMemSetAccess(address, size, desc, 2))
    return address
"""


@pytest.mark.parametrize(
    ("make", "end"),
    [
        ("ok(hip.hipMalloc(4096))", "hip.hipFree(p)"),
        ("ok(hip.hipMalloc(4096))", "hip.hipFreeAsync(p, None)"),
        ("ok(hip.hipMallocAsync(4096, None))", "hip.hipFree(p)"),
        ("ok(hip.hipMalloc(4096))", "hip.hipDeviceReset()"),
        ("ok(hip.hipHostMalloc(4096, 0))", "hip.hipHostFree(p)"),
        ("mapped()", "hip.hipMemUnmap(p, G)"),
        ("mapped()", "hip.hipDeviceReset()"),
    ],
)
def test_hip_calls_that_end_memory_wait_for_streams_of_its_device(
    shared: tuple[ModuleType, Peer], make: str, end: str
) -> None:
    _, other = shared
    other.run(MAPPED + f"p = int({make}); s = ok(hip.hipStreamCreateWithFlags(1))")
    assert other.run(f"ok(hip.hipLaunchHostFunc(s, kernel, p)); ok({end}); result = over == [p]")


def test_hip_mem_unmap_waits_for_devices_with_access(shared: tuple[ModuleType, Peer]) -> None:
    _, other = shared
    other.run(MAPPED + "p = mapped(); ok(hip.hipSetDevice(1)); s = ok(hip.hipStreamCreateWithFlags(1))")
    other.run("ok(hip.hipLaunchHostFunc(s, kernel, p)); ok(hip.hipSetDevice(0)); ok(hip.hipMemUnmap(p, G))")
    assert other.run("result = over == [p]")


def test_hip_ipc_close_mem_handle_leaves_failure_of_work_to_its_stream(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    pointer, handle = memory(hip)
    other.run(OPEN.format(handle))
    explained = other.run("""
import mmap
s, wild = ok(hip.hipStreamCreate()), mmap.mmap(-1, mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(wild))
ok(hip.hipHostRegister(address, mmap.PAGESIZE, 0))
del wild  # unmaps the memory while it is registered
ok(hip.hipMemcpyAsync(p, address, 64, KIND, s))
ok(hip.hipIpcCloseMemHandle(p))
result = hip.hipStreamSynchronize(s)[0].name
""")
    assert explained == "hipErrorIllegalAddress"
    assert other.run("result = hip.hipIpcCloseMemHandle(p)[0].name") == "hipErrorInvalidValue"
    assert other.run("result = hip.hipStreamSynchronize(s)[0].name") == "hipSuccess"
    assert read(hip, pointer, 4) == bytes(4)
